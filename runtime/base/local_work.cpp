// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/local_work.hpp"

#include <atomic>
#include <chrono>

namespace tessera {

namespace {
std::atomic<std::int64_t> last_part_ns{0};
}  // namespace

void note_local_work() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  last_part_ns.store(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(), std::memory_order_relaxed);
}

std::int64_t last_local_work_ns() noexcept { return last_part_ns.load(std::memory_order_relaxed); }

}  // namespace tessera
