// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/fingerprint.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"

namespace tessera::plan {

namespace {

std::uint64_t hash_of(const shard::ShardLayout& layout) {
  std::uint64_t hash = fnv_offset_basis;
  const auto mix = [&hash](std::int64_t value) { hash = hash64(static_cast<std::uint64_t>(value), hash); };
  for (int u = 0; u < layout.num_units(); ++u) {
    const shard::UnitPolicy& policy = layout.policy(u);
    hash = hash64(layout.unit_name(u), hash);
    hash = hash64(policy.shard_axes.str() + policy.replicate_axes.str(), hash);
    mix(layout.trainable(u) ? 1 : 0);
    mix(static_cast<std::int64_t>(layout.storage_dtype(u)));
    mix(layout.padded_numel(u));
    for (const shard::Segment& segment : layout.all_segments(u))
      for (const std::int64_t value :
           {std::int64_t{segment.param}, segment.param_offset, segment.unit_offset, segment.length})
        mix(value);
  }
  return hash;
}

}  // namespace

std::string fingerprint(const RunPlan& plan) {
  const auto& spec = plan.spec;
  const shard::ShardPolicy& policy = spec.strategy.policy;
  std::string text = strfmt("mesh %s, parameters %s, gradients %s, collectives", spec.strategy.mesh.str().c_str(),
                            name_of(policy.param_dtype), name_of(policy.reduce_dtype));
  for (const auto* schedule : plan.schedules()) text += strfmt(" %016lx", shard::collective_hash(*schedule));
  text += strfmt(", G %ld B %ld T %ld E %ld cache %ld, ", spec.batch.global_batch, spec.batch.micro_batch, spec.tokens,
                 spec.eval_batch, spec.cache_tokens);
  if (spec.packed) text += "packed, ";
  if (spec.flat_tokens > 0) text += strfmt("flat %ld %ld, ", spec.flat_tokens, spec.flat_eval_tokens);
  if (spec.sequences > 1) text += strfmt("%d sequences a sample, ", spec.sequences);
  if (spec.reference_sums) text += "reference known, ";
  if (spec.margins) text += "margins, ";
  if (spec.labels) text += "labelled, ";
  if (spec.nll_weights) text += "with cross-entropy, ";
  if (spec.loss_weights) text += "loss weights, ";
  text += strfmt("layout %016lx, ", hash_of(plan.layout));
  for (const auto& param : spec.model->params) text += param.name + param.shape.str() + " ";
  return text;
}

}  // namespace tessera::plan
