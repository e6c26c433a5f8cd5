// `tessera config show|check`: every option, its value and where the value comes from.
#include "jobs/cli/commands/commands.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

void config_command(const Call& call) {
  const Options& options = call.options();
  const std::vector<std::string>& operands = call.invocation.operands;
  if (operands.empty() || (operands[0] != "show" && operands[0] != "check")) {
    throw Error(ExitCode::usage,
                operands.empty() ? "config needs a subcommand" : "config does not know \"" + operands[0] + "\"",
                "command line", "tessera config show|check [CONFIG ...]");
  }
  if (operands[0] == "check") {
    log::info("valid: every key is known and every value has its type");
  } else if (options.flag("json")) {
    log::info(options.json());
  } else {
    for (const OptionSpec& spec : option_table()) {
      const Value& value = options.value(spec.name);
      const bool of_runs = (spec.commands & (for_train | for_plan)) != 0 && spec.status == Status::built;
      if ((spec.commands & for_config) == 0 || (!of_runs && !options.given(spec.name))) continue;
      std::string text;
      for (const std::string& item : value.items) text += (text.empty() ? "" : " ") + item;
      log::info(strfmt("%-30s %-34s %s", spec.name, text.empty() ? "-" : text.c_str(), value.source.text.c_str()));
    }
  }
  for (const ExternalKey& key : options.external_keys) log::info(key.where + " " + key.key + ": " + key.outcome);
  for (const std::string& text : options.without_effect) log::info(text);
  if (!stage_line(options).empty()) log::info("stage " + stage_line(options));
}

}  // namespace tessera::jobs
