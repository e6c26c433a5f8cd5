// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a directory's file system can do for checkpoints.

#include <string>
#include <utility>
#include <vector>

namespace tessera::jobs {

/// Name and value of each fact: type and free space, O_DIRECT, fallocate, exchange of names, locks, and for a file
/// system that several hosts share, advice. Makes files in `directory`, and removes them. Throws Error (data) if it
/// cannot.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> file_system_facts(const std::string& directory);

/// The name of a type that statfs(2) returns ("ext4", "Lustre"; "0x1234" for an unknown one), and what to set there
/// before checkpoints are written; "": nothing.
struct FileSystemType {
  std::string name, advice;
};
[[nodiscard]] FileSystemType file_system_type(unsigned long type);

}  // namespace tessera::jobs
