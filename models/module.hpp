#pragma once
// Module and Model: what is computed, and what it needs. Nothing here knows of ranks, shards or schedules.
//
// A Model is an ordered list of modules that hand one activation (B, T, C) on. Parameters are the model's; a module
// names the ones it reads by index, and several modules may read the same one (tied weights): then its gradient has
// several contributors.

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/balance.hpp"
#include "runtime/base/param.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"
#include "runtime/base/tensor_use.hpp"

namespace tessera::models {

/// Rows and tokens of a micro-batch, and where it is computed: kernels' scratch depends on it.
struct BatchShape {
  std::int64_t batch = 0, tokens = 0;  // B, T
  Device device = host_device;
  friend bool operator==(const BatchShape&, const BatchShape&) = default;
};

/// train: keep what backward needs.  eval: loss only.  logits: the last module writes the last token's logits.
enum class Phase : unsigned char { train, eval, logits };

/// The micro-batch as the ends of the model see it. Pointers into memory that stays; values change between steps.
struct Batch {
  TensorView ids;      // (B, T) int32
  TensorView targets;  // (B, T) int32, ignore_index where no loss; absent in Phase::logits
  const double* loss_scale =
      nullptr;  // 1 / valid tokens of the global batch; train only. On a device: its memory, as sums
  kernels::LossSums* sums = nullptr;  // added to
  TensorView
      logits;  // (B, V) of the activations' type or fp32, Phase::logits only: those of the last token of each row
  /// (B, T) int32; absent: 0 … T-1 in every row. In training and evaluation rows are packed: a document begins where it
  /// is 0, sees itself alone, and one of a single token without a target is padding (kernels/padding.hpp).
  TensorView positions;
  TensorView
      router;  // (layers with experts, 2, E) f64: choices and probabilities, written by forward; absent: not wanted
  const std::int32_t* lengths =
      nullptr;  // (B), Phase::logits only: tokens of each row, padding stands behind them (host memory); null: T in all
};

/// What the batch says of its tokens: which of them are padding, on which nothing may depend.
[[nodiscard]] inline kernels::TokenFields words_of(const Batch& batch) { return {batch.positions, batch.targets}; }
/// What its balance losses are made of, once all layers have chosen.
[[nodiscard]] inline kernels::BalanceArgs balance_of(const Batch& batch) {
  return {batch.router, words_of(batch), batch.loss_scale};
}

/// What a module keeps of the tokens that earlier passes of a generation have shown it (keys and values). A pass is
/// Phase::logits; without Batch::positions it is the first, with them the tokens of row b stand behind
/// positions[b][0] tokens that the cache holds.
struct Cache {
  TensorView bytes;  // cache_bytes(room) as u8; absent: no cache, a pass shows all tokens
  BatchShape room;   // rows, and tokens of a row, that it is cut for
};

struct ForwardArgs {
  Phase phase = Phase::train;
  BatchShape shape;
  std::span<const TensorView> params;  // in the order of Module::params()
  TensorView x;                        // (B, T, C); absent for the first module
  TensorView y;                        // (B, T, C), never x; absent for the last module
  TensorView saved;                    // saved_bytes(shape) as u8, train only; the same bytes come to backward
  TensorView workspace;                // workspace_bytes(shape) as u8, nothing kept
  const Batch* batch = nullptr;
  Cache cache;  // Phase::logits only
  StreamView stream = host_stream;
};

struct BackwardArgs {
  BatchShape shape;
  std::span<const TensorView> params;
  std::span<const TensorView> dparams;  // in the order of params(); of the activations' type, or fp32 beside halves
  std::span<const std::uint8_t> accumulate;  // per parameter: add to dparams, or overwrite (every element)
  TensorView x;                              // the forward's input, unchanged
  TensorView saved, workspace;
  TensorView dy;  // (B, T, C): gradient of the output; absent for the last module
  TensorView dx;  // (B, T, C): to write; the same memory as dy; absent for the first module
  const Batch* batch = nullptr;
  StreamView stream = host_stream;
};

class Module {
 public:
  virtual ~Module() = default;
  /// "embed", "h.3", "head": also the name of the shard unit that its own parameters form.
  [[nodiscard]] virtual std::string name() const = 0;
  /// Modules that follow one another and have one group may have one shard unit, of that name, in
  /// common: a layer and its experts.
  [[nodiscard]] virtual std::string group() const { return name(); }
  /// Indices into Model::params() that forward or backward read, own ones and tied ones.
  [[nodiscard]] virtual std::span<const int> params() const = 0;
  /// False if forward in Phase::train reads no parameter (a head that makes loss and gradient in one go, in backward).
  [[nodiscard]] virtual bool train_forward_reads_params() const { return true; }
  /// False if backward reads no parameter values, only writes gradients (an embedding).
  [[nodiscard]] virtual bool backward_reads_params() const { return true; }

  virtual void forward(const ForwardArgs& args) const = 0;
  virtual void backward(const BackwardArgs& args) const = 0;

  // Pure functions of the shape, for the plan. dtype is that of activations.
  [[nodiscard]] virtual std::size_t saved_bytes(BatchShape shape, DType dtype) const = 0;
  [[nodiscard]] virtual std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const = 0;
  /// Of Cache: a multiple of the rows of `room`. 0: the module looks at each token by itself.
  [[nodiscard]] virtual std::size_t cache_bytes(BatchShape room, DType dtype) const {
    return (void)room, (void)dtype, std::size_t{0};
  }
  /// Multiply-adds count two. Forward; backward is backward_flops. As the MFU formula counts them (causal not halved).
  [[nodiscard]] virtual double forward_flops(BatchShape shape) const = 0;
  [[nodiscard]] virtual double backward_flops(BatchShape shape) const { return 2 * forward_flops(shape); }
};

/// The mixtures of experts in a model.
struct RouterInfo {
  int layers = 0;  // with experts
  std::int64_t experts = 0;
  double balance = 0;  // coefficient of the balance loss; 0: it is measured, and not trained on

  /// Balance losses of a step: of all layers together, then of each; none without experts.
  [[nodiscard]] int num_losses() const { return layers > 0 ? layers + 1 : 0; }
};

/// An ordered list of modules with their parameters. The first reads ids, the last makes the loss.
struct Model {
  std::string family;             // "gpt2"
  std::vector<ParamSpec> params;  // canonical names, in canonical order
  std::vector<std::unique_ptr<Module>> modules;
  std::int64_t hidden = 0;  // C of the activation between modules
  std::int64_t vocab = 0;
  std::int64_t max_tokens = 0;  // longest sequence
  bool packs = false;           // every module minds Batch::positions in training and evaluation
  DType dtype = DType::f32;     // of parameters and activations, bf16 and f16 among them; f64 in gradient checks

  [[nodiscard]] std::int64_t num_params() const;
  /// Parameters in matrix products per token (norms, biases and lookups do not count; a tied head does): N of
  /// 6·N·tokens.
  [[nodiscard]] std::int64_t num_matmul_params() const { return matmul_params; }
  std::int64_t matmul_params = 0;
  /// 6·N_matmul + 12·L·H·T, the PaLM count of training FLOPs per token.
  [[nodiscard]] double train_flops_per_token(std::int64_t tokens) const;
  /// The same of `tokens` in sequences of their own whose squared lengths add up to `squares`:
  /// 6·N_matmul·tokens + 12·L·H·squares.
  [[nodiscard]] double train_flops(double tokens, double squares) const;
  std::int64_t attention_width = 0;  // Σ over layers of heads·head_dim
  RouterInfo router;
  std::string
      dropout;  // what its config asks for, "attn_pdrop = 0.1": not built, and worth a warning where it is trained
  std::map<std::string, TensorUse> aliases;  // tensors of files that are not simply a parameter of their name
};

/// The model of a Hugging Face config.json (its text). Throws Error (usage) naming the key that is missing, malformed,
/// absurd or would change the mathematics and is not supported. `source` is the file's name, for messages.
[[nodiscard]] Model make(const std::string& config_json, const std::string& source, DType dtype = DType::f32);

/// Canonical name of a tensor in a model file ("transformer.h.0.ln_1.weight" -> "h.0.ln_1.weight"); "" for one to be
/// ignored.
[[nodiscard]] std::string canonical_name(const Model& model, const std::string& name);
/// What a tensor of a model file is: canonical_name, and what one name cannot say (fused experts,
/// a tied head that is stored too).
[[nodiscard]] TensorUse tensor_use(const Model& model, const std::string& name);

}  // namespace tessera::models
