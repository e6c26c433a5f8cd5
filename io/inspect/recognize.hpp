// SPDX-License-Identifier: Apache-2.0
#pragma once
// Recognizes what a path holds by names and first bytes. One process.

#include <string>

namespace tessera::io {

enum class PathKind : unsigned char {
  checkpoint,   // a directory with a manifest
  model,        // a directory with model.safetensors or its index
  hdf5,         // a file
  safetensors,  // a file
  index,        // a file: model.safetensors.index.json
  tokens,       // a file: llm.c's .bin
};
/// "a checkpoint", …
[[nodiscard]] const char* name_of(PathKind kind);

struct LocatedPath {
  PathKind kind = PathKind::checkpoint;
  std::string path = {};     // of a run's directory: its newest complete checkpoint
  std::string skipped = {};  // the newest checkpoint, if that is incomplete or damaged; "" otherwise
};

/// A run's directory may hold both checkpoints and an exported model. `automatic`: the newest checkpoint, if there is
/// one.
enum class Prefer : unsigned char { automatic, checkpoint, model };

/// Throws Error (data): nothing at the path, or nothing of these kinds. A directory with checkpoint-<step> in it, or in
/// its vN-… (the newest first), stands for its newest checkpoint with all files of the right size (W026 names those
/// that are skipped; one that cannot be read, but may be good, is an error); one of transformers' Trainer for the model
/// in its newest checkpoint-N that has safetensors (newest_trainer_checkpoint). What else other programs have written
/// is refused by name, with the command that makes safetensors of it (find_foreign_checkpoint).
[[nodiscard]] LocatedPath recognize(const std::string& path, Prefer prefer = Prefer::automatic);

}  // namespace tessera::io
