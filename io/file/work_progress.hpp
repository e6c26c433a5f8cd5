// SPDX-License-Identifier: Apache-2.0
#pragma once
// Progress of long reads and writes of files, told to one observer of the process.

#include <atomic>
#include <cstdint>
#include <functional>

#include "runtime/base/local_work.hpp"

namespace tessera::io {

/// The work's name ("load", "save" or "verify"), and the bytes done on this rank of those to do.
using WorkProgress = std::function<void(const char* work, std::uint64_t done, std::uint64_t total)>;
/// For the whole process, before any work begins; none at first. It is called now and then, by one thread at a time.
void set_work_progress(WorkProgress observer);
/// Calls the observer, if there is one and no other thread is calling it.
void report_work(const char* work, std::uint64_t done, std::uint64_t total);

/// Adds up the bytes of one piece of work.
class WorkCounter {
 public:
  WorkCounter(const char* work, std::uint64_t total) : work_(work), total_(total) { report_work(work_, 0, total_); }
  ~WorkCounter() { report_work(work_, total_, total_); }
  WorkCounter(const WorkCounter&) = delete;
  /// Any thread.
  void add(std::uint64_t bytes) {
    note_local_work();
    const std::uint64_t done = done_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (done < total_) report_work(work_, done, total_);
  }

 private:
  const char* work_;
  std::uint64_t total_;
  std::atomic<std::uint64_t> done_{0};
};

}  // namespace tessera::io
