// SPDX-License-Identifier: Apache-2.0
#include "models/row_parts.hpp"

#include "kernels/cross_entropy_parts.hpp"
#include "kernels/embedding.hpp"
#include "kernels/embedding_parts.hpp"
#include "kernels/gemm.hpp"
#include "kernels/reduce.hpp"
#include "kernels/scale.hpp"
#include "models/embedding.hpp"
#include "models/head.hpp"
#include "runtime/base/error.hpp"

namespace tessera::models {

namespace {

/// One of the parts of a vocabulary matrix (V, C).
struct Part {
  int index = 0;
  std::int64_t vocab = 0, channels = 0;
  RowRange rows;
  [[nodiscard]] bool last() const { return rows.first + rows.count == vocab; }
  [[nodiscard]] std::string name(const char* module) const { return strfmt("%s.%d", module, index); }
  /// FLOPs of a GEMM of the tokens with its rows.
  [[nodiscard]] double flops(BatchShape shape) const {
    return 2.0 * static_cast<double>(shape.batch * shape.tokens) * static_cast<double>(rows.count) *
           static_cast<double>(channels);
  }
};

/// Parameters: its rows of the token embedding; of the last part also the positions, if there are any. The last one
/// scales the output, and its gradient.
class EmbeddingPart final : public Module {
 public:
  EmbeddingPart(const Part& part, std::vector<int> params, double scale)
      : part_(part), params_(std::move(params)), scale_(part.last() ? scale : 1) {}
  [[nodiscard]] std::string name() const override { return part_.name("embed"); }
  [[nodiscard]] std::span<const int> params() const override { return params_; }
  [[nodiscard]] RowRange rows(std::size_t i) const override { return i == 0 ? part_.rows : RowRange{}; }
  [[nodiscard]] bool backward_reads_params() const override { return false; }
  [[nodiscard]] bool in_place() const override { return part_.index > 0; }
  void forward(const ForwardArgs& args) const override {
    kernels::embedding_part_forward(
        {.ids = args.batch->ids, .tokens_table = at(args.params, 0), .first = part_.rows.first, .y = args.y});
    if (params_.size() > 1)
      kernels::add_positions({.positions_table = at(args.params, 1), .positions = args.batch->positions, .y = args.y});
    if (scale_ != 1) kernels::scale({args.y, scale_}, args.stream);
  }
  void backward(const BackwardArgs& args) const override {
    const Gradients grads = args.grads();
    if (scale_ != 1) kernels::scale({args.dy, scale_}, args.stream);  // other parts find it in the same memory
    if (grads[0])
      kernels::embedding_part_backward({.ids = args.batch->ids,
                                        .dy = args.dy,
                                        .first = part_.rows.first,
                                        .dtokens_table = grads[0],
                                        .accumulate = grads.adds(0)});
    if (params_.size() > 1)
      kernels::embedding_backward({.ids = args.batch->ids,
                                   .dy = args.dy,
                                   .dtokens_table = {},
                                   .dpositions_table = grads[1],
                                   .accumulate_positions = grads.adds(1),
                                   .positions = args.batch->positions},
                                  args.stream);
  }
  [[nodiscard]] std::size_t saved_bytes(BatchShape, DType) const override { return 0; }
  [[nodiscard]] std::size_t workspace_bytes(BatchShape, DType, Phase) const override { return 0; }
  [[nodiscard]] double forward_flops(BatchShape) const override { return 0; }

 private:
  Part part_;
  std::vector<int> params_;
  double scale_;
};

/// The final norm.
class HeadNorm final : public Module {
 public:
  HeadNorm(const Norm& norm, std::int64_t channels, std::vector<int> params)
      : norm_(norm), channels_(channels), params_(std::move(params)) {}
  [[nodiscard]] std::string name() const override { return "head.norm"; }
  [[nodiscard]] std::span<const int> params() const override { return params_; }
  void forward(const ForwardArgs& args) const override {
    ScratchAllocator allocator(args.saved);
    const std::int64_t rows = args.shape.batch * args.shape.tokens;
    const Norm::Saved saved =
        args.phase == Phase::train ? norm_.allocate(allocator, rows, args.x.dtype) : Norm::Saved{};
    norm_.forward(args.params, args.x.reshape({rows, channels_}), args.y.reshape({rows, channels_}), saved,
                  args.stream);
  }
  void backward(const BackwardArgs& args) const override {
    ScratchAllocator allocator(args.saved);
    const std::int64_t rows = args.shape.batch * args.shape.tokens;
    norm_.backward({.params = args.params,
                    .grads = args.grads(),
                    .x = args.x.reshape({rows, channels_}),
                    .dy = args.dy.reshape({rows, channels_}),
                    .dx = reshaped(args.dx, {rows, channels_}),
                    .saved = norm_.allocate(allocator, rows, args.x.dtype),
                    .workspace = args.workspace,
                    .stream = args.stream});
  }
  [[nodiscard]] std::size_t saved_bytes(BatchShape shape, DType dtype) const override {
    return bytes_of([&](ScratchAllocator& a) { (void)norm_.allocate(a, shape.batch * shape.tokens, dtype); });
  }
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const override {
    return phase == Phase::train ? norm_.workspace_bytes(dtype, shape.device) : 0;
  }
  [[nodiscard]] double forward_flops(BatchShape) const override { return 0; }

 private:
  Norm norm_;
  std::int64_t channels_;
  std::vector<int> params_;
};

/// What the two passes over the head's weight share. Parameters: their rows of the weight.
class HeadPass : public Module {
 public:
  HeadPass(const Part& part, int weight, const kernels::LogitRules& logits)
      : part_(part), weight_{weight}, logits_(logits) {}
  [[nodiscard]] std::span<const int> params() const override { return weight_; }
  [[nodiscard]] RowRange rows(std::size_t) const override { return part_.rows; }
  [[nodiscard]] bool in_place() const override { return true; }
  [[nodiscard]] std::size_t saved_bytes(BatchShape, DType) const override { return 0; }
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const override {
    if (phase == Phase::logits)
      return bytes_of([&](ScratchAllocator& a) { (void)a.take(dtype, {shape.batch, part_.channels}); });
    return kernels::cross_entropy_part_workspace(shape.batch * shape.tokens, part_.vocab, dtype);
  }

 protected:
  [[nodiscard]] kernels::CrossEntropyPart part_of(const Batch& batch, const TensorView& x, const TensorView& weight,
                                                  const TensorView& workspace) const {
    const Shape rows{x.shape[0] * x.shape[1]};
    return {.x = x.reshape({rows[0], part_.channels}),
            .weight = weight,
            .vocab = part_.vocab,
            .first = part_.rows.first,
            .logits = logits_,
            .targets = batch.targets.reshape(rows),
            .weights = reshaped(batch.loss_weights, rows),
            .rows = batch.loss_rows,
            .workspace = workspace};
  }
  Part part_;
  std::array<int, 1> weight_;
  kernels::LogitRules logits_;
};

/// The first pass: the loss, or logits.
class HeadLossPart final : public HeadPass {
 public:
  using HeadPass::HeadPass;
  [[nodiscard]] std::string name() const override { return part_.name("head"); }
  [[nodiscard]] bool backward_reads_params() const override { return false; }
  [[nodiscard]] bool has_param_gradients() const override { return false; }
  void forward(const ForwardArgs& args) const override {
    const Batch& batch = *args.batch;
    const TensorView& weight = at(args.params, 0);
    if (args.phase != Phase::logits)
      return kernels::cross_entropy_part(part_of(batch, args.x, weight, args.workspace), *batch.sums);
    ScratchAllocator allocator(args.workspace);
    const TensorView last = allocator.take(args.x.dtype, {args.shape.batch, part_.channels}),
                     x = args.x.reshape({args.shape.batch * args.shape.tokens, part_.channels});
    for (std::int64_t b = 0; b < args.shape.batch; ++b)
      copy(x.rows(b * args.shape.tokens + (batch.lengths ? batch.lengths[b] : args.shape.tokens) - 1, 1),
           last.rows(b, 1), args.stream);
    kernels::gemm({.a = last,
                   .b = weight,
                   .c = columns(batch.logits, part_.rows.first, part_.rows.count),
                   .trans_b = true,
                   .stride_c = part_.vocab},
                  args.stream);
    if (part_.last()) apply(logits_, batch.logits, args.stream);
  }
  void backward(const BackwardArgs&) const override {}
  [[nodiscard]] double forward_flops(BatchShape shape) const override { return part_.flops(shape); }
  [[nodiscard]] double backward_flops(BatchShape, const Wanted&) const override { return 0; }
};

/// The second pass: the gradients.
class HeadGradientPart final : public HeadPass {
 public:
  using HeadPass::HeadPass;
  [[nodiscard]] std::string name() const override { return part_.name("head") + ".grad"; }
  [[nodiscard]] bool forward_reads_params(Phase) const override { return false; }
  void forward(const ForwardArgs&) const override {}
  void backward(const BackwardArgs& args) const override {
    const Gradients grads = args.grads();
    if (!args.dx && !grads[0]) return;
    kernels::cross_entropy_part_backward(part_of(*args.batch, args.x, at(args.params, 0), args.workspace),
                                         {.loss_scale = *args.batch->loss_scale,
                                          .dx = reshaped(args.dx, {args.x.shape[0] * args.x.shape[1], part_.channels}),
                                          .dweight = grads[0],
                                          .accumulate = grads.adds(0)});
  }
  /// Of the loss, forward_flops of HeadLossPart.
  [[nodiscard]] double forward_flops(BatchShape) const override { return 0; }
  [[nodiscard]] double backward_flops(BatchShape shape, const Wanted& wanted) const override {
    return part_.flops(shape) * ((wanted[0] ? 1.0 : 0.0) + (wanted.dx() ? 1.0 : 0.0));
  }
};

/// Ranges of whole chunks of at most max_bytes. They begin with a block of the norm and of every optimizer's states.
std::vector<Part> parts_of(const ParamSpec& weight, std::int64_t max_bytes) {
  constexpr std::int64_t block = 256;
  static_assert(block % static_cast<std::int64_t>(kernels::norm_block) == 0);
  const std::int64_t vocab = weight.shape[0], channels = weight.shape[1];
  const auto row_bytes = channels * static_cast<std::int64_t>(sizeof(float));
  std::int64_t step = kernels::cross_entropy_chunk(vocab);
  while (step * channels % block != 0) step += kernels::cross_entropy_chunk(vocab);
  if (vocab * row_bytes <= max_bytes) return {};
  if (step * row_bytes > max_bytes)
    throw Error(ExitCode::usage,
                strfmt("a part of %s takes %ld bytes at least, and --max_unit_size is %ld", weight.name.c_str(),
                       std::min(step, vocab) * row_bytes, max_bytes),
                "--max_unit_size", "Give a larger size");
  const std::int64_t count = max_bytes / row_bytes / step * step;
  std::vector<Part> parts;
  for (std::int64_t first = 0; first < vocab; first += count)
    parts.push_back({static_cast<int>(parts.size()), vocab, channels, {first, std::min(count, vocab - first)}});
  return parts;
}

void check(const Model& model, const Head& head, bool tied) {
  if (model.dtype != DType::f32)
    throw Error(ExitCode::usage,
                strfmt("--max_unit_size with computation in %s: a head in parts has other sums", name_of(model.dtype)),
                "--max_unit_size", "Drop --max_unit_size, or compute in fp32: --mixed_precision no");
  if (head.loss() != cross_entropy())
    throw Error(ExitCode::usage, "a head in parts computes cross-entropy, and this model has another loss",
                "--max_unit_size", "Drop --max_unit_size");
  constexpr auto norm_block = static_cast<std::int64_t>(kernels::norm_block);
  std::int64_t before = 0;  // the weight, in one unit with the norm
  for (std::size_t k = 0; k + 1 < head.params().size(); ++k)
    before += model.params[static_cast<std::size_t>(head.params()[k])].numel();
  if (!tied && before % norm_block != 0)
    throw Error(
        ExitCode::usage,
        strfmt("--max_unit_size with a head of its own and %ld channels, which are no multiple of %ld: the blocks "
               "of the gradient norm would differ",
               model.hidden, norm_block),
        "--max_unit_size", "Drop --max_unit_size");
}

}  // namespace

void split_rows(Model& model, std::int64_t max_bytes) {
  auto* const embedding = dynamic_cast<Embedding*>(model.modules.front().get());
  auto* const head = dynamic_cast<Head*>(model.modules.back().get());
  TESSERA_ASSERT(embedding != nullptr && head != nullptr && !model.in_row_parts, "a model without embedding and head");
  if (embedding->is_adapted() || head->is_adapted())
    throw Error(ExitCode::usage, "--max_unit_size with an adapter of the embedding or the head", "--max_unit_size",
                "Drop --max_unit_size, or leave embedding and head out of --target_modules");
  const std::vector<int> of_embedding(embedding->params().begin(), embedding->params().end());
  std::vector<int> of_norm(head->params().begin(), head->params().end());
  const int weight = of_norm.back();
  of_norm.pop_back();
  const std::vector<Part> parts = parts_of(model.params[static_cast<std::size_t>(weight)], max_bytes);
  if (parts.size() < 2) return;
  check(model, *head, weight == of_embedding.front());

  std::vector<std::unique_ptr<Module>> modules;
  for (const Part& part : parts)
    modules.push_back(std::make_unique<EmbeddingPart>(
        part, part.last() ? of_embedding : std::vector<int>{of_embedding.front()}, embedding->scale()));
  for (std::size_t m = 1; m + 1 < model.modules.size(); ++m) modules.push_back(std::move(model.modules[m]));
  modules.push_back(std::make_unique<HeadNorm>(head->norm(), model.hidden, of_norm));
  for (const Part& part : parts) modules.push_back(std::make_unique<HeadLossPart>(part, weight, head->logits()));
  for (auto part = parts.rbegin(); part != parts.rend(); ++part)
    modules.push_back(std::make_unique<HeadGradientPart>(*part, weight, head->logits()));
  model.modules = std::move(modules);
  model.embedding_modules = parts.size();
  model.head_modules = 1 + 2 * parts.size();
  model.in_row_parts = true;
}

std::size_t loss_rows_bytes(std::int64_t tokens) { return kernels::cross_entropy_rows_bytes(tokens); }

}  // namespace tessera::models
