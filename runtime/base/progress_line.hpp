// SPDX-License-Identifier: Apache-2.0
#pragma once
// A line at the bottom of a terminal that is drawn again below every other line.

#include <string>

namespace tessera::log {

/// Draws `line` in place of the one before; "" removes it. For rank 0 with a terminal on stdout; any thread. The line
/// must be shorter than the terminal is wide.
void show_progress(const std::string& line);

}  // namespace tessera::log
