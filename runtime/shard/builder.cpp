// slot_classes decides which units share slots, buffer_lifetimes which unit is in which slot; this file makes the order
// of instructions, and the dependencies between streams.

#include "runtime/shard/builder.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/shard/buffer_lifetimes.hpp"
#include "runtime/shard/slot_classes.hpp"

namespace tessera::shard {
namespace {

std::vector<int> union_of(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> out = a;
  for (const int u : b) {
    if (std::find(out.begin(), out.end(), u) == out.end()) out.push_back(u);
  }
  return out;
}

/// Builds the list. Keeps track of what is known to have run before each instruction on this rank, and leaves out
/// dependencies that follow from others.
class List {
 public:
  explicit List(Schedule& schedule) : s_(schedule) {}

  /// Appends an instruction; `wants` are instructions that must have run (-1: none). Returns its index.
  int add(Instruction in, std::vector<int> wants, std::vector<std::pair<int, int>> reads = {}) {
    const int index = static_cast<int>(s_.list.size());
    const auto stream = static_cast<std::size_t>(in.stream);
    Known known = last_[stream] >= 0 ? known_[at(last_[stream])] : Known{-1, -1, -1};
    std::sort(wants.begin(), wants.end(), std::greater<>());
    for (const int w : wants) {
      if (w < 0 || known[static_cast<std::size_t>(s_.list[at(w)].stream)] >= w) continue;
      in.after.push_back(w);
      for (std::size_t k = 0; k < known.size(); ++k) known[k] = std::max(known[k], known_[at(w)][k]);
    }
    std::reverse(in.after.begin(), in.after.end());
    known[stream] = index;
    known_.push_back(known);
    last_[stream] = index;
    s_.list.push_back(std::move(in));
    s_.reads.push_back(std::move(reads));
    return index;
  }

 private:
  using Known = std::array<int, num_streams>;  // by stream: the latest instruction that has run
  Schedule& s_;
  std::vector<Known> known_;
  Known last_{-1, -1, -1};
};

class Builder {
 public:
  enum class Kind : unsigned char { train, forward_only };

  Builder(const ScheduleInput& input, Kind kind) : in_(input), kind_(kind), list_(s_) {
    check();
    const bool cut = in_.mesh.size(Axis::shard) > 1;
    s_.units = in_.units;
    s_.modules = in_.modules;
    s_.num_micro = training() ? in_.num_micro : 1;
    s_.recompute = training() && in_.policy.recompute;
    s_.params_in_place = cut && in_.params_in_place;
    s_.params_resident = !cut || !in_.policy.shard_params || !in_.policy.reshard_after_forward || s_.params_in_place;
    s_.params_fixed = in_.params_fixed;
    s_.param_dtype = in_.policy.param_dtype;
    s_.reduce_dtype = in_.policy.reduce_dtype;
    if (s_.params_fixed) s_.master_dtype = s_.param_dtype;
    gathers_ = cut && !(s_.params_fixed && s_.params_resident);
    make_visits();
    make_param_slots();
    if (training()) make_grad_slots();
  }

  Schedule train() {
    for (int t = 0; t < static_cast<int>(visits_.size()); ++t) {
      emit_gathers(t);
      emit_reduces();
      emit_visit(t);
      emit_releases(t);
    }
    emit_reduces();
    const int norm = emit_norm();
    for (int u = 0; u < num_units(); ++u) {
      if (!has_grad(u)) continue;
      list_.add({.op = Op::update, .stream = StreamId::compute, .unit = u}, {norm});
    }
    return std::move(s_);
  }

  Schedule load() {
    if (in_.mesh.size(Axis::shard) > 1 && s_.params_resident) {
      for (int u = 0; u < num_units(); ++u)
        list_.add({.op = Op::gather, .stream = StreamId::gather, .unit = u, .slot = slot_of_[at(u)]}, {});
    }
    s_.modules.clear();
    return std::move(s_);
  }

  Schedule forward(bool with_loss) {
    for (int t = 0; t < static_cast<int>(visits_.size()); ++t) {
      emit_gathers(t);
      emit_visit(t);
      emit_releases(t);
    }
    if (with_loss) emit_norm();
    return std::move(s_);
  }

 private:
  [[nodiscard]] bool training() const { return kind_ == Kind::train; }
  [[nodiscard]] int num_units() const { return static_cast<int>(in_.units.size()); }
  [[nodiscard]] int num_modules() const { return static_cast<int>(in_.modules.size()); }
  [[nodiscard]] bool has_grad(int unit) const { return last_contributor_[at(unit)] >= 0; }
  /// True if gradients of several micro-batches are added in the slot, and reduced once.
  [[nodiscard]] bool reduces_once() const { return in_.num_micro == 1 || in_.policy.reduce == Reduce::last; }

  void check() const {
    if (in_.num_micro < 1 || in_.modules.empty()) throw std::logic_error("a schedule needs a module and a micro-batch");
    if (in_.unit_numel.size() != in_.units.size()) throw std::logic_error("a schedule needs the size of every unit");
    if (in_.policy.forward_prefetch < 0 || in_.policy.backward_prefetch < 0)
      throw std::logic_error("a prefetch depth below 0");
    if (in_.policy.reproducible && in_.policy.reduce == Reduce::last) {
      throw std::logic_error("reproducible sums reduce each micro-batch: it cannot be combined with reduce = last");
    }
    for (const ModuleUse& m : in_.modules) {
      for (const auto* units : {&m.forward_units, &m.backward_units, &m.grad_units}) {
        for (const int u : *units) {
          if (u < 0 || u >= num_units()) throw std::logic_error(strfmt("module %s names unit %d", m.name.c_str(), u));
        }
      }
    }
  }

  [[nodiscard]] bool recomputes(int module) const { return s_.recompute && in_.modules[at(module)].recomputable; }

  void make_visits() {
    for (int m = 0; m < s_.num_micro; ++m) {
      for (int i = 0; i < num_modules(); ++i)
        visits_.push_back({i, m, true, union_of({}, in_.modules[at(i)].forward_units)});
      if (!training()) continue;
      for (int i = num_modules() - 1; i >= 0; --i) {
        const ModuleUse& use = in_.modules[at(i)];
        visits_.push_back(
            {i, m, false, union_of(recomputes(i) ? use.forward_units : std::vector<int>{}, use.backward_units)});
      }
    }
    last_contributor_.assign(at(num_units()), -1);
    first_contributor_ = last_contributor_;
    if (!training()) return;
    for (int i = 0; i < num_modules(); ++i) {  // backward ends with the first module
      for (const int u : in_.modules[at(i)].grad_units) {
        if (last_contributor_[at(u)] < 0) last_contributor_[at(u)] = i;
        first_contributor_[at(u)] = i;
      }
    }
  }

  /// Appends num_slots slots and returns their indices; the units of a slot are added as they use it.
  std::vector<int> new_slots(Slot::Kind kind, int num_slots) {
    std::vector<int> numbers;
    for (int k = 0; k < num_slots; ++k) {
      numbers.push_back(static_cast<int>(s_.slots.size()));
      s_.slots.push_back({kind, {}});
    }
    return numbers;
  }

  void occupy(int slot, int unit) {
    std::vector<int>& units = s_.slots[at(slot)].units;
    const auto place = std::lower_bound(units.begin(), units.end(), unit);
    if (place == units.end() || *place != unit) units.insert(place, unit);
  }

  /// A unit needs its slot from when it may be prefetched until it is read. Computed for one micro-batch: the others
  /// are the same, each prefetched during the one before.
  [[nodiscard]] std::vector<SlotDemand> param_demands() const {
    const int places = static_cast<int>(visits_.size()) / s_.num_micro;
    std::vector<int> reading;  // executions that read units
    for (int t = 0; t < places; ++t) {
      if (!visits_[at(t)].units.empty()) reading.push_back(t);
    }
    std::vector<SlotDemand> demands;
    for (int u = 0; u < num_units(); ++u) demands.push_back({u, in_.unit_numel[at(u)], {}});
    const int n = static_cast<int>(reading.size());
    for (int k = 0; k < n; ++k) {
      const ModuleExecution& visit = visits_[at(reading[at(k)])];
      const int depth = std::min(visit.forward ? in_.policy.forward_prefetch : in_.policy.backward_prefetch,
                                 s_.num_micro > 1 ? n - 1 : k);
      const int first = reading[at((k - depth + n) % n)], ahead = (reading[at(k)] - first + places) % places;
      for (const int u : visit.units) {
        for (int t = 0; t <= ahead; ++t) demands[at(u)].times.push_back((first + t) % places);
      }
    }
    for (SlotDemand& d : demands) {
      std::sort(d.times.begin(), d.times.end());
      d.times.erase(std::unique(d.times.begin(), d.times.end()), d.times.end());
    }
    std::erase_if(demands, [](const SlotDemand& d) { return d.times.empty(); });
    return demands;
  }

  void make_param_slots() {
    if (s_.params_resident) {
      for (int u = 0; u < num_units(); ++u) param_classes_.push_back({{u}, 1});
    } else {
      param_classes_ = make_slot_classes(param_demands());
    }
    std::vector<std::vector<int>> slots;
    for (const SlotClass& c : param_classes_) slots.push_back(new_slots(Slot::Kind::param, c.num_slots));
    slot_of_.assign(at(num_units()), -1);
    if (s_.params_resident) {
      for (int u = 0; u < num_units(); ++u) {
        slot_of_[at(u)] = slots[at(u)].front();
        occupy(slot_of_[at(u)], u);
      }
    }
    if (!gathers_) return;
    stays_ = plan_buffer_lifetimes(visits_, num_units(), param_classes_, slots,
                                   {in_.policy.forward_prefetch, in_.policy.backward_prefetch});
    for (const BufferLifetime& stay : stays_) occupy(stay.slot, stay.unit);
    gather_index_.assign(stays_.size(), -1);
    release_index_.assign(stays_.size(), -1);
    gather_of_.assign(at(num_units()), -1);
    leaving_.resize(visits_.size());
    for (int k = 0; k < static_cast<int>(stays_.size()); ++k) leaving_[at(stays_[at(k)].last_read)].push_back(k);
  }

  void make_grad_slots() {
    const bool cut = in_.mesh.size(Axis::shard) > 1;
    const bool sums_fit =
        in_.policy.reduce_dtype == DType::f32;  // sums are fp32, so they can replace only fp32 gradients
    const bool meet_in_slot = in_.num_micro > 1 && reduces_once();
    s_.grads_resident = cut ? !in_.policy.shard_grads || meet_in_slot : (sums_fit ? reduces_once() : meet_in_slot);
    s_.num_accumulators = 1;
    if (s_.grads_resident && reduces_once() && sums_fit) {
      s_.num_accumulators = 0;
    } else if (in_.policy.reproducible) {
      for (int a = in_.num_micro; a > 1; a /= 2) ++s_.num_accumulators;
    }
    grad_class_.assign(at(num_units()), -1);
    grad_slots_of_.clear();
    if (s_.grads_resident) {
      for (int u = 0; u < num_units(); ++u) {
        if (!has_grad(u)) continue;
        grad_class_[at(u)] = static_cast<int>(grad_slots_of_.size());
        grad_slots_of_.push_back(new_slots(Slot::Kind::grad, 1));
      }
    } else {
      for (const SlotClass& c : make_slot_classes(grad_demands())) {
        for (const int u : c.units) grad_class_[at(u)] = static_cast<int>(grad_slots_of_.size());
        grad_slots_of_.push_back(new_slots(Slot::Kind::grad, c.num_slots));
      }
    }
    grad_busy_.assign(s_.slots.size(), false);
    grad_reader_.assign(s_.slots.size(), -1);
    s_.grad_slots.assign(at(s_.num_micro) * in_.units.size(), -1);
  }

  /// A gradient needs its slot from its first contribution to its last, and during the next module, which overlaps the
  /// reduce.
  [[nodiscard]] std::vector<SlotDemand> grad_demands() const {
    std::vector<SlotDemand> demands;
    for (int u = 0; u < num_units(); ++u) {
      if (!has_grad(u)) continue;
      SlotDemand demand{u, in_.unit_numel[at(u)], {}};
      const int n = num_modules();
      for (int place = n - 1 - first_contributor_[at(u)]; place <= n - last_contributor_[at(u)]; ++place)
        demand.times.push_back(place);
      demands.push_back(std::move(demand));
    }
    return demands;
  }

  void emit_gathers(int visit) {
    for (; next_stay_ < stays_.size() && stays_[next_stay_].gathered_before == visit; ++next_stay_) {
      const BufferLifetime& stay = stays_[next_stay_];
      const int micro = s_.params_resident ? -1 : visits_[at(stay.first_read)].micro;
      const int freed = stay.evicts >= 0 ? release_index_[at(stay.evicts)] : -1;
      gather_index_[next_stay_] = list_.add(
          {.op = Op::gather, .stream = StreamId::gather, .unit = stay.unit, .micro = micro, .slot = stay.slot},
          {freed});
      pending_.push_back(next_stay_);
    }
    // From its first read, a unit is in the slot that its gather names.
    for (const std::size_t k : pending_) {
      if (stays_[k].first_read != visit) continue;
      gather_of_[at(stays_[k].unit)] = gather_index_[k];
      slot_of_[at(stays_[k].unit)] = stays_[k].slot;
    }
    std::erase_if(pending_, [&](std::size_t k) { return stays_[k].first_read == visit; });
  }

  void emit_releases(int visit) {
    if (!gathers_ || s_.params_resident) return;
    for (const int k : leaving_[at(visit)]) {
      const BufferLifetime& stay = stays_[at(k)];
      release_index_[at(k)] = list_.add({.op = Op::release,
                                         .stream = StreamId::compute,
                                         .unit = stay.unit,
                                         .micro = visits_[at(visit)].micro,
                                         .slot = stay.slot},
                                        {});
    }
  }

  /// Emits one instruction of a module execution, after the gathers of what it reads and `wants`.
  int emit_module(Op op, const ModuleExecution& visit, const std::vector<int>& units, std::vector<int> wants,
                  bool accumulates = false) {
    std::vector<std::pair<int, int>> reads;
    for (const int u : units) {
      reads.emplace_back(u, slot_of_[at(u)]);
      if (gathers_) wants.push_back(gather_of_[at(u)]);
    }
    last_module_ = list_.add({.op = op,
                              .stream = StreamId::compute,
                              .module = visit.module,
                              .micro = visit.micro,
                              .accumulates = accumulates},
                             std::move(wants), std::move(reads));
    return last_module_;
  }

  void emit_visit(int t) {
    const ModuleExecution& visit = visits_[at(t)];
    const ModuleUse& use = in_.modules[at(visit.module)];
    const std::vector<int> forward_units = union_of({}, use.forward_units);
    if (visit.forward) {
      emit_module(Op::forward, visit, forward_units, {});
      return;
    }
    if (recomputes(visit.module)) emit_module(Op::recompute, visit, forward_units, {});
    std::vector<int> wants;
    for (const int u : use.grad_units) {
      if (first_contributor_[at(u)] == visit.module) wants.push_back(take_grad_slot(u, visit.micro));
    }
    const bool accumulates = visit.micro > 0 && in_.policy.reduce == Reduce::last;
    emit_module(Op::backward, visit, union_of({}, use.backward_units), std::move(wants), accumulates);
    for (const int u : union_of({}, use.grad_units)) {
      if (last_contributor_[at(u)] == visit.module) complete_.emplace_back(u, visit.micro);
    }
  }

  /// Assigns a slot to the gradient of (unit, micro): the free slot of its class that was read longest ago. Returns the
  /// reduce that read it last, or -1.
  int take_grad_slot(int unit, int micro) {
    int best = -1;
    for (const int s : grad_slots_of_[at(grad_class_[at(unit)])]) {
      if (grad_busy_[at(s)] && !s_.grads_resident) continue;
      if (best < 0 || grad_reader_[at(s)] < grad_reader_[at(best)]) best = s;
    }
    TESSERA_ASSERT(best >= 0, "no gradient slot for unit %d", unit);
    grad_busy_[at(best)] = true;
    occupy(best, unit);
    s_.grad_slots[at(micro) * in_.units.size() + at(unit)] = best;
    return grad_reader_[at(best)];
  }

  /// How the gradient of micro-batch a is accumulated: running sum, or binary-counter tree.
  [[nodiscard]] Accumulation fold_of(int a) const {
    Accumulation accumulation;
    if (s_.num_accumulators == 0 || reduces_once()) return accumulation;
    if (!in_.policy.reproducible) {
      if (a > 0) accumulation.inputs.push_back(0);
      return accumulation;
    }
    for (; (a >> accumulation.target) & 1; ++accumulation.target)
      accumulation.inputs.push_back(accumulation.target);  // trailing one bits of a
    if (a + 1 < in_.num_micro) return accumulation;
    for (int p = accumulation.target + 1; p < s_.num_accumulators;
         ++p) {  // the last micro-batch adds the rest: one bits of a + 1
      if (((a + 1) >> p) & 1) accumulation.inputs.push_back(p);
    }
    accumulation.target = 0;
    return accumulation;
  }

  void emit_reduces() {
    for (const auto& [unit, micro] : complete_) {
      const bool last = micro + 1 == in_.num_micro;
      if (in_.policy.reduce == Reduce::last && !last) continue;
      const int slot = s_.grad_slot(unit, micro);
      grad_reader_[at(slot)] = list_.add({.op = Op::reduce,
                                          .stream = StreamId::reduce,
                                          .unit = unit,
                                          .micro = micro,
                                          .slot = slot,
                                          .accumulation = fold_of(micro),
                                          .last_reduce = last},
                                         {last_module_});
      grad_busy_[at(slot)] = false;
    }
    complete_.clear();
  }

  /// norm, after every reduce (in stream order) and after compute has added the last loss.
  int emit_norm() { return list_.add({.op = Op::norm, .stream = StreamId::reduce}, {last_module_}); }

  const ScheduleInput& in_;
  Kind kind_;
  Schedule s_;
  List list_;
  bool gathers_ = false;  // the shard axis has more than one rank, and not all units are resident
  std::vector<ModuleExecution> visits_;
  std::vector<int> first_contributor_, last_contributor_;  // unit → module, in the order of backward; -1: none
  std::vector<SlotClass> param_classes_;
  std::vector<BufferLifetime> stays_;
  std::size_t next_stay_ = 0;
  std::vector<std::size_t> pending_;               // lifetimes whose gather is issued and not yet read
  std::vector<int> gather_index_, release_index_;  // lifetime → instruction
  std::vector<std::vector<int>> leaving_;          // execution → lifetimes that end with it
  std::vector<int> gather_of_, slot_of_;           // unit → its current gather, its parameter slot
  std::vector<int> grad_class_;                    // unit → index into grad_slots_of_
  std::vector<std::vector<int>> grad_slots_of_;
  std::vector<bool> grad_busy_;                // slot → holds a gradient that is not reduced yet
  std::vector<int> grad_reader_;               // slot → the reduce that read it last
  std::vector<std::pair<int, int>> complete_;  // (unit, micro) whose gradient the last execution completed
  int last_module_ = -1;                       // the latest forward, recompute or backward
};

}  // namespace

Schedule build_train(const ScheduleInput& input) { return Builder(input, Builder::Kind::train).train(); }

Schedule build_forward(const ScheduleInput& input, bool with_loss) {
  return Builder(input, Builder::Kind::forward_only).forward(with_loss);
}

Schedule build_load(const ScheduleInput& input) {
  TESSERA_ASSERT(input.params_fixed, "a load for parameters that change");
  return Builder(input, Builder::Kind::forward_only).load();
}

}  // namespace tessera::shard
