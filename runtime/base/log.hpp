// SPDX-License-Identifier: Apache-2.0
#pragma once
// Output: rank 0 prints to stdout; warnings and errors go to stderr with their rank.

#include <string>

namespace tessera::log {

/// Sets this process's rank; until then it prints as the only rank. `host` is printed with the rank if world > 1.
void set_rank(int rank, int world, std::string host);
/// What is printed: everything; warnings and errors; errors alone (warnings are counted all the same).
enum class Level : unsigned char { info, warning, error };
void set_level(Level level);
/// Prints a line on rank 0's stdout and flushes it.
void info(const std::string& line);
/// "warning W012: …", once per text: warn from rank 0, warn_here from any rank. docs/warnings.md lists the numbers.
void warn(int number, const std::string& text);
void warn_here(int number, const std::string& text);
/// Number of warnings printed by this process (for --werror).
[[nodiscard]] int warnings();
/// "error: …" on stderr, as one line. error_here is for an error of this rank alone and names it: "error: [rank
/// 3@node1] …".
void error(const std::string& text);
void error_here(const std::string& text);

}  // namespace tessera::log
