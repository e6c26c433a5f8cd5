// SPDX-License-Identifier: Apache-2.0
// Mutation: change one thing in a valid schedule. If the interpreter finds an interleaving that goes wrong, the
// verifier must refuse the mutant. A sample (quick), or every mutant of every schedule where the environment has
// TESSERA_ALL_MUTANTS (long); of every n-th schedule from k on, with TESSERA_ALL_MUTANTS=k/n.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <stdexcept>
#include <string_view>

#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/shard/verify.hpp"
#include "tests/shard/interpreter.hpp"
#include "tests/shard/mutation_subjects.hpp"

namespace tessera::test {
namespace {

using namespace shard;

const char* const wanted_mutants = std::getenv("TESSERA_ALL_MUTANTS");
const bool all_mutants = wanted_mutants != nullptr;

/// Whether this process tries the mutants of a schedule.
bool is_wanted(std::size_t schedule) {
  std::size_t first = 0, step = 1;
  if (all_mutants && std::string_view(wanted_mutants).find('/') != std::string_view::npos)
    if (std::sscanf(wanted_mutants, "%zu/%zu", &first, &step) != 2 || step == 0)
      throw std::invalid_argument("TESSERA_ALL_MUTANTS is not k/n");
  return schedule % step == first;
}

struct Mutant {
  std::string kind;  // "deleted wait", "swap", …
  std::string what;
  Schedule schedule, load;
  std::vector<int> suspects;  // instructions near the change, which the interpreter delays
};

std::string describe(const Schedule& s, int i) {
  return strfmt("%d (%s)", i, instruction_name(s, s.list[at(i)]).c_str());
}

/// Every mutant of a schedule, one at a time.
class Mutants {
 public:
  Mutants(const Schedule& schedule, const Schedule& load, std::uint64_t seed)
      : s_(schedule), load_(load), random_(seed) {}

  std::vector<Mutant> make() {
    for (int i = 0; i < length(); ++i) {
      edges(i);
      if (i + 1 < length()) swap(i);
      drop(i);
      instances(i);
      slots(i);
      flags(i);
      parts(i);
    }
    for (int stream = 0; stream < num_streams; ++stream) border(static_cast<StreamId>(stream));
    for (std::size_t u = 0; u < s_.units.size(); ++u) {
      bool& adds = add("flag", "adds_in_slot turned of " + s_.units[u].name, {}).schedule.units[u].adds_in_slot;
      adds = !adds;
    }
    for (std::size_t k = 0; k < s_.grad_slots.size(); ++k) table(k);
    for (std::size_t k = 0; k < s_.forward_slots.size(); ++k) activations(k);
    for (std::size_t k = 0; k < load_.list.size(); ++k) {
      std::vector<Instruction>& list =
          add("load", "not loaded: " + instruction_name(load_, load_.list[k]), {}).load.list;
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(k));
    }
    return std::move(out_);
  }

 private:
  [[nodiscard]] int length() const { return static_cast<int>(s_.list.size()); }
  Mutant& add(const char* kind, std::string what, std::vector<int> suspects) {
    out_.push_back({kind, std::move(what), s_, load_, std::move(suspects)});
    return out_.back();
  }

  void edges(int i) {
    const auto& after = s_.list[at(i)].after;
    for (std::size_t d = 0; d < after.size(); ++d) {
      auto& deleted =
          add("deleted wait", "no wait of " + describe(s_, i) + " for " + describe(s_, after[d]), {after[d], i})
              .schedule.list[at(i)]
              .after;
      deleted.erase(deleted.begin() + static_cast<std::ptrdiff_t>(d));
      for (int k = 0; k < 3; ++k) {
        const int target = static_cast<int>(random_() % s_.list.size());
        if (target == i) continue;
        add("other wait", describe(s_, i) + " waits for " + describe(s_, target) + " instead", {after[d], i, target})
            .schedule.list[at(i)]
            .after[d] = target;
      }
    }
  }

  void swap(int i) {
    Schedule& m = add("swap", "swapped: " + describe(s_, i) + " and the next", {i, i + 1}).schedule;
    std::swap(m.list[at(i)], m.list[at(i + 1)]);
    std::swap(m.reads[at(i)], m.reads[at(i + 1)]);
    for (Instruction& in : m.list) {
      for (int& d : in.after) d = d == i ? i + 1 : d == i + 1 ? i : d;
    }
  }

  void drop(int i) {
    Schedule& m = add("drop", "dropped: " + describe(s_, i), {std::max(i - 1, 0), std::min(i, length() - 2)}).schedule;
    m.list.erase(m.list.begin() + i);
    m.reads.erase(m.reads.begin() + i);
    for (Instruction& in : m.list) {
      std::erase(in.after, i);
      for (int& d : in.after) d -= d > i ? 1 : 0;
    }
  }

  void instances(int i) {
    const Instruction& in = s_.list[at(i)];
    if (in.module < 0) return;
    for (int k = 0; k <= static_cast<int>(s_.references.size()); ++k)
      if (k != in.instance && at(in.module) < s_.modules_of(k).size())
        add("instance", strfmt("model instance %d in ", k) + describe(s_, i), {i}).schedule.list[at(i)].instance = k;
  }

  /// What a step begins with, at the end of the step before; and what it ends with, at the beginning of the next one.
  void border(StreamId stream) {
    const auto on_stream = [stream](const Instruction& in) { return in.stream == stream; };
    const auto first = std::ranges::find_if(s_.list, on_stream);
    if (first == s_.list.end()) return;
    const auto last = std::find_if(s_.list.rbegin(), s_.list.rend(), on_stream).base() - 1;
    const int from = static_cast<int>(first - s_.list.begin()), to = static_cast<int>(last - s_.list.begin());
    move(from, length() - 1, "at the end of the step before, without a wait: ").after.clear();
    if (length() > 1) move(from, length() - 1, "at the end of the step before: ").after = {length() - 2};
    move(to, 0, "at the beginning of the next step: ").after.clear();
  }

  /// Waits for what then comes later are dropped.
  Instruction& move(int from, int to, const char* what) {
    Schedule& m = add("border", what + describe(s_, from), {0, to}).schedule;
    const auto step = [&](auto& list) {
      if (from < to) std::rotate(list.begin() + from, list.begin() + from + 1, list.begin() + to + 1);
      else std::rotate(list.begin() + to, list.begin() + from, list.begin() + from + 1);
    };
    step(m.list);
    step(m.reads);
    for (int i = 0; i < length(); ++i) {
      std::vector<int>& after = m.list[at(i)].after;
      for (int& d : after) d = d == from ? to : d > from && d <= to ? d - 1 : d < from && d >= to ? d + 1 : d;
      std::erase_if(after, [i](int d) { return d >= i; });
    }
    return m.list[at(to)];
  }

  void slots(int i) {
    const Instruction& in = s_.list[at(i)];
    for (int k = 0; k < static_cast<int>(s_.slots.size()); ++k) {
      if (in.slot >= 0 && k != in.slot && s_.slots[at(k)].kind == s_.slots[at(in.slot)].kind) {
        add("slot", strfmt("slot %d in ", k) + describe(s_, i), {i}).schedule.list[at(i)].slot = k;
      }
      if (in.sum >= 0 && k != in.sum && s_.slots[at(k)].kind == Slot::Kind::sum)
        add("slot", strfmt("sum slot %d in ", k) + describe(s_, i), {i}).schedule.list[at(i)].sum = k;
      if (in.stage >= 0 && k != in.stage && s_.slots[at(k)].kind == Slot::Kind::stage)
        add("staging slot", strfmt("staging slot %d in ", k) + describe(s_, i), {i}).schedule.list[at(i)].stage = k;
      for (std::size_t r = 0; r < s_.reads[at(i)].size(); ++r) {
        if (k == s_.reads[at(i)][r].second || s_.slots[at(k)].kind != Slot::Kind::param) continue;
        add("slot read", strfmt("reads slot %d in ", k) + describe(s_, i), {i}).schedule.reads[at(i)][r].second = k;
      }
    }
  }

  void flags(int i) {
    const Instruction& in = s_.list[at(i)];
    if (in.op != Op::reduce_scatter && in.op != Op::all_reduce) return;
    bool& flag = add("flag", "last_reduce turned in " + describe(s_, i), {i}).schedule.list[at(i)].last_reduce;
    flag = !flag;
    for (int p = 0; p < s_.units[at(in.unit)].num_accumulators; ++p) {
      if (p != in.accumulation.target)
        add("accumulation", strfmt("into accumulator %d in ", p) + describe(s_, i), {i})
            .schedule.list[at(i)]
            .accumulation.target = p;
      auto& accumulated = add("accumulation", strfmt("input %d added or removed in ", p) + describe(s_, i), {i})
                              .schedule.list[at(i)]
                              .accumulation.inputs;
      if (std::erase(accumulated, p) == 0) accumulated.push_back(p);
    }
  }

  void table(std::size_t k) {
    const int old = s_.grad_slots[k];
    for (int slot = -1; slot < static_cast<int>(s_.slots.size()); ++slot) {
      if (old < 0 || slot == old || (slot >= 0 && s_.slots[at(slot)].kind != Slot::Kind::grad)) continue;
      add("gradient slot", strfmt("gradient %zu into slot %d", k, slot), {}).schedule.grad_slots[k] = slot;
    }
  }

  /// Another slot, of the same use, for the activations of a module; or none.
  void activations(std::size_t k) {
    for (std::vector<ActivationSlots> Schedule::*table : {&Schedule::forward_slots, &Schedule::backward_slots})
      for (int ActivationSlots::*slot :
           {&ActivationSlots::input, &ActivationSlots::saved, &ActivationSlots::recomputed, &ActivationSlots::gradient})
        for (int other = -1; other < static_cast<int>(s_.slots.size()); ++other) {
          if ((s_.*table).empty()) continue;
          const int old = (s_.*table)[k].*slot;
          if (old < 0 || other == old || (other >= 0 && !same_use(s_.slots[at(old)], s_.slots[at(other)]))) continue;
          const bool forward = table == &Schedule::forward_slots;
          Mutant& mutant = add(
              "activations",
              strfmt("%s activations %zu in slot %d instead of %d", forward ? "forward" : "backward", k, other, old),
              {});
          (mutant.schedule.*table)[k].*slot = other;
        }
    for (std::vector<ActivationSlots> Schedule::*table : {&Schedule::forward_slots, &Schedule::backward_slots})
      for (std::vector<int> ActivationSlots::*values : {&ActivationSlots::values, &ActivationSlots::value_gradients})
        for (std::size_t v = 0; !(s_.*table).empty() && v < ((s_.*table)[k].*values).size(); ++v)
          for (int other = 0; other < static_cast<int>(s_.slots.size()); ++other) {
            const int old = ((s_.*table)[k].*values)[v];
            if (old < 0 || other == old || !same_use(s_.slots[at(old)], s_.slots[at(other)])) continue;
            Mutant& mutant = add("values", strfmt("value %zu of %zu in slot %d instead of %d", v, k, other, old), {});
            ((mutant.schedule.*table)[k].*values)[v] = other;
          }
  }

  /// Another stage, exchange, or pass of an exchange.
  void parts(int i) {
    const Instruction& in = s_.list[at(i)];
    if (in.module < 0 || s_.use_of(in).stages.empty()) return;
    const bool exchange = in.op == Op::exchange;
    const int n = exchange ? static_cast<int>(s_.use_of(in).exchanges.size()) : s_.use_of(in).num_stages();
    for (int part = 0; part < n; ++part)
      if (part != in.part)
        add("part", strfmt("part %d of ", part) + describe(s_, i), {i}).schedule.list[at(i)].part = part;
    for (const Op pass : {Op::forward, Op::recompute, Op::backward})
      if (exchange && pass != in.pass && (pass == Op::forward || !s_.backward_slots.empty()) && in.instance == 0)
        add("part", std::string("in the pass ") + name_of(pass) + ": " + describe(s_, i), {i})
            .schedule.list[at(i)]
            .pass = pass;
  }

  [[nodiscard]] static bool same_use(const Slot& a, const Slot& b) {
    return a.kind == b.kind && a.state == b.state && a.id.use == b.id.use && a.kind >= Slot::Kind::stage;
  }

  const Schedule &s_, &load_;
  std::mt19937_64 random_;
  std::vector<Mutant> out_;
};

struct Score {
  int mutants = 0, unsafe = 0, refused = 0, missed = 0, unproven = 0;
};

void print(const std::string& of, const Score& score) {
  std::printf("%-14s %6d mutants: %6d unsafe, %6d refused, %d missed; %d refused and not broken (%.1f %%)\n",
              of.c_str(), score.mutants, score.unsafe, score.refused, score.missed, score.unproven,
              100.0 * score.unproven / std::max(score.refused, 1));
}

void try_mutant(const Subject& subject, const Mutant& mutant, Score& score, Score& of_kind) {
  const bool refused = !verify(mutant.schedule, subject.mesh, &mutant.load).empty();
  const std::string fault =
      find_fault(mutant.schedule, subject.mesh, mutant.suspects, all_mutants ? 20 : 4, &mutant.load);
  for (Score* sum : {&score, &of_kind}) {
    ++sum->mutants;
    sum->unsafe += fault.empty() ? 0 : 1;
    sum->refused += refused ? 1 : 0;
    sum->missed += !fault.empty() && !refused ? 1 : 0;
    sum->unproven += fault.empty() && refused ? 1 : 0;
  }
  if (!fault.empty() && !refused) {
    ADD_FAILURE() << subject.name << "\n  " << mutant.what << "\n  goes wrong: " << fault << "\n  and is accepted";
  }
  if (fault.empty() && refused && std::getenv("TESSERA_SHOW_UNPROVEN") != nullptr) {
    std::printf("unproven: %s: %s: %s\n", subject.name.c_str(), mutant.what.c_str(),
                verify(mutant.schedule, subject.mesh, &mutant.load)[0].what.c_str());
  }
}

TEST(Mutation, ValidSchedulesAreSafeForBoth) {
  const auto all = subjects(all_mutants);
  for (std::size_t k = 0; k < all.size(); k += all_mutants ? 1 : 7) {
    if (!is_wanted(k)) continue;
    const auto violations = verify(all[k].schedule, all[k].mesh, &all[k].load);
    EXPECT_TRUE(violations.empty()) << all[k].name << ": " << violations.front().what;
    EXPECT_EQ(find_fault(all[k].schedule, all[k].mesh, {}, 20, &all[k].load), "") << all[k].name << "\n"
                                                                                  << text(all[k].schedule);
  }
}

TEST(Mutation, EveryUnsafeMutantIsRefused) {
  const auto all = subjects(all_mutants);
  Score score;
  std::map<std::string, Score> of_kind;
  std::mt19937_64 random(7);
  std::size_t tried = 0;
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (!is_wanted(k)) continue;
    ++tried;
    std::vector<Mutant> mutants = Mutants(all[k].schedule, all[k].load, k).make();
    if (!all_mutants) {  // one of them at the border of two steps
      std::shuffle(mutants.begin(), mutants.end(), random);
      const auto border = std::ranges::find(mutants, "border", &Mutant::kind);
      if (border != mutants.end()) std::swap(*border, mutants.front());
      mutants.resize(std::min<std::size_t>(mutants.size(), 8));
    }
    for (const Mutant& mutant : mutants) try_mutant(all[k], mutant, score, of_kind[mutant.kind]);
  }
  for (const auto& [kind, sum] : of_kind) print(kind, sum);
  print(strfmt("%zu schedules", tried), score);
  EXPECT_EQ(score.missed, 0);
  EXPECT_GT(score.unsafe, score.mutants / 4);
  EXPECT_LT(score.refused, score.mutants);
  EXPECT_LT(score.unproven, score.refused / 5);
}

}  // namespace
}  // namespace tessera::test
