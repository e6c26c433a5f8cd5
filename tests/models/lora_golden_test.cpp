// SPDX-License-Identifier: Apache-2.0
// An adapter that PEFT has trained (golden/*/lora): its logits, and those of merged weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "golden.hpp"
#include "golden_folders.hpp"
#include "models/lora_config.hpp"
#include "models/lora_files.hpp"
#include "runner.hpp"

namespace tessera::test {
namespace {

using models::Model;

/// Fills the parameters that the tensors hold; returns how many elements.
template <class Use>
std::int64_t fill_params(Runner& runner, const std::map<std::string, std::vector<float>>& tensors, const Use& use) {
  std::int64_t filled = 0;
  for (const auto& [name, values] : tensors) {
    std::size_t at = 0;
    for (const std::string& part : use(name).parts) {
      const TensorView& param = runner.param(runner.index(part));
      for (std::int64_t i = 0; i < param.numel(); ++i) set(param, i, values.at(at++));
      filled += param.numel();
    }
  }
  return filled;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b.at(i)));
  return largest;
}

/// A golden directory, and the folder of its adapter.
struct AdapterCase {
  std::string model, folder;
};

std::vector<AdapterCase> adapter_cases() {
  std::vector<AdapterCase> cases;
  for (const char* folder : {"lora", "lora-experts"})
    for (const std::string& model :
         golden_folders(std::string(TESSERA_TEST_DATA) + "/golden", std::string(folder) + "/lora.json"))
      cases.push_back({model, folder});
  return cases;
}

class GoldenAdapter : public testing::TestWithParam<AdapterCase> {};

TEST_P(GoldenAdapter, HasPeftsLogitsMergedOrNot) {
  const Golden golden = read_golden(GetParam().model);
  const std::string folder =
      std::string(TESSERA_TEST_DATA) + "/golden/" + GetParam().model + "/" + GetParam().folder + "/";
  Model model = models::make(golden.config, GetParam().model);
  models::add_lora(model, models::parse_lora_config(read_file(folder + "adapter_config.json"), folder));
  const auto expected = nlohmann::json::parse(read_file(folder + "lora.json"));
  const auto prompt = expected["prompt"].get<std::vector<std::int32_t>>();
  const auto theirs = expected["prompt_logits"].get<std::vector<double>>();
  const models::BatchShape shape{1, static_cast<std::int64_t>(prompt.size())};
  Runner runner(model, shape);
  const auto base_use = [&](const std::string& name) { return models::tensor_use(model, name); };
  fill_params(runner, golden.weights, base_use);
  const std::int64_t filled =
      fill_params(runner, read_tensors(folder + "final.safetensors"),
                  [&](const std::string& name) { return models::adapter_tensor_use(model, name); });
  std::int64_t trained = 0;
  for (const ParamSpec& param : model.params) trained += param.trainable ? param.numel() : 0;
  EXPECT_EQ(filled, trained);

  const std::vector<double> ours = runner.logits(shape, prompt);
  double size = 0;
  for (const double x : theirs) size = std::max(size, std::abs(x));
  EXPECT_LT(largest_difference(ours, theirs), 5e-5 * size);

  // Merged: W + s·B·A, and the branches away.
  for (const models::AdaptedModule& module : model.lora->modules) {
    // A tied weight is of another module too.
    if (std::ranges::any_of(model.aliases, [&](const auto& alias) {
          return alias.second.same_as == model.params[static_cast<std::size_t>(module.weight)].name;
        }))
      continue;
    const TensorView &w = runner.param(module.weight), &a = runner.param(module.a), &b = runner.param(module.b);
    const std::int64_t rank = a.shape[0], in = a.shape[1], out = b.shape[0];
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t i = 0; i < in; ++i) {
        double sum = 0;
        for (std::int64_t k = 0; k < rank; ++k) sum += get(b, o * rank + k) * get(a, k * in + i);
        const std::int64_t at = module.transposed ? i * out + o : o * in + i;
        set(w, at, get(w, at) + model.lora->spec.scale() * sum);
      }
    for (std::int64_t i = 0; i < b.numel(); ++i) set(b, i, 0);
  }
  EXPECT_LT(largest_difference(runner.logits(shape, prompt), ours), 1e-5 * size);
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenAdapter, testing::ValuesIn(adapter_cases()), [](const auto& param_info) {
  std::string name = param_info.param.model + "_" + param_info.param.folder;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace tessera::test
