// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/command_tokens.hpp"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/data/documents.hpp"
#include "io/data/loss_file.hpp"
#include "io/data/row_report.hpp"
#include "io/file/file.hpp"
#include "io/file/free_space.hpp"
#include "io/file/text_file.hpp"
#include "io/tokenizer/byte_hash.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/tokenized_data.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

bool has_commands(const std::vector<io::DataFile>& files) {
  return std::ranges::any_of(files, io::is_command, &io::DataFile::path);
}

bool is_complete_token_file(const std::string& file, bool masked) {
  return io::exists(file) && io::exists(io::document_file_name(file)) && io::exists(io::row_report_name(file)) &&
         (!masked || io::exists(io::loss_file_name(file)));
}

std::string record_of_tokens(const Options& options, const std::vector<io::DataFile>& files, std::uint64_t key) {
  for (const io::DataFile& file : files) {
    const bool command = io::is_command(file.path);
    key = hash64(command ? file.copy : std::to_string(io::file_identity(file.path)), io::mix(key, command ? 1 : 0));
    if (file.rows) key = hash64("#" + std::to_string(*file.rows), key);
    if (file.share) key = hash64(strfmt(":%.17g", *file.share), key);
  }
  if (learns_preferences(options)) key = io::mix(key, 1);
  return cache_directory(options) + strfmt("/command-%016lx.tokens.json", key);
}

std::optional<CommandTokens> find_command_tokens(World& world, const std::string& record) {
  const std::string text =
      world.text_of_rank_0([&] { return io::exists(record) ? io::read_text(record) : std::string(); });
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  CommandTokens found;
  bool masked = false;
  try {
    found = {.tokens = io::directory_of(record) + "/" + json.at("tokens").get<std::string>(),
             .conversations = json.at("conversations"),
             .ambiguous = json.at("ambiguous"),
             .plain_text = json.at("plain_text")};
    masked = json.at("masked");
  } catch (const nlohmann::json::exception&) { return std::nullopt; }  // the command runs again
  bool there = false;
  world.run_on_rank_0([&] { there = is_complete_token_file(found.tokens, masked); });
  return world.max(there ? 1 : 0) == 1 ? std::optional(std::move(found)) : std::nullopt;
}

void keep_command_tokens(World& world, const std::string& record, const CommandTokens& of,
                         const std::vector<io::DataFile>& files) {
  world.run_on_rank_0([&] {
    const nlohmann::ordered_json json = {{"tokens", of.tokens.substr(of.tokens.rfind('/') + 1)},
                                         {"conversations", of.conversations},
                                         {"masked", io::exists(io::loss_file_name(of.tokens))},
                                         {"ambiguous", of.ambiguous},
                                         {"plain_text", of.plain_text}};
    const std::string temporary = record + "." + world.host() + "." + std::to_string(::getpid()) + ".tmp";
    io::write_text(temporary, json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    io::commit_rename(temporary, record);
    for (const io::DataFile& file : files) {
      if (!io::is_command(file.path)) continue;
      io::remove_quietly(file.copy);
      log::info("removed   " + file.copy + ": its tokens are kept");
    }
  });
}

}  // namespace tessera::jobs
