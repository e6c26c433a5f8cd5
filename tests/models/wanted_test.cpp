// SPDX-License-Identifier: Apache-2.0
// Backward for part of the gradients: what is computed has the bits of the full backward, whatever is frozen; FLOPs
// count what is computed.
#include <gtest/gtest.h>

#include <algorithm>

#include "gemm_counter.hpp"
#include "runner.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::test::wanted {
namespace {

using models::BatchShape;
using models::Model;

constexpr BatchShape shape{2, 5};
constexpr std::int32_t vocab = 11;

const char* const qwen3 =
    R"({"model_type": "qwen3", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6, "num_hidden_layers": 2,
  "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 7, "tie_word_embeddings": true})";
const char* const experts =
    R"({"model_type": "qwen3_moe", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6, "num_hidden_layers": 2,
  "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 7, "moe_intermediate_size": 5, "num_experts": 4,
  "num_experts_per_tok": 2, "norm_topk_prob": true, "mlp_only_layers": [1], "output_router_logits": true})";

const char* const olmo2 =
    R"({"model_type": "olmo2", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6, "num_hidden_layers": 2,
  "num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 7})";

const char* const granite =
    R"({"model_type": "granite", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 8,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 7, "mlp_bias": true, "embedding_multiplier": 1.5,
  "residual_multiplier": 0.4, "attention_multiplier": 0.3, "logits_scaling": 0.7, "tie_word_embeddings": true})";

const char* const gemma2 =
    R"({"model_type": "gemma2", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6, "head_dim": 4,
  "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 7, "sliding_window": 16,
  "query_pre_attn_scalar": 3, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0})";
const char* const gemma3 =
    R"({"model_type": "gemma3_text", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6, "head_dim": 4,
  "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 7, "sliding_window": 16,
  "sliding_window_pattern": 2, "query_pre_attn_scalar": 3, "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "attention_bias": true})";

const char* const gpt_oss =
    R"({"model_type": "gpt_oss", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 5, "sliding_window": 16,
  "num_local_experts": 4, "num_experts_per_tok": 2, "swiglu_limit": 0.8, "output_router_logits": true, "router_aux_loss_coef": 0.5,
  "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": false, "original_max_position_embeddings": 8}})";

const char* const llama4 =
    R"({"model_type": "llama4_text", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6,
  "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 5,
  "intermediate_size_mlp": 7, "num_local_experts": 4, "num_experts_per_tok": 2, "interleave_moe_layer_step": 2,
  "no_rope_layer_interval": 3})";

struct Case {
  const char *name, *config;
  DType dtype;
};

class WantedGradients : public testing::TestWithParam<Case> {
 protected:
  WantedGradients() {
    runner.randomize(3);
    targets[4] = kernels::ignore_index;
  }
  std::vector<std::vector<double>> all_grads() const {
    std::vector<std::vector<double>> grads;
    for (std::size_t p = 0; p < model.params.size(); ++p) grads.push_back(values(runner.grad(static_cast<int>(p))));
    return grads;
  }

  Model model = models::make(GetParam().config, "test", GetParam().dtype);
  Runner runner{model, shape, stat_dtype(GetParam().dtype)};
  std::vector<std::int32_t> ids = random_ids(shape, vocab, 1), targets = random_ids(shape, vocab, 2);
};

/// Every parameter alone, all but one, none, all, and some random sets, of `count` parameters.
std::vector<std::vector<std::uint8_t>> sets_of(std::size_t count) {
  std::vector<std::vector<std::uint8_t>> sets{std::vector<std::uint8_t>(count, 0), std::vector<std::uint8_t>(count, 1)};
  for (std::size_t i = 0; i < count; ++i)
    for (const bool other : {false, true}) {
      sets.emplace_back(count, other ? 1 : 0);
      sets.back()[i] = other ? 0 : 1;
    }
  for (std::uint64_t key = 0; key < 40; ++key) {
    sets.emplace_back();
    for (std::size_t i = 0; i < count; ++i) sets.back().push_back(uniform(key, i) < 0.5 ? 1 : 0);
  }
  return sets;
}

TEST_P(WantedGradients, OfEveryModuleHaveTheBitsOfTheFullBackward) {
  (void)runner.train(shape, ids, targets, 0.125);  // balance losses read every layer's routing
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    const std::size_t count = model.modules[m]->params().size();
    const auto full = runner.module_gradients(m, shape, ids, targets, std::vector<std::uint8_t>(count, 1), m > 0);
    for (const auto& wanted : sets_of(count))
      for (const bool dx : {false, true}) {
        if (dx && m == 0) continue;
        const auto part = runner.module_gradients(m, shape, ids, targets, wanted, dx);
        for (std::size_t i = 0; i < count; ++i)
          if (wanted[i]) {
            EXPECT_EQ(part.params[i], full.params[i])
                << model.params[static_cast<std::size_t>(model.modules[m]->params()[i])].name << " dx " << dx;
          }
        if (dx) { EXPECT_EQ(part.dx, full.dx) << model.modules[m]->name(); }
        EXPECT_EQ(part.loss, full.loss);
        if (HasFailure()) return;
      }
  }
}

TEST_P(WantedGradients, OfTheModelHaveTheBitsOfTheFullBackward) {
  const double loss = runner.train(shape, ids, targets, 0.125);
  const auto full = all_grads();
  const auto check = [&](const std::string& what) {
    runner.sums = {};
    for (std::size_t p = 0; p < full.size(); ++p)
      for (std::int64_t i = 0; i < runner.grad(static_cast<int>(p)).numel(); ++i)
        set(runner.grad(static_cast<int>(p)), i, 77);
    EXPECT_EQ(runner.train(shape, ids, targets, 0.125), loss) << what;
    const auto part = all_grads();
    for (std::size_t p = 0; p < full.size(); ++p) {
      const auto expected = model.params[p].trainable ? full[p] : std::vector<double>(full[p].size(), 77);
      EXPECT_EQ(part[p], expected) << what << ": " << model.params[p].name;
    }
  };
  const auto freeze = [&](const auto& frozen) {
    for (ParamSpec& param : model.params) param.trainable = !frozen(param.name);
  };
  freeze([](const std::string& name) { return name.find("embed") != name.npos || name.starts_with("w"); });
  check("embedding frozen");
  for (const char* layer : {"h.0.", "h.1.", "layers.0.", "layers.1."}) {
    freeze([&](const std::string& name) { return name.find(layer) == name.npos; });
    check(std::string("all but ") + layer);
    freeze([&](const std::string& name) { return name.find(layer) != name.npos; });
    check(std::string(layer) + " frozen");
  }
  freeze([](const std::string& name) { return name.find("norm") == name.npos && name.find("ln_") == name.npos; });
  check("norms only");
  freeze([](const std::string&) { return true; });
  check("all frozen");
}

/// Attention's part of backward_flops, which is no GEMM of ours: 8·T²·width, the only term of T².
double attention_flops(const models::Module& module, const models::Wanted& wanted) {
  const double one = module.backward_flops({1, 1}, wanted), two = module.backward_flops({1, 2}, wanted);
  return (two - 2 * one) / 2 * static_cast<double>(shape.batch * shape.tokens * shape.tokens);
}

TEST_P(WantedGradients, OfEveryModuleTakeTheGemmsThatFlopsCount) {
  (void)runner.train(shape, ids, targets, 0.125);
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    const models::Module& module = *model.modules[m];
    const bool last = m + 1 == model.modules.size();
    // Weights of experts are wanted together: single experts have numbers of rows of their own.
    std::vector<std::string> kinds;
    std::vector<std::size_t> kind_of;
    for (const int p : module.params()) {
      const std::string& name = model.params[static_cast<std::size_t>(p)].name;
      const std::size_t at = name.find(".experts.");
      const std::size_t end = at == std::string::npos ? at : name.find('.', at + 9);
      const std::string kind = end == std::string::npos ? name : name.substr(end);
      kind_of.push_back(static_cast<std::size_t>(std::ranges::find(kinds, kind) - kinds.begin()));
      if (kind_of.back() == kinds.size()) kinds.push_back(kind);
    }
    for (const auto& set : sets_of(kinds.size()))
      for (const bool dx : {false, true}) {
        if (dx && m == 0) continue;
        std::vector<std::uint8_t> wanted;
        for (const std::size_t kind : kind_of) wanted.push_back(set[kind]);
        for (std::size_t i = 0; i < wanted.size(); ++i)
          model.params[static_cast<std::size_t>(module.params()[i])].trainable = wanted[i] != 0;
        const models::Wanted of(model.params, module.params(), dx);
        (void)runner.module_gradients(m, shape, ids, targets, wanted, dx);
        EXPECT_EQ(runner.backward_gemm_flops,
                  module.backward_flops(shape, of) - attention_flops(module, of) +
                      (last ? module.forward_flops(shape) : 0))  // the head's logits are computed in backward
            << module.name() << " dx " << dx << " " << testing::PrintToString(wanted);
      }
  }
}

TEST_P(WantedGradients, RecomputeTakesTheGemmsThatFlopsCount) {
  for (const bool selective : {false, true}) {
    (void)runner.train(shape, ids, targets, 0.125, {.recompute = true, .selective = selective});
    for (std::size_t m = 1; m + 1 < model.modules.size(); ++m) {
      const models::Module& module = *model.modules[m];
      const models::SavedBytes parts = module.split_saved_bytes(shape, model.dtype);
      const bool keeps = selective && parts.split(), recomputes = !selective || parts.recomputed > 0;
      const auto flops = [&](models::BatchShape of) { return module.recompute_flops(of, keeps); };
      const double attention =
          (flops({1, 2}) - 2 * flops({1, 1})) / 2 * static_cast<double>(shape.batch * shape.tokens * shape.tokens);
      EXPECT_EQ(runner.recompute_gemm_flops[m], recomputes ? flops(shape) - attention : 0) << module.name();
      EXPECT_EQ(attention > 0, !keeps && module.name().find("experts") == std::string::npos) << module.name();
      const double again = recomputes ? flops(shape) : 0, all = module.forward_flops(shape);
      // A norm after the last GEMM needs its output again.
      const std::string name = GetParam().name;
      const bool norms_after = (name.starts_with("olmo2") || name.starts_with("gemma")) && !keeps;
      EXPECT_TRUE(norms_after ? again == all : again < all) << module.name() << ": " << again << " of " << all;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, WantedGradients,
    testing::Values(Case{"gpt2_f64", small_gpt2, DType::f64}, Case{"gpt2_f32", small_gpt2, DType::f32},
                    Case{"gpt2_bf16", small_gpt2, DType::bf16}, Case{"llama_f64", small_llama, DType::f64},
                    Case{"llama_f32", small_llama, DType::f32}, Case{"llama_bf16", small_llama, DType::bf16},
                    Case{"qwen3_f64", qwen3, DType::f64}, Case{"qwen3_f32", qwen3, DType::f32},
                    Case{"qwen3_f16", qwen3, DType::f16}, Case{"olmo2_f64", olmo2, DType::f64},
                    Case{"olmo2_bf16", olmo2, DType::bf16}, Case{"granite_f64", granite, DType::f64},
                    Case{"gemma2_f64", gemma2, DType::f64}, Case{"gemma2_bf16", gemma2, DType::bf16},
                    Case{"gemma3_f64", gemma3, DType::f64}, Case{"experts_f64", experts, DType::f64},
                    Case{"gpt_oss_f64", gpt_oss, DType::f64}, Case{"gpt_oss_bf16", gpt_oss, DType::bf16},
                    Case{"llama4_f64", llama4, DType::f64}, Case{"llama4_bf16", llama4, DType::bf16},
                    Case{"experts_f32", experts, DType::f32}, Case{"experts_bf16", experts, DType::bf16}),
    [](const auto& of) { return of.param.name; });

/// Freezes the parameters for which frozen(name) holds.
template <class F>
Model with_frozen(const char* config, const F& frozen) {
  Model model = models::make(config, "test");
  for (ParamSpec& param : model.params) param.trainable = !frozen(param.name);
  return model;
}

double sum_of_modules(const Model& model, BatchShape of) {
  double sum = 0;
  for (std::size_t m = 0; m < model.modules.size(); ++m)
    sum += model.modules[m]->forward_flops(of) + model.modules[m]->backward_flops(of, model.wanted(m));
  return sum;
}

constexpr double C = 6, V = 11, T = 5, tokens = 10;  // of the configs and `shape`

TEST(WantedFlops, AreTheFormulaWhereAllIsTrainable) {
  struct Formula {
    const char* config;
    double layers, width;  // parameters in GEMMs per token, without the head's; Σ of heads·head_dim
  };
  for (const auto& [config, layers, width] :
       {Formula{small_gpt2, 2 * (4 * C * C + 2 * C * 10), 2 * C},
        Formula{small_llama, 2 * (C * 12 + 2 * C * 4 + 12 * C + 3 * C * 7), 2 * 12},
        Formula{qwen3, 2 * (C * 8 + 2 * C * 8 + 8 * C + 3 * C * 7), 2 * 8},
        Formula{experts, 2 * (C * 8 + 2 * C * 4 + 8 * C) + 3 * C * 7 + C * 4 + 2 * 3 * C * 5, 2 * 8}}) {
    const Model model = models::make(config, "test");
    EXPECT_EQ(model.lowest_trainable(), 0U);
    EXPECT_EQ(static_cast<double>(model.num_matmul_params()), layers + V * C);
    EXPECT_EQ(model.train_flops(tokens, 2 * T * T), 6 * (layers + V * C) * tokens + 12 * width * 2 * T * T);
    EXPECT_EQ(sum_of_modules(model, shape), model.train_flops(tokens, 2 * T * T));
  }
}

TEST(WantedFlops, OfFrozenTablesOfGpt2) {
  // wte is the head's weight: its dW is left out. h.0 is the lowest: no dx for its c_attn.
  const Model model = with_frozen(small_gpt2, [](const std::string& name) { return name.starts_with("w"); });
  EXPECT_EQ(model.lowest_trainable(), 1U);
  EXPECT_TRUE(model.wanted(2).dx());
  const double layer = 4 * C * C + 2 * C * 10, attn = C;  // matmul parameters; heads·head_dim
  const double head = V * C;
  const double forward = 2 * (2 * layer + head) + 2 * 4 * attn * T;
  // ln_1 of h.0 is trainable, so dx of c_attn is computed there too
  const double backward = 2 * head + 4 * 2 * layer + 2 * 8 * attn * T;
  EXPECT_EQ(model.train_flops_per_token(5), forward + backward);
  EXPECT_EQ(sum_of_modules(model, shape), tokens * (forward + backward));
}

TEST(WantedFlops, OfOneTrainableLayerOfLlama) {
  const Model model =
      with_frozen(small_llama, [](const std::string& name) { return name.find("layers.1.mlp") == std::string::npos; });
  EXPECT_EQ(model.lowest_trainable(), 2U);
  const double attention = C * 12 + 2 * C * 4 + 12 * C, mlp = 3 * C * 7, head = V * C;
  const double forward = 2 * (2 * (attention + mlp) + head) + 2 * 4 * 12 * T;
  // dx of the head; of the MLP all dW, and dx of down_proj alone: nothing below gate_proj and up_proj is trainable
  const double backward = 2 * head + 2 * mlp + 2 * C * 7;
  EXPECT_EQ(model.train_flops_per_token(5), forward + backward);
  EXPECT_EQ(sum_of_modules(model, shape), tokens * (forward + backward));
  EXPECT_EQ(model.train_flops(31, 339),  // rows of different lengths
            31 * (2 * (2 * (attention + mlp) + head) + backward) + 339 * (2 * 4 * 12.0));
}

TEST(WantedFlops, OfOneExpertsLayer) {
  // Router and down projections of the experts of layer 0: no dx, no backward of silu(gate)·up.
  const Model model = with_frozen(experts, [](const std::string& name) {
    return name.find("layers.0.mlp") == std::string::npos || name.find("gate_proj") != std::string::npos ||
           name.find("up_proj") != std::string::npos;
  });
  EXPECT_EQ(model.lowest_trainable(), 2U);
  const double attention = C * 8 + 2 * C * 4 + 8 * C, dense = 3 * C * 7, router = C * 4, expert = 3 * C * 5,
               head = V * C;
  const double forward = 2 * (2 * attention + dense + router + 2 * expert + head) + 2 * 4 * 8 * T;
  const double backward = 2 * head + 2 * (attention + dense) + 8 * 8 * T + 2 * router + 2 * 2 * 2 * C * 5;
  EXPECT_EQ(model.train_flops_per_token(5), forward + backward);
  EXPECT_EQ(sum_of_modules(model, shape), tokens * (forward + backward));
}

TEST(WantedFlops, NothingTrainableIsForwardAlone) {
  for (const char* config : {small_gpt2, small_llama, qwen3, experts}) {
    const Model model = with_frozen(config, [](const std::string&) { return true; });
    EXPECT_EQ(model.lowest_trainable(), model.modules.size());
    EXPECT_EQ(3 * model.train_flops_per_token(5), models::make(config, "test").train_flops_per_token(5));
  }
}

}  // namespace
}  // namespace tessera::test::wanted
