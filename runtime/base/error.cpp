// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/error.hpp"

#include <cstdio>

namespace tessera {

std::string strfmt(const char* format, ...) {
  va_list args;
  va_start(args, format);
  va_list again;
  va_copy(again, args);
  const int size = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string text(size > 0 ? static_cast<size_t>(size) : 0, '\0');
  if (size > 0) std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  return text;
}

static std::string join(const std::string& what, const std::string& where, const std::string& what_to_do) {
  std::string text = what;
  if (!where.empty()) text += " [" + where + "]";
  if (!what_to_do.empty()) text += ". " + what_to_do;
  return text;
}

Error::Error(ExitCode code, std::string what, std::string where, std::string what_to_do)
    : std::runtime_error(join(what, where, what_to_do)), code_(code) {}

void assertion_failed(const char* condition, const char* file, int line, const std::string& why) {
  throw std::logic_error(
      strfmt("%s:%d: assertion %s failed%s%s", file, line, condition, why.empty() ? "" : ": ", why.c_str()));
}

}  // namespace tessera
