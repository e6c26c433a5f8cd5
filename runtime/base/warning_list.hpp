// SPDX-License-Identifier: Apache-2.0
#pragma once
// The warnings that this process has printed, for reports.

#include <string>
#include <vector>

namespace tessera::log {

struct Warning {
  int number = 0;
  std::string text;
};
/// Those from the `first` one on (0: all), in order.
[[nodiscard]] std::vector<Warning> warnings_from(int first);

}  // namespace tessera::log
