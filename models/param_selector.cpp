// SPDX-License-Identifier: Apache-2.0
#include "models/param_selector.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <set>

namespace tessera::models {

namespace {

constexpr const char* name_prefixes[] = {"transformer.", "model."};

/// "h", "h.0", "h.0.ln_1", "h.0.ln_1.weight".
std::vector<std::string> leading_parts(const std::string& name) {
  std::vector<std::string> parts;
  for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
    parts.push_back(name.substr(0, dot));
  parts.push_back(name);
  return parts;
}

}  // namespace

ParamSelector::ParamSelector(const Model& model) {
  // Each name, and what remains of it after a prefix.
  const auto add = [](std::vector<std::string>& names, const std::string& name) {
    names.push_back(name);
    for (const std::string_view prefix : name_prefixes)
      if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
  };
  std::map<std::string, std::size_t> index;
  for (const ParamSpec& param : model.params) {
    std::vector<std::string>& names = names_.emplace_back();
    index.emplace(param.name, names_.size() - 1);
    add(names, param.name);
    for (const std::string prefix : name_prefixes)
      if (canonical_name(model, prefix + param.name) == param.name) names.push_back(prefix + param.name);
  }
  for (const auto& [name, use] : model.aliases) {
    std::vector<std::string> held = use.parts;
    if (!use.same_as.empty()) held.push_back(use.same_as);
    for (const std::string& param : held)
      if (const auto at = index.find(param); at != index.end()) add(names_[at->second], name);
  }
}

std::vector<int> ParamSelector::select(const std::string& glob) const {
  const auto matches = [&](const std::string& part) {
    return ::fnmatch(glob.c_str(), part.c_str(), FNM_NOESCAPE) == 0;
  };
  std::vector<int> selected;
  for (std::size_t p = 0; p < names_.size(); ++p)
    if (std::ranges::any_of(names_[p],
                            [&](const std::string& name) { return std::ranges::any_of(leading_parts(name), matches); }))
      selected.push_back(static_cast<int>(p));
  return selected;
}

std::vector<std::string> ParamSelector::selectable() const {
  std::set<std::string> parts;
  for (const std::vector<std::string>& names : names_)
    for (const std::string& name : names)
      for (std::string& part : leading_parts(name)) parts.insert(std::move(part));
  return {parts.begin(), parts.end()};
}

}  // namespace tessera::models
