// SPDX-License-Identifier: Apache-2.0
#pragma once
// What to try next, from the figures of a run.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tessera::jobs {

/// Shares of the steps' time in which computation waited, 0 to 1.
struct WaitingShares {
  double communication = 0, data = 0;
};
/// Sentences: first what is slow, then options to try, each with its reason. Empty if communication takes at most 30 %
/// and data at most 10 %. `args` and `run`: args.json and run.json.
[[nodiscard]] std::vector<std::string> advice(const WaitingShares& shares, const nlohmann::ordered_json& args,
                                              const nlohmann::ordered_json& run);

}  // namespace tessera::jobs
