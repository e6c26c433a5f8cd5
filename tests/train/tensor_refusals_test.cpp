// SPDX-License-Identifier: Apache-2.0
// What is refused where ranks are to have parts of the same matrices, and in which words.
#include <gmock/gmock.h>

#include "models/context.hpp"
#include "models/quantize.hpp"
#include "models/reference.hpp"
#include "tests/io/files.hpp"
#include "tests/train/experts_configs.hpp"
#include "tests/train/tensor_runs.hpp"

namespace tessera::test {
namespace {

std::string tensor_refusal(const std::string& config, int ranks,
                           const std::function<void(train::TrainerOptions&)>& change = {}) {
  try {
    const models::Model model = tensor_model(config, ranks);
    train::TrainerOptions options = options_of(model, tensor_variant(8, ranks), 1);
    options.run.topology.ranks_per_node = 8;
    if (change) change(options);
    (void)plan::make_plan(options.run);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.line();
  }
  return "";
}

TEST(Tensor, RefusesWhatItCannotDivide) {
  using testing::HasSubstr;
  EXPECT_EQ(tensor_refusal(tensor_config("llama", 2), 2), "");
  EXPECT_THAT(tensor_refusal(tensor_config("llama", 4), 8), HasSubstr("8 cannot divide 4 attention heads"));
  const std::string three =
      R"({"model_type": "llama", "vocab_size": 37, "max_position_embeddings": 16, "hidden_size": 24,
    "num_hidden_layers": 1, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 4, "intermediate_size": 24})";
  EXPECT_THAT(tensor_refusal(three, 2), HasSubstr("2 cannot divide 3 key and value heads"));
  EXPECT_THAT(tensor_refusal(tensor_config("phi3", 2, R"(, "pad_token_id": 0)"), 4),
              HasSubstr("for fewer key and value heads than ranks where one matrix"));
  const std::string odd = R"({"model_type": "llama", "vocab_size": 37, "max_position_embeddings": 16, "hidden_size": 20,
    "num_hidden_layers": 1, "num_attention_heads": 4, "head_dim": 6, "intermediate_size": 26})";
  EXPECT_THAT(tensor_refusal(odd, 4), HasSubstr("4 cannot divide 26 numbers of an MLP's intermediate_size"));
  const std::string three_tokens = R"({"model_type": "llama", "vocab_size": 3, "max_position_embeddings": 16,
    "hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 4, "head_dim": 6, "intermediate_size": 28})";
  EXPECT_THAT(tensor_refusal(three_tokens, 4), HasSubstr("4 cannot divide a vocabulary of 3"));
  EXPECT_THAT(tensor_refusal(tensor_config("llama", 4), 4, [](auto& o) { o.run.tokens = 14; }),
              HasSubstr("max_length 14 / tensor_parallel_size 4 = 3, and 2 tokens are left"));
  EXPECT_THAT(tensor_refusal(experts_config, 4), HasSubstr("4 cannot divide 10 numbers of an expert's intermediate"));
  EXPECT_THAT(tensor_refusal(tensor_config("llama", 4), 2, [](auto& o) { o.run.strategy.policy.reproducible = true; }),
              HasSubstr("--reproducible"));
  EXPECT_THAT(tensor_refusal(tensor_config("llama", 4), 2,
                             [](auto& o) {
                               o.run.states = {{"s", DType::u8, 256}};
                             }),
              HasSubstr("blocks of elements"));
  EXPECT_THAT(
      tensor_refusal(tensor_config("llama", 4), 2, [](auto& o) { o.run.strategy.policy.compression.gradients = true; }),
      HasSubstr("int8 collectives"));
  EXPECT_THAT(tensor_refusal(tensor_config("llama", 4), 2,
                             [](auto& o) {
                               o.run.strategy.unit_strategies = {{"embed", "NO_SHARD"}};
                             }),
              HasSubstr("--unit_strategy"));
  EXPECT_THAT(tensor_refusal(tensor_config("llama", 4), 2, [](auto& o) { o.run.sequences = 2; }),
              HasSubstr("losses over sequences"));
}

TEST(Tensor, RefusesWhatChangesTheModel) {
  const std::string config = tensor_config("llama", 4);
  const auto refuses = [&](const char* what, const std::function<void(models::Model&)>& change) {
    models::Model model = models::make(config, "test");
    change(model);
    expect_error(ExitCode::usage, what, [&] { models::split_tensors(model, 2); });
  };
  refuses("its masks are of 8 numbers, and a rank has 12",
          [](auto& model) { models::add_lora(model, {.rank = 3, .alpha = 6, .dropout = 0.1}); });
  refuses("for quantized matrices of which each makes several things", [](auto& model) {
    model = models::make(tensor_config("phi3", 4, R"(, "pad_token_id": 0)"), "test");
    models::add_lora(model, {.rank = 3, .alpha = 6});
    models::quantize(model, QuantFormat::nf4);
  });
  refuses("losses over sequences", [&](auto& model) {
    models::add_reference(model, models::make(config, "test"), models::ReferenceParams::own);
  });
}

}  // namespace
}  // namespace tessera::test
