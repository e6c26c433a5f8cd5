// SPDX-License-Identifier: Apache-2.0
// Embedding by the embedding kernels. Saves nothing: the batch has the ids.
#include "models/embedding.hpp"

#include <algorithm>

#include "kernels/embedding.hpp"
#include "kernels/scale.hpp"
#include "models/tensor_split.hpp"

namespace tessera::models {

Embedding::Embedding(const EmbeddingSpec& spec, std::vector<ParamSpec>& model)
    : vocabulary_{spec.vocab}, channels_(spec.channels), scale_(spec.scale) {
  ParamList list(model);
  const Initializer init{Initializer::Kind::normal, spec.std};
  tokens_ = list.add({.name = spec.tokens, .shape = {spec.vocab, spec.channels}, .init = init});
  if (!spec.positions.empty())
    positions_ = list.add({.name = spec.positions, .shape = {spec.max_tokens, spec.channels}, .init = init});
  params_ = list.indices();
}

void Embedding::adapt(AdapterMaker& adapters) {
  adapters.begin(params_);
  // The table is (V, C): of a one-hot row, a Linear's weight as (in, out).
  if (const auto positions =
          adapters.add(tokens_, vocabulary_.vocab, channels_, /*transposed=*/true, AdapterMaker::Kind::embedding))
    lora_.emplace(*positions, vocabulary_.vocab, adapters.spec());
}

void Embedding::split(const TensorSplit& over) {
  vocabulary_ = over.vocabulary(vocabulary_.vocab);
  over.divide_vocabulary(tokens_, 0);
  if (lora_) lora_->split(over);
}

ModuleStages Embedding::stages(Phase /*phase*/) const {
  if (!vocabulary_.is_split()) return {};
  return {.values = {{"partial rows", false}, {"rows", false}},
          .stages = {{{}, {0}}, {{1}, {}}},
          .exchanges = {{{0, 0, 1, ExchangeKind::reduce_scatter, ExchangeKind::all_gather}, RankGroup::tensor}}};
}

std::size_t Embedding::value_bytes(int value, BatchShape shape, DType dtype) const {
  if (value == 0) return static_cast<std::size_t>(rows_shape(shape).numel()) * size_of(dtype);
  return static_cast<std::size_t>(shape.batch * shape.tokens * channels_) * sizeof(float);
}

std::size_t Embedding::value_gradient_bytes(int value, BatchShape shape, DType dtype) const {
  if (value == 0) return value_bytes(0, shape, dtype);
  return static_cast<std::size_t>(shape.batch * shape.tokens * channels_) * size_of(dtype);
}

void Embedding::look_up(const ForwardArgs& args, const Batch& batch, const TensorView& y) const {
  kernels::embedding_forward({.ids = batch.ids,
                              .tokens_table = vocabulary_.own(at(args.params, tokens_), batch.tensor_rank),
                              .positions_table = positions_ >= 0 ? at(args.params, positions_) : TensorView{},
                              .positions = batch.positions,
                              .y = y,
                              .first_id = vocabulary_.of(batch.tensor_rank).first},
                             args.stream);
  if (lora_)
    lora_->forward({.params = args.params,
                    .grads = {},
                    .ids = batch.ids,
                    .y = y,
                    .workspace = args.workspace,
                    .tensor_rank = batch.tensor_rank,
                    .stream = args.stream});
}

void Embedding::forward(const ForwardArgs& args) const {
  if (!vocabulary_.is_split()) {
    look_up(args, *args.batch, args.y);
  } else if (args.stage == 0) {
    return look_up(args, whole_rows(args.batch, args.shape),
                   as_rows(args.values[0], args.y.dtype, rows_shape(args.shape)));
  } else {
    const TensorView sum = as_rows(args.values[1], DType::f32, args.y.shape);
    if (args.y.dtype == DType::f32) copy(sum, args.y, args.stream);
    else (void)rounded(sum, args.y, args.stream);
  }
  if (scale_ != 1) kernels::scale({args.y, scale_}, args.stream);
}

void Embedding::backward_tokens(const BackwardArgs& args, const Batch& batch, const TensorView& dy) const {
  const Gradients grads = args.grads();
  const bool adds = grads.adds(tokens_);
  kernels::embedding_backward(
      {.ids = batch.ids,
       .dy = dy,
       .dtokens_table = vocabulary_.own_gradient(grads[tokens_], batch.tensor_rank, adds, args.stream),
       .accumulate_tokens = adds,
       .dpositions_table = {},
       .accumulate_positions = false,
       .workspace = args.workspace,
       .first_id = vocabulary_.of(batch.tensor_rank).first,
       .num_ids = vocabulary_.vocab},
      args.stream);
  if (lora_)
    lora_->backward({.params = args.params,
                     .grads = grads,
                     .ids = batch.ids,
                     .y = dy,
                     .workspace = args.workspace,
                     .tensor_rank = batch.tensor_rank,
                     .stream = args.stream});
}

void Embedding::backward_positions(const BackwardArgs& args) const {
  if (positions_ < 0) return;
  kernels::embedding_backward({.ids = args.batch->ids,
                               .dy = args.dy,
                               .dtokens_table = {},
                               .dpositions_table = args.grads()[positions_],
                               .accumulate_positions = args.grads().adds(positions_),
                               .positions = args.batch->positions,
                               .workspace = args.workspace},
                              args.stream);
}

void Embedding::backward(const BackwardArgs& args) const {
  if (vocabulary_.is_split() && args.stage == 0)
    return backward_tokens(args, whole_rows(args.batch, args.shape),
                           as_rows(args.value_gradients[0], args.dy.dtype, rows_shape(args.shape)));
  if (scale_ != 1) kernels::scale({args.dy, scale_}, args.stream);  // nothing reads dy after the first module
  backward_positions(args);
  if (!vocabulary_.is_split()) return backward_tokens(args, *args.batch, args.dy);
  copy(args.dy, as_rows(args.value_gradients[1], args.dy.dtype, args.dy.shape), args.stream);
}

std::size_t Embedding::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  shape = all_tokens(shape, vocabulary_.ranks);
  const std::int64_t rows = shape.batch * shape.tokens;
  return std::max(phase == Phase::train ? kernels::embedding_backward_workspace(rows, shape.device) : 0,
                  lora_ ? lora_->workspace_bytes(rows, dtype, shape.device) : 0);
}

double Embedding::forward_flops(BatchShape shape) const {
  shape = all_tokens(shape, vocabulary_.ranks);
  return lora_ ? lora_->flops_per_row(channels_) * static_cast<double>(shape.batch * shape.tokens) : 0;
}

double Embedding::backward_flops(BatchShape shape, const Wanted& wanted) const {
  shape = all_tokens(shape, vocabulary_.ranks);
  const auto rows = static_cast<double>(shape.batch * shape.tokens);
  return lora_ ? lora_->backward_flops_per_row(channels_, wanted) * rows : 0;
}

}  // namespace tessera::models
