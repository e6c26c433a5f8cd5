// SPDX-License-Identifier: Apache-2.0
#pragma once
// SlotId: which slot of an arena. The planner gives the ids; who uses a slot asks for it by the same id. Names are for
// people: tables, messages, files.

#include <compare>

namespace tessera {

/// What a slot holds. Its number, `of`, is of a unit, a slot of the schedule, a module or another thing, as it says.
enum class SlotUse : unsigned char {
  none,
  // Of a unit.
  params,       // gathered, for the whole run
  master,       // this rank's shard, as stored
  shard,        // with offloaded optimizer states: what gathers read on the device
  host_copy,    // with an update on the host: what fetches of params read
  state,        // of the optimizer; part: index of its StateSpec
  grads,        // the unsharded gradient, in a slot of its own
  accumulator,  // part: its number
  scatter_residual,
  reduce_residual,
  residual_sum,
  // Of a slot of the schedule.
  gathered,
  gradient,
  sum,
  staged,  // part: the kind of state; `of`: number among its slots
  // Of a group of axes: `of` is its index.
  staging,
  int8,
  transport,
  // Activations.
  output,           // of a module; or one of the slots that modules use alternately
  saved,            // what a module keeps for its backward
  recomputed,       // what modules save again before their backward, in turn
  output_gradient,  // of the module whose backward is next
  value,            // that stages pass to one another; of a module, -1: of all in turn; part: its number
  value_gradient,   // the same of its gradient
  offloaded,        // of a module, in host memory; part: the kind of state
  cache,            // of keys and values; of a module
  // Of the run.
  workspace,
  gemm_workspace,
  dequantized,
  batch,  // a tensor of micro-batches; `of`: its field
  reference,
  sequences,  // log-probabilities of sequences
  router,
  logits,
  chosen,  // on a device, in generation: (B) int32, the next tokens
  draws,   // and (B) fp64, the random numbers that draw them
  norm,
  step,
  snapshot,
};

/// Value type. Of a slot on a device, pinned() is its counterpart in pinned memory.
struct SlotId {
  SlotUse use = SlotUse::none;
  int of = 0, part = 0;
  bool is_pinned = false;

  [[nodiscard]] constexpr SlotId pinned() const { return {use, of, part, true}; }
  friend constexpr auto operator<=>(const SlotId&, const SlotId&) = default;
};

}  // namespace tessera
