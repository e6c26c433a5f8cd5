#pragma once
// What lies at a path: told by names and first bytes, not by endings alone. One process.

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
  std::string path;  // of a run's or output directory: its newest checkpoint
};

/// What a run's directory stands for, which may hold both: its newest checkpoint, or its exported model. `automatic`:
/// the checkpoint, if there is one.
enum class Prefer : unsigned char { automatic, checkpoint, model };

/// Throws Error (data): nothing there, or nothing of these. A directory with checkpoint-<step> in it, or in its vN-…
/// (the newest first), stands for its newest checkpoint that is whole as far as sizes tell.
[[nodiscard]] LocatedPath recognise(const std::string& path, Prefer prefer = Prefer::automatic);

}  // namespace tessera::io
