// SPDX-License-Identifier: Apache-2.0
#pragma once
// Schedule: a training step or an inference pass as a flat list of instructions on named streams. Data only: the
// builder makes it, the verifier checks it, the executor runs it, the planner computes its cost.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.hpp"
#include "runtime/base/slot_id.hpp"
#include "runtime/base/stages.hpp"
#include "runtime/comm/mesh.hpp"
#include "runtime/shard/compression.hpp"
#include "runtime/shard/placement.hpp"
#include "runtime/shard/policy.hpp"

namespace tessera::shard {

/// Operands, and the stream it runs on. A unit is a set of parameters that is gathered and reduced together; micro is a
/// micro-batch.
enum class Op : unsigned char {
  gather,          // unit: all-gather into its parameter slot (gather stream)
  release,         // unit: its parameter slot may be reused (compute stream)
  forward,         // module, micro (compute stream)
  recompute,       // module, micro: forward again, for the activations that backward reads (compute stream)
  backward,        // module, micro: writes, or adds to, the gradients of the module's parameters (compute stream)
  reduce_scatter,  // unit, micro: sums its gradient over its shard axes, then accumulates; a local copy if it has
                   // neither shard nor replicate axes (reduce stream)
  all_reduce,      // unit, micro: sums over its replicate axes, then accumulates. Of a sharded unit, what
                   // reduce_scatter has summed (replicate stream); of another, its gradient (reduce stream)
  norm,            // all-reduce of gradient norm, loss and counters over the world (reduce stream)
  update,    // unit: optimizer step on this rank's shard; afterwards gathered copies are stale (compute stream, or
             // host stream: the host's processor beside a device)
  fetch,     // unit, state: copies the state from its tier into a staging slot, or, of params that are kept on
             // the device and updated on the host, into the unit's shard on the device; or module, state, micro: the
             // same of activations (fetch stream)
  store,     // unit, state; or module, state, micro: copies the content of a staging slot to the state's tier (store
             // stream)
  exchange,  // module, micro: of an activation between two stages of the module, in one of its passes (exchange stream)
};
enum class StreamId : unsigned char { compute, gather, reduce, replicate, host, fetch, store, exchange };
inline constexpr int num_streams = 8;
[[nodiscard]] const char* name_of(Op op);
[[nodiscard]] const char* name_of(StreamId stream);

/// Over these axes; none: this rank alone. The ranks along them have micro-batches of the same shape.
struct ModuleExchange : StageExchange {
  AxisSet axes;
};

/// The units that a module reads and contributes gradients to, and its stages. Each stage reads the units, and backward
/// of each contributes to the gradients.
struct ModuleUse {
  std::string name;
  std::vector<int> forward_units;   // read by forward and recompute
  std::vector<int> backward_units;  // read by backward
  std::vector<int> grad_units;      // backward contributes to their gradients
  bool recomputable = false;        // activation checkpointing applies: a block, not embedding or head; with
                                    // Recompute::selective only one that saves anything which is not kept
  /// Where activations are offloaded: its input and what it saves are.
  bool offloads = false;
  bool saves = false;        // its forward leaves something for its backward
  bool saves_again = false;  // something that lasts until the next module's forward: its recompute leaves it again
  std::vector<StageValue> values;
  std::vector<ModuleStage> stages;  // empty: one that passes nothing on
  std::vector<ModuleExchange> exchanges;
  [[nodiscard]] int num_stages() const { return stages.empty() ? 1 : static_cast<int>(stages.size()); }
};

/// A model that is run forward beside the one that is trained, in the same step: a frozen reference model, or the base
/// with its adapters switched off. It has no backward, saves nothing, and may read any unit.
struct ReferenceModel {
  std::string name;                // "reference"
  std::vector<ModuleUse> modules;  // in forward order; with forward_units alone. The last leaves what the loss reads
};

/// Modules from this one on have a backward: nothing before it is trainable. modules.size() if nothing is.
[[nodiscard]] int first_backward(const std::vector<ModuleUse>& modules);

/// How the reduced gradient x of a micro-batch is added to those of earlier ones: for i in inputs, in order,
/// x = accumulator[i] + x; then accumulator[target] = x. Without inputs, x is reduced into accumulator[target], unless
/// the instruction names a sum slot: then x stays there, for the all_reduce that follows. If the sum is local and
/// target is the one input, x is added from the gradient slot, without a sum slot.
struct Accumulation {
  std::vector<int> inputs;
  int target = 0;
  friend bool operator==(const Accumulation&, const Accumulation&) = default;
};

struct Instruction {
  Op op = Op::forward;
  StreamId stream = StreamId::compute;
  int unit = -1;              // gather, release, reduce_scatter, all_reduce, update; fetch, store of a unit's state
  int module = -1;            // forward, recompute, backward; fetch, store of a module's activations
  int part = 0;               // forward, recompute, backward: stage of the module; exchange: of ModuleUse::exchanges
  Op pass = Op::forward;      // exchange: forward, recompute or backward
  int instance = 0;           // forward: 0: the model itself; i: Schedule::references[i - 1]
  int micro = -1;             // micro-batch of this rank (gather: the first that reads it); -1: once per step
  int slot = -1;              // index into Schedule::slots: parameter slot of gather, release; gradient slot that
                              // reduce_scatter, or all_reduce of a unit that is not sharded, reads
  int sum = -1;               // index into Schedule::slots: sum slot of reduce_scatter, all_reduce
  StateKind state{};          // fetch, store
  int stage = -1;             // index into Schedule::slots: staging slot that fetch writes, that store and gather (the
                              // shard) read, or that holds what reduce_scatter and all_reduce (accumulators) or update
                              // (states of the optimizer) read and write
  Accumulation accumulation;  // reduce_scatter, all_reduce
  bool last_reduce = false;   // reduce_scatter, all_reduce: the gradient is complete and enters the norm
  std::vector<int> after;     // earlier instructions, on other streams, that must have run
};

/// A unit in a schedule: what is the same in all its instructions. The builder derives it from the unit's policy.
struct ScheduledUnit {
  std::string name;
  std::int64_t numel = 0;  // elements of the flat buffer, padding included
  /// False: its parameters are the same in every run, since they are frozen, or since the run only infers. If it is
  /// sharded and resident, the schedule of build_load gathers it, once.
  bool trainable = true;
  AxisSet shard_axes, replicate_axes;  // of its groups, without axes of one rank
  bool params_resident = false;        // has its own parameter slot, which stays gathered
  bool params_in_place = false;        // this rank's interval of the parameter slot is the master shard, or its
                                       // low-precision copy; peers read it there
  bool grads_resident = false;         // has its own gradient slot
  int num_accumulators = 0;            // gradient accumulators; 0: none, reduced in place in the resident gradient slot
  bool adds_in_slot = false;           // backward of a later micro-batch adds to the gradient in its slot; reduced once
  DType storage_dtype = DType::f32;    // of this rank's shard; fp32 if trainable
  DType param_dtype = DType::f32;      // of parameter slots
  DType reduce_dtype = DType::f32;     // of gradient slots; accumulators are fp32
  Int8Collectives int8;                // which of its collectives send int8; sums are fp32
  StatePlacement placement;            // of a frozen unit: of params alone
  bool update_on_host = false;         // its update is on the host stream, beside the device
  [[nodiscard]] bool params_offloaded() const { return placement.params != Tier::device; }
  [[nodiscard]] bool grads_offloaded() const { return placement.grads != Tier::device; }
  [[nodiscard]] bool optimizer_offloaded() const { return placement.optimizer != Tier::device; }
  /// True if the update reads and writes a state of this tier where it is.
  [[nodiscard]] bool update_reaches(Tier tier) const { return tier == (update_on_host ? Tier::host : Tier::device); }
  /// True if the update works in a staging slot, with states of the optimizer and what else it does not reach.
  [[nodiscard]] bool stages_update() const { return optimizer_offloaded() && !update_reaches(placement.optimizer); }
  /// True if params are on the device and updated on the host: a fetch after the update copies them.
  [[nodiscard]] bool fetches_updated() const { return update_on_host && !params_offloaded(); }
  /// True if master weights are separate buffers of another type, and the parameter slots hold low-precision copies.
  /// Where slots are resident, the update writes master and copy together.
  [[nodiscard]] bool has_separate_masters() const { return storage_dtype != param_dtype; }
  [[nodiscard]] bool sharded() const { return !shard_axes.empty(); }
  /// True if no other rank has a part of its gradient: its sum is local.
  [[nodiscard]] bool summed_alone() const { return !sharded() && replicate_axes.empty(); }
  /// True if its gradient is summed over shard axes, then over replicate axes.
  [[nodiscard]] bool reduced_twice() const { return sharded() && !replicate_axes.empty(); }
  /// True if a schedule that is run again and again gathers the unit; false: unsharded, or gathered once before. Params
  /// that are offloaded are gathered from a staging slot, also by a group of one rank.
  [[nodiscard]] bool gathered_in_runs() const {
    return params_offloaded() || (sharded() && (trainable || !params_resident));
  }
};

/// A buffer that units share at different times. A resident slot belongs to one unit for the whole run.
struct Slot {
  /// Gathered parameters; an unsharded gradient; this rank's shard of a reduced gradient, in fp32, before it is added
  /// to an accumulator; this rank's shard of a state that is kept elsewhere, or offloaded activations, while they are
  /// used; activations.
  enum class Kind : unsigned char { param, grad, sum, stage, activation };
  Kind kind = Kind::param;
  bool resident = false;
  std::vector<int> units;  // that use it, ascending; of activations none: any module may
  StateKind state{};       // of a staging slot
  SlotId id{};             // of activations: the arena's slot, which other schedules may use too
};

/// Activations are values, by module, micro-batch and name. Where those of a module are: indices into Schedule::slots;
/// -1: it has none. Its output is the input of the next module.
struct ActivationSlots {
  int input = -1;
  int saved = -1;                            // ModuleUse::saves
  int recomputed = -1;                       // ModuleUse::saves_again
  int gradient = -1;                         // of its input
  std::vector<int> values, value_gradients;  // ModuleUse::values; the gradient of a constant one: -1
  friend bool operator==(const ActivationSlots&, const ActivationSlots&) = default;
};

/// Each stream runs its instructions in list order; `after` adds dependencies between streams; a step ends before the
/// next begins. All ranks run the same list, and so issue the same collectives in the same order.
struct Schedule {
  std::vector<ScheduledUnit> units;
  std::vector<ModuleUse> modules;
  /// In each micro-batch they run before the model's forward. They share its activation buffers.
  std::vector<ReferenceModel> references;
  std::vector<Instruction> list;
  std::vector<Slot> slots;
  int num_micro = 1;
  /// Updates on the host need not follow norm: there is no clipping, and a gradient that is not finite ends the run.
  bool updates_before_norm = false;
  Recompute recompute = Recompute::none;  // what forward of a recomputable module does not keep
  /// Whether a recompute of the module comes before its backward.
  [[nodiscard]] bool recomputes(int module) const {
    return shard::recomputes(recompute) && modules[static_cast<std::size_t>(module)].recomputable;
  }

  /// The modules of a model instance; of an instruction of a module, its module.
  [[nodiscard]] const std::vector<ModuleUse>& modules_of(int instance) const;
  [[nodiscard]] const ModuleUse& use_of(const Instruction& instruction) const;
  /// The gradient slot that backward of `micro` writes for `unit`; -1: none.
  [[nodiscard]] int grad_slot(int unit, int micro) const;
  std::vector<int> grad_slots;  // [micro · units + unit]
  /// [micro · modules + module], in forward, and in recompute and backward, if the schedule has any; and of the
  /// reference models, [reference][module].
  std::vector<ActivationSlots> forward_slots, backward_slots;
  std::vector<std::vector<ActivationSlots>> reference_slots;
  bool offloads_activations = false;  // those of ModuleUse::offloads are in staging slots
  /// Of an instruction of a module, or of an exchange of one.
  [[nodiscard]] const ActivationSlots& activation_slots(const Instruction& instruction) const;
  /// The slots of its output, and of that one's gradient; -1: the last module has none.
  [[nodiscard]] int output_slot(const Instruction& instruction) const;
  [[nodiscard]] int output_gradient_slot(const Instruction& instruction) const;
  [[nodiscard]] const ModuleExchange& exchange_of(const Instruction& exchange) const;
  [[nodiscard]] ExchangeKind exchange_kind(const Instruction& exchange) const;
  /// What it reads and writes: the slots of values, in backward of gradients of values.
  struct ExchangeSlots {
    int from = -1, to = -1;
  };
  [[nodiscard]] ExchangeSlots exchange_slots(const Instruction& exchange) const;
  /// Whether it has a backward.
  [[nodiscard]] bool trains() const { return !grad_slots.empty(); }
  /// Per instruction (forward, recompute, backward): the units it reads, and the parameter slot of each.
  std::vector<std::vector<std::pair<int, int>>> reads;

  /// Bytes of a parameter or gradient slot: those of its largest unit. memory.hpp has those of sum and staging slots.
  [[nodiscard]] std::int64_t slot_bytes(int slot) const;
};

/// The stages of a forward, recompute or backward of a module, and the exchanges between them, in order. `of`: its
/// first instruction.
[[nodiscard]] std::vector<Instruction> stages_of(const ModuleUse& use, const Instruction& of);

/// "backward h.2 m0": operation, unit or module, micro-batch; of a reference model, "forward reference:h.2 m0".
/// "forward h.2/1 m0": of a module with stages, the second one; "exchange h.2:keys m0": of the value of that name.
/// Schedules, traces and the verifier's messages name instructions by it.
[[nodiscard]] std::string instruction_name(const Schedule& schedule, const Instruction& instruction);

/// One instruction a line: what `plan --print_schedule` prints and tests compare, e.g.
///   gather          h.0     m0  s1  on gather           after release h.2 m0
///   forward         h.0     m0      on compute          after gather h.0 m0
///   reduce_scatter  h.1     m0  g0  on reduce   a0 = x  after backward h.1 m0
/// A name means the latest instruction of that name above the line. s: parameter slot, g: gradient slot, a: gradient
/// accumulator, x: what the line reduces; x0: a sum slot that holds it until the next line of that unit; sp, sg, so,
/// si, ss: staging slot of params, gradient accumulators, states of the optimizer, inputs, saved activations ("in si0
/// ss1": those of a module; "to si1": of its output). An exchange says what, and over which axes: "all_gather to
/// keys over shard". A line that sends int8 says "int8"; with error feedback, "int8 +
/// residual".
[[nodiscard]] std::string text(const Schedule& schedule);

/// Hash of the sequence of collectives (operation, unit, micro-batch, accumulation, what is sent as int8), which ranks
/// compare before the first step.
[[nodiscard]] std::uint64_t collective_hash(const Schedule& schedule);

}  // namespace tessera::shard
