// SPDX-License-Identifier: Apache-2.0
// Records of issued collectives, and the choice of the one rank that reports a late peer.
#include "runtime/comm/watchdog.hpp"

#include <algorithm>
#include <cstring>

namespace tessera::comm {

std::int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string text_of(const char* operation, const char* unit, std::int64_t micro) {
  std::string text = operation;
  if (*unit) text += std::string(" ") + unit;
  if (micro >= 0) text += strfmt(" m%ld", micro);
  return text;
}

void Record::write(const CollectiveLabel& label, std::uint64_t count) {
  char chars[operation_chars + unit_chars] = {};
  std::strncpy(chars, label.operation, operation_chars - 1);
  std::strncpy(chars + operation_chars, label.unit, unit_chars - 1);
  for (std::size_t i = 0; i < std::size(text); ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, chars + 8 * i, 8);
    text[i].store(word, std::memory_order_relaxed);
  }
  micro.store(label.micro, std::memory_order_relaxed);
  bytes.store(count, std::memory_order_relaxed);
  entered.fetch_add(1, std::memory_order_release);
}

StatusCopy copy(const RankStatus& status, int rank, bool responsive) {
  StatusCopy out;
  out.rank = rank;
  out.answered = 1;
  out.responsive = responsive;
  out.ended = status.ended.load() != 0;
  out.step = status.step.load();
  if (const auto worked = status.worked_ns.load(); worked != 0) out.since_work_ns = monotonic_ns() - worked;
  for (int r = 0; r < max_records; ++r) {
    const Record& from = status.records[r];
    RecordCopy& to = out.records[r];
    to.left = from.left.load(
        std::memory_order_acquire);  // read before `entered`, so that a copy never shows an end without its begin
    to.entered = from.entered.load(std::memory_order_acquire);
    to.index = from.index.load();
    to.bytes = from.bytes.load();
    to.micro = from.micro.load();
    char chars[operation_chars + unit_chars];
    for (std::size_t i = 0; i < std::size(from.text); ++i) {
      const std::uint64_t word = from.text[i].load(std::memory_order_relaxed);
      std::memcpy(chars + 8 * i, &word, 8);
    }
    std::memcpy(to.operation, chars, operation_chars - 1);
    std::memcpy(to.unit, chars + operation_chars, unit_chars - 1);
  }
  return out;
}

Watchdog::Watchdog(int rank, int world, double timeout_s)
    : rank_(rank), world_(world), timeout_s_(timeout_s), names_(static_cast<std::size_t>(world)) {
  for (int r = 0; r < world; ++r) names_[static_cast<std::size_t>(r)] = std::to_string(r);
}

void Watchdog::attach(NodeStatus* node_status, RankStatus* statuses, int first, int count) {
  node_status_ = node_status;
  statuses_ = statuses;
  first_ = first;
  count_ = count;
}

int Watchdog::add_group(const Group& group) {
  std::lock_guard lock(mutex_);
  groups_.push_back(group);
  return static_cast<int>(groups_.size());
}

Record& Watchdog::record(int index) {
  const std::lock_guard lock(mutex_);
  Record* best = nullptr;
  for (Record& record : mine().records)
    if ((record.index.load() == 0 || record.released.load() != 0) &&
        (!best || record.index.load() < best->index.load()))
      best = &record;
  if (!best) throw Error(ExitCode::internal, strfmt("more than %d communicators at a time", max_records));
  best->index.store(0);
  best->entered.store(0);
  best->left.store(0);
  best->released.store(0);
  best->index.store(index);
  return *best;
}

std::vector<Group> Watchdog::groups() const {
  std::lock_guard lock(mutex_);
  return groups_;
}

std::vector<StatusCopy> Watchdog::own_node() const {
  std::vector<StatusCopy> all(static_cast<std::size_t>(count_));
  for (int i = 0; i < count_; ++i)
    all[static_cast<std::size_t>(i)] = copy(statuses_[i], first_ + i, responsive(statuses_[i]));
  return all;
}

void Watchdog::fail(const Error& error) {
  std::lock_guard lock(mutex_);
  if (!root_) root_ = std::make_unique<Error>(error);
  failed_.store(true);
}

Error Watchdog::root_or(const Error& error) const {
  std::lock_guard lock(mutex_);
  return root_ ? *root_ : error;
}

void Watchdog::mismatch() {
  Error error(ExitCode::communication, diagnose_stragglers(own_node(), groups(), names_).line, {},
              "Every rank must issue the same collectives in the same order: this is a bug, please report it");
  fail(error);
  throw error;
}

void Watchdog::poll(const Waiting& waiting) {
  if (failed_.load()) throw Error(ExitCode::communication, "the run has failed on this rank; see its first error");
  if (const auto elsewhere = failed_elsewhere(); !elsewhere.empty()) throw Error(ExitCode::communication, elsewhere);
  const double waited = std::chrono::duration<double>(Clock::now() - waiting.since).count();
  const double past_extension = static_cast<double>(monotonic_ns() - node_status_->extended_until_ns.load()) * 1e-9;
  const double late_by = std::min(waited - timeout_s_, past_extension);
  if (late_by < defer_s()) return;
  // One rank of a node reports. The others wait 1.5 s for it, in case it is stopped itself.
  std::int32_t nobody = 0;
  if (!node_status_->reporting.compare_exchange_strong(nobody, rank_ + 1) && late_by < defer_s() + 1.5) return;
  const auto statuses = collect();
  const Stragglers late = diagnose_stragglers(statuses, groups(), names_);
  if (const std::int64_t longer = extra_wait_ns(late, statuses, static_cast<std::int64_t>(timeout_s_ * 1e9));
      longer > 0) {
    node_status_->extended_until_ns.store(monotonic_ns() + longer);
    node_status_->reporting.store(0);
    return;
  }
  Error error(ExitCode::communication, late.line, {},
              strfmt("Waited --comm_timeout = %g s in %s", timeout_s_, waiting.operation));
  fail(error);
  throw error;
}

}  // namespace tessera::comm
