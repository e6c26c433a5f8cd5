// SPDX-License-Identifier: Apache-2.0
#pragma once
// Resuming: which checkpoint, whether it fits this run's data, which settings have changed.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/manifest.hpp"
#include "jobs/cli/options/options.hpp"
#include "jobs/cli/session/best_checkpoint.hpp"
#include "jobs/cli/session/run_settings.hpp"
#include "jobs/cli/session/schedule_state.hpp"
#include "jobs/cli/session/setup.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/train/loss_scale.hpp"
#include "runtime/train/trainer.hpp"

namespace tessera::jobs {

/// How far a run is, as its checkpoints keep it; the same for any number of ranks.
struct Progress {
  std::int64_t step = 0;                            // optimizer steps done
  std::int64_t samples = 0;                         // global samples drawn, over all epochs
  std::int64_t tokens = 0;                          // valid tokens trained on
  std::int64_t skipped = 0;                         // steps that overflowed and updated nothing (fp16)
  std::optional<train::LossScaleState> loss_scale;  // fp16
  std::int64_t states_from = 0;                     // updates done when the optimizer states were zero
  std::optional<BestCheckpoint> best{};             // with --metric_for_best_model
  std::int64_t updated_samples = 0;                 // of all runs and steps that were not skipped; never reset
  std::optional<ScheduleState> schedule{};          // none: unknown, in a checkpoint of an older program
};

/// What must not change about the data of a run that is resumed within it.
struct DataIdentity {
  std::int64_t tokens = 0, samples = 0, max_length = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::uint32_t crc = 0;         // of tokens at the beginning, in the middle and at the end
  std::string packing = "none";  // or the strategy
  bool by_length = false;        // --group_by_length
  std::string validation = {};   // checksum of what an evaluation reads; "": nothing. It may change
};
[[nodiscard]] DataIdentity identity_of(const RunData& data, const Options& options, std::int64_t max_length);

/// The manifest's "training" object.
[[nodiscard]] std::string training_text(const Progress& progress, const DataIdentity& data, const Options& options);
/// Reads it. Throws Error (data) if it is missing or malformed; Error (usage) naming what differs if the data are
/// others, unless `ignore_data`: then samples is 0, and updated_samples stays. A checkpoint of an older program keeps
/// no updated_samples: then they are its samples.
[[nodiscard]] Progress read_progress(const io::Manifest& manifest, const std::string& directory,
                                     const DataIdentity& data, bool ignore_data);
/// True if the manifest keeps Progress::updated_samples.
[[nodiscard]] bool keeps_updated_samples(const io::Manifest& manifest);
/// What of the data differs from the checkpoint's; "unknown" as JSON where it does not say.
[[nodiscard]] std::vector<SettingChange> changed_data(const io::Manifest& manifest, const DataIdentity& now);

struct ResumeRateArgs {
  const Options* options = nullptr;
  const io::Manifest* manifest = nullptr;
  std::string path;
  std::int64_t global_batch = 0, run_steps = 0;  // of this run
  bool same_data = true;                         // as the checkpoint's
};
/// What is to be said of the learning rate of a resumed run once its checkpoint is loaded: lines for the log; what the
/// checkpoint does not record of it; "" or the text of W063, of a warm-up that this run asks for and does not get.
struct ResumedRate {
  std::vector<std::string> lines;
  std::string unknown, warmup_ignored;
};
/// Replaces progress.schedule, the checkpoint's, by the one of this run (resume_schedule). Prints nothing.
[[nodiscard]] ResumedRate resume_rate(const ResumeRateArgs& args, Progress& progress);

/// Throws Error (usage) if --max_steps is behind the step of the checkpoint that the run continues from.
void require_max_steps(const Options& options, std::int64_t step, const std::string& checkpoint);

struct FoundBest {
  std::optional<BestCheckpoint> best;  // with the path where it is now
  std::string lost;                    // why there is none, for W032; "" where nothing asks for one
};
/// Collective. The best checkpoint so far, as a checkpoint at `directory` records it (`best`): beside that one, or
/// where the manifest says. None: it is at neither, or was chosen by another metric, or on other validation data than
/// this run's (DataIdentity::validation). Prints nothing.
[[nodiscard]] FoundBest find_best(World& world, const Options& options, const io::Manifest& manifest,
                                  const std::string& directory, const BestCheckpoint& best,
                                  const std::string& validation);

/// Throws Error (usage) naming the states that the checkpoint lacks, unless it has none at all (its load says so).
void require_states(const io::Manifest& manifest, const std::string& directory, const train::OptimizerOptions& now);
/// The options of this optimizer, by their names on the command line.
[[nodiscard]] nlohmann::ordered_json optimizer_settings(const train::OptimizerOptions& optimizer);

struct Candidate {
  std::string checkpoint;  // ".../v0-…/checkpoint-200"
  std::string directory;   // the run directory to continue in; "": a new one (a PATH was given)
};
/// True for --resume_from_checkpoint auto.
[[nodiscard]] bool resumes_automatically(const Options& options);
/// Collective. The checkpoints to try by --resume_from_checkpoint, best first; none: start from the beginning. `auto`:
/// those under --output_dir, newest version directory first, newest step first; incomplete ones are skipped with a
/// warning. PATH: that checkpoint, or the newest one of that run directory. Throws Error (data) on every rank: no such
/// checkpoint; there are checkpoints and all are incomplete.
[[nodiscard]] std::vector<Candidate> resume_candidates(World& world, const Options& options);
/// The same, of one process.
[[nodiscard]] std::vector<Candidate> local_candidates(const Options& options);

}  // namespace tessera::jobs
