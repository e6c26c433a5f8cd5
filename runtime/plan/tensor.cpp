// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/tensor.hpp"

#include "runtime/base/error.hpp"
#include "runtime/plan/context.hpp"

namespace tessera::plan {

void check_tensor(const RunSpec& spec) {
  const int ranks = spec.tensor_ranks();
  TESSERA_ASSERT(spec.model->tensor_ranks == ranks, "a model for %d ranks of tensors, on %d", spec.model->tensor_ranks,
                 ranks);
  if (ranks == 1) return;
  const auto refuse = [](const std::string& what, const char* options, const char* hint) {
    throw Error(ExitCode::usage, "--tensor_parallel_size is not built " + what, options, hint);
  };
  // In generation each rank has all tokens.
  if (const int parts = spec.row_ranks(); spec.purpose != Purpose::generate && spec.tokens % parts != 0)
    throw Error(ExitCode::usage,
                strfmt("max_length %ld / %stensor_parallel_size %d%s = %ld, and %ld tokens are left", spec.tokens,
                       parts > ranks ? strfmt("(context_parallel_size %d * ", spec.context_ranks()).c_str() : "", ranks,
                       parts > ranks ? ")" : "", spec.tokens / parts, spec.tokens % parts),
                "max_length, tensor_parallel_size",
                strfmt("Set --max_length %ld, or a size that divides it", whole_length(spec)));
  const shard::ShardPolicy& policy = spec.strategy.policy;
  TESSERA_ASSERT(spec.flat_tokens % ranks == 0 && spec.flat_eval_tokens % ranks == 0, "%ld and %ld tokens end to end",
                 spec.flat_tokens, spec.flat_eval_tokens);
  if (spec.sequences > 1 || spec.labels)
    refuse("for losses over sequences, such as those of preferences", "tensor_parallel_size, rlhf_type",
           "Drop --tensor_parallel_size");
  if (policy.reproducible)
    refuse("together with --reproducible, whose sums do not depend on the number of ranks",
           "tensor_parallel_size, reproducible", "Keep one of the two");
  if (policy.compression != shard::Compression())
    refuse("together with int8 collectives", "tensor_parallel_size", "Drop --gather_dtype and --reduce_dtype int8");
  if (!spec.strategy.unit_strategies.empty())
    refuse("together with --unit_strategy", "tensor_parallel_size, unit_strategy", "Keep one of the two");
  if (granularity(spec.states) > 1)
    refuse("for optimizers whose states are of blocks of elements, which parts of a matrix would divide",
           "tensor_parallel_size, optim", "Use an optimizer with states of single elements");
}

}  // namespace tessera::plan
