// SPDX-License-Identifier: Apache-2.0
#pragma once
// Values that a resumed run takes from its checkpoint where no option gives them.

#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/manifest.hpp"
#include "jobs/cli/session/resume.hpp"
#include "runtime/base/dtype.hpp"

namespace tessera::jobs {

struct SavedDefaults {
  DType compute = DType::f32;          // the dtype that the run computed in
  std::string gradient_checkpointing;  // the option's value; "": unknown
};
/// Of the manifest's run metadata, and for what a checkpoint of before --gradient_checkpointing was kept there lacks,
/// of the text of args.json beside it ("": none). Where neither says it, a run computed in fp32.
[[nodiscard]] SavedDefaults saved_defaults(const io::Manifest& manifest, const std::string& args_json);

/// Collective. Those of the first candidate; none if there is none. Throws Error (data) as read_manifest.
[[nodiscard]] std::optional<SavedDefaults> saved_defaults(World& world, const std::vector<Candidate>& candidates);
/// In one process: of the checkpoint that --resume_from_checkpoint finds. Throws Error (data) as resume_candidates.
[[nodiscard]] std::optional<SavedDefaults> saved_defaults(const Options& options);

/// Sets --gradient_checkpointing, unless it is given, to what the checkpoint's run was told.
void keep_saved_checkpointing(Options& options, const std::optional<SavedDefaults>& saved);

}  // namespace tessera::jobs
