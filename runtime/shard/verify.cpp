// SPDX-License-Identifier: Apache-2.0
// Follows the contents of every buffer over two steps in list order, which is one legal interleaving. For every two
// conflicting uses of a buffer, proves that their order is the same in every interleaving. So every interleaving is
// safe.

#include "runtime/shard/verify.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/shard/groups.hpp"
#include "runtime/shard/placed_activations.hpp"
#include "runtime/shard/placed_states.hpp"
#include "runtime/shard/verify_form.hpp"

namespace tessera::shard {
namespace {

constexpr int num_steps = 2;
constexpr std::size_t most_violations = 64;

class Replay : UseOrder {
 public:
  Replay(const Schedule& schedule, const Mesh& mesh, const Schedule* load)
      : UseOrder(schedule, mesh, num_steps),
        s_(schedule),
        params_(schedule.slots.size()),
        grads_(schedule.slots.size()),
        sums_(schedule.slots.size()),
        units_(schedule.units.size()),
        placed_(schedule, *this, units_),
        activations_(schedule, *this),
        norm_axes_(groups_of(schedule.units, mesh).norm) {
    for (std::size_t u = 0; u < units_.size(); ++u) units_[u].accumulators.resize(at(s_.units[u].num_accumulators));
    for (const ModuleUse& m : s_.modules) {
      for (const int u : distinct(m.grad_units)) units_[at(u)].contributors += m.num_stages();
    }
    for (std::size_t k = 0; k < s_.slots.size(); ++k) {
      const Slot& slot = s_.slots[k];
      if (slot.kind != Slot::Kind::param || !slot.resident) continue;
      const int unit = slot.units.front();
      params_[k].unit = unit;
      params_[k].loaded = load != nullptr && std::ranges::any_of(load->list, [unit](const Instruction& in) {
                            return in.op == Op::gather && in.unit == unit;
                          });
    }
  }

  std::vector<Violation> run() {
    const int length = static_cast<int>(s_.list.size());
    for (int k = 0; k < num_steps; ++k) {
      norm_ = last_module_ = -1;
      for (now_ = 0; now_ < length && violations.size() < most_violations; ++now_) {
        go_to(k, now_);
        instruction(s_.list[at(now_)]);
      }
      end_of_step();
    }
    return std::move(violations);
  }

 private:
  static std::vector<int> distinct(std::vector<int> units) {
    std::sort(units.begin(), units.end());
    units.erase(std::unique(units.begin(), units.end()), units.end());
    return units;
  }

  void instruction(const Instruction& in) {
    switch (in.op) {
      case Op::gather: return gather(in);
      case Op::release: return release(in);
      case Op::forward:
      case Op::recompute: use(s_.use_of(in).forward_units); return activations_.run(in);
      case Op::backward: use(s_.use_of(in).backward_units), activations_.run(in); return contribute(in);
      case Op::reduce_scatter:
      case Op::all_reduce: return reduce(in);
      case Op::norm: return norm();
      case Op::update: return update(in);
      case Op::fetch: return is_activation(in.state) ? activations_.fetch(in) : fetch(in);
      case Op::store: return is_activation(in.state) ? activations_.store(in) : placed_.store(in);
      case Op::exchange: joins("exchange ", s_.exchange_of(in).axes); return activations_.exchange(in);
    }
  }

  void gather(const Instruction& in) {
    ParamSlot& slot = params_[at(in.slot)];
    const ScheduledUnit& unit = s_.units[at(in.unit)];
    joins("", unit.shard_axes);
    if (unit.params_resident ? slot.unit != in.unit : slot.unit >= 0)
      fail(strfmt("takes slot %d, where %s is", in.slot, unit_name(slot.unit)));
    write(slot, "its slot");
    if (unit.params_offloaded()) placed_.gather(in);
    else if (!unit.params_in_place) read(units_[at(in.unit)].master, "its master shard");
    slot.unit = in.unit;
    slot.gathered = step;
  }

  void release(const Instruction& in) {
    ParamSlot& slot = params_[at(in.slot)];
    if (s_.slots[at(in.slot)].resident) fail("frees a slot that is the unit's own for the run");
    if (slot.unit != in.unit) fail(strfmt("frees slot %d, where %s is", in.slot, unit_name(slot.unit)));
    write(slot, "its slot");
    slot.unit = -1;
  }

  void use(const std::vector<int>& wanted) {
    last_module_ = event;
    if (norm_ >= 0) fail("comes after norm, which sums the loss and the gradients");
    std::vector<int> given;
    for (const auto& [unit, index] : s_.reads[at(now_)]) {
      given.push_back(unit);
      ParamSlot& slot = params_[at(index)];
      if (slot.unit != unit)
        fail(strfmt("reads unit %s in slot %d, where %s is", unit_name(unit), index, unit_name(slot.unit)));
      const ScheduledUnit& scheduled = s_.units[at(unit)];
      if (scheduled.sharded() && !scheduled.gathered_in_runs() && !slot.loaded)
        fail(strfmt("reads unit %s, which has not been gathered before the first run", unit_name(unit)));
      if (scheduled.gathered_in_runs() && slot.gathered != step)
        fail(strfmt("reads unit %s, which has not been gathered since its update", unit_name(unit)));
      read(slot, "a unit it reads");
      if (scheduled.params_in_place)
        for (const Peer peer : hb.peers(scheduled.shard_axes))
          ordered_after(units_[at(unit)].master.writer, peer, "a unit it reads");
    }
    if (distinct(given) != distinct(wanted) || given.size() != distinct(given).size())
      fail("is not given the units it reads");
  }

  void contribute(const Instruction& in) {
    for (const int unit : distinct(s_.modules[at(in.module)].grad_units)) {
      const int index = s_.grad_slot(unit, in.micro);
      if (index < 0 || at(index) >= grads_.size() || s_.slots[at(index)].kind != Slot::Kind::grad ||
          !std::binary_search(s_.slots[at(index)].units.begin(), s_.slots[at(index)].units.end(), unit)) {
        fail(strfmt("has no slot for the gradient of %s", unit_name(unit)));
        continue;
      }
      GradSlot& slot = grads_[at(index)];
      write(slot, "its gradient slot");
      const bool holds = slot.unit == unit && !slot.reduced;
      if (holds && slot.micro == in.micro) {
        ++slot.contributions;
      } else if (in.micro > 0 && s_.units[at(unit)].adds_in_slot) {
        const bool before_it =
            holds && slot.contributions == units_[at(unit)].contributors && slot.micros == MicroSet::of(0, in.micro);
        if (!before_it)
          fail(strfmt("adds to the gradient of %s, which is not that of the micro-batches before", unit_name(unit)));
        slot.unit = unit;
        slot.micro = in.micro;
        slot.contributions = 1;
        slot.micros = MicroSet::of(0, in.micro + 1);
      } else {
        if (slot.unit >= 0) fail(strfmt("overwrites the gradient of %s m%d", unit_name(slot.unit), slot.micro));
        slot.unit = unit;
        slot.micro = in.micro;
        slot.contributions = 1;
        slot.reduced = false;
        slot.micros = MicroSet::of(in.micro, in.micro + 1);
      }
    }
  }

  void reduce(const Instruction& in) {
    const ScheduledUnit& scheduled = s_.units[at(in.unit)];
    UnitState& unit = units_[at(in.unit)];
    const bool scatters = in.op == Op::reduce_scatter;
    joins("", scatters ? scheduled.shard_axes : scheduled.replicate_axes);
    if (scheduled.grads_offloaded()) placed_.reduce(in);
    const Sum x = scatters || !scheduled.sharded() ? sum_of_gradient(in) : sum_of_scattered(in);
    unit.complete = false;
    unit.last_reduce = event;
    if (unit.accumulators.empty()) {
      if (!in.accumulation.inputs.empty() || in.accumulation.target != 0)
        fail("adds gradient accumulators, and there are none");
      write(grads_[at(unit.grad_slot)], "its gradient slot");
      unit.in_place = x;
      unit.complete = is_complete(x);
    } else if (in.sum >= 0 && in.accumulation.inputs.empty() && scatters && scheduled.reduced_twice()) {
      SumBuffer& slot = sums_[at(in.sum)];
      write(slot, "its sum slot");
      if (!slot.sum.micros.empty()) fail(strfmt("overwrites the sum of %s", unit_name(slot.unit)));
      slot.sum = x;
      slot.unit = in.unit;
    } else {
      if (in.sum >= 0) write(sums_[at(in.sum)], "its sum slot");
      accumulate(in, unit, x);
    }
    if (in.last_reduce != unit.complete)
      fail(in.last_reduce ? "is called the last and leaves out micro-batches or replicas"
                          : "is the last and not called so");
  }

  /// What an instruction that reads the gradient slot sums.
  Sum sum_of_gradient(const Instruction& in) {
    GradSlot& slot = grads_[at(in.slot)];
    UnitState& unit = units_[at(in.unit)];
    if (slot.unit != in.unit || slot.micro != in.micro || slot.reduced) {
      fail(strfmt("reads slot %d, where the gradient of %s m%d is", in.slot, unit_name(slot.unit), slot.micro));
    } else if (slot.contributions != unit.contributors) {
      fail(strfmt("comes after %d of %d contributions", slot.contributions, unit.contributors));
    }
    if (unit.accumulators.empty()) {
      slot.reduced = true;
      unit.grad_slot = in.slot;
    } else {
      read(slot, "its gradient slot");
      slot.unit = -1;
    }
    return {slot.micros, in.op == Op::all_reduce || s_.units[at(in.unit)].replicate_axes.empty()};
  }

  /// What the all_reduce of a sharded unit sums: the content of its sum slot, of its accumulator, or of the gradient
  /// slot in place.
  Sum sum_of_scattered(const Instruction& in) {
    UnitState& unit = units_[at(in.unit)];
    Sum sum;
    if (in.sum >= 0) {
      SumBuffer& slot = sums_[at(in.sum)];
      write(slot, "its sum slot");
      if (slot.unit == in.unit) std::swap(sum, slot.sum);
    } else if (!unit.accumulators.empty()) {
      SumBuffer& accumulator = unit.accumulators[at(in.accumulation.target)];
      write(accumulator, "a gradient accumulator");
      std::swap(sum, accumulator.sum);
    } else {
      std::swap(sum, unit.in_place);
      unit.grad_slot = std::max(unit.grad_slot, 0);
    }
    if (sum.micros.empty() || sum.over_replicas) fail("does not follow a reduce_scatter");
    sum.over_replicas = true;
    return sum;
  }

  /// Adds x to the accumulators.
  void accumulate(const Instruction& in, UnitState& unit, Sum x) {
    for (const int p : in.accumulation.inputs) {
      SumBuffer& input = unit.accumulators[at(p)];
      write(input, "a gradient accumulator");
      if (input.sum.micros.empty()) fail(strfmt("adds accumulator %d, which is empty", p));
      else if (input.sum.over_replicas != x.over_replicas) fail("adds sums over different groups");
      if (!x.micros.add(input.sum.micros)) fail(strfmt("counts a micro-batch of accumulator %d twice", p));
      input.sum = {};
    }
    SumBuffer& target = unit.accumulators[at(in.accumulation.target)];
    write(target, "a gradient accumulator");
    if (!target.sum.micros.empty()) fail(strfmt("overwrites accumulator %d", in.accumulation.target));
    target.sum = x;
    unit.complete = in.accumulation.target == 0 && is_complete(x);
  }

  [[nodiscard]] bool is_complete(const Sum& sum) const {
    return sum.over_replicas && sum.micros == MicroSet::of(0, s_.num_micro);
  }

  /// The reduced gradient of a unit.
  Uses& gradient(UnitState& unit) {
    return !unit.accumulators.empty() ? static_cast<Uses&>(unit.accumulators[0])
                                      : grads_[at(std::max(unit.grad_slot, 0))];
  }

  void norm() {
    if (norm_ >= 0) fail("comes twice");
    for (const AxisSet axes : norm_axes_) joins("", axes);
    ordered_after(last_module_, self, "the loss");
    for (std::size_t u = 0; u < units_.size() && !s_.grad_slots.empty(); ++u) {
      if (units_[u].contributors == 0) continue;
      const bool updated = units_[u].updates > step;  // on the host, before
      if (!units_[u].complete && !updated) {
        fail(strfmt("comes before the gradient of %s is complete", unit_name(static_cast<int>(u))));
      } else if (s_.units[u].grads_offloaded()) {
        ordered_after(units_[u].last_reduce, self, "a gradient");
      } else {
        read(gradient(units_[u]), "a gradient");
      }
    }
    norm_ = event;
  }

  void update(const Instruction& in) {
    const ScheduledUnit& scheduled = s_.units[at(in.unit)];
    if (!scheduled.trainable) fail("changes parameters that are not trainable");
    UnitState& unit = units_[at(in.unit)];
    const bool early = s_.updates_before_norm && scheduled.update_on_host;
    if (norm_ < 0 && !early) fail("comes before norm");
    if (norm_ >= 0) ordered_after(norm_, self, "the clip factor");
    if (!unit.complete) return fail("has no complete gradient");
    if (!scheduled.grads_offloaded()) read(gradient(unit), "its gradient");
    if (scheduled.optimizer_offloaded() && !placed_.update(in)) return;
    if (!scheduled.params_offloaded() && !scheduled.update_on_host) overwrite_shard(in.unit);
    ++unit.updates;
    unit.complete = false;
    if (unit.accumulators.empty()) grads_[at(unit.grad_slot)].unit = -1;
    for (SumBuffer& accumulator : unit.accumulators) {
      if (&accumulator != &unit.accumulators[0] && !accumulator.sum.micros.empty()) fail("leaves an accumulator out");
      accumulator.sum = {};
    }
  }

  /// A fetch of params into the unit's shard on the device changes what an update changes elsewhere.
  void fetch(const Instruction& in) {
    placed_.fetch(in);
    if (in.stage >= 0) return;
    if (norm_ < 0) fail("comes before norm");
    ordered_after(norm_, self, "the end of the peers' reads");
    overwrite_shard(in.unit);
  }

  void overwrite_shard(int unit) {
    const ScheduledUnit& scheduled = s_.units[at(unit)];
    for (std::size_t k = 0; scheduled.params_resident && k < s_.slots.size(); ++k)
      if (s_.slots[k].kind == Slot::Kind::param && params_[k].unit == unit) overwrite_interval(scheduled, params_[k]);
    write(units_[at(unit)].master, "its master shard");
  }

  /// The master shard is this rank's interval of the unit's own slot; in place, peers read it there.
  void overwrite_interval(const ScheduledUnit& unit, ParamSlot& slot) {
    if (unit.params_in_place) {
      for (const Peer peer : hb.peers(unit.shard_axes))
        for (const int reader : slot.readers) ordered_after(reader, peer, "its interval");
    }
    write(slot, "its slot");
    slot.gathered = -1;
  }

  void end_of_step() {
    const auto end = [&](const std::string& what) { violations.push_back({-1, "end of the step: " + what}); };
    for (std::size_t k = 0; k < params_.size(); ++k) {
      if (!s_.slots[k].resident && params_[k].unit >= 0)
        end(strfmt("%s is still gathered", unit_name(params_[k].unit)));
    }
    placed_.end_of_step(step + 1);
    activations_.end_of_step();
    if (s_.grad_slots.empty()) return;
    if (norm_ < 0) end("no norm");
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const int wanted = units_[u].contributors > 0 ? step + 1 : 0;
      if (units_[u].updates != wanted)
        end(strfmt("%s has been updated %d times in %d steps", s_.units[u].name.c_str(), units_[u].updates, step + 1));
    }
    for (const GradSlot& slot : grads_) {
      if (slot.unit >= 0) end(strfmt("the gradient of %s has not been used", unit_name(slot.unit)));
    }
    for (const SumBuffer& slot : sums_)
      if (!slot.sum.micros.empty()) end(strfmt("a sum of %s has not been used", unit_name(slot.unit)));
  }

  const Schedule& s_;
  int now_ = 0;
  int norm_ = -1, last_module_ = -1;  // events of this step
  std::vector<ParamSlot> params_;     // by slot
  std::vector<GradSlot> grads_;       // by slot
  std::vector<SumBuffer> sums_;       // by slot
  std::vector<UnitState> units_;
  PlacedStates placed_;
  PlacedActivations activations_;
  std::vector<AxisSet> norm_axes_;
};

}  // namespace

std::vector<Violation> verify(const Schedule& schedule, const Mesh& mesh, const Schedule* load) {
  std::vector<Violation> form = verify_form(schedule, mesh);
  if (!form.empty() || schedule.list.empty()) return form;
  return Replay(schedule, mesh, load).run();
}

void require_safe(const Schedule& schedule, const Mesh& mesh, const Schedule* load) {
  const std::vector<Violation> violations = verify(schedule, mesh, load);
  if (violations.empty()) return;
  std::string what = strfmt("the schedule on %s is not safe (%zu violations):", mesh.str().c_str(), violations.size());
  for (std::size_t k = 0; k < std::min<std::size_t>(violations.size(), 5); ++k) {
    what += strfmt("\n  %d: %s", violations[k].instruction, violations[k].what.c_str());
  }
  throw std::logic_error(what);
}

}  // namespace tessera::shard
