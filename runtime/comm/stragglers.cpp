// SPDX-License-Identifier: Apache-2.0
// diagnose_stragglers(): finds the ranks that all others wait for. Pure.
#include <algorithm>
#include <map>

#include "runtime/base/at.hpp"
#include "runtime/comm/watchdog.hpp"

namespace tessera::comm {

namespace {

/// One rank on one communicator.
struct RankSlot {
  int rank = 0;
  const RecordCopy* record = nullptr;  // null: it issued no collective there, or did not answer
  [[nodiscard]] std::uint64_t entered() const { return record ? record->entered : 0; }
};

class StragglerDiagnosis {
 public:
  StragglerDiagnosis(const std::vector<StatusCopy>& statuses, const std::vector<Group>& groups,
                     const std::vector<std::string>& names)
      : statuses_(statuses), groups_(groups), names_(names), behind_(statuses.size()) {}

  Stragglers stragglers() {
    for (std::size_t g = 0; g < groups_.size(); ++g) each_group(static_cast<int>(g) + 1);
    std::vector<int> late_ranks;
    for (const auto& s : statuses_)  // processes that do not run
      if (!s.answered || !s.responsive) late_ranks.push_back(s.rank);
    if (late_ranks.empty() && !mismatch_.empty()) return {{}, mismatch_, false};
    if (late_ranks.empty())  // ranks that are behind and do not themselves wait for a rank that is behind
      for (const auto& s : statuses_)
        if (behind_[at(s.rank)].by && !waits_on_late(s)) late_ranks.push_back(s.rank);
    if (late_ranks.empty())
      for (const auto& s : statuses_)
        if (behind_[at(s.rank)].by) late_ranks.push_back(s.rank);
    if (late_ranks.empty()) return {{}, "a collective has not ended in time, though every rank has entered it", true};
    return {late_ranks, report(late_ranks), false};
  }

 private:
  struct Behind {
    const RecordCopy* by = nullptr;  // the waiting collective that this rank has not entered
    std::int64_t step = 0;           // step of the waiting rank
    const RecordCopy* last = nullptr;
  };

  const RecordCopy* find(int rank, int index) const {
    const auto& status = statuses_[at(rank)];
    if (!status.answered) return nullptr;
    const auto* const found = std::ranges::find(status.records, index, &RecordCopy::index);
    return found != std::end(status.records) ? found : nullptr;
  }

  void each_group(int index) {
    const Group& group = groups_[at(index - 1)];
    for (const auto& s : statuses_) {
      if (group.mesh.coordinate(s.rank, group.axes) != 0) continue;
      std::vector<RankSlot> slots;
      for (const int rank : group.mesh.members(s.rank, group.axes)) slots.push_back({rank, find(rank, index)});
      late(slots);
      differ(slots, group);
    }
  }

  /// Marks the ranks missing from the earliest collective that other ranks of the group wait in.
  void late(const std::vector<RankSlot>& slots) {
    for (const auto& slot : slots) {
      const RecordCopy* by = nullptr;
      std::int64_t step = 0;
      for (const auto& other : slots) {
        if (other.rank == slot.rank || !other.record || !other.record->waiting()) continue;
        const bool ahead = other.entered() > slot.entered() || !running(slot.rank);
        if (ahead && (!by || other.entered() < by->entered)) {
          by = other.record;
          step = statuses_[at(other.rank)].step;
        }
      }
      auto& mark = behind_[at(slot.rank)];
      if (by && (!mark.by || !running(slot.rank))) mark = {by, step, slot.record};
    }
  }

  /// Finds ranks that issued different collectives under one sequence number. The minority is reported.
  void differ(const std::vector<RankSlot>& slots, const Group& group) {
    std::map<std::uint64_t, std::map<std::string, std::vector<const RankSlot*>>> at_sequence;
    for (const auto& slot : slots)
      if (slot.record && slot.record->waiting())
        at_sequence[slot.entered()][slot.record->text() + strfmt(" %lu", slot.record->bytes)].push_back(&slot);
    for (const auto& [sequence, labels] : at_sequence) {
      if (labels.size() < 2 || !mismatch_.empty()) continue;
      const auto fewer = [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); };
      const auto odd = std::min_element(labels.begin(), labels.end(), fewer);
      const auto many = std::max_element(labels.begin(), labels.end(), fewer);
      const RankSlot& who = *odd->second.front();
      const RankSlot& other = odd == many ? *std::next(labels.begin())->second.front() : *many->second.front();
      mismatch_ = strfmt(
          "rank %s is missing from step %ld, %s: it issued %s (%lu bytes) as collective %lu of the %s, where "
          "rank %s issued %s (%lu bytes)",
          names_[at(who.rank)].c_str(), statuses_[at(other.rank)].step, other.record->text().c_str(),
          who.record->text().c_str(), who.record->bytes, sequence, axes_of(group).c_str(),
          names_[at(other.rank)].c_str(), other.record->text().c_str(), other.record->bytes);
    }
  }

  /// "shard axis", "{replicate, shard} axes"
  static std::string axes_of(const Group& group) {
    const std::string names = group.axes.str();
    return names + (names.starts_with("{") ? " axes" : " axis");
  }

  bool running(int rank) const { return statuses_[at(rank)].answered && statuses_[at(rank)].responsive; }

  bool waits_on_late(const StatusCopy& status) const {
    for (const auto& record : status.records) {
      if (record.index < 1 || !record.waiting() || at(static_cast<int>(record.index)) > groups_.size()) continue;
      const int index = static_cast<int>(record.index);
      const Group& group = groups_[at(index - 1)];
      for (const int rank : group.mesh.members(status.rank, group.axes)) {
        const auto* peer = find(rank, index);
        if (!running(rank) || (peer ? peer->entered : 0) < record.entered) return true;
      }
    }
    return false;
  }

  std::string report(const std::vector<int>& late_ranks) const {
    std::string ranks;
    for (std::size_t i = 0; i < late_ranks.size() && i < 8; ++i) ranks += (i ? ", " : "") + names_[at(late_ranks[i])];
    if (late_ranks.size() > 8) ranks += strfmt(" and %zu more", late_ranks.size() - 8);
    std::string line = strfmt(late_ranks.size() == 1 ? "rank %s is late" : "ranks %s are late", ranks.c_str());
    const auto& first = statuses_[at(late_ranks.front())];
    const auto& mark = behind_[at(late_ranks.front())];
    if (mark.by) line += strfmt(": step %ld, %s", mark.step, mark.by->text().c_str());
    if (!first.answered) return line + "; it does not answer";
    if (mark.last && mark.last->entered > 0)
      line += strfmt("; it was last seen at %s (sequence %lu)", mark.last->text().c_str(), mark.last->entered);
    else line += "; it has issued no collective there yet";
    if (first.ended) line += "; it has left the run";
    else if (!first.responsive) line += "; its process does not run (stopped?)";
    return line;
  }

  const std::vector<StatusCopy>& statuses_;
  const std::vector<Group>& groups_;
  const std::vector<std::string>& names_;
  std::vector<Behind> behind_;
  std::string mismatch_;
};

}  // namespace

Stragglers diagnose_stragglers(const std::vector<StatusCopy>& statuses, const std::vector<Group>& groups,
                               const std::vector<std::string>& names) {
  // A mismatch within a node is diagnosed from that node's statuses: other ranks count as running and behind.
  if (statuses.size() == names.size()) return StragglerDiagnosis(statuses, groups, names).stragglers();
  std::vector<StatusCopy> all(names.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r].rank = static_cast<int>(r);
    all[r].answered = all[r].responsive = 1;
  }
  for (const auto& s : statuses) all[static_cast<std::size_t>(s.rank)] = s;
  return StragglerDiagnosis(all, groups, names).stragglers();
}

std::int64_t extra_wait_ns(const Stragglers& late, const std::vector<StatusCopy>& statuses, std::int64_t timeout_ns) {
  if (late.all_entered) {
    std::int64_t longer = 0;
    for (const StatusCopy& status : statuses)
      if (status.since_work_ns >= 0) longer = std::max(longer, timeout_ns - status.since_work_ns);
    return longer;
  }
  std::int64_t longer = late.ranks.empty() ? 0 : timeout_ns;
  for (const int rank : late.ranks) {
    const auto status = std::ranges::find(statuses, rank, &StatusCopy::rank);
    const bool works = status != statuses.end() && status->answered && status->responsive && status->since_work_ns >= 0;
    longer = works ? std::min(longer, timeout_ns - status->since_work_ns) : 0;
    if (longer <= 0) return 0;
  }
  return longer;
}

}  // namespace tessera::comm
