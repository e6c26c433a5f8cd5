// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a test program of a device ends with an error.

#include <cstdio>
#include <string>

#include "runtime/base/error.hpp"
#include "runtime/base/log.hpp"

namespace tessera::test {

/// Prints the error; its exit code, or 77, for ctest a skipped test, if it says that there is no GPU.
inline int exit_code_of(const Error& error) {
  if (std::string(error.what()).find("finds no GPU") != std::string::npos) {
    std::printf("skipped: %s\n", error.what());
    return 77;
  }
  log::error_here(error.line());
  return static_cast<int>(error.code());
}

}  // namespace tessera::test
