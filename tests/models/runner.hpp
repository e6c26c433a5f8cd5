// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runner: runs a model's modules in sequence on guarded memory, without a trainer. Every buffer has exactly the
// requested size, lies between guard bytes, and is filled with NaN.

#include <functional>
#include <memory>
#include <vector>

#include "guarded.hpp"
#include "models/module.hpp"

namespace tessera::test {

/// config.json of small models: vocabulary 11, two blocks.
inline constexpr const char* small_gpt2 =
    R"({"model_type": "gpt2", "vocab_size": 11, "n_positions": 7, "n_embd": 6, "n_layer": 2, "n_head": 2, "n_inner": 10})";
inline constexpr const char* small_llama =
    R"({"model_type": "llama", "vocab_size": 11, "max_position_embeddings": 16, "hidden_size": 6, "num_hidden_layers": 2,
  "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 7, "attention_bias": true, "mlp_bias": true})";

/// Element i of a floating-point tensor as double; set rounds to the tensor's type.
double get(const TensorView& tensor, std::int64_t i);
void set(const TensorView& tensor, std::int64_t i, double value);
std::vector<double> values(const TensorView& tensor);
double norm(const TensorView& tensor);
/// Ids below `vocab` for every token, a function of the key.
std::vector<std::int32_t> random_ids(models::BatchShape shape, std::int32_t vocab, std::uint64_t key);

struct Step {
  bool in_place = true;    // dx is dy's memory
  bool recompute = false;  // saved is cleared and recomputed before backward
  bool selective = false;  // with selective checkpointing: the kept tensors stay
  std::vector<std::uint8_t>
      accumulate;  // per parameter of the model, before its first contributor; empty: overwrite all
};

class Runner {
 public:
  /// Where parameters and gradients lie: each in memory of its own between guards, or one after the other in the
  /// order of the modules, as in the flat buffers of units.
  enum class Layout : unsigned char { apart, adjacent };
  /// Memory for micro-batches of up to `most` rows; gradients of parameters of the model's type, or of `gradients`.
  Runner(const models::Model& model, models::BatchShape most, Layout layout = Layout::apart)
      : Runner(model, most, model.dtype, layout) {}
  Runner(const models::Model& model, models::BatchShape most, DType gradients, Layout layout = Layout::apart);

  /// Matrices and tables N(0, 0.3), biases N(0, 0.2), norm weights 1 + N(0, 0.2).
  void randomize(std::uint64_t seed);
  [[nodiscard]] const TensorView& param(int i) const { return params_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] const TensorView& grad(int i) const { return grads_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] int index(const std::string& name) const;

  /// Forward and backward over all modules; ids and targets are (batch, tokens). Gradients of frozen parameters are
  /// absent, and so is what only modules below the lowest trainable parameter need. Returns the mean loss of the sums
  /// it adds to.
  double train(models::BatchShape shape, const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& targets,
               double loss_scale, const Step& step = {});
  double evaluate(models::BatchShape shape, const std::vector<std::int32_t>& ids,
                  const std::vector<std::int32_t>& targets);
  std::vector<double> logits(models::BatchShape shape, const std::vector<std::int32_t>& ids);
  /// Generation: allocates the KV cache, filled with NaN; then passes that extend it (positions empty: the first pass).
  void open_cache(models::CacheShape capacity);
  std::vector<double> cached_logits(models::BatchShape shape, const std::vector<std::int32_t>& ids,
                                    const std::vector<std::int32_t>& positions,
                                    const std::vector<std::int32_t>& lengths);
  kernels::LossSums sums;
  std::vector<std::int32_t> packed;  // Batch::positions of train and evaluate; empty: absent
  TensorView router;                 // Batch::router of the last pass; absent without experts

  /// Compares one module's gradients (parameters and input) with finite differences. Fails the test where they differ.
  void check_module(std::size_t module, models::BatchShape shape, const std::vector<std::int32_t>& ids,
                    const std::vector<std::int32_t>& targets);
  /// Gradients of one module alone, on random input: of the parameters with wanted[i], by position in the module, and
  /// of the input; the others are absent and empty. Fails the test if backward writes other gradients' buffers or its
  /// input.
  struct ModuleGradients {
    std::vector<std::vector<double>> params;
    std::vector<double> dx;
    double loss = 0;  // of the last module
  };
  double backward_gemm_flops = 0;            // of the last module_gradients
  std::vector<double> recompute_gemm_flops;  // by module, of the last train
  ModuleGradients module_gradients(std::size_t module, models::BatchShape shape, const std::vector<std::int32_t>& ids,
                                   const std::vector<std::int32_t>& targets, const std::vector<std::uint8_t>& wanted,
                                   bool dx);
  /// Fails the test if any guard changed.
  void check_guards() const;

 private:
  struct Cut {  // this call's views of the buffers
    std::vector<TensorView> activations, params, grads;
  };
  void forward(std::size_t module, models::Phase phase, models::BatchShape shape, const models::Batch& batch,
               bool again = false);
  /// Clears what `module` saves, or what it recomputes, and runs forward again. Fails the test if its output changes.
  void recompute(std::size_t module, models::BatchShape shape, const models::Batch& batch);
  /// Whether the module has kept_ and recomputed_ in place of saved_.
  [[nodiscard]] bool splits(std::size_t module) const {
    return selective_ && model_.modules[module]->split_saved_bytes(most_, model_.dtype).split();
  }
  void backward(std::size_t module, models::BatchShape shape, const models::Batch& batch, const TensorView& dy,
                const TensorView& dx, std::vector<std::uint8_t>& accumulate);
  [[nodiscard]] std::vector<TensorView> of(std::size_t module, const std::vector<TensorView>& all) const;
  [[nodiscard]] TensorView activation(std::size_t boundary, models::BatchShape shape) const;
  /// The batch of a test of one module, whose x and dy (gradient_a_) become random.
  [[nodiscard]] models::Batch module_inputs(std::size_t module, models::BatchShape shape,
                                            const std::vector<std::int32_t>& ids,
                                            const std::vector<std::int32_t>& targets, const double& loss_scale,
                                            kernels::LossSums& loss);

  const models::Model& model_;
  models::BatchShape most_;
  std::vector<std::unique_ptr<Guarded>> buffers_;
  std::vector<TensorView> params_, grads_;
  std::vector<Guarded*> saved_, kept_, recomputed_, boundaries_;
  bool selective_ = false;
  Guarded* workspace_[3] = {};    // by phase
  std::vector<Guarded*> caches_;  // by module
  models::CacheShape capacity_;
  Guarded *gradient_a_ = nullptr, *gradient_b_ = nullptr;
};

}  // namespace tessera::test
