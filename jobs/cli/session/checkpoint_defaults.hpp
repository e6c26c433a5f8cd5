// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a run that resumes takes from the checkpoint where no source sets it: the global batch, the precision, and which
// activations are recomputed.

#include <optional>
#include <string>

#include "io/checkpoint/manifest.hpp"
#include "jobs/cli/options/options.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/plan/batch.hpp"

namespace tessera::jobs {

/// Begins the source of a value that is kept, and why the program decides on it: "kept from out/checkpoint-20".
inline constexpr const char* kept_from = "kept from ";

/// What a checkpoint says of values whose defaults depend on the world, the machine or the model.
struct CheckpointDefaults {
  std::optional<std::int64_t> global_batch;  // none: an older program did not write it
  std::string compute_dtype =
      "fp32";  // "fp32", "bf16", "fp16", which a program that did not write it lacked; "": another one
  std::string gradient_checkpointing = {};    // as global_batch; "": unknown
  std::optional<std::int64_t> kl_group = {};  // as global_batch; none, too: the loss has no KL
};
/// `args_json`: the text of args.json beside the checkpoint, for what an older program did not write into the manifest;
/// "": there is none.
[[nodiscard]] CheckpointDefaults checkpoint_defaults(const io::Manifest& manifest, const std::string& directory,
                                                     const std::string& args_json = "");

/// Collective. The options of a run: as given, or, if it resumes, with the global batch of the checkpoint unless a
/// batch is given (the micro-batch B is then min(B, ceil(G/W))), with its precision unless an option asks for one or
/// says that it must not be this one (--bf16 false), with its --gradient_checkpointing unless it is given, and with its
/// --kl_group_size, whatever the batch. Of the newest checkpoint that --resume_from_checkpoint finds; if none can be
/// read, as given: the resume says why.
[[nodiscard]] Options with_checkpoint_defaults(const Options& options, World& world);
/// The same in one process, for `world` ranks.
[[nodiscard]] Options with_checkpoint_defaults(const Options& options, int world);
/// The same of one manifest.
void keep_checkpoint_defaults(Options& options, const CheckpointDefaults& defaults, const std::string& directory,
                              int world);

/// "global_batch_size 8 (micro-batch 2 x accumulation 1 on 4 ranks), mixed_precision bf16"; "": nothing is kept.
/// Without gradient_checkpointing auto, which is chosen anew.
[[nodiscard]] std::string kept_defaults(const Options& options, const plan::BatchPlan& batch);
/// Throws Error (usage) if no source sets the batch or the precision, and this run has begun with another one than the
/// checkpoint that is loaded: an older one, because the newest is damaged, or one that was not there at first.
void require_kept_defaults(const Options& options, const CheckpointDefaults& loaded, const CheckpointDefaults& now,
                           const std::string& directory);

}  // namespace tessera::jobs
