// Embedding by the embedding kernels. Saves nothing: the batch has the ids.
#include "models/embedding.hpp"

#include "kernels/embedding.hpp"

namespace tessera::models {

Embedding::Embedding(const EmbeddingSpec& spec, std::vector<ParamSpec>& model) {
  ParamList list(model);
  const Initializer init{Initializer::Kind::normal, spec.std};
  tokens_ = list.add({.name = spec.tokens, .shape = {spec.vocab, spec.channels}, .init = init});
  if (!spec.positions.empty())
    positions_ = list.add({.name = spec.positions, .shape = {spec.max_tokens, spec.channels}, .init = init});
  params_ = list.indices();
}

void Embedding::forward(const ForwardArgs& args) const {
  kernels::embedding_forward({.ids = args.batch->ids,
                              .tokens_table = at(args.params, tokens_),
                              .positions_table = positions_ >= 0 ? at(args.params, positions_) : TensorView{},
                              .positions = args.batch->positions,
                              .y = args.y},
                             args.stream);
}

void Embedding::backward(const BackwardArgs& args) const {
  const Gradients grads = args.grads();
  kernels::embedding_backward({.ids = args.batch->ids,
                               .dy = args.dy,
                               .dtokens_table = grads[tokens_],
                               .accumulate_tokens = grads.adds(tokens_),
                               .dpositions_table = positions_ >= 0 ? grads[positions_] : TensorView{},
                               .accumulate_positions = positions_ >= 0 && grads.adds(positions_),
                               .positions = args.batch->positions,
                               .workspace = args.workspace},
                              args.stream);
}

std::size_t Embedding::workspace_bytes(BatchShape shape, DType, Phase phase) const {
  return phase == Phase::train ? kernels::embedding_backward_workspace(shape.batch * shape.tokens, shape.device) : 0;
}

}  // namespace tessera::models
