// Buffers are cells with a stamp. An instruction has two events: its start checks what it reads, its end checks again
// and writes.

#include "tests/shard/interpreter.hpp"

#include <algorithm>
#include <array>
#include <random>
#include <stdexcept>

#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "tests/shard/cells.hpp"

namespace tessera::test {
namespace {

using shard::Instruction;
using shard::ModuleUse;
using shard::Op;
using shard::Schedule;
using shard::Slot;
using shard::StreamId;

constexpr int num_steps = 2;

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Machine {
 public:
  Machine(const Schedule& schedule, const Mesh& mesh, const Schedule* load) : s_(schedule) {
    shards_ = std::min(mesh.size(Axis::shard), 2);
    const int replicas = std::min(mesh.size(Axis::replicate), 2);
    length_ = static_cast<int>(s_.list.size());
    for (int i = 0; i < length_; ++i) streams_[static_cast<std::size_t>(s_.list[at(i)].stream)].push_back(i);
    ranks_.resize(at(shards_ * replicas));
    for (Rank& r : ranks_) {
      r.views.resize(s_.slots.size());
      r.grads.resize(s_.slots.size());
      for (const shard::ScheduledUnit& unit : s_.units) r.accumulators.emplace_back(at(unit.num_accumulators));
      r.masters.resize(s_.units.size());
      r.normed.assign(s_.units.size(), 0);
      r.output.resize(s_.modules.size());
      r.saved.resize(s_.modules.size());
      r.started.assign(at(num_steps * length_), 0);
      r.ended.assign(at(num_steps * length_), 0);
    }
    // A parameter slot has one interval per shard; in place, all ranks of a shard group share it.
    memory_.assign(ranks_.size(), std::vector<std::array<ParamMemory, 2>>(s_.slots.size()));
    for (std::size_t k = 0; k < s_.slots.size(); ++k) {
      if (!resident_param(k)) continue;
      const int unit = s_.slots[k].units.front();
      const bool loaded = load != nullptr && std::ranges::any_of(load->list, [unit](const Instruction& in) {
                            return in.op == Op::gather && in.unit == unit;
                          });
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        ranks_[r].views[k].unit = unit;
        ranks_[r].views[k].fresh = shards_ == 1 || loaded;
        memory_[r][k][at(shard_of(static_cast<int>(r)))] = {{}, unit, 0};
        if (loaded || s_.units[at(unit)].params_in_place) memory_[r][k] = {{{{}, unit, 0}, {{}, unit, 0}}};
      }
    }
    full_.assign(s_.units.size(), 0);
    for (int m = 0; m < s_.num_micro; ++m) {
      for (int i = 0; i < static_cast<int>(s_.modules.size()); ++i) {
        for (const int u : s_.modules[at(i)].grad_units) full_[at(u)] |= bit(m, i);
      }
    }
  }

  void run(const Choice& choice) {
    std::mt19937_64 random(choice.seed);
    struct Event {
      int rank;
      std::size_t stream;
      bool start;
    };
    std::vector<Event> ready, held;
    for (;;) {
      ready.clear();
      held.clear();
      for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
        for (std::size_t s = 0; s < 3; ++s) {
          const bool start = !ranks_[at(r)].running[s];
          if (!can(r, s)) continue;
          const bool hold = r == 0 && instruction_at(r, s) == choice.held && start == choice.hold_start;
          (hold ? held : ready).push_back({r, s, start});
        }
      }
      if (ready.empty()) ready = held;
      if (ready.empty()) break;
      std::size_t pick = 0;
      if (choice.kind == Choice::Kind::random) {
        pick = random() % ready.size();
      } else {
        const auto rank_of = [&](const Event& e) {
          int rank_in_order = 0;
          while (static_cast<std::size_t>(choice.order[rank_in_order]) != e.stream) ++rank_in_order;
          return 2 * rank_in_order + (e.start == choice.ends_first ? 6 : 0);  // starts, or ends, come after the others
        };
        for (std::size_t k = 1; k < ready.size(); ++k) {
          if (rank_of(ready[k]) < rank_of(ready[pick])) pick = k;
        }
      }
      const Event e = ready[pick];
      e.start ? start(e.rank, e.stream) : end(e.rank, e.stream);
    }
    finish();
  }

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
  [[nodiscard]] int first_of_group(int rank) const { return rank - shard_of(rank); }
  [[nodiscard]] std::array<ParamMemory, 2>& memory(int rank, int slot) {
    return memory_[at(in_place(slot) ? first_of_group(rank) : rank)][at(slot)];
  }
  [[nodiscard]] bool trains() const { return !s_.grad_slots.empty(); }
  /// Gathers copy the low-precision copies that updates have written, and do not read the masters.
  [[nodiscard]] static bool copies_last(const shard::ScheduledUnit& unit) {
    return unit.has_separate_masters() && unit.params_resident;
  }
  [[nodiscard]] bool resident_param(std::size_t slot) const {
    return s_.slots[slot].resident && s_.slots[slot].kind == Slot::Kind::param;
  }
  [[nodiscard]] bool in_place(int slot) const {
    return resident_param(at(slot)) && s_.units[at(s_.slots[at(slot)].units.front())].params_in_place;
  }

  // Events.
  [[nodiscard]] int event_at(int rank, std::size_t stream) const {  // step · length + instruction, or -1
    const int done = ranks_[at(rank)].next[stream], n = static_cast<int>(streams_[stream].size());
    return n == 0 || done >= num_steps * n ? -1 : done / n * length_ + streams_[stream][at(done % n)];
  }
  [[nodiscard]] int instruction_at(int rank, std::size_t stream) const { return event_at(rank, stream) % length_; }
  [[nodiscard]] bool member(const Instruction& in, int a, int b) const {
    if (a == b) return true;
    if (in.op == Op::gather) return first_of_group(a) == first_of_group(b);
    return in.op == Op::reduce || in.op == Op::norm;
  }

  [[nodiscard]] bool can(int rank, std::size_t stream) const {
    const int e = event_at(rank, stream);
    if (e < 0) return false;
    const Rank& r = ranks_[at(rank)];
    const Instruction& in = s_.list[at(e % length_)];
    if (r.running[stream]) {  // a collective ends after all ranks have started it
      for (int other = 0; other < static_cast<int>(ranks_.size()); ++other) {
        if (member(in, rank, other) && !ranks_[at(other)].started[at(e)]) return false;
      }
      return true;
    }
    if (r.num_ended < e / length_ * length_) return false;  // the streams synchronize between steps
    for (const int d : in.after) {
      // An event is recorded in list order: waiting for a later one waits for nothing.
      if (d < e % length_ && !r.ended[at(e - e % length_ + d)]) return false;
    }
    return true;
  }

  void start(int rank, std::size_t stream) {
    const int e = event_at(rank, stream);
    rank_ = rank;
    stream_ = stream;
    step_ = e / length_;
    index_ = e % length_;
    begin(ranks_[at(rank)], s_.list[at(index_)]);
    ranks_[at(rank)].running[stream] = true;
    ranks_[at(rank)].started[at(e)] = 1;
  }

  void end(int rank, std::size_t stream) {
    const int e = event_at(rank, stream);
    rank_ = rank;
    stream_ = stream;
    step_ = e / length_;
    index_ = e % length_;
    Rank& r = ranks_[at(rank)];
    const Instruction& in = s_.list[at(index_)];
    for (const Snapshot& s : r.reading[stream]) {
      if (s.cell->stamp != s.stamp) wrong(rank, in, "what it reads changes under it");
    }
    complete(r, in);
    for (Cell* cell : r.writing[stream]) --cell->writers;
    r.reading[stream].clear();
    r.writing[stream].clear();
    r.running[stream] = false;
    r.ended[at(e)] = 1;
    ++r.next[stream];
    ++r.num_ended;
  }

  void finish() const {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].num_ended < num_steps * length_) throw Fault(strfmt("rank %zu: deadlock", r));
      for (std::size_t u = 0; u < s_.units.size(); ++u) {
        if (ranks_[r].masters[u].version != version(static_cast<int>(u), num_steps)) {
          throw Fault(
              strfmt("rank %zu: %s ends in version %d", r, s_.units[u].name.c_str(), ranks_[r].masters[u].version));
        }
      }
    }
  }

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
  void begin(Rank& r, const Instruction& in) {
    switch (in.op) {
      case Op::gather: return begin_gather(r, in);
      case Op::release:
        if (r.views[at(in.slot)].unit != in.unit) wrong(rank_, in, "releases what is not there");
        return writes(r.views[at(in.slot)]);
      case Op::forward:
      case Op::recompute:
      case Op::backward: return begin_module(r, in);
      case Op::reduce: return begin_reduce(r, in);
      case Op::norm: return begin_norm(r, in);
      case Op::update: return begin_update(r, in);
    }
  }

  void begin_gather(Rank& r, const Instruction& in) {
    if (!slot_fits(in.slot, in.unit, Slot::Kind::param)) wrong(rank_, in, "runs over its slot");
    View& view = r.views[at(in.slot)];
    const shard::ScheduledUnit& unit = s_.units[at(in.unit)];
    if (unit.params_resident ? view.unit != in.unit : view.unit >= 0) wrong(rank_, in, "its slot is not free");
    writes(view);
    if (unit.params_in_place) return;
    if (!copies_last(unit)) reads(r.masters[at(in.unit)]);
    for (int q = 0; q < shards_; ++q) {
      if (copies_last(unit) && q == shard_of(rank_)) reads(memory(rank_, in.slot)[at(q)]);
      else writes(memory(rank_, in.slot)[at(q)]);
    }
  }

  void begin_module(Rank& r, const Instruction& in) {
    const ModuleUse& use = s_.modules[at(in.module)];
    for (const int unit : in.op == Op::backward ? use.backward_units : use.forward_units) {
      const auto& given = s_.reads[at(index_)];
      const auto found = std::find_if(given.begin(), given.end(), [&](const auto& p) { return p.first == unit; });
      if (found == given.end()) wrong(rank_, in, "is not given a unit");
      if (found->second < 0 || at(found->second) >= s_.slots.size()) wrong(rank_, in, "is given no slot");
      const View& view = r.views[at(found->second)];
      reads(view);
      if (view.unit != unit || !view.fresh)
        wrong(rank_, in, "reads " + s_.units[at(unit)].name + ", which is not gathered there");
      for (int q = 0; q < shards_; ++q) {
        const ParamMemory& part = memory(rank_, found->second)[at(q)];
        reads(part);
        if (part.unit != unit || part.version != version(unit, step_))
          wrong(rank_, in, "reads an old or foreign " + s_.units[at(unit)].name);
      }
    }
    activations(r, in);
    if (in.op != Op::backward) return;
    for (const int unit : use.grad_units) {
      const int slot = s_.grad_slot(unit, in.micro);
      if (!slot_fits(slot, unit, Slot::Kind::grad)) wrong(rank_, in, "runs over its gradient slot");
      writes(r.grads[at(slot)]);
    }
  }

  /// Checks and sets what each activation buffer contains: all on one stream.
  void activations(Rank& r, const Instruction& in) {
    const Done here{step_, in.micro, in.module}, below{step_, in.micro, in.module - 1},
        above{step_, in.micro, in.module + 1};
    const bool last = in.module + 1 == static_cast<int>(s_.modules.size()),
               again = s_.recompute && s_.modules[at(in.module)].recomputable;
    if (in.module > 0 && r.output[at(in.module - 1)] != below) wrong(rank_, in, "has no input");
    if (in.op == Op::forward) {
      r.output[at(in.module)] = here;
      if (again) r.recomputed = {};
      else r.saved[at(in.module)] = here;
      if (last && !trains()) add_loss(r);
    } else if (in.op == Op::recompute) {
      if (!again || r.output[at(in.module)] != here) wrong(rank_, in, "computes again what has not been computed");
      r.recomputed = here;
    } else {
      if ((again ? r.recomputed : r.saved[at(in.module)]) != here) wrong(rank_, in, "has no saved activations");
      if (!last && r.backward != above) wrong(rank_, in, "has no gradient of its output");
      if (last && r.backward.step == step_ && r.backward.micro == in.micro) wrong(rank_, in, "comes twice");
      r.backward = here;
      if (last) add_loss(r);
    }
  }

  void add_loss(Rank& r) {
    writes(r.loss);
    r.loss.count = r.loss.step == step_ ? r.loss.count + 1 : 1;
    r.loss.step = step_;
  }

  void begin_reduce(Rank& r, const Instruction& in) {
    if (!slot_fits(in.slot, in.unit, Slot::Kind::grad)) wrong(rank_, in, "runs over its slot");
    Gradient& slot = r.grads[at(in.slot)];
    if (slot.unit != in.unit || slot.step != step_ || slot.reduced || slot.writers > 0)
      wrong(rank_, in, "reads another gradient");
    if (s_.units[at(in.unit)].num_accumulators == 0) return writes(slot);
    reads(slot);
    for (const int p : in.accumulation.inputs) {
      if (p != in.accumulation.target) writes(r.accumulators[at(in.unit)][at(p)]);
    }
    writes(r.accumulators[at(in.unit)][at(in.accumulation.target)]);
  }

  Gradient& reduced(Rank& r, const Instruction& in) {
    if (s_.units[at(in.unit)].num_accumulators > 0) return r.accumulators[at(in.unit)][0];
    for (std::size_t k = 0; k < s_.slots.size(); ++k) {
      if (s_.slots[k].kind == Slot::Kind::grad && s_.slots[k].units.front() == in.unit) return r.grads[k];
    }
    wrong(rank_, in, "has no gradient");
  }

  void begin_norm(Rank& r, const Instruction& in) {
    reads(r.loss);
    if (r.loss.step != step_ || r.loss.count != s_.num_micro) wrong(rank_, in, "the loss is not complete");
    for (std::size_t u = 0; u < s_.units.size() && trains(); ++u) {
      if (r.normed[u] != full_[u]) wrong(rank_, in, "the norm of " + s_.units[u].name + " is not complete");
    }
    writes(r.norm);
  }

  void begin_update(Rank& r, const Instruction& in) {
    reads(r.norm);
    if (r.norm.step != step_) wrong(rank_, in, "there is no norm yet");
    const Gradient& gradient = reduced(r, in);
    reads(gradient);
    if (gradient.unit != in.unit || gradient.step != step_ || gradient.sum != full_[at(in.unit)])
      wrong(rank_, in, "its gradient is not complete");
    writes(r.masters[at(in.unit)]);
    for (std::size_t k = 0; k < s_.slots.size(); ++k) {
      if (!resident_param(k) || s_.slots[k].units.front() != in.unit) continue;
      writes(memory(rank_, static_cast<int>(k))[at(shard_of(rank_))]);
      writes(r.views[k]);
    }
  }

  // ... and at its end.
  void complete(Rank& r, const Instruction& in) {
    switch (in.op) {
      case Op::gather: return complete_gather(r, in);
      case Op::release: r.views[at(in.slot)] = emptied(r.views[at(in.slot)]); return;
      case Op::forward:
      case Op::recompute: return;
      case Op::backward: return complete_backward(r, in);
      case Op::reduce: return complete_reduce(r, in);
      case Op::norm:
        r.norm.step = step_;
        std::fill(r.normed.begin(), r.normed.end(), 0);
        return;
      case Op::update: return complete_update(r, in);
    }
  }

  static View emptied(View view) {
    view.unit = -1;
    view.fresh = false;
    return view;
  }

  void complete_gather(Rank& r, const Instruction& in) {
    View& view = r.views[at(in.slot)];
    view.unit = in.unit;
    view.fresh = true;
    const shard::ScheduledUnit& unit = s_.units[at(in.unit)];
    if (unit.params_in_place) return;
    for (int q = 0; q < shards_; ++q) {
      ParamMemory& part = memory(rank_, in.slot)[at(q)];
      if (copies_last(unit)) {
        const ParamMemory& owners = memory(first_of_group(rank_) + q, in.slot)[at(q)];
        if (q == shard_of(rank_)) continue;
        part.unit = owners.unit;
        part.version = owners.writers > 0 ? -1 : owners.version;
        continue;
      }
      const Master& master = ranks_[at(first_of_group(rank_) + q)].masters[at(in.unit)];
      part.unit = in.unit;
      part.version = master.writers > 0 ? -1 : master.version;
    }
  }

  void complete_backward(Rank& r, const Instruction& in) {
    for (const int unit : s_.modules[at(in.module)].grad_units) {
      Gradient& slot = r.grads[at(s_.grad_slot(unit, in.micro))];
      bool first = !in.accumulates;  // as in the executor: the first contributor overwrites
      for (std::size_t later = at(in.module) + 1; later < s_.modules.size(); ++later) {
        const auto& units = s_.modules[later].grad_units;
        if (std::find(units.begin(), units.end(), unit) != units.end()) first = false;
      }
      if (in.accumulates && !first && slot.step != step_) wrong(rank_, in, "adds to an old gradient");
      if (first) {
        slot.unit = unit;
        slot.step = step_;
        slot.sum = 0;
        slot.reduced = false;
      }
      if (slot.unit != unit || slot.step != step_ || slot.reduced || (slot.sum & bit(in.micro, in.module)) != 0) {
        wrong(rank_, in, "adds to another gradient");
      }
      slot.sum |= bit(in.micro, in.module);
    }
  }

  void complete_reduce(Rank& r, const Instruction& in) {
    Gradient& slot = r.grads[at(in.slot)];
    std::uint64_t sum = slot.sum;
    if (s_.units[at(in.unit)].num_accumulators == 0) {
      slot.reduced = true;
    } else {
      for (const int p : in.accumulation.inputs) {
        const Gradient& accumulator = r.accumulators[at(in.unit)][at(p)];
        if (accumulator.step != step_ || (accumulator.sum & sum) != 0)
          wrong(rank_, in, "accumulates an old gradient, or one twice");
        sum |= accumulator.sum;
      }
      Gradient& target = r.accumulators[at(in.unit)][at(in.accumulation.target)];
      target.unit = in.unit;
      target.step = step_;
      target.sum = sum;
    }
    if (!in.last_reduce) return;
    if (r.normed[at(in.unit)] != 0) wrong(rank_, in, "adds to the norm twice");
    r.normed[at(in.unit)] = sum;
  }

  void complete_update(Rank& r, const Instruction& in) {
    Master& master = r.masters[at(in.unit)];
    ++master.version;
    for (std::size_t k = 0; k < s_.slots.size(); ++k) {
      if (!resident_param(k) || s_.slots[k].units.front() != in.unit) continue;
      memory(rank_, static_cast<int>(k))[at(shard_of(rank_))].version = master.version;
      r.views[k].fresh = shards_ == 1;
    }
  }

  const Schedule& s_;
  int shards_ = 1, length_ = 0;
  std::array<std::vector<int>, 3> streams_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<std::array<ParamMemory, 2>>>
      memory_;                       // by rank (in place: by first rank of a group), slot, interval
  std::vector<std::uint64_t> full_;  // by unit: all contributions of a step
  // Of the event in progress:
  int rank_ = 0, step_ = 0, index_ = 0;
  std::size_t stream_ = 0;
};

}  // namespace

std::string interpret(const Schedule& schedule, const Mesh& mesh, const Choice& choice, const Schedule* load) {
  try {
    Machine(schedule, mesh, load).run(choice);
    return {};
  } catch (const Fault& fault) { return fault.what(); }
}

}  // namespace tessera::test
