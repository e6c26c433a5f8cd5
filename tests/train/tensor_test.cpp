// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism with divided tokens: ranks that have parts of the same matrices give what one rank gives with the
// same rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "io/checkpoint/checkpoint.hpp"
#include "io/data/packing.hpp"
#include "models/context.hpp"
#include "models/quantize.hpp"
#include "models/reference.hpp"
#include "models/tensor_split.hpp"
#include "runtime/shard/tensor.hpp"
#include "tests/io/files.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

constexpr std::int64_t row_length = 16;

/// Sizes that parts of 4 ranks do not align: heads of 6, an MLP of 28.
std::string tensor_config(const std::string& family, int kv_heads, const char* more = "") {
  return strfmt(
      R"({"model_type": "%s", "vocab_size": 37, "max_position_embeddings": 16, "hidden_size": 20, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": %d, "head_dim": 6, "intermediate_size": 28 %s})",
      family.c_str(), kv_heads, more);
}

const std::vector<std::string> adapted_linears = {"q_proj",    "k_proj",  "v_proj",    "o_proj",
                                                  "gate_proj", "up_proj", "down_proj", "lm_head"};

models::Model tensor_model(const std::string& config, int ranks, DType dtype = DType::f32) {
  models::Model model = models::make(config, "test", dtype);
  models::split_tensors(model, ranks);
  return model;
}

/// Global batches of 4 rows, micro-batches of 2 on each group of ranks.
Variant tensor_variant(int world, int ranks, const char* strategy = "3") {
  return {
      .world = world, .strategy = strategy, .tensor = ranks, .global_batch = 4, .micro_batch = 2, .tokens = row_length};
}

std::shared_ptr<io::PackedStream> packed_rows() {
  const auto tokens = std::make_shared<RandomTokens>(800, 37);
  std::vector<std::int64_t> ends;
  for (std::int64_t end = 0, k = 0; end < 800; ++k)
    ends.push_back(end = std::min<std::int64_t>(800, end + 3 + k * 5 % 9));
  return std::make_shared<io::PackedStream>(tokens, io::Documents{0, ends}, row_length, io::Packing::sequential);
}

void plan_is_exact(train::Trainer& trainer) {
  const plan::RunPlan& plan = trainer.plan();
  EXPECT_EQ(plan::compare_memory(plan, trainer.measured_memory()), "");
}

Outcome run_tensor(const std::string& config, const Variant& v, const io::TokenStream& tokens, int steps = 10) {
  const models::Model model = tensor_model(config, v.tensor, v.dtype);
  return run({&model, &tokens, steps, "", /*evaluate=*/false, plan_is_exact}, v);
}

void expect_same_curve(const Outcome& one, const Outcome& other, const std::string& what, double tolerance = 1e-5) {
  ASSERT_EQ(one.losses.size(), other.losses.size());
  EXPECT_EQ(one.tokens, other.tokens) << what;
  for (std::size_t s = 0; s < one.losses.size(); ++s) {
    EXPECT_NEAR(one.losses[s], other.losses[s], tolerance) << what << ", step " << s + 1;
    EXPECT_NEAR(one.norms[s], other.norms[s], 10 * tolerance) << what << ", step " << s + 1;
  }
  ASSERT_EQ(one.grads.size(), other.grads.size());
  double most = 0;
  for (std::size_t i = 0; i < one.grads.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(one.grads[i]) - other.grads[i]));
  EXPECT_LT(most, tolerance) << what;
}

TEST(Tensor, TenStepsAreThoseOfOneRank) {
  const RandomTokens tokens(800, 37);
  for (const int kv_heads : {2, 4}) {
    const std::string config = tensor_config("qwen3", kv_heads, R"(, "tie_word_embeddings": true)");
    const Outcome one = run_tensor(config, tensor_variant(1, 1), tokens);
    expect_same_curve(one, run_tensor(config, tensor_variant(2, 2), tokens), "2 ranks");
    expect_same_curve(one, run_tensor(config, tensor_variant(4, 4), tokens), strfmt("4 ranks, %d", kv_heads));
    expect_same_curve(one, run_tensor(config, tensor_variant(4, 2), tokens), "two groups of two");
  }
}

/// Some ranks have the same key and value heads, whose gradients are sums over these ranks.
TEST(Tensor, FewerKeyAndValueHeadsThanRanks) {
  const RandomTokens tokens(800, 37);
  for (const auto& [family, kv_heads, ranks] :
       {std::tuple{"llama", 1, 2}, {"qwen2", 1, 4}, {"qwen2", 2, 4}, {"qwen3", 1, 2}}) {
    const std::string config = tensor_config(family, kv_heads);
    const Outcome one = run_tensor(config, tensor_variant(1, 1), tokens),
                  zero0 = run_tensor(config, tensor_variant(4, ranks, "0"), tokens);
    expect_same_curve(one, zero0, strfmt("%s, %d on %d", family, kv_heads, ranks));
    EXPECT_EQ(difference(zero0, run_tensor(config, tensor_variant(4, ranks), tokens)), "") << family;
  }
}

/// Biases after attention and the MLP, and positions that are learned.
TEST(Tensor, Gpt2) {
  const RandomTokens tokens(800, 37);
  const std::string config = config_json({.hidden = 24, .heads = 4});
  const Outcome one = run_tensor(config, tensor_variant(1, 1), tokens);
  expect_same_curve(one, run_tensor(config, tensor_variant(4, 2), tokens), "two groups of two");
  expect_same_curve(one, run_tensor(config, tensor_variant(4, 4, "0"), tokens), "4 ranks");
  const auto packed = packed_rows();
  expect_same_curve(run_tensor(config, tensor_variant(1, 1), *packed, 4),
                    run_tensor(config, tensor_variant(4, 2), *packed, 4), "packed");
}

/// Biases, windows, fused matrices, norms after sublayers, soft caps, and none of these.
TEST(Tensor, Families) {
  const RandomTokens tokens(800, 37);
  for (const auto& [family, more] : {std::pair{"qwen2", ""},
                                     {"gemma2", R"(, "sliding_window": 5, "query_pre_attn_scalar": 6)"},
                                     {"gemma3_text", R"(, "sliding_window": 5, "sliding_window_pattern": 2)"},
                                     {"mistral", R"(, "sliding_window": 5)"},
                                     {"phi3", R"(, "pad_token_id": 0)"},
                                     {"smollm3", R"(, "no_rope_layer_interval": 2)"},
                                     {"granite", R"(, "residual_multiplier": 0.5, "embedding_multiplier": 3.0,
                                      "attention_multiplier": 0.4, "logits_scaling": 1.5)"},
                                     {"llama", R"(, "attention_bias": true, "mlp_bias": true)"}}) {
    const std::string config = tensor_config(family, 2, more);
    expect_same_curve(run_tensor(config, tensor_variant(1, 1), tokens, 4),
                      run_tensor(config, tensor_variant(2, 2), tokens, 4), family);
  }
}

TEST(Tensor, PackedRowsAreThoseOfOneRank) {
  const auto rows = packed_rows();
  const std::string config = tensor_config("llama", 4);
  const Outcome one = run_tensor(config, tensor_variant(1, 1), *rows);
  expect_same_curve(one, run_tensor(config, tensor_variant(4, 2), *rows), "two groups of two");
  expect_same_curve(one, run_tensor(config, tensor_variant(4, 4), *rows), "4 ranks");
}

void changes_no_bit(const std::string& config, const io::TokenStream& tokens) {
  const Outcome of_first = run_tensor(config, tensor_variant(4, 2, "0"), tokens, 3);
  for (const char* strategy : {"1", "2", "3"})
    EXPECT_EQ(difference(of_first, run_tensor(config, tensor_variant(4, 2, strategy), tokens, 3)), "") << strategy;
  for (int which = 0; which < 4; ++which) {
    Variant v = tensor_variant(4, 2);
    v.recompute = which == 0;
    v.selective = which == 1;
    v.keep_all = which == 2;
    v.copies = which == 3;
    if (which == 3) v.streams = Stream::Mode::deferred;
    EXPECT_EQ(difference(of_first, run_tensor(config, v, tokens, 3)), "") << v.str();
  }
}

TEST(Tensor, StrategiesAndMemoryChangeNoBit) {
  const RandomTokens tokens(800, 37);
  for (const std::string& config :
       {tensor_config("qwen3", 2), tensor_config("gemma2", 1, R"(, "sliding_window": 5)"), config_json({.heads = 4})})
    changes_no_bit(config, tokens);
}

TEST(Tensor, OffloadsChangeNoBit) {
  const RandomTokens tokens(800, 37);
  const std::string config = tensor_config("llama", 2);
  using shard::Tier;
  const Outcome of_first = run_tensor(config, tensor_variant(4, 2), tokens, 3);
  for (const bool recompute : {false, true})
    for (const bool activations : {false, true}) {
      Variant v = tensor_variant(4, 2);
      v.recompute = recompute;
      v.offload_activations = activations;
      if (!activations) v.placement = {Tier::host, Tier::host, Tier::host};
      EXPECT_EQ(difference(of_first, run_tensor(config, v, tokens, 3)), "") << v.str();
    }
}

/// A of a matrix whose inputs are divided has a part of them, and B of one whose outputs are; frozen ones are not
/// reduced.
TEST(Tensor, AdaptersAndFrozenParameters) {
  const RandomTokens tokens(800, 37);
  const auto adapted = [&](const char* family, int ranks, int which) {
    const char* more = std::string(family) == "phi3" ? R"(, "pad_token_id": 0)" : "";
    models::Model model = models::make(tensor_config(family, 2, more), "test");
    if (which < 0) models::add_lora(model, {.rank = 3, .alpha = 6});
    else freeze(model, frozen_sets[which].frozen);
    models::split_tensors(model, ranks);
    return model;
  };
  for (const auto& [family, which] :
       {std::pair{"qwen3", -1}, {"phi3", -1}, {"qwen2", 0}, {"qwen2", 1}, {"qwen3", 3}, {"llama", 4}}) {
    const models::Model alone = adapted(family, 1, which);
    const Outcome one = run({&alone, &tokens, 4, "", false, plan_is_exact}, tensor_variant(1, 1));
    for (const char* strategy : {"0", "3"}) {
      const models::Model split = adapted(family, 2, which);
      // Each rank multiplies by all of a replicated A.
      const double flops = alone.train_flops_per_token(16);
      EXPECT_NEAR(split.train_flops_per_token(16), flops, which < 0 ? 0.01 * flops : 0);
      EXPECT_EQ(split.num_params(), alone.num_params());
      expect_same_curve(one, run({&split, &tokens, 4, "", false, plan_is_exact}, tensor_variant(4, 2, strategy)),
                        strfmt("%s, %d, %s", family, which, strategy));
    }
  }
}

/// The masks of adapters do not depend on how many ranks have parts of a matrix, or of a row, padded ones included.
TEST(Tensor, DropoutOfAdapters) {
  const auto tokens = std::make_shared<RandomTokens>(800, 37);
  const std::string config =
      R"({"model_type": "llama", "vocab_size": 37, "max_position_embeddings": 64, "hidden_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 64})";
  const auto of = [&](int world, int ranks, io::Packing packing) {
    models::Model model = models::make(config, "test");
    models::add_lora(model, {.rank = 3, .alpha = 6, .dropout = 0.3, .targets = adapted_linears});
    models::split_tensors(model, ranks);
    const std::int64_t length = packing == io::Packing::padded ? 64 : row_length;
    std::vector<std::int64_t> ends;
    for (std::int64_t end = 0, k = 0; end < 800; ++k)
      ends.push_back(end = std::min<std::int64_t>(800, end + 3 + k * 5 % 9));
    const io::PackedStream rows(tokens, io::Documents{0, ends}, length, packing);
    Variant v = tensor_variant(world, ranks);
    v.tokens = length;
    v.row_stride = 16;
    return run({&model, &rows, 4, "", false, plan_is_exact}, v);
  };
  for (const auto packing : {io::Packing::sequential, io::Packing::padded}) {
    const Outcome one = of(1, 1, packing);
    expect_same_curve(one, of(4, 2, packing), "two groups of two");
    expect_same_curve(one, of(4, 4, packing), "4 ranks");
  }
}

/// Samples end to end in one row, without padding between them.
TEST(Tensor, PaddingFree) {
  const auto tokens = std::make_shared<RandomTokens>(800, 37);
  std::vector<std::int64_t> ends;
  for (std::int64_t end = 0, k = 0; end < 800; ++k)
    ends.push_back(end = std::min<std::int64_t>(800, end + 3 + k * 5 % 9));
  const io::PackedStream rows(tokens, io::Documents{0, ends}, row_length, io::Packing::padded);
  const auto of = [&](int world, int ranks, double dropout) {
    models::Model model = models::make(
        R"({"model_type": "qwen3", "vocab_size": 37, "max_position_embeddings": 16, "hidden_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 64})",
        "test");
    if (dropout > 0) models::add_lora(model, {.rank = 3, .alpha = 6, .dropout = dropout, .targets = adapted_linears});
    models::split_tensors(model, ranks);
    Variant v = tensor_variant(world, ranks);
    v.padding_free = true;
    return run({&model, &rows, 4, "", /*evaluate=*/true, {}}, v);
  };
  for (const double dropout : {0.0, 0.3}) {
    const Outcome one = of(1, 1, dropout);
    for (const auto& [world, ranks] : {std::pair{4, 2}, {4, 4}}) {
      const Outcome other = of(world, ranks, dropout);
      expect_same_curve(one, other, strfmt("%d ranks, dropout %g", ranks, dropout));
      EXPECT_NEAR(one.eval_loss, other.eval_loss, 1e-5);
    }
  }
}

TEST(Tensor, In16Bits) {
  const RandomTokens tokens(800, 37);
  const std::string config = tensor_config("llama", 2);
  Variant one = tensor_variant(1, 1), two = tensor_variant(4, 2), zero0 = tensor_variant(4, 2, "0");
  for (Variant* v : {&one, &two, &zero0}) v->dtype = DType::bf16;
  const Outcome of_two = run_tensor(config, two, tokens, 4);
  expect_same_curve(run_tensor(config, one, tokens, 4), of_two, "bf16", 0.02);
  EXPECT_EQ(difference(of_two, run_tensor(config, zero0, tokens, 4)), "");
}

TEST(Tensor, HybridAndReductionsGiveWhatOneRankGives) {
  const RandomTokens tokens(800, 37);
  const std::string config = tensor_config("llama", 2);
  const Outcome one = run_tensor(config, tensor_variant(1, 1), tokens, 4);
  for (const shard::Reduce reduce : {shard::Reduce::each, shard::Reduce::shard_each, shard::Reduce::last}) {
    Variant v = tensor_variant(8, 2, "HYBRID_SHARD");
    v.group = 4;
    v.reduce = reduce;
    v.micro_batch = 1;
    expect_same_curve(one, run_tensor(config, v, tokens, 4), v.str());
  }
}

/// Of five rows in micro-batches of two on two groups, the last is short, or empty.
TEST(Tensor, ShortAndEmptyMicroBatches) {
  const RandomTokens tokens(800, 37);
  const std::string config = tensor_config("qwen3", 4);
  for (const std::int64_t rows : {5, 6}) {
    Variant one = tensor_variant(1, 1), two = tensor_variant(4, 2);
    one.global_batch = two.global_batch = rows;
    expect_same_curve(run_tensor(config, one, tokens, 3), run_tensor(config, two, tokens, 3), two.str());
  }
}

TEST(Tensor, LossesOfEvaluationAndSamples) {
  const RandomTokens tokens(800, 37);
  for (const auto& [config, ranks] : {std::pair{tensor_config("llama", 2), 2},
                                      {tensor_config("qwen2", 2), 4},
                                      {config_json({.hidden = 24, .heads = 4}), 2},
                                      {tensor_config("gemma2", 2, R"(, "sliding_window": 5)"), 2}}) {
    const models::Model alone = tensor_model(config, 1), split = tensor_model(config, ranks);
    const Outcome one = run({&alone, &tokens, 1, "", /*evaluate=*/true, {}}, tensor_variant(1, 1)),
                  two = run({&split, &tokens, 1, "", /*evaluate=*/true, plan_is_exact}, tensor_variant(4, ranks));
    EXPECT_NEAR(one.eval_loss, two.eval_loss, 1e-5);
    EXPECT_EQ(one.generated, two.generated);
  }
}

/// Forward and backward of 2 layers, 2 micro-batches of 2 rows: four exchanges of B·T·H numbers, of which a rank keeps
/// its own part.
TEST(Tensor, BytesAreThoseOfTheFormula) {
  const RandomTokens tokens(800, 37);
  for (const int ranks : {2, 4}) {
    const models::Model model = tensor_model(tensor_config("llama", 4), ranks);
    TrafficCount before;
    const auto counted = [&](train::Trainer& trainer) {
      if (trainer.world().rank() != 0) return;
      const plan::RunPlan& plan = trainer.plan();
      const int group = plan.groups.exchange_index_of(Axis::tensor);
      ASSERT_GE(group, 0);
      TrafficCount sum = before;
      sum += plan.costs.traffic[static_cast<std::size_t>(group)];
      EXPECT_EQ(trainer.exchange_traffic(Axis::tensor), sum);
      const std::int64_t bytes = 2 * 2 * 2 * 4 * 2 * row_length * 20 * 4 * (ranks - 1) / ranks;
      EXPECT_EQ(static_cast<std::int64_t>(plan.costs.exchange.within_node + plan.costs.exchange.across_nodes), bytes);
      before = trainer.exchange_traffic(Axis::tensor);
    };
    Variant copying = tensor_variant(ranks, ranks);
    copying.copies = true;
    (void)run({&model, &tokens, 2, "", /*evaluate=*/false, counted}, copying);
  }
}

/// A run of some steps, from and to a checkpoint ("": initialized, not saved), and then the model's files.
struct SavedRun {
  std::string from, to, model_to = {};
  int first = 0, steps = 2;
};

std::vector<double> run_and_save(const std::string& config, const Variant& v, const SavedRun& part) {
  const models::Model model = tensor_model(config, v.tensor);
  const RandomTokens tokens(800, 37);
  const io::Sampler sampler(io::count_samples(tokens.size(), v.tokens).samples, true, 11);
  std::vector<double> losses;
  run_local(v.world, [&](World& world) {
    train::Trainer trainer(world, options_of(model, v, 8));
    if (part.from.empty()) trainer.initialize();
    else {
      const io::CheckpointReader reader(world, part.from);
      (void)reader.load(model.params, trainer.plan().layout, trainer.state());
      trainer.parameters_changed();
      trainer.resume_at({part.first, 0});
    }
    for (int s = part.first; s < part.first + part.steps; ++s) {
      const auto report = trainer.step(tokens, sampler, s * v.global_batch, v.global_batch);
      if (world.rank() == 0) losses.push_back(report.loss);
    }
    io::SaveRequest request;
    request.directory = part.to;
    request.step = part.first + part.steps;
    request.params = model.params;
    request.layout = &trainer.plan().layout;
    request.state = trainer.state();
    if (!part.to.empty()) (void)io::CheckpointSave(world, request).commit();
    if (!part.model_to.empty())
      io::write_model(world, part.model_to, config, model.params, trainer.plan().layout, trainer.shards());
  });
  return losses;
}

std::vector<std::string> file_bytes(const std::string& directory) {
  std::vector<std::string> bytes;
  for (const auto& file : io::read_manifest(directory).files) bytes.push_back(bytes_of(directory + "/" + file.name));
  return bytes;
}

TEST(TensorFiles, ACheckpointHasTheBytesOfOneRanksAndAnyMeshContinuesIt) {
  for (const auto& [family, config] : {std::pair{"qwen2", tensor_config("qwen2", 4)},
                                       {"two key and value heads", tensor_config("qwen2", 2)},
                                       {"phi3", tensor_config("phi3", 4, R"(, "pad_token_id": 0)")},
                                       {"gpt2", config_json({.hidden = 24, .heads = 4})}}) {
    const TempDir folder(TempDir::Storage::memory);
    const auto path = [&](const char* name, int step) { return folder / strfmt("%s/checkpoint-%d", name, step); };
    for (const char* name : {"one", "begun", "again", "back"}) std::filesystem::create_directory(folder / name);
    // What initialization gives, and its model files.
    (void)run_and_save(config, tensor_variant(1, 1), {"", path("one", 0), folder / "model-one", 0, 0});
    (void)run_and_save(config, tensor_variant(4, 2), {"", path("begun", 0), folder / "model-split", 0, 0});
    EXPECT_TRUE(file_bytes(path("one", 0)) == file_bytes(path("begun", 0))) << family;
    EXPECT_TRUE(bytes_of(folder / "model-one/model.safetensors") == bytes_of(folder / "model-split/model.safetensors"));
    // One rank's state, read and saved by others.
    (void)run_and_save(config, tensor_variant(1, 1), {path("one", 0), path("one", 2), "", 0, 2});
    for (const auto& [world, ranks, strategy] : {std::tuple{4, 2, "3"}, {4, 4, "0"}, {4, 2, "0"}, {2, 2, "2"}}) {
      (void)run_and_save(config, tensor_variant(world, ranks, strategy), {path("one", 2), path("again", 2), "", 2, 0});
      EXPECT_TRUE(file_bytes(path("again", 2)) == file_bytes(path("one", 2))) << family << " " << world << " " << ranks;
      std::filesystem::remove_all(path("again", 2));
    }
    // And continued, to another mesh and back.
    const auto alone = run_and_save(config, tensor_variant(1, 1), {path("one", 2), "", "", 2, 4});
    const auto split = run_and_save(config, tensor_variant(4, 2), {path("one", 2), path("back", 4), "", 2, 2});
    const auto after = run_and_save(config, tensor_variant(2, 1, "1"), {path("back", 4), "", "", 4, 2});
    for (std::size_t s = 0; s < 4; ++s) EXPECT_NEAR(alone[s], s < 2 ? split[s] : after[s - 2], 1e-5) << s;
  }
}

TEST(TensorFiles, ModelsOfOtherMeshesAreRead) {
  const std::string config = tensor_config("llama", 2);
  const TempDir folder(TempDir::Storage::memory);
  (void)run_and_save(config, tensor_variant(1, 1), {"", "", folder / "model", 0, 1});
  const RandomTokens tokens(800, 37);
  const models::Model alone = tensor_model(config, 1), split = tensor_model(config, 2);
  expect_same_curve(run({&alone, &tokens, 2, folder / "model", false, {}}, tensor_variant(1, 1)),
                    run({&split, &tokens, 2, folder / "model", false, {}}, tensor_variant(4, 2)), "from files");
}

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
  EXPECT_THAT(tensor_refusal(tensor_config("llama", 4), 4, [](auto& o) { o.run.tokens = 14; }),
              HasSubstr("max_length 14 / tensor_parallel_size 4 = 3, and 2 tokens are left"));
  EXPECT_THAT(tensor_refusal(experts_config, 2), HasSubstr("for mixtures of experts"));
  EXPECT_THAT(tensor_refusal(tensor_config("olmo2", 4), 2), HasSubstr("without norms before attention"));
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
  EXPECT_THAT(tensor_refusal(tensor_config("llama", 4), 2,
                             [](auto& o) { o.run.purpose = plan::Purpose::evaluate, o.run.states.clear(); }),
              HasSubstr("evaluation and generation by themselves"));
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
  refuses("for quantized weights", [](auto& model) {
    models::add_lora(model, {.rank = 3, .alpha = 6});
    models::quantize(model, QuantFormat::nf4);
  });
  refuses("--max_unit_size", [](auto& model) { model.in_row_parts = true; });  // split_rows
  refuses("--context_parallel_size", [](auto& model) { models::share_rows(model, 2); });
  refuses("losses over sequences", [&](auto& model) {
    models::add_reference(model, models::make(config, "test"), models::ReferenceParams::own);
  });
}

}  // namespace
}  // namespace tessera::test
