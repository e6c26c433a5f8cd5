// SPDX-License-Identifier: Apache-2.0
// Embedding and head as several units of rows (--max_unit_size): every bit is that of one unit each.

#include <gtest/gtest.h>

#include "models/lora.hpp"
#include "models/row_parts.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

constexpr std::int64_t vocab = 4200, chunk = 1408;  // three chunks; the last one is smaller

/// Tied, with positions.
models::Model tied() {
  return models::make(config_json({.layers = 1, .hidden = 24, .heads = 2, .vocab = vocab}), "test");
}
constexpr std::int64_t tied_bytes = chunk * 24 * 4;

/// A head of its own; hidden is a multiple of the norm's block.
models::Model untied() {
  return models::make(
      R"({"model_type": "llama", "vocab_size": 4200, "max_position_embeddings": 16, "hidden_size": 128,
  "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 40, "tie_word_embeddings": false})",
      "test");
}
constexpr std::int64_t untied_bytes = chunk * 128 * 4;

/// Tied, with factors of embeddings and logits, and a soft cap.
models::Model scaled(const char* family) {
  return models::make(std::string(R"({"model_type": ")") + family + R"(", "vocab_size": 4200, "hidden_size": 24,
  "max_position_embeddings": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
  "intermediate_size": 20, "tie_word_embeddings": true)" +
                          (std::string(family) == "gemma2"
                               ? R"(, "head_dim": 12, "final_logit_softcapping": 1.5})"
                               : R"(, "logits_scaling": 0.6, "embedding_multiplier": 3, "residual_multiplier": 0.3})"),
                      "test");
}

models::Model in_parts(models::Model model, std::int64_t max_bytes) {
  models::split_rows(model, max_bytes);
  return model;
}

/// Few ids, so that most rows of the vocabulary have a gradient from the head alone, and rows of every part have both.
class Sparse final : public io::TokenStream {
 public:
  [[nodiscard]] std::int64_t size() const override { return tokens_.size(); }
  void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override {
    tokens_.read(first, count, out);
    for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::int32_t>((out[i] * 113) % vocab);
  }

 private:
  RandomTokens tokens_{400, 37};
};

class RowParts : public ::testing::Test {
 protected:
  Sparse tokens_;
  Outcome outcome(const models::Model& model, const Variant& v) const {
    return run({&model, &tokens_, 2, "", true, {}}, v);
  }
  /// Runs both with each of the variants.
  void compare(const models::Model& one, const models::Model& parts, const std::vector<Variant>& variants) const {
    ASSERT_TRUE(parts.in_row_parts);
    for (const Variant& v : variants)
      EXPECT_EQ(difference(outcome(one, v), outcome(parts, v)), "") << v.str() << one.family;
  }
};

std::vector<std::string> unit_names(const plan::RunPlan& plan) {
  std::vector<std::string> names;
  for (const shard::UnitSpec& unit : plan.units) names.push_back(unit.name);
  return names;
}

/// Bytes of the largest gradient slot.
std::int64_t largest_gradient(const plan::RunPlan& plan) {
  std::int64_t most = 0;
  for (std::size_t s = 0; s < plan.train.slots.size(); ++s)
    if (plan.train.slots[s].kind == shard::Slot::Kind::grad)
      most = std::max(most, plan.train.slot_bytes(static_cast<int>(s)));
  return most;
}

TEST_F(RowParts, UnitsAreRangesOfRows) {
  using Names = std::vector<std::string>;
  const Variant v{.world = 2, .copies = true};
  const auto plan_of = [&](const models::Model& model) { return plan::make_plan(options_of(model, v, 1).run); };
  const models::Model small = in_parts(tied(), tied_bytes), pair = in_parts(tied(), 2 * tied_bytes + 1),
                      same = in_parts(tied(), vocab * 24 * 4), own = in_parts(untied(), untied_bytes);
  EXPECT_EQ(unit_names(plan_of(small)), (Names{"embed.0", "embed.1", "embed.2", "h.0", "head.norm"}));
  EXPECT_EQ(unit_names(plan_of(pair)), (Names{"embed.0", "embed.1", "h.0", "head.norm"}));
  EXPECT_EQ(unit_names(plan_of(same)), (Names{"embed", "h.0", "head"}));
  EXPECT_EQ(unit_names(plan_of(own)),
            (Names{"embed.0", "embed.1", "embed.2", "layers.0", "head.norm", "head.0", "head.1", "head.2"}));
  const models::Model one = untied();
  EXPECT_GT(largest_gradient(plan_of(one)), vocab * 128 * 4 - 1);
  EXPECT_LT(largest_gradient(plan_of(own)), untied_bytes + 4096);
  EXPECT_LT(plan_of(own).costs.total, plan_of(one).costs.total);
  EXPECT_EQ(own.train_flops(100, 1000), one.train_flops(100, 1000));
}

TEST_F(RowParts, SameBitsOfATiedHead) {
  const models::Model one = tied();
  for (const std::int64_t bytes : {tied_bytes, 2 * tied_bytes})
    compare(one, in_parts(tied(), bytes),
            {{.world = 1, .global_batch = 3},
             {.world = 2, .strategy = "0", .copies = true},
             {.world = 2, .strategy = "1", .reduce = shard::Reduce::last, .copies = true},
             {.world = 3, .strategy = "2", .global_batch = 7, .micro_batch = 2},
             {.world = 2, .global_batch = 5, .prefetch = 2, .recompute = true, .copies = true},
             {.world = 4, .strategy = "HYBRID_SHARD", .global_batch = 8, .copies = true, .ranks_per_node = 2},
             {.world = 2, .prefetch = 0, .copies = true, .streams = Stream::Mode::deferred}});
}

TEST_F(RowParts, SameBitsOfAHeadOfItsOwn) {
  const models::Model one = untied();
  compare(one, in_parts(untied(), untied_bytes),
          {{.world = 1, .strategy = "0", .global_batch = 2},
           {.world = 2, .copies = true},
           {.world = 3, .global_batch = 7, .micro_batch = 2, .reshard = false, .copies = true},
           {.world = 2, .strategy = "2", .global_batch = 4, .reproducible = true}});
}

TEST_F(RowParts, SameBitsOfFactorsAndSoftCaps) {
  for (const char* family : {"granite", "gemma2"})
    compare(scaled(family), in_parts(scaled(family), tied_bytes),
            {{.world = 1, .global_batch = 3}, {.world = 2, .global_batch = 5, .recompute = true, .copies = true}});
}

TEST_F(RowParts, SameBitsWithFrozenPartsAdaptersAndOtherStates) {
  const auto all = [](const char* frozen) {
    return [frozen](const std::string& name) {
      return std::string(frozen) == "blocks" ? name.starts_with("model.layers") : name.starts_with(frozen);
    };
  };
  const Variant v{.world = 2, .global_batch = 4, .copies = true};
  for (const char* frozen : {"lm_head", "model.embed_tokens", "model.", "blocks"}) {
    models::Model one = untied(), other = untied();
    freeze(one, all(frozen));
    freeze(other, all(frozen));
    compare(one, in_parts(std::move(other), untied_bytes), {v});
  }
  models::Model one = untied(), other = untied();
  models::add_lora(one, {.rank = 3});
  models::add_lora(other, {.rank = 3});
  compare(one, in_parts(std::move(other), untied_bytes), {v});
  Variant blocks = v;
  blocks.optimizer.kind = train::OptimizerKind::adamw_8bit;
  compare(tied(), in_parts(tied(), tied_bytes), {blocks});
}

TEST_F(RowParts, SameBitsWithWeightedTargets) {
  const WeightedTokens weighted(std::make_shared<Sparse>(), {1.0F, 0.0F, 0.25F, 3.0F});
  const models::Model one = tied(), parts = in_parts(tied(), tied_bytes);
  const Variant v{.world = 2, .global_batch = 3, .copies = true};
  EXPECT_EQ(difference(run({&one, &weighted, 2, "", true, {}}, v), run({&parts, &weighted, 2, "", true, {}}, v)), "");
}

TEST_F(RowParts, MemoryIsAsPlanned) {
  for (const models::Model& model : {in_parts(tied(), tied_bytes), in_parts(untied(), untied_bytes)})
    for (const char* strategy : {"0", "2", "3"})
      (void)run({&model, &tokens_, 1, "", false,
                 [](train::Trainer& trainer) {
                   EXPECT_EQ(plan::compare_memory(trainer.plan(), trainer.measured_memory()), "");
                   EXPECT_EQ(trainer.broken_canary(), "");
                 }},
                {.world = 2, .strategy = strategy, .copies = true});
}

/// The message of an error.
template <class F>
std::string message(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.line();
  }
  return "";
}

TEST_F(RowParts, RefusesWhatWouldDiffer) {
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_PRED2(has, message([] { in_parts(tied(), tied_bytes - 1); }), "takes 135168 bytes at least");
  EXPECT_PRED2(has, message([] {
                 in_parts(models::make(config_json({.hidden = 24, .heads = 2, .vocab = vocab}), "test", DType::bf16),
                          tied_bytes);
               }),
               "bf16");
  EXPECT_PRED2(has, message([] {
                 in_parts(models::make(R"({"model_type": "llama", "vocab_size": 4200, "max_position_embeddings": 16,
  "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 40,
  "tie_word_embeddings": false})",
                                       "test"),
                          chunk * 32 * 4);
               }),
               "gradient norm");
  const models::Model parts = in_parts(tied(), tied_bytes);
  EXPECT_PRED2(has, message([&] {
                 const Variant v{.wrap = {.kind = shard::WrapPolicy::Kind::model}};
                 (void)plan::make_plan(options_of(parts, v, 1).run);
               }),
               "NO_WRAP");
}

}  // namespace
}  // namespace tessera::test
