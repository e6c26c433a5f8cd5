// SPDX-License-Identifier: Apache-2.0
#include "models/context.hpp"

#include "runtime/base/error.hpp"

namespace tessera::models {

void share_rows(Model& model, int ranks, std::optional<ContextKind> kind) {
  TESSERA_ASSERT(ranks >= 1 && model.context.ranks == 1, "%d ranks", ranks);
  if (ranks == 1) return;
  const auto refuse = [](const std::string& what, const char* hint) {
    throw Error(ExitCode::usage, "--context_parallel_size is not built " + what, "context_parallel_size", hint);
  };
  if (!model.reference.empty() || model.num_metrics > 0 || model.writes_sequences)
    refuse("for losses over sequences, such as those of preferences", "Drop --context_parallel_size");
  const auto refusal = [&](ContextKind of) {
    std::string why;
    for (const auto& module : model.modules)
      if (why.empty()) why = module->context_refusal({ranks, of});
    return why;
  };
  if (!kind) kind = refusal(ContextKind::ulysses).empty() ? ContextKind::ulysses : ContextKind::gather;
  if (std::string why = refusal(*kind); !why.empty()) {
    if (model.tensor_ranks > 1)
      why += strfmt(" that each of %d parts of the model has (--tensor_parallel_size)", model.tensor_ranks);
    refuse(why, *kind == ContextKind::ulysses && refusal(ContextKind::gather).empty()
                    ? "Give --context_parallel_kind gather, or a size that divides the heads and is a divisor or a "
                      "multiple of the number of key and value heads"
                    : "Drop --context_parallel_size");
  }
  model.keep_whole_flops();
  model.context = {ranks, *kind};
  for (const auto& module : model.modules) module->set_context(model.context);
}

}  // namespace tessera::models
