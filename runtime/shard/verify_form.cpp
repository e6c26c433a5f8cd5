// SPDX-License-Identifier: Apache-2.0
// Checks of indices, streams, the order of modules, and axes.

#include "runtime/shard/verify_form.hpp"

#include <algorithm>

#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/shard/context.hpp"
#include "runtime/shard/reduce_stream.hpp"

namespace tessera::shard {
namespace {

StreamId stream_of(const Schedule& schedule, const Instruction& in) {
  switch (in.op) {
    case Op::gather: return StreamId::gather;
    case Op::fetch: return StreamId::fetch;
    case Op::store: return StreamId::store;
    case Op::exchange: return StreamId::exchange;
    case Op::update: return schedule.units[at(in.unit)].update_on_host ? StreamId::host : StreamId::compute;
    case Op::all_reduce: return all_reduce_stream(schedule.units, in.unit);
    case Op::reduce_scatter:
    case Op::norm: return StreamId::reduce;
    default: return StreamId::compute;
  }
}

bool of_module(Op op) { return op == Op::forward || op == Op::recompute || op == Op::backward; }
bool reduces(Op op) { return op == Op::reduce_scatter || op == Op::all_reduce; }
/// Of the passes of modules, whose order is fixed.
bool in_pass(Op op) { return of_module(op) || op == Op::exchange; }
bool moves(Op op) { return op == Op::fetch || op == Op::store; }
bool moves_activations(const Instruction& in) { return moves(in.op) && is_activation(in.state); }
bool of_unit(const Instruction& in) {
  return in.op == Op::gather || in.op == Op::release || reduces(in.op) || in.op == Op::update ||
         (moves(in.op) && !is_activation(in.state));
}

class Form {
 public:
  explicit Form(const Schedule& schedule) : s_(schedule) {}

  std::vector<Violation> run() {
    if (s_.reads.size() != s_.list.size()) {
      fail(-1, strfmt("%zu instructions, and what %zu of them read", s_.list.size(), s_.reads.size()));
      return std::move(out_);
    }
    tables();
    for (int i = 0; i < static_cast<int>(s_.list.size()); ++i) instruction(i);
    if (out_.empty()) order();
    return std::move(out_);
  }

 private:
  void fail(int i, const std::string& what) {
    out_.push_back({i, (i >= 0 ? instruction_name(s_, s_.list[at(i)]) + " " : std::string()) + what});
  }

  [[nodiscard]] bool unit(int u) const { return u >= 0 && at(u) < s_.units.size(); }
  [[nodiscard]] bool slot(int index, Slot::Kind kind) const {
    return index >= 0 && at(index) < s_.slots.size() && s_.slots[at(index)].kind == kind;
  }
  [[nodiscard]] bool fits(int u, int index) const {
    const std::vector<int>& units = s_.slots[at(index)].units;
    return std::binary_search(units.begin(), units.end(), u);
  }

  void tables() {
    for (const Slot& slot : s_.slots)
      if (slot.resident && slot.units.size() != 1) fail(-1, "a resident slot that is not of one unit");
    for (const ModuleUse& m : s_.modules) {
      for (const auto* units : {&m.forward_units, &m.backward_units, &m.grad_units}) {
        for (const int u : *units) {
          if (!unit(u)) fail(-1, strfmt("module %s names unit %d", m.name.c_str(), u));
        }
      }
    }
    for (const ReferenceModel& reference : s_.references)
      for (const ModuleUse& m : reference.modules) {
        const std::string name = reference.name + ":" + m.name;
        if (!m.backward_units.empty() || !m.grad_units.empty()) fail(-1, "module " + name + " has a backward");
        for (const int u : m.forward_units)
          if (!unit(u)) fail(-1, strfmt("module %s names unit %d", name.c_str(), u));
      }
    for (const ModuleUse& m : s_.modules) stages(m);
    for (const ReferenceModel& reference : s_.references)
      for (const ModuleUse& m : reference.modules) stages(m);
    for (const ScheduledUnit& unit : s_.units) compression(unit);
    const auto negative = [](const ScheduledUnit& unit) { return unit.num_accumulators < 0; };
    if (s_.num_micro < 1 || std::ranges::any_of(s_.units, negative)) fail(-1, "a count below what makes sense");
    if (!s_.grad_slots.empty() && s_.grad_slots.size() != at(s_.num_micro) * s_.units.size())
      fail(-1, "the table of gradient slots has a wrong size");
    activation_tables();
  }

  /// A value is written by one stage or exchange, and read by one: a second reader would overwrite its gradient, and
  /// might read what an exchange has summed. An exchange has both ends.
  void stages(const ModuleUse& m) {
    const auto value = [&](int v) { return v >= 0 && at(v) < m.values.size(); };
    const auto refuse = [&](const char* what) { fail(-1, "module " + m.name + " " + what); };
    std::vector<int> writers(m.values.size()), readers(m.values.size()), written_in(m.values.size(), -1);
    for (int p = 0; p < static_cast<int>(m.stages.size()); ++p) {
      const ModuleStage& stage = m.stages[at(p)];
      if (!std::ranges::all_of(stage.reads, value) || !std::ranges::all_of(stage.writes, value))
        return refuse("has a stage that names no value");
      for (const int v : stage.reads) ++readers[at(v)];
      for (const int v : stage.writes) ++writers[at(v)], written_in[at(v)] = p;
    }
    for (const ModuleExchange& e : m.exchanges) {
      if (!value(e.from) || !value(e.to) || e.from == e.to || e.after < 0 || e.after + 1 >= m.num_stages())
        return refuse("has an exchange between no stages, or of no value");
      ++readers[at(e.from)], ++writers[at(e.to)], written_in[at(e.to)] = e.after;
      if (is_sum(e.forward) && m.values[at(e.from)].kept) refuse("keeps a value that an exchange sums");
      if (m.values[at(e.from)].constant != m.values[at(e.to)].constant)
        refuse("exchanges a value without a gradient into one with it, or the reverse");
    }
    if (std::ranges::any_of(writers, [](int n) { return n != 1; })) refuse("has a value that not one stage writes");
    if (std::ranges::any_of(readers, [](int n) { return n != 1; })) refuse("has a value that not one stage reads");
    std::vector<bool> exchanged(m.values.size());  // into these values, by the exchanges before
    for (const ModuleExchange& e : m.exchanges) {
      const bool by_exchange =
          std::ranges::any_of(m.exchanges, [&](const ModuleExchange& other) { return other.to == e.from; });
      if (written_in[at(e.from)] > e.after || (by_exchange && !exchanged[at(e.from)]))
        refuse("exchanges a value that is written later");
      exchanged[at(e.to)] = true;
    }
  }

  /// Of what is sent as int8, codes and residuals are of fp32 numbers, and the gather writes all of the slot, which may
  /// not be the master weights.
  void compression(const ScheduledUnit& unit) {
    const Int8Collectives& int8 = unit.int8;
    const auto refuse = [&](const char* what) { fail(-1, "unit " + unit.name + " " + what); };
    if ((int8.gather || int8.reduce_scatter) && !unit.sharded()) refuse("sends int8 over shard axes, and has none");
    if (int8.all_reduce && unit.replicate_axes.empty()) refuse("sends int8 over replicate axes, and has none");
    if (int8.error_feedback && !int8.reduce_scatter && !int8.all_reduce) refuse("has residuals of nothing");
    if ((int8.reduce_scatter || (int8.all_reduce && !unit.sharded())) && unit.reduce_dtype != DType::f32)
      refuse("encodes gradients that are not fp32");
    if (int8.gather && (!is_float(unit.param_dtype) || !is_float(unit.storage_dtype))) refuse("gathers int8 of bytes");
    if (int8.gather && (unit.params_in_place || (unit.params_resident && !unit.has_separate_masters())))
      refuse("gathers int8 over its master weights");
  }

  void instruction(int i) {
    const Instruction& in = s_.list[at(i)];
    if (of_unit(in) && !unit(in.unit)) return fail(i, "names no unit");
    if (in.stream != stream_of(s_, in)) fail(i, strfmt("is on the %s stream", name_of(in.stream)));
    for (const int d : in.after) {
      if (d < 0 || d >= i) fail(i, strfmt("waits for instruction %d, which is not an earlier one", d));
    }
    const bool forward = (in.op == Op::exchange ? in.pass : in.op) == Op::forward;
    if (in.instance < 0 || at(in.instance) > s_.references.size() || (in.instance > 0 && !forward))
      return fail(i, strfmt("is of model instance %d", in.instance));
    if ((in_pass(in.op) || moves_activations(in)) &&
        (in.module < 0 || at(in.module) >= s_.modules_of(in.instance).size() || in.micro < 0 ||
         in.micro >= s_.num_micro)) {
      return fail(i, "names no module or no micro-batch");
    }
    if (in_pass(in.op)) {
      const ModuleUse& use = s_.use_of(in);
      const int parts = in.op == Op::exchange ? static_cast<int>(use.exchanges.size()) : use.num_stages();
      if (in.part < 0 || in.part >= parts || !of_module(in.pass)) return fail(i, "names no stage or exchange");
    }
    if (in.op == Op::gather || in.op == Op::release) uses_slot(i, in.slot, Slot::Kind::param);
    if (reduces(in.op)) reduction(i);
    staging(i);
    for (const auto& [u, index] : s_.reads[at(i)]) {
      if (!of_module(in.op)) fail(i, "reads no parameters, and a slot is given");
      if (!unit(u) || !slot(index, Slot::Kind::param) || !fits(u, index))
        fail(i, strfmt("reads unit %d in slot %d", u, index));
    }
  }

  void uses_slot(int i, int index, Slot::Kind kind) {
    if (!slot(index, kind)) fail(i, strfmt("names slot %d", index));
    else if (!fits(s_.list[at(i)].unit, index)) fail(i, strfmt("uses slot %d, which was not made for it", index));
  }

  /// Whether an instruction of a unit has a staging slot, and of which kind, follows from its unit.
  void staging(int i) {
    const Instruction& in = s_.list[at(i)];
    if (moves_activations(in)) return activations(i);
    const bool has_unit = of_unit(in);
    const ScheduledUnit none, &unit = has_unit ? s_.units[at(in.unit)] : none;
    StateKind state = in.state;
    bool wanted = false;
    if (in.op == Op::gather) state = StateKind::params, wanted = unit.params_offloaded();
    if (reduces(in.op)) state = StateKind::grads, wanted = unit.grads_offloaded();
    if (in.op == Op::update) state = StateKind::optimizer, wanted = unit.stages_update();
    if (moves(in.op)) {
      const bool offloaded = state == StateKind::params  ? unit.params_offloaded() && in.op == Op::fetch
                             : state == StateKind::grads ? unit.grads_offloaded()
                                                         : state == StateKind::optimizer && unit.stages_update();
      const bool to_device = in.op == Op::fetch && state == StateKind::params && unit.fetches_updated();
      if (!offloaded && !to_device) return fail(i, strfmt("moves %s, which are not offloaded", name_of(state)));
      wanted = offloaded;
    }
    if (wanted != (in.stage >= 0)) return fail(i, wanted ? "has no staging slot" : "has a staging slot");
    if (!wanted) return;
    uses_slot(i, in.stage, Slot::Kind::stage);
    if (slot(in.stage, Slot::Kind::stage) && s_.slots[at(in.stage)].state != state)
      fail(i, strfmt("uses slot %d, which was not made for it", in.stage));
  }

  void activations(int i) {
    const Instruction& in = s_.list[at(i)];
    if (!s_.offloads_activations || in.module < first_backward(s_.modules) || !s_.modules[at(in.module)].offloads)
      return fail(i, strfmt("moves %s, which is not offloaded", name_of(in.state)));
    if (!staged(in.stage, in.state)) fail(i, strfmt("names slot %d", in.stage));
  }
  [[nodiscard]] bool staged(int index, StateKind state) const {
    return slot(index, Slot::Kind::stage) && s_.slots[at(index)].state == state;
  }

  /// Where activations are: inputs of all modules but the first, and what those with a backward save.
  void activation_tables() {
    const std::size_t n = s_.modules.size(), size = at(s_.num_micro) * n,
                      first = s_.trains() ? at(first_backward(s_.modules)) : n;
    if (s_.forward_slots.size() != size || s_.backward_slots.size() != (first < n ? size : 0) ||
        s_.reference_slots.size() != s_.references.size())
      return fail(-1, "a table of activation slots has a wrong size");
    for (const auto* table : {&s_.forward_slots, &s_.backward_slots})
      for (std::size_t k = 0; k < table->size(); ++k) {
        const int m = static_cast<int>(k % n);
        const bool forward = table == &s_.forward_slots, trains = k % n >= first;
        const ModuleUse& use = s_.modules[k % n];
        const ActivationSlots& of = (*table)[k];
        has_slot(m > 0 && (forward || trains), of.input, {SlotUse::output}, StateKind::input,
                 "the input of " + use.name);
        has_slot(trains && use.saves, of.saved, {SlotUse::saved, m}, StateKind::saved, "what is saved of " + use.name);
        has_slot(trains && use.saves_again, of.recomputed, {SlotUse::recomputed}, {},
                 "what is recomputed of " + use.name);
        has_values(use, m, forward || trains, trains, of);
        has_slot(trains && k % n > first, of.gradient, {SlotUse::output_gradient}, {},
                 "the gradient before " + use.name);
      }
    for (std::size_t r = 0; r < s_.references.size(); ++r) {
      if (s_.reference_slots[r].size() != s_.references[r].modules.size())
        return fail(-1, "a table of activation slots has a wrong size");
      for (std::size_t m = 0; m < s_.reference_slots[r].size(); ++m)
        has_values(s_.references[r].modules[m], -1, true, false, s_.reference_slots[r][m]),
            has_slot(m > 0, s_.reference_slots[r][m].input, {SlotUse::output}, StateKind::input,
                     "the input of " + s_.references[r].modules[m].name);
    }
  }

  /// Kept values of a module that is not recomputed are in slots of its own.
  void has_values(const ModuleUse& use, int m, bool used, bool trains, const ActivationSlots& of) {
    const std::size_t n = use.values.size();
    if (of.values.size() != (used ? n : 0) || of.value_gradients.size() != (trains ? n : 0))
      return fail(-1, "the values of " + use.name + " have no slots");
    const bool again = recomputes(s_.recompute) && use.recomputable;
    for (int v = 0; v < static_cast<int>(of.values.size()); ++v) {
      const int own = use.values[at(v)].kept && trains && !again ? m : -1;
      has_slot(true, of.values[at(v)], {SlotUse::value, own, v}, {}, use.values[at(v)].name + " of " + use.name);
      if (trains)
        has_slot(!use.values[at(v)].constant, of.value_gradients[at(v)], {SlotUse::value_gradient, -1, v}, {},
                 "the gradient of " + use.values[at(v)].name + " of " + use.name);
    }
  }

  /// A slot of that id, or a staging slot of that kind; none if it is not wanted. Of outputs any number will do.
  void has_slot(bool wanted, int index, SlotId id, StateKind kind, const std::string& what) {
    bool good = index < 0;
    if (wanted && slot(index, Slot::Kind::activation)) {
      SlotId own = s_.slots[at(index)].id;
      if (id.use == SlotUse::output) own.of = id.of;
      good = own == id;
    } else if (wanted) {
      good = s_.offloads_activations && is_activation(kind) && staged(index, kind);
    }
    if (!good) fail(-1, strfmt("%s has slot %d", what.c_str(), index));
  }

  void reduction(int i) {
    const Instruction& in = s_.list[at(i)];
    const ScheduledUnit& unit = s_.units[at(in.unit)];
    if (in.op == Op::all_reduce && unit.replicate_axes.empty()) fail(i, "has no axes");
    if (in.op == Op::reduce_scatter && !unit.sharded() && !unit.replicate_axes.empty()) fail(i, "has no axes");
    if (in.op == Op::reduce_scatter || !unit.sharded()) uses_slot(i, in.slot, Slot::Kind::grad);
    else if (in.slot >= 0) fail(i, "reads a gradient slot after its reduce_scatter has");
    if (in.sum >= 0) uses_slot(i, in.sum, Slot::Kind::sum);
    const bool from_gradient =
        unit.summed_alone() && in.accumulation.inputs == std::vector<int>{in.accumulation.target};
    if (in.sum < 0 && !in.accumulation.inputs.empty() && !from_gradient)
      fail(i, "adds accumulators and names no sum slot");
    if (in.sum >= 0 && unit.num_accumulators == 0) fail(i, "names a sum slot, and there are no accumulators");
    if (in.micro < 0 || in.micro >= s_.num_micro) fail(i, "names no micro-batch");
    const auto accumulator = [&unit](int p) { return p >= 0 && p < std::max(unit.num_accumulators, 1); };
    if (!accumulator(in.accumulation.target) || !std::ranges::all_of(in.accumulation.inputs, accumulator))
      fail(i, "names no gradient accumulator");
  }

  /// Each micro-batch: forward through the modules of each reference model, then of the model, in order, then recompute
  /// and backward in reverse, down to the first that contributes to a gradient. Modules share activation buffers, so no
  /// other order is valid.
  void order() {
    const bool train = !s_.grad_slots.empty();
    std::vector<Instruction> expected;
    const auto expect = [&](const Instruction& of) {
      for (Instruction& in : stages_of(s_.use_of(of), of)) expected.push_back(std::move(in));
    };
    const int n = static_cast<int>(s_.modules.size()), instances = static_cast<int>(s_.references.size()) + 1;
    for (int m = 0; m < s_.num_micro; ++m) {
      for (int k = 1; k <= instances; ++k) {
        const int instance = k % instances;
        for (int i = 0; i < static_cast<int>(s_.modules_of(instance).size()); ++i)
          expect({.op = Op::forward, .module = i, .instance = instance, .micro = m});
      }
      for (int i = n - 1; train && i >= first_backward(s_.modules); --i) {
        if (s_.recomputes(i)) expect({.op = Op::recompute, .module = i, .micro = m});
        expect({.op = Op::backward, .module = i, .micro = m});
      }
    }
    std::size_t next = 0;
    for (int i = 0; i < static_cast<int>(s_.list.size()); ++i) {
      const Instruction& in = s_.list[at(i)];
      if (!in_pass(in.op)) continue;
      if (next == expected.size()) return fail(i, "comes after all modules are done");
      const Instruction& e = expected[next++];
      if (in.op != e.op || in.module != e.module || in.instance != e.instance || in.micro != e.micro ||
          in.part != e.part || in.pass != e.pass)
        return fail(i, "comes where " + instruction_name(s_, e) + " should");
    }
    if (next < expected.size()) fail(-1, instruction_name(s_, expected[next]) + " is missing");
  }

  const Schedule& s_;
  std::vector<Violation> out_;
};

void check_mesh(const Schedule& schedule, const Mesh& mesh, std::vector<Violation>& form) {
  const AxisSet all = gradient_axes | Axis::tensor;
  if (mesh.used(mesh.axes()) != mesh.used(all))
    form.push_back({-1, "ranks of the mesh " + mesh.str() + " differ along axes that no instruction is about"});
  const auto covers = [&](const ScheduledUnit& unit, AxisSet axes) {
    return mesh.used(unit.shard_axes | unit.replicate_axes) == mesh.used(axes) &&
           mesh.size(unit.shard_axes) * mesh.size(unit.replicate_axes) == mesh.size(axes);
  };
  for (const ScheduledUnit& unit : schedule.units)
    if (!covers(unit, all) && !covers(unit, gradient_axes))  // of replicated parameters, or of parts
      form.push_back(
          {-1, strfmt("unit %s is sharded over %s and replicated over %s, on the mesh %s", unit.name.c_str(),
                      unit.shard_axes.str().c_str(), unit.replicate_axes.str().c_str(), mesh.str().c_str())});
  const auto check_axes = [&](const std::vector<ModuleUse>& modules) {
    for (const ModuleUse& module : modules)
      for (const ModuleExchange& exchange : module.exchanges)
        if (mesh.used(exchange.axes) != exchange.axes)
          form.push_back({-1, strfmt("module %s exchanges over %s, on the mesh %s", module.name.c_str(),
                                     exchange.axes.str().c_str(), mesh.str().c_str())});
  };
  check_axes(schedule.modules);
  for (const ReferenceModel& reference : schedule.references) check_axes(reference.modules);
}

}  // namespace

std::vector<Violation> verify_form(const Schedule& schedule, const Mesh& mesh) {
  std::vector<Violation> form = Form(schedule).run();
  check_mesh(schedule, mesh, form);
  return form;
}

}  // namespace tessera::shard
