#pragma once
// Schedule: a step as a flat list of unit-level instructions on named streams. Data only: built by builder.hpp, proved
// by verify.hpp, walked by the executor, priced by the planner, printed here.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.hpp"

namespace tessera::shard {

enum class Op : unsigned char {
  gather,     // unit: all-gather into its slot (gather stream)
  release,    // unit: the slot is free again (compute stream)
  forward,    // module, micro
  recompute,  // module, micro: forward again for what backward needs
  backward,   // module, micro: writes or adds to the gradients of the module's parameters
  reduce,     // unit, micro: reduce-scatter over shard, all-reduce over replicate, then the fold (reduce stream)
  norm,       // one all-reduce of gradient norm, loss and counts over the world (reduce stream)
  update,  // unit: optimizer on this rank's shard (compute stream); the unit's gathered copies are stale from here on
};
enum class StreamId : unsigned char { compute, gather, reduce };
inline constexpr int num_streams = 3;
[[nodiscard]] const char* name_of(Op op);
[[nodiscard]] const char* name_of(StreamId stream);

/// A module as the schedule sees it: which units it reads and whose gradients it makes.
struct ModuleUse {
  std::string name;
  std::vector<int> forward_units;   // units read by forward
  std::vector<int> backward_units;  // units read by backward (and by recompute: forward_units)
  std::vector<int> grad_units;      // units whose gradients backward contributes to
  bool recomputable = false;        // recompute applies (a block; not the ends)
};

/// How a reduced gradient joins what earlier micro-batches left: for p in fold, in order: x = partial[p] + x; then
/// partial[target] = x.
struct Accumulation {
  std::vector<int> fold;
  int target = 0;
  friend bool operator==(const Accumulation&, const Accumulation&) = default;
};

struct Instruction {
  Op op = Op::forward;
  StreamId stream = StreamId::compute;
  int unit = -1;             // gather, release, reduce, update
  int module = -1;           // forward, recompute, backward
  int micro = -1;            // micro-batch of this rank's accumulation (gather: of its first use); -1: once a step
  int slot = -1;             // gather, release: parameter slot; reduce: gradient slot. Index into Schedule::slots
  Accumulation fold;         // reduce
  bool accumulates = false;  // backward in reduce == last: gradients of micro-batch > 0 add to those before
  bool last_reduce = false;  // reduce of the last micro-batch: the gradient is complete, its norm is taken
  std::vector<int> after;    // earlier instructions, on other streams, that must have run
};

/// A buffer that units take in turns. Resident slots belong to one unit for the whole run.
struct Slot {
  enum class Kind : unsigned char { param, grad };
  Kind kind = Kind::param;
  std::vector<int> units;  // who uses it, ascending
};

/// Streams run their instructions in list order; `after` orders them across streams; everything of a step happens
/// before anything of the next. The same list runs on every rank, so every rank issues the same collectives in the same
/// order.
struct Schedule {
  std::vector<std::string> units;  // names
  std::vector<ModuleUse> modules;
  std::vector<Instruction> list;
  std::vector<Slot> slots;
  int num_micro = 1;
  int num_accumulators = 0;     // reduced-gradient buffers per unit (0: reduced in place in the resident gradient slot)
  bool grads_resident = false;  // every unit has its own gradient slot
  bool params_resident = false;  // every unit has its own parameter slot, gathered (or never cut)
  bool recompute = false;        // forward keeps no more of a recomputable module than its input
  bool params_in_place =
      false;  // the master shard, or its rounded copy, is this rank's interval of the slot (peers read it there)
  bool params_fixed =
      false;  // nobody changes a parameter between two runs: what is resident stays gathered (inference)
  DType master_dtype = DType::f32;  // of the master shards (inference: what is gathered is all there is)
  DType param_dtype = DType::f32;   // of parameter slots
  DType reduce_dtype = DType::f32;  // of gradient slots; partials are fp32
  /// The master shards are not the gathered buffers' own intervals, although these last: their owner keeps a rounded
  /// copy there, which its update writes with the master. To all others an update looks alike either way.
  [[nodiscard]] bool has_separate_masters() const { return master_dtype != param_dtype; }

  /// The gradient slot that `module`'s backward of `micro` writes for `unit`.
  [[nodiscard]] int grad_slot(int unit, int micro) const;
  std::vector<int> grad_slots;  // [micro · units + unit]; -1: none
  /// The parameter slot that holds `unit` at instruction i (forward, recompute, backward); precomputed by the builder.
  std::vector<std::vector<std::pair<int, int>>> reads;  // per instruction: (unit, slot)
};

/// One instruction a line, aligned, every dependency by name: what `plan --print_schedule` prints and tests compare,
/// e.g.
///   gather     h.0     m0  s1  on gather            after release h.2 m0
///   forward    h.0     m0      on compute           after gather h.0 m0
///   reduce     h.1     m0  g0  on reduce   p0 = x  after backward h.1 m0
/// A name means the latest instruction of that name above the line. s: parameter slot, g: gradient slot, p: partial; x
/// is the gradient that the line reduces.
[[nodiscard]] std::string text(const Schedule& schedule);

/// Of the collective sequence (operation, unit, micro, and the fold of what was reduced), for the agreement
/// of ranks before the first step.
[[nodiscard]] std::uint64_t collective_hash(const Schedule& schedule);

}  // namespace tessera::shard
