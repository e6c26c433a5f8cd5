// SPDX-License-Identifier: Apache-2.0
#pragma once
// Context parallelism: rows of which each of several ranks has a part.

#include "models/module.hpp"

namespace tessera::models {

/// Makes the modules work on 1/C of the tokens of each row, and exchange heads for tokens in attention. Call it once,
/// after adapters are added. Throws Error (usage): the model, or its number of heads, is not one for which that is
/// built, in words.
void share_rows(Model& model, int ranks);

}  // namespace tessera::models
