// SPDX-License-Identifier: Apache-2.0
#pragma once
// Embedding and head as several modules, each of which reads a range of rows of the vocabulary, so that each range can
// be a unit. A parameter stays one; its rows are in several units. On the host in fp32, with the bits of one module.
//
// The embedding becomes embed.0 … embed.n-1; each writes the rows of its ids, and the last one adds the positions. The
// head becomes
//   head.norm                         the final norm
//   head.0, …, head.n-1               forward: the loss (training, evaluation), or logits; no backward
//   head.n-1.grad, …, head.0.grad     backward: the gradients, so in ascending order; no forward

#include "models/module.hpp"

namespace tessera::models {

/// Splits the embedding and the head of a model whose vocabulary matrix takes more than max_bytes. Does nothing to a
/// smaller one. Before the plan, after parameters are frozen and adapters added. Throws Error (usage): a type other
/// than fp32; a head with a loss that is not cross-entropy; an adapter of the embedding or the head; max_bytes below
/// what a part takes at least; a head with its own matrix behind a norm of a size that is not a multiple of
/// kernels::norm_block.
void split_rows(Model& model, std::int64_t max_bytes);

/// Bytes of Batch::loss_rows for so many tokens.
[[nodiscard]] std::size_t loss_rows_bytes(std::int64_t tokens);

}  // namespace tessera::models
