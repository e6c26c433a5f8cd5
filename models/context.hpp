// SPDX-License-Identifier: Apache-2.0
#pragma once
// Context parallelism: rows of which each of several ranks has a part.

#include <optional>

#include "models/module.hpp"

namespace tessera::models {

/// Makes the modules work on 1/C of the tokens of each row, and exchange activations in attention; of the kind given,
/// or without one of kind ulysses where the heads can be divided, which has the kernels of one rank and fewer bytes
/// with many ranks, and else of kind gather. Call it once, after adapters are added. Throws Error (usage): that is not
/// built for the model, or `kind` cannot divide its heads, in words.
void share_rows(Model& model, int ranks, std::optional<ContextKind> kind = {});

}  // namespace tessera::models
