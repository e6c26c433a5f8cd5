// SPDX-License-Identifier: Apache-2.0
#pragma once
// The interpreter's machine: simulated ranks and streams. interpreter.cpp has its events, effects.cpp what an
// instruction does to buffers.

#include <algorithm>
#include <array>
#include <stdexcept>

#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "tests/shard/cells.hpp"
#include "tests/shard/interpreter.hpp"

namespace tessera::test {

using shard::Instruction;
using shard::Op;
using shard::Schedule;
using shard::Slot;

constexpr int num_steps = 2;

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Machine {
 public:
  Machine(const Schedule& schedule, const Mesh& mesh, const Schedule* load);
  void run(const Choice& choice);

 private:
  [[noreturn]] void wrong(int rank, const Instruction& in, const std::string& what) const {
    throw Fault(strfmt("rank %d: %s: %s", rank, instruction_name(s_, in).c_str(), what.c_str()));
  }
  [[nodiscard]] std::uint64_t bit(int micro, int module) const {
    const int index = micro * static_cast<int>(s_.modules.size()) + module;
    if (index >= 64) throw std::logic_error("too large a schedule for this interpreter");
    return std::uint64_t{1} << index;
  }
  [[nodiscard]] int shard_of(int rank) const { return rank % shards_; }
  /// Of a unit; one that is not sharded has one interval.
  [[nodiscard]] int shards_of(int unit) const { return s_.units[at(unit)].sharded() ? shards_ : 1; }
  [[nodiscard]] int interval_of(int rank, int unit) const { return rank % shards_of(unit); }
  [[nodiscard]] int first_of_group(int rank) const { return rank - shard_of(rank); }
  [[nodiscard]] std::array<ParamMemory, 2>& memory(int rank, int slot) {
    return memory_[at(in_place(slot) ? first_of_group(rank) : rank)][at(slot)];
  }
  [[nodiscard]] bool trains() const { return !s_.grad_slots.empty(); }
  /// Gathers copy the low-precision copies that updates have written, and do not read the masters.
  [[nodiscard]] static bool copies_last(const shard::ScheduledUnit& unit) {
    return (unit.has_separate_masters() || unit.optimizer_offloaded()) && unit.params_resident;
  }
  [[nodiscard]] bool resident_param(std::size_t slot) const {
    return s_.slots[slot].resident && s_.slots[slot].kind == Slot::Kind::param;
  }
  [[nodiscard]] bool in_place(int slot) const {
    return resident_param(at(slot)) && s_.units[at(s_.slots[at(slot)].units.front())].params_in_place;
  }

  [[nodiscard]] static bool reduces(Op op) { return op == Op::reduce_scatter || op == Op::all_reduce; }

  // Events.
  [[nodiscard]] int next_event(int done, std::size_t stream) const {  // step · length + instruction, or -1
    const int n = static_cast<int>(streams_[stream].size());
    return n == 0 || done >= num_steps * n ? -1 : done / n * length_ + streams_[stream][at(done % n)];
  }
  [[nodiscard]] int event_at(int rank, std::size_t stream) const { return ranks_[at(rank)].next[stream]; }
  [[nodiscard]] int instruction_at(int rank, std::size_t stream) const { return event_at(rank, stream) % length_; }
  [[nodiscard]] bool member(const Instruction& in, int a, int b) const {
    if (a == b) return true;
    if (in.op == Op::norm) return true;
    if (!reduces(in.op) && in.op != Op::gather && in.op != Op::exchange) return false;
    const AxisSet axes = in.op == Op::exchange     ? s_.exchange_of(in).axes
                         : in.op == Op::all_reduce ? s_.units[at(in.unit)].replicate_axes
                                                   : s_.units[at(in.unit)].shard_axes;
    return (shard_of(a) == shard_of(b) || axes.contains(Axis::shard)) &&
           (first_of_group(a) == first_of_group(b) || axes.contains(Axis::replicate));
  }

  /// Whether the stream's next event can happen now.
  [[nodiscard]] bool can(int rank, std::size_t stream);
  /// A flag of `started` or `ended` that event e waits for and that is not set; is_set if there is none.
  static constexpr char is_set = 1;
  [[nodiscard]] const char* unset_flag(int rank, std::size_t stream, int e) const;
  void start(int rank, std::size_t stream);
  void end(int rank, std::size_t stream);
  void finish() const;

  // Buffers.
  void reads(const Cell& cell) {
    if (cell.writers > 0) wrong(rank_, s_.list[at(index_)], "reads what is being written");
    ranks_[at(rank_)].reading[stream_].push_back({&cell, cell.stamp});
  }
  void writes(Cell& cell) {
    if (cell.writers > 0) wrong(rank_, s_.list[at(index_)], "writes what is being written");
    ++cell.writers;
    ++cell.stamp;
    ranks_[at(rank_)].writing[stream_].push_back(&cell);
  }
  /// The version of a unit's parameters that step `step` works with.
  [[nodiscard]] int version(int unit, int step) const { return trains() && full_[at(unit)] != 0 ? step : 0; }

  [[nodiscard]] bool slot_fits(int slot, int unit, Slot::Kind kind) const {
    if (slot < 0 || at(slot) >= s_.slots.size() || s_.slots[at(slot)].kind != kind) return false;
    const auto& units = s_.slots[at(slot)].units;
    return std::find(units.begin(), units.end(), unit) != units.end();
  }

  // Checks and effects at the start of an instruction ...
  void begin(Rank& r, const Instruction& in);
  void begin_gather(Rank& r, const Instruction& in);
  void begin_module(Rank& r, const Instruction& in);
  /// Checks and sets what each activation buffer contains: all on one stream.
  void activations(Rank& r, const Instruction& in);
  void reference_activations(Rank& r, const Instruction& in);
  void add_loss(Rank& r, const Instruction& in);
  /// True if it reads the gradient slot, and not what a reduce_scatter has left.
  [[nodiscard]] bool reads_gradient(const Instruction& in) const {
    return in.op == Op::reduce_scatter || !s_.units[at(in.unit)].sharded();
  }
  /// True if it adds accumulators to the gradient in its slot, as a rank alone does.
  [[nodiscard]] bool adds_from_slot(const Instruction& in) const {
    return in.sum < 0 && !in.accumulation.inputs.empty() && reads_gradient(in);
  }
  /// Where an instruction sums over ranks: its sum slot, its accumulator, or the gradient slot in place.
  Gradient& summed(Rank& r, const Instruction& in) {
    if (in.sum >= 0) return r.sums[at(in.sum)];
    if (s_.units[at(in.unit)].num_accumulators > 0) return accumulators(r, in)[at(in.accumulation.target)];
    return reads_gradient(in) ? r.grads[at(in.slot)] : reduced(r, in);
  }
  /// Of the unit: on the device, or in the staging slot.
  [[nodiscard]] static std::vector<Gradient>& accumulators(Rank& r, const Instruction& in) {
    return reduces(in.op) && in.stage >= 0 ? r.stages[at(in.stage)].sums : r.accumulators[at(in.unit)];
  }
  void begin_reduce(Rank& r, const Instruction& in);
  Gradient& reduced(Rank& r, const Instruction& in);
  void begin_norm(Rank& r, const Instruction& in);
  void begin_update(Rank& r, const Instruction& in);
  /// Writes this rank's shard of the unit on the device.
  void begin_shard(Rank& r, int unit);
  void complete_shard(Rank& r, int unit);
  /// The activations that a module uses, and what it leaves in their buffers.
  /// Value v of a module with stages: first_stage_value + 2 · v; its gradient: one more.
  enum Name : int {
    input_value,
    saved_value,
    recomputed_value,
    gradient_value,
    reference_value,
    first_stage_value = 100,
  };
  void begin_stage_values(Rank& r, const Instruction& in);
  void begin_exchange(Rank& r, const Instruction& in);
  void complete_exchange(Rank& r, const Instruction& in);
  /// Names of what an exchange reads and writes.
  [[nodiscard]] std::pair<int, int> exchanged(const Instruction& in) const;
  [[nodiscard]] bool is_first_stage(const Instruction& in) const {
    return in.part == (in.op == Op::backward ? s_.use_of(in).num_stages() - 1 : 0);
  }
  [[nodiscard]] bool is_last_stage(const Instruction& in) const {
    return in.part == (in.op == Op::backward ? 0 : s_.use_of(in).num_stages() - 1);
  }
  void begin_values(Rank& r, const Instruction& in);
  void complete_values(Rank& r, const Instruction& in);
  void expect(Rank& r, const Instruction& in, int slot, int module, int name);
  void leave(Rank& r, const Instruction& in, int slot, int module, int name);
  /// Of the input of a module.
  [[nodiscard]] static int input_of(const Instruction& in) {
    return in.instance > 0 ? reference_value + in.instance : input_value;
  }
  [[nodiscard]] bool saves(const Instruction& in) const {
    return in.instance == 0 && trains() && in.module >= first_backward(s_.modules);
  }
  void begin_move(Rank& r, const Instruction& in);
  void complete_move(Rank& r, const Instruction& in);
  [[nodiscard]] static Activations& home(Rank& r, const Instruction& in) {
    return (in.state == shard::StateKind::input ? r.input_homes : r.saved_homes)[at(in.module)];
  }
  [[nodiscard]] Activations& values(Rank& r, const Instruction& in, int slot, int name);
  void begin_fetch(Rank& r, const Instruction& in);
  void begin_store(Rank& r, const Instruction& in);
  void begin_placed_update(Rank& r, const Instruction& in);
  // ... and at its end.
  void complete(Rank& r, const Instruction& in);
  static View emptied(View view) {
    view.unit = -1;
    view.fresh = false;
    return view;
  }
  void complete_gather(Rank& r, const Instruction& in);
  void complete_backward(Rank& r, const Instruction& in);
  void complete_reduce(Rank& r, const Instruction& in);
  void complete_update(Rank& r, const Instruction& in);
  void complete_fetch(Rank& r, const Instruction& in);
  void complete_store(Rank& r, const Instruction& in);
  void complete_placed_update(Rank& r, const Instruction& in);

  const Schedule& s_;
  int shards_ = 1, length_ = 0;
  bool one_queue_ = false;  // Choice::one_queue
  std::array<std::vector<int>, shard::num_streams> streams_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<std::array<ParamMemory, 2>>>
      memory_;                       // by rank (in place: by first rank of a group), slot, interval
  std::vector<std::uint64_t> full_;  // by unit: all contributions of a step
  // Of the event in progress:
  int rank_ = 0, step_ = 0, index_ = 0;
  std::size_t stream_ = 0;
};

}  // namespace tessera::test
