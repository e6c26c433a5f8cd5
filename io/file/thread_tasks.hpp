// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tasks that threads take one after another.

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/base/local_work.hpp"
#include "runtime/base/start_thread.hpp"

namespace tessera::io {

/// Calls work(state, i) once for each i < count, in this order as threads get free, on one thread per state (the caller
/// is the first). Returns when all have ended. Throws the error of the lowest i that failed, or Error (data) if the
/// system has no thread left; after an error no further call begins.
template <class State>
void run_tasks(std::size_t count, std::vector<State>& states, const auto& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;  // of what follows
  std::exception_ptr error;
  std::size_t error_at = count;
  const auto run = [&](State& state) {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(state, i);
        note_local_work();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < error_at) error = std::current_exception();
        error_at = std::min(i, error_at);
        next = count;
      }
    }
  };
  std::vector<std::jthread> others;
  try {
    for (std::size_t t = 1; t < states.size(); ++t)
      others.push_back(start_thread<std::jthread>("threads that read and write files", [&, t] { run(states[t]); }));
  } catch (...) {
    next = count;
    throw;
  }
  run(states.front());
  others.clear();  // joins
  if (error) std::rethrow_exception(error);
}

}  // namespace tessera::io
