// SPDX-License-Identifier: Apache-2.0
// Padded rows: rows of different lengths, filled up on the right, have the loss and the gradients of the rows alone, in
// the configs of all golden runs. transformers reaches the same with an attention_mask, which a causal model does not
// need for this.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "golden.hpp"
#include "golden_folders.hpp"
#include "runner.hpp"

namespace tessera::test::padded {
namespace {

using Ids = std::vector<std::int32_t>;

std::string golden_directory() { return std::string(TESSERA_TEST_DATA) + "/golden"; }

/// In fp64, trained without the balance loss: it is of a micro-batch, and is not the sum of those of rows.
models::Model model_of(const std::string& name) {
  auto config = nlohmann::json::parse(read_golden(name).config);
  if (config.contains("output_router_logits")) config["output_router_logits"] = false;
  return models::make(config.dump(), name, DType::f64);
}

class PaddedRows : public testing::TestWithParam<std::string> {};

TEST_P(PaddedRows, HaveTheLossAndGradientsOfTheirRowsAlone) {
  const models::Model model = model_of(GetParam());
  // T is below every limit of these configs, and every row beyond the length at which LongRoPE takes the long factors.
  const std::int64_t tokens = std::min<std::int64_t>(model.max_tokens, 23);
  const std::vector<std::int64_t> lengths = {tokens - 6, tokens, tokens - 2};
  const auto vocab = static_cast<std::int32_t>(model.vocab);
  const models::BatchShape shape{static_cast<std::int64_t>(lengths.size()), tokens};
  const double scale = 1.0 / static_cast<double>(3 * tokens - 8);

  Ids ids = random_ids(shape, vocab, 1), targets = random_ids(shape, vocab, 2), positions;
  Runner alone(model, {1, tokens});
  alone.randomize(3);
  Step step;
  for (std::size_t row = 0; row < lengths.size(); ++row) {
    const auto first = static_cast<std::ptrdiff_t>(row) * tokens, end = first + lengths[row];
    (void)alone.train({1, lengths[row]}, {ids.begin() + first, ids.begin() + end},
                      {targets.begin() + first, targets.begin() + end}, scale, step);
    step.accumulate.assign(model.params.size(), 1);
    std::fill(targets.begin() + end, targets.begin() + first + tokens, kernels::ignore_index);
    for (std::int64_t t = 0; t < tokens; ++t)
      positions.push_back(t < lengths[row] ? static_cast<std::int32_t>(t) : 0);  // as PackedStream writes them
  }

  for (const bool continued : {true, false}) {  // positions go on in the padding, or are 0
    models::BatchShape of = shape;
    of.packed = !continued;
    Runner full(model, of);
    full.randomize(3);
    if (!continued) full.packed = positions;
    (void)full.train(of, ids, targets, scale);
    EXPECT_EQ(full.sums.tokens, 3 * tokens - 8);
    EXPECT_EQ(full.sums.correct, alone.sums.correct);
    EXPECT_NEAR(full.sums.loss.value(), alone.sums.loss.value(), 1e-12 * alone.sums.loss.value());
    for (std::size_t p = 0; p < model.params.size(); ++p) {
      const std::vector<double> got = values(full.grad(static_cast<int>(p))),
                                expected = values(alone.grad(static_cast<int>(p)));
      double largest = 0, error = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        largest = std::max(largest, std::abs(expected[i]));
        error = std::max(error, std::abs(got[i] - expected[i]));
      }
      EXPECT_GT(largest, 0) << model.params[p].name;
      EXPECT_LE(error, 1e-11 * largest) << model.params[p].name << (continued ? ", positions go on" : "");
    }
    full.check_guards();
  }
}

INSTANTIATE_TEST_SUITE_P(Configs, PaddedRows, testing::ValuesIn(golden_folders(golden_directory(), "golden.json")),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tessera::test::padded
