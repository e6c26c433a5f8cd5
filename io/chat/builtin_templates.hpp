// SPDX-License-Identifier: Apache-2.0
#pragma once
// Chat templates that come with the program, for models without their own.

#include <span>

namespace tessera::io {

struct BuiltinTemplate {
  const char* name;
  const char* text;
  const char* markers;  // what it writes around messages, which a tokenizer should have as tokens; separated by spaces
};
[[nodiscard]] std::span<const BuiltinTemplate> builtin_templates();

}  // namespace tessera::io
