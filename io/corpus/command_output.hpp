// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rows that a program prints: commands of --dataset are run once, and their output is kept in a file.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/data/data_files.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::io {

struct CommandOptions {
  std::function<std::string()> directory;               // for the files; called where a command is
  std::vector<std::string> depends;                     // files and directories that commands read
  std::function<void(const DataFile&)> starts;          // called on rank 0 before one runs; may be empty
  std::function<void(const DataFile&, bool ran)> made;  // called on every rank for each command; may be empty
  std::function<void()> check;                          // called on rank 0 about ten times a second; may be empty
  std::uint64_t reserve = std::uint64_t{256} << 20;
};

/// Collective. Sets DataFile::copy of commands to the file for what they print. Its name is made of the command's text,
/// the working directory, and each of `depends` (path, size, time of change; of a directory those of its files).
void name_command_outputs(World& world, std::vector<DataFile>& files, const CommandOptions& options);

/// Collective. name_command_outputs, and makes these files: what an earlier run has made, or one beside this, is used.
/// Rank 0 runs /bin/sh -c COMMAND, one command after the other, in the working directory, with an empty standard input
/// and without the variables of the MPI launcher; what it writes to its standard error goes to ours. All ranks must see
/// one file system. Throws on every rank alike: Error (data): the command ends with another exit code than 0, or by a
/// signal, with the last line of its standard error; it prints nothing, or no JSON Lines; less than `reserve` bytes
/// would be left on the disk; what `check` throws, after the command and what it has started have been ended.
void run_commands(World& world, std::vector<DataFile>& files, const CommandOptions& options);

}  // namespace tessera::io
