// SPDX-License-Identifier: Apache-2.0
#pragma once
// Errors: of the user, of an API, and bugs (docs/architecture.md).

#include <cstdarg>
#include <stdexcept>
#include <string>

namespace tessera {

/// printf into a std::string.
[[nodiscard]] std::string strfmt(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// Exit codes of the program; the only list. 128+n is signal n, which the shell makes itself.
enum class ExitCode : int {
  ok = 0,
  internal = 1,       // a bug in Tessera
  usage = 2,          // command line, configuration
  data = 3,           // data, checkpoint or file system
  does_not_fit = 4,   // the plan does not fit, or memory ran out
  diverged = 5,       // non-finite loss or gradient
  communication = 6,  // a rank failed or is late
  preempted = 75,     // stopped early with a good checkpoint
};

/// An error for the user: what happened, where (file:line, option and its source, rank, step), what to do. User errors
/// are thrown before any collective; an error of one rank alone ends in `World::abort`.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, std::string what, std::string where = {}, std::string what_to_do = {});

  [[nodiscard]] ExitCode code() const { return code_; }
  /// One line: "WHAT [WHERE]. WHAT TO DO"; the program prints it after "error: ".
  [[nodiscard]] std::string line() const { return std::runtime_error::what(); }

 private:
  ExitCode code_;
};

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line, const std::string& why);

}  // namespace tessera

/// Throws if false: a bug in Tessera. Also in release builds, so for cheap conditions only. `why`: a printf format with
/// its arguments.
#define TESSERA_ASSERT(condition, ...)                               \
  (static_cast<bool>(condition)                                      \
       ? void(0)                                                     \
       : ::tessera::assertion_failed(#condition, __FILE__, __LINE__, \
                                     ::std::string(__VA_OPT__(::tessera::strfmt(__VA_ARGS__)))))
