#pragma once
// What a save beside the steps costs them, against a bare write of as many bytes beside the same
// steps, and a save for which all wait.

#include <string>
#include <vector>

#include "jobs/cli/session/call.hpp"
#include "models/module.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// One value a turn.
struct AsyncSaveTimes {
  std::vector<double> plain;  // seconds of ten steps, before and after the two below
  std::vector<double> beside,
      bare;                 // seconds more that they take with a save, or a bare write past the page cache, beside them
  std::vector<double> now;  // seconds of a save for which all wait
  std::vector<double> begin, commit;  // of the save beside them: seconds that all wait
  std::vector<double> cpu;            // seconds of processor time of the threads that saved beside them, over all ranks
  double bytes = 0, copied = 0;
};

/// Collective.
[[nodiscard]] AsyncSaveTimes measure_async_save(const Call& call, World& world, const models::Model& model,
                                                const std::string& directory, int repeats);

}  // namespace tessera::jobs
