// SPDX-License-Identifier: Apache-2.0
// Models in bf16 and fp16: against fp32 from the same rounded weights, against PyTorch in the same type, gradients in
// fp32 and in the type, bytes saved and requested, generation with a cache.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "golden.hpp"
#include "runner.hpp"

namespace tessera::test::half {
namespace {

using models::BatchShape;

struct Case {
  const char* name;
  const char* config;
};
const Case cases[] = {
    {"gpt2",
     R"({"model_type": "gpt2", "vocab_size": 37, "n_positions": 19, "n_embd": 35, "n_layer": 2, "n_head": 5, "n_inner": 13})"},
    {"qwen3",
     R"({"model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 24, "intermediate_size": 20, "num_attention_heads": 6,
                  "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 31, "max_position_embeddings": 64, "hidden_act": "silu"})"},
    {"qwen2",
     R"({"model_type": "qwen2", "num_hidden_layers": 2, "hidden_size": 24, "intermediate_size": 20, "num_attention_heads": 6,
                  "num_key_value_heads": 3, "vocab_size": 31, "max_position_embeddings": 64, "hidden_act": "silu", "tie_word_embeddings": true})"},
    {"granite",
     R"({"model_type": "granite", "num_hidden_layers": 2, "hidden_size": 24, "intermediate_size": 20, "num_attention_heads": 6,
                  "num_key_value_heads": 2, "vocab_size": 31, "max_position_embeddings": 64, "embedding_multiplier": 3.0,
                  "residual_multiplier": 0.4, "attention_multiplier": 0.4, "logits_scaling": 1.5})"},
    {"gemma2",
     R"({"model_type": "gemma2", "num_hidden_layers": 2, "hidden_size": 24, "intermediate_size": 20, "num_attention_heads": 6,
                  "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 31, "max_position_embeddings": 64, "sliding_window": 5,
                  "query_pre_attn_scalar": 8, "attn_logit_softcapping": 4.0, "final_logit_softcapping": 6.0})"},
    {"gpt_oss",
     R"({"model_type": "gpt_oss", "num_hidden_layers": 2, "hidden_size": 24, "intermediate_size": 20, "num_attention_heads": 6,
                    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 31, "max_position_embeddings": 64, "sliding_window": 5,
                    "num_local_experts": 4, "num_experts_per_tok": 2, "rope_scaling": {"rope_type": "default"}})"},
    {"mixtral",
     R"({"model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 24, "intermediate_size": 20, "num_attention_heads": 6,
                    "num_key_value_heads": 2, "vocab_size": 31, "max_position_embeddings": 64, "hidden_act": "silu", "num_local_experts": 4,
                    "num_experts_per_tok": 2, "output_router_logits": true, "router_aux_loss_coef": 0.02})"},
};

/// Relative distance of neighbors.
double epsilon_of(DType dtype) { return dtype == DType::bf16 ? 1.0 / 128 : 1.0 / 1024; }

std::vector<std::int32_t> some_ids(BatchShape shape, std::int64_t vocab) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < shape.batch * shape.tokens; ++i)
    ids.push_back(static_cast<std::int32_t>((i * i + 3 * i) % vocab));
  return ids;
}

/// A runner with random weights that `dtype` holds exactly.
struct Trial {
  Trial(const Case& c, DType compute, DType gradients, DType rounded)
      : model(models::make(c.config, c.name, compute)), runner(model, {3, 17}, gradients) {
    runner.randomize(1);
    for (std::size_t p = 0; p < model.params.size(); ++p) {
      const TensorView& param = runner.param(static_cast<int>(p));
      for (std::int64_t i = 0; i < param.numel(); ++i) {
        const auto x = static_cast<float>(0.5 * get(param, i));
        set(param, i,
            static_cast<double>(rounded == DType::bf16 ? static_cast<float>(bf16(x)) : static_cast<float>(f16(x))));
      }
    }
  }
  double train(const Step& step = {}) {
    runner.sums = {};
    const BatchShape shape{3, 17};
    const auto ids = some_ids(shape, model.vocab);
    return runner.train(shape, ids, ids, 1.0 / 51, step);
  }
  std::vector<double> grad(std::size_t p) const { return values(runner.grad(static_cast<int>(p))); }
  models::Model model;
  Runner runner;
};

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = a[i] - b[i];
    difference += d * d, size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

class HalfModel : public testing::TestWithParam<std::tuple<Case, DType>> {
 protected:
  const Case& config() const { return std::get<0>(GetParam()); }
  DType type() const { return std::get<1>(GetParam()); }
};

TEST_P(HalfModel, LossAndGradientsAreNearThoseOfFp32) {
  Trial half(config(), type(), DType::f32, type()), wide(config(), DType::f32, DType::f32, type());
  const double eps = epsilon_of(type()), loss = half.train(), exact = wide.train();
  EXPECT_NE(loss, exact);
  EXPECT_NEAR(loss, exact, eps * exact);
  double difference = 0, size = 0;
  for (std::size_t p = 0; p < wide.model.params.size(); ++p) {
    const auto a = half.grad(p), b = wide.grad(p);
    // Rounding of some tens of activations on the way, each half an epsilon at most.
    if (norm(wide.runner.grad(static_cast<int>(p))) > 1e-5) {
      EXPECT_LT(distance(a, b), 12 * eps) << wide.model.params[p].name;
    }
    for (std::size_t i = 0; i < a.size(); ++i) difference += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
  }
  EXPECT_LT(std::sqrt(difference / size), 3 * eps);
}

TEST_P(HalfModel, GradientsOfTheTypeAreThoseOfFp32Rounded) {
  Trial mixed(config(), type(), DType::f32, type()), own(config(), type(), type(), type());
  EXPECT_EQ(mixed.train(), own.train());
  std::vector<int> contributors(own.model.params.size());
  for (const auto& module : own.model.modules)
    for (const int p : module->params()) ++contributors[static_cast<std::size_t>(p)];
  for (std::size_t p = 0; p < own.model.params.size(); ++p) {
    if (contributors[p] > 1) continue;  // one rounding per contributor
    const auto a = own.grad(p), b = mixed.grad(p);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto x = static_cast<float>(b[i]);
      ASSERT_EQ(a[i],
                static_cast<double>(type() == DType::bf16 ? static_cast<float>(bf16(x)) : static_cast<float>(f16(x))))
          << own.model.params[p].name << " " << i;
    }
  }
}

TEST_P(HalfModel, RecomputeAndTheBufferOfGradientsChangeNoBit) {
  Trial first(config(), type(), DType::f32, type());
  const double loss = first.train();
  for (const bool selective : {false, true}) {
    Trial again(config(), type(), DType::f32, type());
    EXPECT_EQ(loss, again.train({.in_place = false, .recompute = true, .selective = selective, .accumulate = {}}));
    for (std::size_t p = 0; p < first.model.params.size(); ++p)
      ASSERT_EQ(first.grad(p), again.grad(p)) << first.model.params[p].name;
  }
}

TEST_P(HalfModel, GenerationWithACacheIsNearTheFullPass) {
  Trial t(config(), type(), type(), type());
  const BatchShape shape{2, 9};
  auto ids = some_ids(shape, t.model.vocab);
  const auto full = t.runner.logits(shape, ids);
  t.runner.open_cache({2, 12});
  std::vector<std::int32_t> before, last;
  for (std::int32_t b = 0; b < 2; ++b)
    for (std::int32_t i = 0; i < 9; ++i) (i < 8 ? before : last).push_back(ids[static_cast<std::size_t>(9 * b + i)]);
  (void)t.runner.cached_logits({2, 8}, before, {}, {});
  const auto cached = t.runner.cached_logits({2, 1}, last, {8, 8}, {});
  EXPECT_LT(distance(cached, full), 4 * epsilon_of(type()));
}

INSTANTIATE_TEST_SUITE_P(Families, HalfModel,
                         testing::Combine(testing::ValuesIn(cases), testing::Values(DType::bf16, DType::f16)),
                         [](const auto& param_info) {
                           return std::string(std::get<0>(param_info.param).name) + "_" +
                                  name_of(std::get<1>(param_info.param));
                         });

TEST(HalfMemory, ABlockSaves16BitActivationsAndFp32Statistics) {
  const models::Model model =
      models::make(R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12,
                                               "n_head": 12})",
                   "gpt2");
  const BatchShape shape{4, 256};
  const std::size_t rows = 4 * 256;
  for (const DType half : {DType::bf16, DType::f16})
    EXPECT_EQ(model.modules[1]->saved_bytes(shape, half), rows * (2 * 9 * 768 + 4 * (4 + 12)));
}

/// First step of a golden run in `dtype`: loss, and the gradient norm of each parameter, which is PyTorch's or nearer
/// to that in fp32 than PyTorch's is.
void matches_torch(const std::string& name, DType dtype, double loss_tolerance, double norm_tolerance) {
  SCOPED_TRACE(name + " " + name_of(dtype));
  std::ifstream file(std::string(TESSERA_TEST_DATA) + "/golden/half.json");
  const auto all = nlohmann::json::parse(file)[name];
  const auto &expected = all[name_of(dtype)], &wide = all[std::string(name_of(dtype)) + "_weights_in_fp32"];
  const Golden golden = read_golden(name);
  auto config = nlohmann::json::parse(golden.config);
  if (all.contains("config")) config.update(all["config"]);
  const models::Model model = models::make(config.dump(), name, dtype);
  const BatchShape shape{golden.expected["samples_per_step"], golden.expected["tokens_per_sample"]};
  Runner runner(model, shape, DType::f32);
  for (const auto& [file_name, weight] : golden.weights)
    for (const std::string& part : models::tensor_use(model, file_name).parts)
      for (std::size_t i = 0; i < weight.size(); ++i)
        set(runner.param(runner.index(part)), static_cast<std::int64_t>(i), static_cast<double>(weight[i]));
  const std::int64_t count = shape.batch * shape.tokens;
  const auto begin = golden.tokens.begin();
  const double loss =
      runner.train(shape, {begin, begin + count}, {begin + 1, begin + count + 1}, 1.0 / static_cast<double>(count));
  const double theirs = expected["loss"];
  EXPECT_NEAR(loss, theirs, loss_tolerance * theirs);
  for (std::size_t p = 0; p < model.params.size(); ++p) {
    const double want = expected["gradient_norms"].at(model.params[p].name);
    if (want < 1e-3) continue;  // of key biases under rotation-free attention: rounding error alone
    const double got = norm(runner.grad(static_cast<int>(p))), exact = wide["gradient_norms"].at(model.params[p].name);
    if (std::abs(got - exact) <= std::abs(want - exact)) continue;
    EXPECT_NEAR(got, want, norm_tolerance * want) << model.params[p].name;
  }
}

TEST(HalfGolden, MatchesPyTorchInTheSameType) {
  for (const char* name :
       {"tiny", "llama", "qwen2", "qwen3-untied", "granite", "gemma2", "gemma3", "gpt-oss", "llama4"}) {
    matches_torch(name, DType::bf16, 1e-3, 0.025);
    matches_torch(name, DType::f16, 1e-4, 0.004);
  }
}

}  // namespace
}  // namespace tessera::test::half
