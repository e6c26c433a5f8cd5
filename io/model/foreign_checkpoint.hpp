// SPDX-License-Identifier: Apache-2.0
#pragma once
// Weights that other programs have written and this one does not read, recognized by their marker files, and the
// command that makes safetensors of each.

#include <optional>
#include <span>
#include <string>

#include "io/model/model_files.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

/// Of which a model directory has one.
inline constexpr const char* weight_file_names[] = {model_file_name, index_file_name};

struct ForeignCheckpoint {
  std::string what;        // "a DeepSpeed checkpoint (global_step10/zero_pp_rank_0_mp_rank_00_optim_states.pt)"
  std::string what_to_do;  // "Make safetensors of it: python3 …"
  /// "PATH is a DeepSpeed checkpoint (…). Make safetensors …" (data).
  [[nodiscard]] Error error(const std::string& path) const;
};

/// What another program has left at a path, a file or a directory: torch's distributed checkpoints (DCP), FSDP's,
/// DeepSpeed's, Megatron's, a Trainer's with its optimizer, pickles of torch (pytorch_model.bin), GGUF, weights of
/// TensorFlow and Flax. Reads names, and of a file its first bytes. None: nothing of these, or a checkpoint of ours.
[[nodiscard]] std::optional<ForeignCheckpoint> find_foreign_checkpoint(const std::string& path);

/// The checkpoint-N with the largest N in a directory of transformers' Trainer that holds one of these files; "": there
/// is none. Checkpoints of ours do not count. Warns of later ones that hold none (W094).
[[nodiscard]] std::string newest_trainer_checkpoint(const std::string& directory,
                                                    std::span<const char* const> file_names);

}  // namespace tessera::io
