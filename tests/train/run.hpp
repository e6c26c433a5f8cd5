// SPDX-License-Identifier: Apache-2.0
#pragma once
// A short training run of a small model, on ranks as threads, with its results unsharded.

#include <functional>
#include <string>
#include <vector>

#include "runtime/train/trainer.hpp"
#include "tests/comm/delayed_world.hpp"

namespace tessera::test {

/// A token stream that counts through a fixed pseudo-random sequence.
class RandomTokens : public io::TokenStream {
 public:
  RandomTokens(std::int64_t size, std::int32_t vocab);
  explicit RandomTokens(std::vector<std::int32_t> ids) : ids_(std::move(ids)) {}
  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(ids_.size()); }
  void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override;

 private:
  std::vector<std::int32_t> ids_;
};

/// A stream whose token i has the weight weights[i modulo their number].
class WeightedTokens : public io::TokenStream {
 public:
  WeightedTokens(std::shared_ptr<const io::TokenStream> source, std::vector<float> weights)
      : source_(std::move(source)), weights_(std::move(weights)) {}
  [[nodiscard]] std::int64_t size() const override { return source_->size(); }
  void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override {
    source_->read(first, count, out);
  }
  [[nodiscard]] bool weighted() const override { return true; }
  void read_weights(std::int64_t first, std::int64_t count, float* out) const override {
    for (std::int64_t i = 0; i < count; ++i) out[i] = weights_[static_cast<std::size_t>(first + i) % weights_.size()];
  }

 private:
  std::shared_ptr<const io::TokenStream> source_;
  std::vector<float> weights_;
};

struct ModelShape {
  int layers = 2, hidden = 24, heads = 3, vocab = 37, positions = 16;
};
[[nodiscard]] std::string config_json(const ModelShape& shape);
/// Small models of other families: one like Llama with QK norm, one with experts and load-balancing loss.
inline constexpr const char* qwen3_config =
    R"({"model_type": "qwen3", "vocab_size": 37, "max_position_embeddings": 16, "hidden_size": 20, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 26, "tie_word_embeddings": true})";
inline constexpr const char* experts_config =
    R"({"model_type": "qwen3_moe", "vocab_size": 37, "max_position_embeddings": 16, "hidden_size": 20,
  "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 26,
  "moe_intermediate_size": 10, "num_experts": 5, "num_experts_per_tok": 2, "norm_topk_prob": true, "mlp_only_layers": [1],
  "output_router_logits": true, "router_aux_loss_coef": 0.1})";

/// Freezes the parameters whose names `frozen` is true of.
void freeze(models::Model& model, const std::function<bool(const std::string& name)>& frozen);
struct FrozenSet {
  const char* name;
  bool (*frozen)(const std::string& name);
};
/// Of the models above: the embedding (and the head that is tied to it), all but layer 1, every second layer, all but
/// norms, all but the head.
extern const FrozenSet frozen_sets[5];

/// What may vary in a run.
struct Variant {
  int world = 1;
  std::string strategy = "3";
  int group = 0;    // shard group, 0: the strategy's default
  int context = 1;  // ranks that share rows; the model has been told
  int tensor = 1;   // ranks that have parts of the same matrices; the model has been told
  std::vector<shard::UnitStrategy> unit_strategies;
  std::int64_t global_batch = 4, micro_batch = 1, tokens = 9;
  std::int64_t row_stride = 0;  // RunSpec::row_stride
  shard::Reduce reduce = shard::Reduce::each;
  int prefetch = 1;
  bool recompute = false, selective = false, keep_all = false, reproducible = false, reshard = true;
  bool padding_free = false;  // samples end to end
  bool copies = false;        // no shared memory between the threads
  int ranks_per_node = 0;
  shard::ExpertUnits experts = shard::ExpertUnits::own;
  shard::WrapPolicy wrap = {};
  Stream::Mode streams = Stream::Mode::threaded;
  Delay delay;
  shard::StatePlacement placement;
  std::string nvme_path = {};  // of states on disk
  bool offload_activations = false;
  bool updates_before_norm = false;
  DType dtype = DType::f32, reduce_dtype = DType::f32;
  shard::Compression compression;
  train::LossScaleOptions loss_scale;  // of fp16
  train::OptimizerOptions optimizer;   // its weight decay is the next line's
  double learning_rate = 1e-2, max_grad_norm = 1.0, weight_decay = 0.1;
  [[nodiscard]] std::string str() const;
};

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<double> aux_losses;  // of experts: of each step, of all layers together and then of each
  std::vector<std::int64_t> tokens;
  // Unsharded, in canonical order: after the last step; of the last step (of frozen parameters 0).
  std::vector<float> params, grads;
  std::vector<std::int64_t> param_offsets;  // where each parameter starts in the two
  std::vector<std::int32_t> generated;
  double eval_loss = 0;
};

struct RunInput {
  const models::Model* model = nullptr;
  const io::TokenStream* tokens = nullptr;
  int steps = 3;
  std::string model_directory;  // start from its weights; "": initialize
  bool evaluate = false;
  std::function<void(train::Trainer&)> after_step;  // on every rank
};

[[nodiscard]] train::TrainerOptions options_of(const models::Model& model, const Variant& variant, int steps);
[[nodiscard]] Outcome run(const RunInput& input, const Variant& variant);

/// The elements of a tensor of any memory: fp32, or bf16, fp16 or bytes, widened.
[[nodiscard]] std::vector<float> as_floats(const TensorView& tensor);

/// "" if both are equal bit for bit, else the first difference.
[[nodiscard]] std::string difference(const Outcome& a, const Outcome& b);

}  // namespace tessera::test
