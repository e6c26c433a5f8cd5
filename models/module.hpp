// SPDX-License-Identifier: Apache-2.0
#pragma once
// Module and Model: the computation, and the memory and FLOPs it needs. Nothing here knows of ranks, shards or
// schedules.
//
// A Model is an ordered list of modules, each of which passes one activation (B, T, C) to the next. The model owns the
// list of parameters; a module names those it reads by index. Several modules may read one parameter (tied weights):
// its gradient is then the sum of theirs.

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/batch.hpp"
#include "models/lora.hpp"
#include "models/params.hpp"
#include "runtime/base/param.hpp"
#include "runtime/base/stages.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"
#include "runtime/base/tensor_use.hpp"

namespace tessera::models {

/// Rows and tokens of a micro-batch, and the device, on which the kernels' scratch depends.
struct BatchShape {
  std::int64_t batch = 0, tokens = 0;  // B, T
  Device device = host_device;
  std::int64_t longest = 0;  // most tokens of a document: its positions are below; 0: T
  /// In training: outputs of norms and of activation functions are saved too, not computed again in backward.
  bool saves_outputs = false;
  bool packed = false;    // rows hold documents: Batch::positions, and Batch::documents where attention takes them
  bool whole = false;     // in generation: ranks that have parts of matrices have all tokens, which `tokens` counts
  std::int64_t ends = 0;  // of sequences that are one row, end to end: how many a loss over sequences has; 0: B
  [[nodiscard]] std::int64_t num_sequences() const { return ends > 0 ? ends : batch; }
  [[nodiscard]] std::int64_t num_positions() const { return longest > 0 ? longest : tokens; }
  friend bool operator==(const BatchShape&, const BatchShape&) = default;
};

/// train: saves what backward needs. eval: loss only. logits: the last module writes the logits of each row's last
/// token.
enum class Phase : unsigned char { train, eval, logits };

/// What a KV cache is allocated for.
struct CacheShape {
  std::int64_t batch = 0, tokens = 0;  // rows; of the longest row, prompt and new tokens
  std::int64_t pass_tokens = 1;        // most tokens of a row in a pass that continues
};

/// A module's KV cache during generation. Every pass is Phase::logits. Without Batch::positions it is the first pass;
/// with them, row b continues after the positions[b][0] tokens in the cache.
struct Cache {
  TensorView bytes;  // cache_bytes(capacity) as u8; absent: no cache, every pass gets all tokens
  CacheShape capacity;
};

/// Bytes that a module saves for backward. Selective checkpointing keeps a part of them from forward to backward, and
/// recomputes the others before backward, in memory that modules use in turn.
struct SavedBytes {
  std::size_t kept = 0, recomputed = 0;
  [[nodiscard]] std::size_t total() const { return kept + recomputed; }
  /// Whether selective checkpointing has two blocks of memory for the module.
  [[nodiscard]] bool split() const { return kept > 0 && recomputed > 0; }
};

/// The ranks that an exchange is among; the plan knows them. What a module gathers or sends depends on how many they
/// are, which it is told when it is made.
enum class RankGroup : unsigned char { data, context, tensor, expert };

/// What a module with stages passes from one to the next, and what is exchanged between them. A module sees no
/// communicator: the executor runs its stages, and the exchanges between them.
struct ModuleStages {
  struct Exchange : StageExchange {
    RankGroup over{};
  };
  std::vector<StageValue> values;
  std::vector<ModuleStage> stages;  // empty: one that passes nothing on
  std::vector<Exchange> exchanges;
};

struct ForwardArgs {
  Phase phase = Phase::train;
  BatchShape shape;
  std::span<const TensorView> params;  // in the order of Module::params()
  TensorView x;                        // (B, T, C); absent for the first module
  TensorView y;                        // (B, T, C), never x; absent for the last module
  TensorView saved;                    // saved_bytes(shape) as u8, train only; backward gets the same bytes
  /// With selective checkpointing, of a module with SavedBytes::split: the kept bytes; `saved` is then the others.
  TensorView kept;
  /// True: once more before backward, for what `saved` lost since (train only); `kept` has what it had. Everything
  /// becomes what it was, bitwise. Work for what is there already may be left out.
  bool recompute = false;
  bool writes_y = true;  // false, in recompute: y has the output, which need not be written again
  TensorView workspace;  // workspace_bytes(shape) as u8, scratch
  const Batch* batch = nullptr;
  Cache cache;  // Phase::logits only
  /// Of a module with stages: which one runs, and the memory of its values, value_bytes(shape) as u8. Every stage has
  /// the same x, saved and y, which the last one writes, and the ones before may. The workspace does not last from one
  /// to the next.
  int stage = 0;
  std::span<const TensorView> values;
  StreamView stream = host_stream;
};

struct BackwardArgs {
  BatchShape shape;
  std::span<const TensorView> params;
  /// In the order of params(); of the activations' type, or, beside 16-bit activations, fp32. Absent: the parameter is
  /// frozen; nothing is computed for it. What is computed has the same bits, whatever else is wanted.
  std::span<const TensorView> dparams;
  std::span<const std::uint8_t> accumulate;  // per parameter: add to dparams, or overwrite (every element)
  TensorView x;                              // the forward's input, unchanged
  TensorView saved, kept, workspace;         // saved, kept: as in ForwardArgs; backward may overwrite them
  TensorView dy;                             // (B, T, C): gradient of the output; absent for the last module
  /// (B, T, C): to write; may be the memory of dy. Absent for the first module, and where no earlier module has a
  /// trainable parameter: nothing is computed for it alone, and backward may overwrite dy.
  TensorView dx;
  const Batch* batch = nullptr;
  /// As in ForwardArgs: stages run from the last, which reads dy, to the first, which writes dx. What one leaves in dy,
  /// which it may overwrite, the next one finds there; none but the first touches dx. Each computes the
  /// gradients of its own parameters. Values that are not kept hold anything.
  int stage = 0;
  std::span<const TensorView> values, value_gradients;
  StreamView stream = host_stream;

  [[nodiscard]] Gradients grads() const { return {dparams, accumulate}; }
  [[nodiscard]] Wanted wanted() const { return {dparams, static_cast<bool>(dx)}; }
};

class TensorSplit;

class Module {
 public:
  virtual ~Module() = default;
  /// Gives its Linears the adapters that `adapters` chooses, which params() then has, too.
  virtual void adapt(AdapterMaker& adapters) { (void)adapters; }
  /// "embed", "h.3" or "layers.3", "layers.3.experts", "head": also the name of the shard unit of its own parameters.
  [[nodiscard]] virtual std::string name() const = 0;
  /// Consecutive modules of one group, such as a layer and its experts, may form one shard unit of that name.
  [[nodiscard]] virtual std::string group() const { return name(); }
  /// Indices into Model::params of the parameters that forward or backward read, its own and tied ones.
  [[nodiscard]] virtual std::span<const int> params() const = 0;
  /// False if forward reads no parameter in this phase (in training, a head that computes loss and gradient in
  /// backward).
  [[nodiscard]] virtual bool forward_reads_params(Phase phase) const { return (void)phase, true; }
  /// False if backward reads no parameter values (an embedding).
  [[nodiscard]] virtual bool backward_reads_params() const { return true; }

  /// Why it cannot work on parts of rows that ranks share, in words; "": it can.
  [[nodiscard]] virtual std::string context_refusal(ContextShare share) const { return (void)share, std::string(); }
  /// Each row is on so many ranks: BatchShape::tokens is then of a rank. Called by share_rows (context.hpp) alone.
  virtual void set_context(ContextShare share) { (void)share; }
  /// Its matrices, if it divides any, are in parts from now on: BatchShape::tokens is of a rank, of the micro-batch's
  /// rows end to end. Called by split_tensors (tensor_split.hpp) alone. Throws Error (usage): it cannot be divided so.
  virtual void split(const TensorSplit& over) { (void)over; }
  /// Over RankGroup::tensor, what they gather and scatter in training is with BatchShape::whole copied and reduced, and
  /// what they send to one another (all_to_all) is gathered.
  [[nodiscard]] virtual ModuleStages stages(Phase phase) const { return (void)phase, ModuleStages(); }
  virtual void forward(const ForwardArgs& args) const = 0;
  /// Computes the gradients that have memory, dparams and dx in any combination. The last module also computes the
  /// loss, even if no gradient is wanted.
  virtual void backward(const BackwardArgs& args) const = 0;

  // Pure functions of the shape, for the plan, which never fall as the shape grows: memory is planned for the largest
  // micro-batch. `dtype`: of activations.
  [[nodiscard]] virtual std::size_t saved_bytes(BatchShape shape, DType dtype) const = 0;
  /// The same bytes as selective checkpointing divides them. By default nothing is kept.
  [[nodiscard]] virtual SavedBytes split_saved_bytes(BatchShape shape, DType dtype) const {
    return {.kept = 0, .recomputed = saved_bytes(shape, dtype)};
  }
  [[nodiscard]] virtual std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const = 0;
  /// Bytes of a value of stages(), and of its gradient. What an exchange has summed is fp32, what it sums of `dtype`;
  /// others are what the stages make of them, in whole elements of `dtype`.
  [[nodiscard]] virtual std::size_t value_bytes(int value, BatchShape shape, DType dtype) const {
    return (void)value, (void)shape, (void)dtype, std::size_t{0};
  }
  [[nodiscard]] virtual std::size_t value_gradient_bytes(int value, BatchShape shape, DType dtype) const {
    return value_bytes(value, shape, dtype);
  }
  /// Bytes of Cache: proportional to the rows of `capacity`; with a window, those of the window at most. 0: the module
  /// treats each token by itself.
  [[nodiscard]] virtual std::size_t cache_bytes(CacheShape capacity, DType dtype) const {
    return (void)capacity, (void)dtype, std::size_t{0};
  }
  /// FLOPs of forward, a multiply-add counting two, as the MFU formula has them (the causal half is not subtracted).
  [[nodiscard]] virtual double forward_flops(BatchShape shape) const = 0;
  /// FLOPs of forward with ForwardArgs::recompute, without writes_y. `keeps`: with ForwardArgs::kept.
  [[nodiscard]] virtual double recompute_flops(BatchShape shape, bool keeps) const {
    return (void)keeps, forward_flops(shape);
  }
  /// FLOPs of forward that backward repeats whatever is kept.
  [[nodiscard]] virtual double repeated_flops(BatchShape shape) const { return (void)shape, 0.0; }
  /// FLOPs of backward for these gradients, without repeated ones. By default as one GEMM: forward's for dx, and
  /// forward's for the parameters.
  [[nodiscard]] virtual double backward_flops(BatchShape shape, const Wanted& wanted) const {
    return (wanted.dx() && wanted.any_param()   ? 2.0
            : wanted.dx() || wanted.any_param() ? 1.0
                                                : 0.0) *
           forward_flops(shape);
  }
};

/// The mixtures of experts of a model.
struct RouterInfo {
  int layers = 0;  // with experts
  std::int64_t experts = 0;
  double balance = 0;  // coefficient of the balance loss; 0: the loss is measured, not trained on
  /// Numbers of Batch::router.
  [[nodiscard]] std::int64_t num_statistics() const { return layers * 2 * experts; }

  /// Number of balance losses of a step: of all layers together, then of each; 0 without experts.
  [[nodiscard]] int num_losses() const { return layers > 0 ? layers + 1 : 0; }
};

/// FLOPs of sequences, a multiply-add counting two: terms of their tokens and of their squared lengths, and of
/// attention in a window of tokens·min(length, window).
struct FlopTerms {
  double per_token = 0, per_square = 0;
  std::map<std::int64_t, double> per_key = {};  // by window

  FlopTerms& operator+=(const FlopTerms& more);
  /// Of sequences with `tokens` in all, whose squared lengths sum to `squares`. In a window min(squares,
  /// window·tokens): exact for sequences of one length.
  [[nodiscard]] double of(double tokens, double squares) const;
};

/// An ordered list of modules with their parameters. The first reads ids, the last computes the loss.
struct Model {
  std::string family;             // "gpt2"
  std::vector<ParamSpec> params;  // canonical names, in canonical order
  std::vector<std::unique_ptr<Module>> modules;
  std::vector<std::unique_ptr<Module>> reference;  // of a reference model: add_reference; empty: none
  /// Whether the module is between embedding and head.
  [[nodiscard]] bool is_block(std::size_t module) const { return module > 0 && module + 1 < modules.size(); }
  std::int64_t hidden = 0;            // C of the activation between modules
  std::int64_t reference_hidden = 0;  // the same of the reference model; 0: there is none
  int num_metrics = 0;                // sums that the head's loss adds to Batch::metrics
  /// What a step sums beside its loss: the balance losses, then the metrics.
  [[nodiscard]] int num_extra_sums() const { return router.num_losses() + num_metrics; }
  bool writes_sequences = false;  // the head's loss writes Batch::sequence_values
  /// Of a reward model, whose head gives each sequence a score and no logits: the index of its weight; else -1.
  int score = -1;
  std::int32_t pad_token = -1;  // of a reward model: a sequence's score is of its last token that is another one
  std::int64_t vocab = 0;
  std::int64_t max_tokens = 0;  // longest sequence
  std::string why_max;          // "": these are the model's positions; else why longer ones are not computed
  bool packs = false;           // every module respects Batch::positions in training and evaluation (packing)
  DType dtype = DType::f32;     // of activations, and of parameters as modules read them; fp64 in gradient checks

  /// why_max after "positions" in messages.
  [[nodiscard]] std::string limit_note() const { return why_max.empty() ? why_max : " (" + why_max + ")"; }
  [[nodiscard]] std::int64_t num_params() const;
  [[nodiscard]] std::int64_t num_own_params() const;
  /// Those that are not a reference model's: what is saved.
  [[nodiscard]] std::span<const ParamSpec> own_params() const {
    return std::span(params).first(params.size() - reference_params);
  }
  std::size_t reference_params = 0;  // how many of the last ones only the reference model reads
  /// Parameters in GEMMs per token, N of 6·N·tokens: no norms, biases or lookups; a tied head counts.
  [[nodiscard]] std::int64_t num_matmul_params() const;
  /// The first module that reads a trainable parameter; modules.size() if none does. Modules before it have no
  /// backward, and it computes no dx.
  [[nodiscard]] std::size_t lowest_trainable() const;
  /// What backward of a module computes: gradients of its trainable parameters, and dx above lowest_trainable().
  [[nodiscard]] Wanted wanted(std::size_t module) const;
  /// FLOPs of a forward pass of its modules, and of training, with the forward of a reference model: 6·N_matmul and
  /// 12·L·H, as PaLM counts them, less what backward leaves out for frozen parameters. Of all ranks that divide a row.
  [[nodiscard]] FlopTerms forward_terms() const;
  [[nodiscard]] FlopTerms train_terms() const;
  [[nodiscard]] double train_flops(double tokens, double squares) const { return train_terms().of(tokens, squares); }
  [[nodiscard]] double train_flops_per_token(std::int64_t tokens) const;
  ContextShare context;  // share_rows
  int tensor_ranks = 1;  // split_tensors
  /// Before one of these divided the modules among ranks, some of which may then compute the same.
  std::optional<std::pair<FlopTerms, FlopTerms>> whole_flops;
  void keep_whole_flops() { whole_flops = {forward_terms(), train_terms()}; }
  RouterInfo router;
  std::optional<LoraAdapters> lora;  // add_lora
  std::string dropout;  // dropout in the config, "attn_pdrop = 0.1": not supported; training prints a warning
  std::map<std::string, TensorUse> aliases;  // tensors of model files that are not one parameter of the same name
};

/// The model of a Hugging Face config.json (its text). Throws Error (usage) with the key that is missing, malformed,
/// out of range or not supported. `source`: the file's name, for messages.
[[nodiscard]] Model make(const std::string& config_json, const std::string& source, DType dtype = DType::f32);

/// Canonical name of a tensor in a model file ("transformer.h.0.ln_1.weight" → "h.0.ln_1.weight"); "": ignored.
[[nodiscard]] std::string canonical_name(const Model& model, const std::string& name);
/// Parameters in a tensor of a model file: the canonical name, or fused experts, or a stored tied head.
[[nodiscard]] TensorUse tensor_use(const Model& model, const std::string& name);

}  // namespace tessera::models
