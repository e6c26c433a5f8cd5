// SPDX-License-Identifier: Apache-2.0
#pragma once
// Starting threads where the system may refuse one.

#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/error.hpp"

namespace tessera {

/// Starts a thread (std::thread or std::jthread) that calls `work`. `what` names it in the error. Throws Error (data)
/// if the system has no thread left (EAGAIN).
template <class Thread = std::thread, class Work>
[[nodiscard]] Thread start_thread(const char* what, Work&& work) {
  try {
    return Thread(std::forward<Work>(work));
  } catch (const std::system_error& error) {
    throw Error(ExitCode::data, strfmt("the system refuses another thread: %s", error.code().message().c_str()), what,
                "Raise the limit of processes (ulimit -u; pids.max of the container), or use fewer threads and ranks");
  }
}

}  // namespace tessera
