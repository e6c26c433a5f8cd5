// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checks of a conversion's output path before anything is written.

#include <cstdint>
#include <string>
#include <vector>

#include "io/model/auxiliary_files.hpp"

namespace tessera::io {

/// Throws Error (data): `output` exists and `replace` is false (E141); it is `input`, inside it, or holds it (E142);
/// OUTPUT.tmp exists and is not what an interrupted conversion leaves (E141). Makes the parent directory of `output`.
/// One process.
void check_output(const std::string& input, const std::string& output, bool replace);
/// Throws Error (data), E140, unless the file system of `output` has `bytes` free.
void check_space(const std::string& output, std::uint64_t bytes);
/// PATH.old, or the first of PATH.old.2, … that does not exist.
[[nodiscard]] std::string backup_path(const std::string& path);

/// config.json and the auxiliary files of a model directory. Throws Error (data): no config.json.
[[nodiscard]] std::vector<AuxiliaryFile> read_model_auxiliary_files(const std::string& directory);

}  // namespace tessera::io
