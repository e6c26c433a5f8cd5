// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {

void embedding_forward(const EmbeddingForwardArgs& args, StreamView stream) {
  TESSERA_ASSERT(args.ids.shape.rank() == 2 && args.tokens_table.shape.rank() == 2);
  const std::int64_t tokens = args.ids.shape[1], channels = args.tokens_table.shape[1];
  TESSERA_ASSERT(args.y.shape == Shape({args.ids.shape[0], tokens, channels}), "y %s", args.y.shape.str().c_str());
  TESSERA_ASSERT(!args.positions_table || ((args.positions || args.positions_table.shape[0] >= tokens) &&
                                           args.positions_table.shape[1] == channels),
                 "positions %s", args.positions_table.shape.str().c_str());
  TESSERA_ASSERT(!args.positions || args.positions.shape == args.ids.shape, "positions %s",
                 args.positions.shape.str().c_str());
  TESSERA_DISPATCH(args.y, embedding_forward, args);
}

void embedding_backward(const EmbeddingBackwardArgs& args, StreamView stream) {
  const TensorView &dtokens = args.dtokens_table, &dpositions = args.dpositions_table;
  if (!dtokens && !dpositions) return;
  TESSERA_ASSERT(args.ids.shape.rank() == 2 && args.dy.shape.rank() == 3, "dy %s", args.dy.shape.str().c_str());
  const std::int64_t tokens = args.ids.shape[1], rows = args.ids.numel(), channels = args.dy.shape[2];
  TESSERA_ASSERT(args.dy.shape == Shape({args.ids.shape[0], tokens, channels}), "dy %s", args.dy.shape.str().c_str());
  TESSERA_ASSERT(!dtokens || (dtokens.shape.rank() == 2 && dtokens.shape[1] == channels), "tokens %s",
                 dtokens.shape.str().c_str());
  TESSERA_ASSERT(!dpositions || ((args.positions || dpositions.shape[0] >= tokens) && dpositions.shape[1] == channels),
                 "positions %s", dpositions.shape.str().c_str());
  TESSERA_ASSERT(!args.positions || args.positions.shape == args.ids.shape, "positions %s",
                 args.positions.shape.str().c_str());
  TESSERA_ASSERT(
      args.first_id >= 0 && (!dtokens || args.num_ids == 0 || args.first_id + dtokens.shape[0] <= args.num_ids),
      "ids from %ld on, of %ld", args.first_id, args.num_ids);
  TESSERA_ASSERT(args.workspace.nbytes() >= embedding_backward_workspace(rows, args.dy.device),
                 "workspace of %zu bytes", args.workspace.nbytes());
  TESSERA_DISPATCH(args.dy, embedding_backward, args);
}

std::size_t embedding_backward_workspace([[maybe_unused]] std::int64_t rows, [[maybe_unused]] Device device) {
  if constexpr (cuda_built)
    if (device.kind == Device::Kind::cuda) return cuda::embedding_backward_workspace(rows);
  return 0;
}

}  // namespace tessera::kernels
