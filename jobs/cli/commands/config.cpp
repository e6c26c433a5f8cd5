// SPDX-License-Identifier: Apache-2.0
// `tessera config show|check|explain`: every option, its value and where the value comes from; what each key of a file
// does.
#include <algorithm>

#include "jobs/cli/commands/commands.hpp"
#include "jobs/cli/session/setup.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

void show(const Options& options) {
  for (const OptionSpec& spec : option_table()) {
    const Value& value = options.value(spec.name);
    const bool of_runs = (spec.commands & (for_train | for_plan)) != 0 && spec.status == Status::built;
    if ((spec.commands & for_config) == 0 || (!of_runs && !options.given(spec.name))) continue;
    std::string text;
    for (const std::string& item : value.items) text += (text.empty() ? "" : " ") + item;
    log::info(strfmt("%-30s %-34s %s", spec.name, text.empty() ? "-" : text.c_str(), value.source.text.c_str()));
  }
}

/// A key's row: what it does, and what overrides it.
std::string explanation(const Options& options, const ExternalKey& key) {
  std::string text = key.str();
  if (key.option.empty() || key.outcome == ExternalKey::Outcome::refused) return text;
  const Value& value = options.value(key.option.c_str());
  if (key.outcome == ExternalKey::Outcome::option) {
    text = "--" + key.option;
    for (const std::string& item : value.items) text += " " + item;
  }
  return text + (key.outcome == ExternalKey::Outcome::option ? key.overridden : "");
}

/// The table of keys; then every refusal of the run, as an error.
void explain(const Options& options) {
  std::size_t where = 0, name = 0;
  for (const ExternalKey& key : options.external_keys) {
    where = std::max(where, key.where.size());
    name = std::max(name, key.key.size());
  }
  std::size_t counts[5] = {};
  for (const ExternalKey& key : options.external_keys) {
    ++counts[static_cast<int>(key.outcome)];
    log::info(strfmt("%-*s  %-*s  %s", static_cast<int>(where), key.where.c_str(), static_cast<int>(name),
                     key.key.c_str(), explanation(options, key).c_str()));
  }
  log::info(strfmt("%zu keys: %zu options, %zu used, %zu mapped, %zu harmless, %zu refused",
                   options.external_keys.size(), counts[0], counts[1], counts[2], counts[3], counts[4]));
  options.throw_refused();
}

}  // namespace

void config_command(const Call& call) {
  const Options& options = call.options();
  const std::vector<std::string>& operands = call.invocation.operands;
  if (operands.empty() || (operands[0] != "show" && operands[0] != "check" && operands[0] != "explain")) {
    throw Error(ExitCode::usage,
                operands.empty() ? "config needs a subcommand" : "config does not know \"" + operands[0] + "\"",
                "command line", "tessera config show|check|explain [CONFIG ...]");
  }
  if (operands[0] == "explain") {
    if (options.external_keys.empty())
      throw Error(ExitCode::usage, "config explain: no file of accelerate or DeepSpeed was given", "command line",
                  "tessera config explain FILE");
    return explain(options);
  }
  if (operands[0] == "check") {
    check_options(options);
    log::info("valid: every key is known and every value has its type");
  } else if (options.flag("json")) {
    log::info(options.json());
  } else {
    show(options);
  }
  for (const ExternalKey& key : options.external_keys)
    if (key.outcome != ExternalKey::Outcome::option) log::info(key.where + " " + key.key + ": " + key.str());
  for (const std::string& text : options.without_effect) log::info(text);
  if (!stage_line(options).empty()) log::info("stage " + stage_line(options));
}

}  // namespace tessera::jobs
