// Checks of indices, streams and the order of modules.

#include "runtime/shard/verify_form.hpp"

#include <algorithm>

#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"

namespace tessera::shard {
namespace {

StreamId stream_of(Op op) {
  switch (op) {
    case Op::gather: return StreamId::gather;
    case Op::reduce:
    case Op::norm: return StreamId::reduce;
    default: return StreamId::compute;
  }
}

bool of_module(Op op) { return op == Op::forward || op == Op::recompute || op == Op::backward; }
bool of_unit(Op op) { return op == Op::gather || op == Op::release || op == Op::reduce || op == Op::update; }

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
    const auto negative = [](const ScheduledUnit& unit) { return unit.num_accumulators < 0; };
    if (s_.num_micro < 1 || std::ranges::any_of(s_.units, negative)) fail(-1, "a count below what makes sense");
    if (!s_.grad_slots.empty() && s_.grad_slots.size() != at(s_.num_micro) * s_.units.size())
      fail(-1, "the table of gradient slots has a wrong size");
  }

  void instruction(int i) {
    const Instruction& in = s_.list[at(i)];
    if (in.stream != stream_of(in.op)) fail(i, strfmt("is on the %s stream", name_of(in.stream)));
    for (const int d : in.after) {
      if (d < 0 || d >= i) fail(i, strfmt("waits for instruction %d, which is not an earlier one", d));
    }
    if (of_module(in.op) &&
        (in.module < 0 || at(in.module) >= s_.modules.size() || in.micro < 0 || in.micro >= s_.num_micro)) {
      fail(i, "names no module or no micro-batch");
    }
    if (of_unit(in.op) && !unit(in.unit)) return fail(i, "names no unit");
    const bool param = in.op == Op::gather || in.op == Op::release;
    if (param || in.op == Op::reduce) {
      if (!slot(in.slot, param ? Slot::Kind::param : Slot::Kind::grad))
        return fail(i, strfmt("names slot %d", in.slot));
      if (!fits(in.unit, in.slot)) fail(i, strfmt("uses slot %d, which was not made for it", in.slot));
    }
    if (in.op == Op::reduce) {
      if (in.micro < 0 || in.micro >= s_.num_micro) fail(i, "names no micro-batch");
      const int accumulators = std::max(s_.units[at(in.unit)].num_accumulators, 1);
      const auto partial = [accumulators](int p) { return p >= 0 && p < accumulators; };
      if (!partial(in.accumulation.target) ||
          !std::all_of(in.accumulation.inputs.begin(), in.accumulation.inputs.end(), partial))
        fail(i, "names no gradient accumulator");
    }
    for (const auto& [u, index] : s_.reads[at(i)]) {
      if (!of_module(in.op)) fail(i, "reads no parameters, and a slot is given");
      if (!unit(u) || !slot(index, Slot::Kind::param) || !fits(u, index))
        fail(i, strfmt("reads unit %d in slot %d", u, index));
    }
  }

  /// Each micro-batch: forward through the modules in order, then recompute and backward in reverse, down to the first
  /// that contributes to a gradient. Modules share activation buffers, so no other order is valid.
  void order() {
    const bool train = !s_.grad_slots.empty();
    std::vector<Instruction> expected;
    const int n = static_cast<int>(s_.modules.size());
    for (int m = 0; m < s_.num_micro; ++m) {
      for (int i = 0; i < n; ++i) expected.push_back({.op = Op::forward, .module = i, .micro = m});
      for (int i = n - 1; train && i >= first_backward(s_.modules); --i) {
        if (s_.recompute && s_.modules[at(i)].recomputable)
          expected.push_back({.op = Op::recompute, .module = i, .micro = m});
        expected.push_back({.op = Op::backward, .module = i, .micro = m});
      }
    }
    std::size_t next = 0;
    for (int i = 0; i < static_cast<int>(s_.list.size()); ++i) {
      const Instruction& in = s_.list[at(i)];
      if (!of_module(in.op)) continue;
      if (next == expected.size()) return fail(i, "comes after all modules are done");
      const Instruction& e = expected[next++];
      if (in.op != e.op || in.module != e.module || in.micro != e.micro) {
        return fail(
            i, strfmt("comes where %s %s m%d should", name_of(e.op), s_.modules[at(e.module)].name.c_str(), e.micro));
      }
    }
    if (next < expected.size()) {
      const Instruction& e = expected[next];
      fail(-1, strfmt("%s %s m%d is missing", name_of(e.op), s_.modules[at(e.module)].name.c_str(), e.micro));
    }
  }

  const Schedule& s_;
  std::vector<Violation> out_;
};

}  // namespace

std::vector<Violation> verify_form(const Schedule& schedule) { return Form(schedule).run(); }

}  // namespace tessera::shard
