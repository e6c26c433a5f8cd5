// SPDX-License-Identifier: Apache-2.0
// The text of several refusals.
#include "jobs/cli/options/refusals.hpp"

#include <string_view>

namespace tessera::jobs {

namespace {

/// The line of a refusal after "not supported: ", without what says that again.
std::string without_verdict(std::string line) {
  for (const std::string_view verdict : {": not built yet", ": not supported"})
    for (const std::string_view behind : {" [", "."})  // where it was named, or what to do
      if (const std::size_t at = line.find(std::string(verdict) + std::string(behind)); at != std::string::npos)
        line.erase(at, verdict.size());
  return line;
}

std::vector<std::string> lines_of(const std::vector<RefusedOption>& refusals) {
  std::vector<std::string> lines{strfmt("%zu options are refused", refusals.size())};
  for (const RefusedOption::Group group :
       {RefusedOption::Group::not_supported, RefusedOption::Group::other_name, RefusedOption::Group::unknown,
        RefusedOption::Group::wrong_value, RefusedOption::Group::contradiction, RefusedOption::Group::among_others}) {
    static constexpr const char* titles[] = {"not supported: ", "another name here: ", "unknown: ",
                                             "wrong value: ",   "contradiction: ",     "among the other options: "};
    for (const RefusedOption& refusal : refusals)
      if (refusal.group() == group)
        lines.push_back(titles[static_cast<int>(group)] + (group == RefusedOption::Group::not_supported
                                                               ? without_verdict(refusal.line())
                                                               : refusal.line()));
  }
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "; ") + line;
  return text;
}

}  // namespace

SeveralErrors::SeveralErrors(ExitCode code, std::vector<std::string> all)
    : Error(code, joined(all)), lines(std::move(all)) {}

RefusedOptions::RefusedOptions(const std::vector<RefusedOption>& refusals)
    : SeveralErrors(ExitCode::usage, lines_of(refusals)) {}

void throw_refusals(const std::vector<RefusedOption>& refusals) {
  if (refusals.size() == 1) throw refusals.front();
  if (!refusals.empty()) throw RefusedOptions(refusals);
}

}  // namespace tessera::jobs
