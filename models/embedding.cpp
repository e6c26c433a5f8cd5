// SPDX-License-Identifier: Apache-2.0
// Embedding by the embedding kernels. Saves nothing: the batch has the ids.
#include "models/embedding.hpp"

#include <algorithm>

#include "kernels/embedding.hpp"
#include "kernels/scale.hpp"

namespace tessera::models {

Embedding::Embedding(const EmbeddingSpec& spec, std::vector<ParamSpec>& model)
    : vocab_(spec.vocab), channels_(spec.channels), scale_(spec.scale) {
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
          adapters.add(tokens_, vocab_, channels_, /*transposed=*/true, AdapterMaker::Kind::embedding))
    lora_.emplace(*positions, adapters.spec());
}

void Embedding::forward(const ForwardArgs& args) const {
  kernels::embedding_forward({.ids = args.batch->ids,
                              .tokens_table = at(args.params, tokens_),
                              .positions_table = positions_ >= 0 ? at(args.params, positions_) : TensorView{},
                              .positions = args.batch->positions,
                              .y = args.y},
                             args.stream);
  if (lora_)
    lora_->forward({.params = args.params,
                    .grads = {},
                    .ids = args.batch->ids,
                    .y = args.y,
                    .workspace = args.workspace,
                    .stream = args.stream});
  if (scale_ != 1) kernels::scale({args.y, scale_}, args.stream);
}

void Embedding::backward(const BackwardArgs& args) const {
  const Gradients grads = args.grads();
  if (scale_ != 1) kernels::scale({args.dy, scale_}, args.stream);  // nothing reads dy after the first module
  kernels::embedding_backward({.ids = args.batch->ids,
                               .dy = args.dy,
                               .dtokens_table = grads[tokens_],
                               .accumulate_tokens = grads.adds(tokens_),
                               .dpositions_table = positions_ >= 0 ? grads[positions_] : TensorView{},
                               .accumulate_positions = positions_ >= 0 && grads.adds(positions_),
                               .positions = args.batch->positions,
                               .workspace = args.workspace},
                              args.stream);
  if (lora_)
    lora_->backward({.params = args.params,
                     .grads = grads,
                     .ids = args.batch->ids,
                     .y = args.dy,
                     .workspace = args.workspace,
                     .stream = args.stream});
}

std::size_t Embedding::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  const std::int64_t rows = shape.batch * shape.tokens;
  return std::max(phase == Phase::train ? kernels::embedding_backward_workspace(rows, shape.device) : 0,
                  lora_ ? lora_->workspace_bytes(rows, dtype, shape.device) : 0);
}

double Embedding::forward_flops(BatchShape shape) const {
  return lora_ ? lora_->flops_per_row(channels_) * static_cast<double>(shape.batch * shape.tokens) : 0;
}

double Embedding::backward_flops(BatchShape shape, const Wanted& wanted) const {
  const auto rows = static_cast<double>(shape.batch * shape.tokens);
  return lora_ ? lora_->backward_flops_per_row(channels_, wanted) * rows : 0;
}

}  // namespace tessera::models
