// SPDX-License-Identifier: Apache-2.0
#pragma once
// The schedules that the mutation test changes.

#include <string>
#include <vector>

#include "runtime/shard/schedule.hpp"

namespace tessera::test {

struct Subject {
  std::string name;
  shard::Schedule schedule;
  Mesh mesh{1, 1};
  shard::Schedule load;  // runs before
};

/// Strategies, accumulation, prefetch, offload, and other variants. Unless `all`, of those with offload a part.
[[nodiscard]] std::vector<Subject> subjects(bool all);

}  // namespace tessera::test
