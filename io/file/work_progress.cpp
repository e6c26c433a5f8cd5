// SPDX-License-Identifier: Apache-2.0
#include "io/file/work_progress.hpp"

#include <mutex>

namespace tessera::io {

namespace {
struct Observer {
  WorkProgress call;
  std::mutex calling;
};
Observer& observer() {
  static Observer one;
  return one;
}
}  // namespace

void set_work_progress(WorkProgress call) { observer().call = std::move(call); }

void report_work(const char* work, std::uint64_t done, std::uint64_t total) {
  Observer& o = observer();
  if (!o.call) return;
  std::unique_lock lock(o.calling, std::defer_lock);
  if (done == 0 || done == total) lock.lock();  // the begin and the end are always told
  else if (!lock.try_lock()) return;
  o.call(work, done, total);
}

}  // namespace tessera::io
