// SPDX-License-Identifier: Apache-2.0
#include "models/context.hpp"

#include "runtime/base/error.hpp"

namespace tessera::models {

void share_rows(Model& model, int ranks) {
  TESSERA_ASSERT(ranks >= 1 && model.context_ranks == 1, "%d ranks", ranks);
  if (ranks == 1) return;
  const auto refuse = [](const char* what, const char* hint) {
    throw Error(ExitCode::usage, std::string("--context_parallel_size is not built ") + what, "context_parallel_size",
                hint);
  };
  if (model.router.layers > 0)
    refuse("for mixtures of experts, whose balance loss is of whole micro-batches", "Drop --context_parallel_size");
  if (!model.reference.empty() || model.num_metrics > 0 || model.writes_sequences)
    refuse("for losses over sequences, such as those of preferences", "Drop --context_parallel_size");
  if (model.in_row_parts) refuse("together with --max_unit_size", "Keep one of the two");
  for (const auto& module : model.modules) module->set_context_ranks(ranks);
  model.context_ranks = ranks;
}

}  // namespace tessera::models
