// SPDX-License-Identifier: Apache-2.0
// Names of instructions, the printed form of a schedule, and the hash of its collectives.

#include "runtime/shard/schedule.hpp"

#include <algorithm>
#include <array>

#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"

namespace tessera::shard {
namespace {

std::string micro_word(const Instruction& in) { return in.micro >= 0 ? strfmt("m%d", in.micro) : std::string(); }

/// The unit's or module's name; "" if there is none, or none of that index.
std::string subject(const Schedule& schedule, const Instruction& in) {
  const bool moves = in.op == Op::fetch || in.op == Op::store;
  const std::string state = moves ? std::string(name_of(in.state)) + " " : std::string();
  if (in.unit >= 0 && at(in.unit) < schedule.units.size()) return state + schedule.units[at(in.unit)].name;
  if (in.instance < 0 || at(in.instance) > schedule.references.size()) return {};
  const std::vector<ModuleUse>& modules = schedule.modules_of(in.instance);
  if (in.module < 0 || at(in.module) >= modules.size()) return {};
  const ModuleUse& use = modules[at(in.module)];
  const std::string name =
      state + (in.instance == 0 ? "" : schedule.references[at(in.instance - 1)].name + ":") + use.name;
  if (in.op == Op::exchange && in.part >= 0 && at(in.part) < use.exchanges.size()) {
    const ModuleExchange& exchange = use.exchanges[at(in.part)];
    const int value = in.pass == Op::backward ? exchange.from : exchange.to;
    return name + (in.pass == Op::backward ? ":d " : ":") + use.values[at(value)].name;
  }
  return moves || use.num_stages() == 1 ? name : name + "/" + std::to_string(in.part);
}

/// "s1", "g0", "x0", "sp0": the slot within its kind.
std::string slot_word(const Schedule& schedule, int slot) {
  if (slot < 0) return {};
  const Slot& named = schedule.slots[at(slot)];
  const auto before = std::count_if(schedule.slots.begin(), schedule.slots.begin() + slot, [&](const Slot& s) {
    return s.kind == named.kind && (s.kind != Slot::Kind::stage || s.state == named.state);
  });
  const int index = static_cast<int>(before);
  if (named.kind == Slot::Kind::stage) return strfmt("s%c%d", name_of(named.state)[0], index);
  return strfmt("%c%d", "sgx?v"[static_cast<int>(named.kind)], index);
}

/// "int8", if the instruction sends it; else "".
std::string encoding_word(const Schedule& schedule, const Instruction& in) {
  if (in.unit < 0) return {};
  const Int8Collectives& int8 = schedule.units[at(in.unit)].int8;
  if (in.op == Op::gather && int8.gather) return "int8";
  if (!(in.op == Op::reduce_scatter && int8.reduce_scatter) && !(in.op == Op::all_reduce && int8.all_reduce)) return {};
  return int8.error_feedback ? "int8 + residual" : "int8";
}

std::string join_words(const std::vector<std::string>& words, const char* between) {
  std::string out;
  for (const std::string& word : words)
    if (!word.empty()) out += (out.empty() ? "" : between) + word;
  return out;
}

/// "in si0 ss0 to si1": the staging slots of a module's activations.
std::string activations_word(const Schedule& schedule, const Instruction& in) {
  if (!schedule.offloads_activations || in.instance > 0) return {};
  const auto staged_word = [&](int slot) {
    return slot >= 0 && schedule.slots[at(slot)].kind == Slot::Kind::stage ? slot_word(schedule, slot) : std::string();
  };
  const ActivationSlots& slots = schedule.activation_slots(in);
  const std::string own = join_words({staged_word(slots.input), staged_word(slots.saved)}, " ");
  const std::string output = in.op == Op::forward ? staged_word(schedule.output_slot(in)) : std::string();
  return join_words({own.empty() ? "" : "in " + own, output.empty() ? "" : "to " + output}, " ");
}

/// The last column. reduce_scatter, all_reduce: "a0 = x + a0, last", the accumulation; backward: "adds", if it adds to
/// gradients of earlier micro-batches. gather, update: "from sp0", "in so0", the staging slot.
std::string detail_word(const Schedule& schedule, const Instruction& in) {
  const std::string stage = slot_word(schedule, in.stage);
  if (in.op == Op::gather) {
    const std::string encoding = encoding_word(schedule, in);
    return (in.stage >= 0 ? "from " + stage + (encoding.empty() ? "" : ", ") : std::string()) + encoding;
  }
  if (in.op == Op::update && in.stage >= 0) return "in " + stage;
  if (in.op == Op::backward) {
    const auto adds = [&](int u) { return in.micro > 0 && schedule.units[at(u)].adds_in_slot; };
    const bool any = std::ranges::any_of(schedule.modules[at(in.module)].grad_units, adds);
    return join_words({activations_word(schedule, in), any ? "adds" : ""}, ", ");
  }
  if (in.op == Op::forward || in.op == Op::recompute) return activations_word(schedule, in);
  if (in.op == Op::exchange)
    return std::string(name_of(schedule.exchange_kind(in))) + " over " + schedule.exchange_of(in).axes.str();
  if (in.op != Op::reduce_scatter && in.op != Op::all_reduce) return {};
  const ScheduledUnit& unit = schedule.units[at(in.unit)];
  const bool keeps_sum = in.sum >= 0 && unit.reduced_twice(), first = in.op == Op::reduce_scatter;
  std::string out;
  if (keeps_sum && first && in.accumulation.inputs.empty()) {
    out = slot_word(schedule, in.sum) + " = x";
  } else if (unit.num_accumulators > 0) {
    out = strfmt("a%d = %s", in.accumulation.target, keeps_sum && !first ? slot_word(schedule, in.sum).c_str() : "x");
    for (const int p : in.accumulation.inputs) out += strfmt(" + a%d", p);
  }
  if (in.stage >= 0) out += " in " + stage;
  for (const std::string& word : {encoding_word(schedule, in), std::string(in.last_reduce ? "last" : "")})
    if (!word.empty()) out += (out.empty() ? "" : ", ") + word;
  return out;
}

std::string pad(std::string word, std::size_t width) {
  if (word.size() < width) word.resize(width, ' ');
  return word;
}

}  // namespace

const char* name_of(Op op) {
  static constexpr std::array<const char*, 12> names{"gather",   "release",        "forward",    "recompute",
                                                     "backward", "reduce_scatter", "all_reduce", "norm",
                                                     "update",   "fetch",          "store",      "exchange"};
  return names[static_cast<std::size_t>(op)];
}

const char* name_of(StreamId stream) {
  static constexpr std::array<const char*, num_streams> names{"compute", "gather", "reduce", "replicate",
                                                              "host",    "fetch",  "store",  "exchange"};
  return names[static_cast<std::size_t>(stream)];
}

const char* name_of(StateKind kind) {
  static constexpr std::array<const char*, num_state_kinds> names{"params", "grads", "optimizer", "input", "saved"};
  return names[static_cast<std::size_t>(kind)];
}

const std::vector<ModuleUse>& Schedule::modules_of(int instance) const {
  return instance == 0 ? modules : references[at(instance - 1)].modules;
}

const ModuleUse& Schedule::use_of(const Instruction& instruction) const {
  return modules_of(instruction.instance)[at(instruction.module)];
}

const ActivationSlots& Schedule::activation_slots(const Instruction& in) const {
  if (in.instance > 0) return reference_slots[at(in.instance - 1)][at(in.module)];
  const Op pass = in.op == Op::exchange ? in.pass : in.op;
  return (pass == Op::forward ? forward_slots : backward_slots)[at(in.micro) * modules.size() + at(in.module)];
}

const ModuleExchange& Schedule::exchange_of(const Instruction& in) const { return use_of(in).exchanges[at(in.part)]; }

ExchangeKind Schedule::exchange_kind(const Instruction& in) const {
  return in.pass == Op::backward ? exchange_of(in).backward : exchange_of(in).forward;
}

Schedule::ExchangeSlots Schedule::exchange_slots(const Instruction& in) const {
  const ActivationSlots& of_module = activation_slots(in);
  const ModuleExchange& of = exchange_of(in);
  if (in.pass == Op::backward) return {of_module.value_gradients[at(of.to)], of_module.value_gradients[at(of.from)]};
  return {of_module.values[at(of.from)], of_module.values[at(of.to)]};
}

/// Those of the next module; of the last one, none.
static ActivationSlots next_slots(const Schedule& schedule, const Instruction& in) {
  if (at(in.module) + 1 == schedule.modules_of(in.instance).size()) return {};
  Instruction next = in;
  ++next.module;
  return schedule.activation_slots(next);
}

int Schedule::output_slot(const Instruction& in) const { return next_slots(*this, in).input; }
int Schedule::output_gradient_slot(const Instruction& in) const { return next_slots(*this, in).gradient; }

int Schedule::grad_slot(int unit, int micro) const {
  return grad_slots.empty() ? -1 : grad_slots[at(micro) * units.size() + at(unit)];
}

std::int64_t Schedule::slot_bytes(int slot) const {
  const Slot& s = slots[at(slot)];
  std::int64_t bytes = 0;
  for (const int u : s.units) {
    const ScheduledUnit& unit = units[at(u)];
    const DType dtype = s.kind == Slot::Kind::param ? unit.param_dtype : unit.reduce_dtype;
    bytes = std::max(bytes, unit.numel * static_cast<std::int64_t>(size_of(dtype)));
  }
  return bytes;
}

int first_backward(const std::vector<ModuleUse>& modules) {
  const auto trains = [](const ModuleUse& module) { return !module.grad_units.empty(); };
  return static_cast<int>(std::ranges::find_if(modules, trains) - modules.begin());
}

std::vector<Instruction> stages_of(const ModuleUse& use, const Instruction& of) {
  std::vector<Instruction> out;
  const bool backward = of.op == Op::backward;
  const int n = use.num_stages();
  for (int k = 0; k < n; ++k) {
    out.push_back(of);
    const int part = out.back().part = backward ? n - 1 - k : k;
    const int exchanges = static_cast<int>(use.exchanges.size());
    for (int i = 0; i < exchanges; ++i) {
      const int e = backward ? exchanges - 1 - i : i;  // one at the same place may exchange the result of another
      if (backward && use.values[at(use.exchanges[at(e)].from)].constant) continue;
      if (use.exchanges[at(e)].after == (backward ? part - 1 : part)) {
        Instruction in{.op = Op::exchange, .stream = StreamId::exchange, .module = of.module};
        in.part = e;
        in.pass = of.op;
        in.instance = of.instance;
        in.micro = of.micro;
        out.push_back(std::move(in));
      }
    }
  }
  return out;
}

std::string instruction_name(const Schedule& schedule, const Instruction& instruction) {
  std::string name = name_of(instruction.op);
  for (const std::string& word : {subject(schedule, instruction), micro_word(instruction)})
    if (!word.empty()) name += " " + word;
  return name;
}

std::string text(const Schedule& schedule) {
  constexpr std::size_t columns = 5;
  std::vector<std::array<std::string, columns>> cells;
  std::array<std::size_t, columns> width{9, 6, 2, 2, 0};
  std::size_t stream_width = 7;
  for (const Instruction& in : schedule.list) {
    stream_width = std::max(stream_width, std::string_view(name_of(in.stream)).size());
    const bool moves = in.op == Op::fetch || in.op == Op::store;
    cells.push_back({name_of(in.op), subject(schedule, in), micro_word(in),
                     slot_word(schedule, moves ? in.stage : in.slot), detail_word(schedule, in)});
    for (std::size_t c = 0; c < columns; ++c) width[c] = std::max(width[c], cells.back()[c].size());
  }
  std::string out;
  for (std::size_t i = 0; i < schedule.list.size(); ++i) {
    std::string line;
    for (std::size_t c = 0; c + 1 < columns; ++c) line += pad(cells[i][c], width[c] + 2);
    line += "on " + pad(name_of(schedule.list[i].stream), stream_width + 2);
    if (width[columns - 1] > 0) line += pad(cells[i][columns - 1], width[columns - 1] + 2);
    const std::vector<int>& after = schedule.list[i].after;
    for (std::size_t d = 0; d < after.size(); ++d) {
      line += (d == 0 ? "after " : ", ") + instruction_name(schedule, schedule.list[at(after[d])]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::uint64_t collective_hash(const Schedule& schedule) {
  std::uint64_t hash = fnv_offset_basis;
  const auto mix = [&hash](std::uint64_t value) { hash = hash64(value, hash); };
  for (const Instruction& in : schedule.list) {
    const StreamId stream = in.stream;
    if (in.op == Op::exchange)
      for (const char c : instruction_name(schedule, in) + " " + detail_word(schedule, in))
        mix(static_cast<unsigned char>(c));
    if (stream != StreamId::gather && stream != StreamId::reduce && stream != StreamId::replicate) continue;
    mix(static_cast<std::uint64_t>(in.op));
    mix(static_cast<std::uint64_t>(static_cast<std::int64_t>(in.unit)));
    mix(static_cast<std::uint64_t>(static_cast<std::int64_t>(in.micro)));
    for (const int p : in.accumulation.inputs) mix(static_cast<std::uint64_t>(p));
    mix(static_cast<std::uint64_t>(in.accumulation.target));
    if (in.unit < 0) continue;
    for (const char c : encoding_word(schedule, in)) mix(static_cast<unsigned char>(c));
    for (const char c : schedule.units[at(in.unit)].name) mix(static_cast<unsigned char>(c));
  }
  return hash;
}

}  // namespace tessera::shard
