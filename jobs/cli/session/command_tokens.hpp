// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tokens of data sets of which commands print some: they are found again by the commands and the other files, without
// the rows that the commands have printed, which are removed.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/data/data_files.hpp"
#include "jobs/cli/options/options.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// What a corpus is known by after its rows are gone.
struct CommandTokens {
  std::string tokens;  // the token file
  bool conversations = false;
  std::vector<std::string> ambiguous;  // Corpus::ambiguous
  std::string plain_text;              // Corpus::plain_text
};

/// Whether a command is one of them.
[[nodiscard]] bool has_commands(const std::vector<io::DataFile>& files);
/// The file in --cache_dir that records the tokens of these files, the copies of whose commands are named
/// (io::name_command_outputs). `key`: of the tokenizer and of all options that decide the tokens. Throws Error (data):
/// a file is missing.
[[nodiscard]] std::string record_of_tokens(const Options& options, const std::vector<io::DataFile>& files,
                                           std::uint64_t key);
/// Collective. None: there is no such record, or its tokens are gone.
[[nodiscard]] std::optional<CommandTokens> find_command_tokens(World& world, const std::string& record);
/// Collective: writes the record, and removes the files of what commands have printed.
void keep_command_tokens(World& world, const std::string& record, const CommandTokens& of,
                         const std::vector<io::DataFile>& files);

/// Whether a token file of the cache is there with all that belongs to it. `masked`: it has tokens without loss.
[[nodiscard]] bool is_complete_token_file(const std::string& file, bool masked);

}  // namespace tessera::jobs
