// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an asynchronous save costs the training steps, compared with a plain write of as many bytes during the same
// steps, and with a blocking save.

#include <string>
#include <vector>

#include "jobs/cli/session/call.hpp"
#include "models/module.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// One value for each turn.
struct AsyncSaveTimes {
  std::vector<double> plain;  // seconds of ten steps, before and after the two below
  std::vector<double> async_added,
      write_added;                    // seconds that an asynchronous save, or an O_DIRECT write, adds to them
  std::vector<double> blocking;       // seconds of a blocking save
  std::vector<double> begin, commit;  // of the asynchronous save: seconds that all ranks wait
  std::vector<double> cpu;            // CPU seconds of the threads of the asynchronous save, over all ranks
  double bytes = 0, copied = 0;
};

/// Collective.
[[nodiscard]] AsyncSaveTimes measure_async_save(const Call& call, World& world, const models::Model& model,
                                                const std::string& directory, int repeats);

}  // namespace tessera::jobs
