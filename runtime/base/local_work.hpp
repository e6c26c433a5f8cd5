// SPDX-License-Identifier: Apache-2.0
#pragma once
// Signs of life of work that a rank does alone: reading and verifying files, tokenizing, converting. Its peers wait in
// a collective; the watchdog lets them wait as long as these signs follow each other within --comm_timeout.

#include <cstdint>

namespace tessera {

/// A part of such work has ended. Called once for each part that takes no longer than seconds (a block, a text), on any
/// thread; costs a reading of the clock. Never called while waiting.
void note_local_work() noexcept;
/// When this process called it last, by CLOCK_MONOTONIC; 0: never.
[[nodiscard]] std::int64_t last_local_work_ns() noexcept;

}  // namespace tessera
