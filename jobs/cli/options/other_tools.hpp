// SPDX-License-Identifier: Apache-2.0
#pragma once
// Options of ms-swift and of Hugging Face's Trainer that Tessera has by another name or does not need. They are
// accepted, and a line at the start says what each one became. They are in no help, completion or docs page; what is
// refused is in unsupported.hpp.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jobs {

struct OtherToolsOption {
  const char* names;   // the option, then its aliases, separated by blanks; a last '*' stands for any end of a name
  const char* values;  // "": any. Otherwise "value|value=ours|…": accepted values, and what they are in `target`
  const char* target;  // the option that is set; "": none
  const char* note;    // why it has no effect, or what to use for a value that is not accepted
};

// Why several options and keys have no effect.
inline constexpr const char* by_units = "communication is by unit (a transformer block)";
inline constexpr const char* no_compiler = "kernels are compiled ahead of time, and compute the same";

/// The whole table.
[[nodiscard]] const std::vector<OtherToolsOption>& other_tools_options();
/// The row of an option ('-' is '_'); null if there is none.
[[nodiscard]] const OtherToolsOption* find_other_tools(std::string_view name);

/// What a value of such an option asks for.
struct OtherToolsRequest {
  bool accepted = false;
  std::string value;  // for `target`; "": nothing is set
};
[[nodiscard]] OtherToolsRequest request_of(const OtherToolsOption& option, const std::string& value);

/// True if one of `names`, separated by blanks, is the name; a last '*' matches any end.
[[nodiscard]] bool is_named(std::string_view names, std::string_view name);

}  // namespace tessera::jobs
