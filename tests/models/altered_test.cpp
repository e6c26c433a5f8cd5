// SPDX-License-Identifier: Apache-2.0
// Every key of every family's config, altered once, and null (golden/altered.json): what the program computes then is
// what transformers computes, or the model is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "golden.hpp"
#include "models/family.hpp"
#include "runner.hpp"

namespace tessera::test::altered {
namespace {

using nlohmann::json;

using Weights = std::map<std::string, std::vector<float>>;

/// Whether the files have these values for the parameter.
bool is_same(const Weights& weights, const models::Model& model, const std::string& param,
             const std::vector<float>& values) {
  return std::ranges::any_of(weights, [&](const auto& tensor) {
    return models::tensor_use(model, tensor.first).parts == std::vector{param} && tensor.second == values;
  });
}

/// Three logits of the last token, the largest absolute one at the end; empty: the config, or weights that are not its
/// own, are refused.
std::vector<double> logits_of(const json& config, const Weights& weights) {
  models::Model model;
  try {
    model = models::make(config.dump(), "config.json");
  } catch (const Error&) { return {}; }
  constexpr std::int64_t tokens = 15;
  if (model.max_tokens < tokens) return {};
  Runner runner(model, {1, tokens});
  std::size_t found = 0;
  for (const auto& [name, values] : weights) {
    const TensorUse use = models::tensor_use(model, name);
    if (!use.same_as.empty() && !is_same(weights, model, use.same_as, values)) return {};
    std::size_t at = 0;
    for (const std::string& part : use.parts) {
      const auto same = [&](const ParamSpec& param) { return param.name == part; };
      if (std::ranges::none_of(model.params, same)) return {};
      const TensorView& param = runner.param(runner.index(part));
      if (at + static_cast<std::size_t>(param.numel()) > values.size()) return {};
      for (std::int64_t i = 0; i < param.numel(); ++i) set(param, i, static_cast<double>(values[at++]));
      ++found;
    }
    if (!use.parts.empty() && at != values.size()) return {};
  }
  if (found != model.params.size()) return {};
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < tokens; ++i)
    ids.push_back(static_cast<std::int32_t>((7 * i * i + 3 * i + 5) % model.vocab));
  const std::vector<double> logits = runner.logits({1, tokens}, ids);
  double size = 0;
  for (const double x : logits) size = std::max(size, std::abs(x));
  return {logits.front(), logits[logits.size() / 2], logits.back(), size};
}

TEST(AlteredConfigs, AreRefusedOrComputeWhatTransformersDoes) {
  const std::string golden = std::string(TESSERA_TEST_DATA) + "/golden/";
  std::set<std::string> families;
  int computed = 0, refused = 0;
  const json all = json::parse(read_file(golden + "altered.json"));
  for (const auto& [folder, rows] : all.items()) {
    const json config = json::parse(read_file(golden + folder + "/config.json"));
    const auto weights = read_tensors(golden + folder + "/model.safetensors");
    families.insert(config.at("model_type").get<std::string>());
    for (const json& row : rows) {
      json other = config;
      if (!row[0].is_null()) {
        std::string path = "/" + row[0].get<std::string>();
        std::ranges::replace(path, '.', '/');
        other[json::json_pointer(path)] = row[1];
      }
      SCOPED_TRACE(folder + ": " + row[0].dump() + " is " + row[1].dump());
      const std::vector<double> ours = logits_of(other, weights);
      if (ours.empty()) {
        EXPECT_FALSE(row[0].is_null());
        ++refused;
        continue;
      }
      ++computed;
      if (!row[2].is_array()) {  // of images alone is what transformers refuses, and this program does not read
        EXPECT_TRUE(row[0] == "spatial_merge_size" || row[0] == "text_config.rope_parameters.mrope_section" ||
                    row[0] == "text_config.rope_parameters");  // null, without that
        continue;
      }
      for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(ours[i], row[2][i].get<double>(), 5e-5 * ours[3]);
    }
  }
  for (const models::Family& family : models::families()) EXPECT_TRUE(families.contains(family.name)) << family.name;
  EXPECT_GT(computed, 300);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace tessera::test::altered
