#pragma once
// Chat templates that come with the program, for models without their own.

#include <span>

namespace tessera::io {

struct BuiltinTemplate {
  const char* name;
  const char* text;
};
[[nodiscard]] std::span<const BuiltinTemplate> builtin_templates();

}  // namespace tessera::io
