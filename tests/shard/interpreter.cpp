// SPDX-License-Identifier: Apache-2.0
// Buffers are cells with a stamp. An instruction has two events: its start checks what it reads, its end checks again
// and writes.

#include "tests/shard/interpreter.hpp"

#include <algorithm>
#include <random>

#include "tests/shard/machine.hpp"

namespace tessera::test {

Machine::Machine(const Schedule& schedule, const Mesh& mesh, const Schedule* load) : s_(schedule) {
  shards_ = std::min(mesh.size(Axis::shard), 2);
  const int replicas = std::min(mesh.size(Axis::replicate), 2);
  length_ = static_cast<int>(s_.list.size());
  for (int i = 0; i < length_; ++i) streams_[static_cast<std::size_t>(s_.list[at(i)].stream)].push_back(i);
  ranks_.resize(at(shards_ * replicas));
  for (Rank& r : ranks_) {
    r.views.resize(s_.slots.size());
    r.grads.resize(s_.slots.size());
    r.sums.resize(s_.slots.size());
    for (const shard::ScheduledUnit& unit : s_.units) r.accumulators.emplace_back(at(unit.num_accumulators));
    r.masters.resize(s_.units.size());
    r.stages.resize(s_.slots.size());
    r.homes.resize(s_.units.size());
    for (std::size_t u = 0; u < s_.units.size(); ++u) {
      const std::size_t n = at(s_.units[u].num_accumulators);
      r.homes[u].sums.resize(n);
      for (Stage& stage : r.stages) stage.sums.resize(std::max(n, stage.sums.size()));
    }
    r.normed.assign(s_.units.size(), 0);
    r.output.resize(s_.modules.size());
    r.saved.resize(s_.modules.size());
    r.staged.resize(s_.slots.size());
    r.input_homes.resize(s_.modules.size());
    r.saved_homes.resize(s_.modules.size());
    r.reference_outcomes.resize(s_.references.size());
    for (std::size_t stream = 0; stream < streams_.size(); ++stream) r.next[stream] = next_event(0, stream);
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
      ranks_[r].views[k].fresh = shards_of(unit) == 1 || loaded;
      memory_[r][k][at(interval_of(static_cast<int>(r), unit))] = {{}, unit, 0};
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

void Machine::run(const Choice& choice) {
  one_queue_ = choice.one_queue;
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
      for (std::size_t s = 0; s < streams_.size(); ++s) {
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
        return 2 * rank_in_order +
               (e.start == choice.ends_first ? 2 * shard::num_streams : 0);  // starts, or ends, come after the others
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

bool Machine::can(int rank, std::size_t stream) {
  Rank& r = ranks_[at(rank)];
  const char*& flag = r.waits_for[stream];
  if (flag == &is_set) return true;
  if (flag != nullptr && *flag == 0) return false;
  const int e = event_at(rank, stream);
  if (e < 0 || r.num_ended < e / length_ * length_) return false;  // the streams synchronize between steps
  flag = unset_flag(rank, stream, e);
  return flag == &is_set;
}

const char* Machine::unset_flag(int rank, std::size_t stream, int e) const {
  const Rank& r = ranks_[at(rank)];
  const Instruction& in = s_.list[at(e % length_)];
  if (r.running[stream]) {  // a collective ends after all ranks have started it
    for (int other = 0; other < static_cast<int>(ranks_.size()); ++other) {
      const char& started = ranks_[at(other)].started[at(e)];
      if (member(in, rank, other) && started == 0) return &started;
    }
    return &is_set;
  }
  if (one_queue_ && e > 0 && r.started[at(e - 1)] == 0) return &r.started[at(e - 1)];
  for (const int d : in.after) {
    // An event is recorded in list order: waiting for a later one waits for nothing.
    if (d < e % length_ && r.ended[at(e - e % length_ + d)] == 0) return &r.ended[at(e - e % length_ + d)];
  }
  return &is_set;
}

void Machine::start(int rank, std::size_t stream) {
  const int e = event_at(rank, stream);
  rank_ = rank;
  stream_ = stream;
  step_ = e / length_;
  index_ = e % length_;
  begin(ranks_[at(rank)], s_.list[at(index_)]);
  ranks_[at(rank)].running[stream] = true;
  ranks_[at(rank)].waits_for[stream] = nullptr;
  ranks_[at(rank)].started[at(e)] = 1;
}

void Machine::end(int rank, std::size_t stream) {
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
  r.waits_for[stream] = nullptr;
  r.ended[at(e)] = 1;
  ++r.done[stream];
  r.next[stream] = next_event(r.done[stream], stream);
  ++r.num_ended;
}

void Machine::finish() const {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].num_ended < num_steps * length_) throw Fault(strfmt("rank %zu: deadlock", r));
    for (std::size_t u = 0; u < s_.units.size(); ++u) {
      const auto check = [&](const Master& of, const char* what) {
        if (of.version != version(static_cast<int>(u), num_steps))
          throw Fault(strfmt("rank %zu: %s of %s end in version %d", r, what, s_.units[u].name.c_str(), of.version));
      };
      check(s_.units[u].params_offloaded() ? ranks_[r].homes[u].params : ranks_[r].masters[u], "params");
      if (s_.units[u].optimizer_offloaded()) check(ranks_[r].homes[u].optimizer, "states");
    }
  }
}

std::string interpret(const Schedule& schedule, const Mesh& mesh, const Choice& choice, const Schedule* load) {
  try {
    Machine(schedule, mesh, load).run(choice);
    return {};
  } catch (const Fault& fault) { return fault.what(); }
}

}  // namespace tessera::test
