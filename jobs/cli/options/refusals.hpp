// SPDX-License-Identifier: Apache-2.0
#pragma once
// Refused options. A run names all of them at once, grouped, in the spelling that was typed.

#include <string>
#include <vector>

#include "runtime/base/error.hpp"

namespace tessera::jobs {

/// One refused option, key or value.
class RefusedOption : public Error {
 public:
  // other_name: another tool's name (renamed.hpp). among_others: what the accepted options contradict, beside refused
  // ones.
  enum class Group : unsigned char { not_supported, other_name, unknown, wrong_value, contradiction, among_others };
  RefusedOption(Group group, std::string what, std::string where = {}, std::string what_to_do = {})
      : Error(ExitCode::usage, std::move(what), std::move(where), std::move(what_to_do)), group_(group) {}
  [[nodiscard]] Group group() const { return group_; }

 private:
  Group group_;
};

/// line() has all lines; the program prints each on its own.
class SeveralErrors : public Error {
 public:
  SeveralErrors(ExitCode code, std::vector<std::string> lines);
  std::vector<std::string> lines;
};

/// All refused options of a run.
class RefusedOptions : public SeveralErrors {
 public:
  explicit RefusedOptions(const std::vector<RefusedOption>& refusals);
};

/// Throws the refusal if there is one, or RefusedOptions if there are several.
void throw_refusals(const std::vector<RefusedOption>& refusals);

}  // namespace tessera::jobs
