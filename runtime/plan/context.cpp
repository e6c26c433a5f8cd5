// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/context.hpp"

#include <numeric>

#include "runtime/base/error.hpp"

namespace tessera::plan {

std::int64_t whole_length(const RunSpec& spec) {
  const bool gathers = spec.context_ranks() > 1 && spec.model->context.kind == models::ContextKind::gather;
  const std::int64_t parts = std::lcm(spec.row_ranks(), gathers ? 2 * spec.context_ranks() : 1);
  return spec.tokens / parts * parts;
}

void check_context(const RunSpec& spec) {
  const int ranks = spec.context_ranks();
  TESSERA_ASSERT(spec.model->context.ranks == ranks, "a model for %d ranks of a context, on %d",
                 spec.model->context.ranks, ranks);
  if (ranks == 1) return;
  const auto refuse = [](const std::string& what, const char* options, const char* hint) {
    throw Error(ExitCode::usage, "--context_parallel_size is not built " + what, options, hint);
  };
  if (spec.purpose != Purpose::train)
    refuse("for evaluation and generation by themselves", "context_parallel_size", "Drop --context_parallel_size");
  const bool gathers = spec.model->context.kind == models::ContextKind::gather;
  if (const int parts = gathers ? 2 * ranks : ranks; spec.tokens % parts != 0)
    throw Error(ExitCode::usage,
                strfmt("max_length %ld / %scontext_parallel_size %d%s = %ld, and %ld tokens are left", spec.tokens,
                       gathers ? "(2 * " : "", ranks, gathers ? ")" : "", spec.tokens / parts, spec.tokens % parts),
                "max_length, context_parallel_size",
                strfmt("Set --max_length %ld, or a size that divides it", whole_length(spec)));
  const shard::ShardPolicy& policy = spec.strategy.policy;
  if (spec.flat_tokens > 0 || spec.flat_eval_tokens > 0)
    refuse("together with --padding_free", "context_parallel_size, padding_free", "Use --packing");
  if (spec.sequences > 1 || spec.labels)
    refuse("for losses over sequences, such as those of preferences", "context_parallel_size, rlhf_type",
           "Drop --context_parallel_size");
  if (policy.reproducible)
    refuse("together with --reproducible, whose sums do not depend on the number of ranks",
           "context_parallel_size, reproducible", "Keep one of the two");
  if (policy.compression != shard::Compression())
    refuse("together with int8 collectives", "context_parallel_size", "Drop --gather_dtype and --reduce_dtype int8");
  if (!spec.strategy.unit_strategies.empty())
    refuse("together with --unit_strategy", "context_parallel_size, unit_strategy", "Keep one of the two");
}

}  // namespace tessera::plan
