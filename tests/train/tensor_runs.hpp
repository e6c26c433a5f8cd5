// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs of small models whose ranks have parts of the same matrices.

#include <gtest/gtest.h>

#include <cmath>

#include "io/data/packing.hpp"
#include "models/tensor_split.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {

inline constexpr std::int64_t row_length = 16;

/// Sizes that parts of 4 ranks do not align: heads of 6, an MLP of 28.
inline std::string tensor_config(const std::string& family, int kv_heads, const char* more = "") {
  return strfmt(
      R"({"model_type": "%s", "vocab_size": 37, "max_position_embeddings": 16, "hidden_size": 20, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": %d, "head_dim": 6, "intermediate_size": 28 %s})",
      family.c_str(), kv_heads, more);
}

inline const std::vector<std::string> adapted_linears = {"q_proj",    "k_proj",  "v_proj",    "o_proj",
                                                         "gate_proj", "up_proj", "down_proj", "lm_head"};

inline models::Model tensor_model(const std::string& config, int ranks, DType dtype = DType::f32) {
  models::Model model = models::make(config, "test", dtype);
  models::split_tensors(model, ranks);
  return model;
}

/// Global batches of 4 rows, micro-batches of 2 on each group of ranks.
inline Variant tensor_variant(int world, int ranks, const char* strategy = "3") {
  return {
      .world = world, .strategy = strategy, .tensor = ranks, .global_batch = 4, .micro_batch = 2, .tokens = row_length};
}

/// Documents of 3 to 11 tokens in rows of so many.
inline std::shared_ptr<io::PackedStream> document_rows(std::int64_t length, io::Packing packing) {
  const auto tokens = std::make_shared<RandomTokens>(800, 37);
  std::vector<std::int64_t> ends;
  for (std::int64_t end = 0, k = 0; end < 800; ++k)
    ends.push_back(end = std::min<std::int64_t>(800, end + 3 + k * 5 % 9));
  return std::make_shared<io::PackedStream>(tokens, io::Documents{0, ends}, length, packing);
}
inline std::shared_ptr<io::PackedStream> packed_rows() { return document_rows(row_length, io::Packing::sequential); }

inline void plan_is_exact(train::Trainer& trainer) {
  const plan::RunPlan& plan = trainer.plan();
  EXPECT_EQ(plan::compare_memory(plan, trainer.measured_memory()), "");
}

inline Outcome run_tensor(const std::string& config, const Variant& v, const io::TokenStream& tokens, int steps = 10) {
  const models::Model model = tensor_model(config, v.tensor, v.dtype);
  return run({&model, &tokens, steps, "", /*evaluate=*/false, plan_is_exact}, v);
}

/// `gradient_tolerance`: of gradients, ten times it of their norms; 0: the losses' tolerance.
inline void expect_same_curve(const Outcome& one, const Outcome& other, const std::string& what,
                              double tolerance = 1e-5, double gradient_tolerance = 0) {
  if (gradient_tolerance == 0) gradient_tolerance = tolerance;
  ASSERT_EQ(one.losses.size(), other.losses.size());
  EXPECT_EQ(one.tokens, other.tokens) << what;
  for (std::size_t s = 0; s < one.losses.size(); ++s) {
    EXPECT_NEAR(one.losses[s], other.losses[s], tolerance) << what << ", step " << s + 1;
    EXPECT_NEAR(one.norms[s], other.norms[s], 10 * gradient_tolerance) << what << ", step " << s + 1;
  }
  ASSERT_EQ(one.grads.size(), other.grads.size());
  double most = 0;
  for (std::size_t i = 0; i < one.grads.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(one.grads[i]) - other.grads[i]));
  EXPECT_LT(most, gradient_tolerance) << what;
}

}  // namespace tessera::test
