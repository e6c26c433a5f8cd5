// SPDX-License-Identifier: Apache-2.0
// `tessera checkpoint verify PATH ...`, and the choice of the subcommand.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/inspect/verify.hpp"
#include "jobs/cli/commands/checkpoint.hpp"
#include "jobs/cli/commands/commands.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

using Json = nlohmann::ordered_json;

int threads_of(const Options& options) { return static_cast<int>(options.optional_integer("threads").value_or(2)); }

std::string speed(std::uint64_t bytes, double seconds) {
  return strfmt("%s in %.2fs (%s/s)", human_bytes(bytes).c_str(), seconds,
                human_bytes(static_cast<double>(bytes) / std::max(seconds, 1e-9)).c_str());
}

int verify_command(const Call& call, World& world, const std::vector<std::string>& paths) {
  const bool json = call.options().flag("json");
  Json all = Json::array();
  std::int64_t num_damaged = 0;
  std::string damaged;
  for (const std::string& path : paths) {
    const io::LocatedPath located = locate(world, path);
    if (located.kind != io::PathKind::checkpoint)
      throw Error(ExitCode::data, path + " is " + io::name_of(located.kind) + ", which has no checksums", {},
                  "Name a checkpoint, or a directory with checkpoints");
    const io::VerifyReport report = io::verify_checkpoint(world, located.path, threads_of(call.options()));
    num_damaged += report.num_damaged + (located.skipped.empty() ? 0 : 1);
    if (!located.skipped.empty()) damaged += (damaged.empty() ? "" : ", ") + located.skipped;
    if (report.num_damaged > 0) damaged += (damaged.empty() ? "" : ", ") + located.path;
    all.push_back({{"path", located.path},
                   {"whole", report.num_damaged == 0},
                   {"bytes", report.bytes},
                   {"seconds", report.seconds},
                   {"skipped", located.skipped},
                   {"damage", report.damage}});
    if (json) continue;
    for (const std::string& line : report.damage) log::info("damage    " + line);
    log::info(strfmt("verify    %s | %s | %s", located.path.c_str(), report.num_damaged == 0 ? "undamaged" : "DAMAGED",
                     speed(report.bytes, report.seconds).c_str()));
  }
  if (json) log::info((all.size() == 1 ? all.front() : all).dump(2, ' ', false, Json::error_handler_t::replace));
  if (num_damaged > 0)
    throw Error(ExitCode::data,
                strfmt("%s: %ld place%s damaged", damaged.c_str(), num_damaged, num_damaged == 1 ? " is" : "s are"), {},
                "Resume from another checkpoint; --resume_from_checkpoint auto does so by itself");
  return static_cast<int>(ExitCode::ok);
}

}  // namespace

io::LocatedPath locate(World& world, const std::string& path) {
  const std::string found = world.text_of_rank_0([&] {
    const io::LocatedPath located = io::recognize(path);
    return std::to_string(static_cast<int>(located.kind)) + located.path + '\0' + located.skipped;
  });
  const std::size_t end = found.find('\0');
  return {static_cast<io::PathKind>(found[0] - '0'), found.substr(1, end - 1), found.substr(end + 1)};
}

std::optional<std::regex> grep_pattern(const Options& options) {
  try {
    return options.has("grep") ? std::optional<std::regex>(options.text("grep")) : std::nullopt;
  } catch (const std::regex_error&) {
    throw options.refuse("grep", "\"" + options.text("grep") + "\" is not a regular expression",
                         "Write it in ECMAScript syntax");
  }
}

int checkpoint_command(const Call& call, World& world) {
  const std::vector<std::string>& operands = call.invocation.operands;
  const std::string word = operands.empty() ? "" : operands[0];
  const std::vector<std::string> paths(operands.begin() + (operands.empty() ? 0 : 1), operands.end());
  if (word != "verify" && word != "diff")
    throw Error(ExitCode::usage,
                word.empty() ? "checkpoint needs a subcommand" : "checkpoint does not know \"" + word + "\"",
                "command line", "tessera checkpoint verify PATH ... | diff A B");
  if (word == "diff") return diff_command(call, world, paths);
  if (paths.empty())
    throw Error(ExitCode::usage, "checkpoint verify needs a path", "command line",
                "tessera checkpoint verify PATH ...");
  return verify_command(call, world, paths);
}

}  // namespace tessera::jobs
