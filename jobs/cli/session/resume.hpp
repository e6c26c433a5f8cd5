#pragma once
// Where a run goes on: which checkpoint, and whether what it remembers fits this run.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/manifest.hpp"
#include "jobs/cli/options/options.hpp"
#include "jobs/cli/session/setup.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/train/loss_scale.hpp"
#include "runtime/train/trainer.hpp"

namespace tessera::jobs {

/// What a checkpoint keeps of a run beside its tensors; a function of the state alone, the same in any world.
struct Progress {
  std::int64_t step = 0;                            // optimizer steps done
  std::int64_t samples = 0;                         // global samples drawn, counting on over epochs
  std::int64_t tokens = 0;                          // valid tokens trained on
  std::int64_t skipped = 0;                         // of the steps: those that overflowed and updated nothing (fp16)
  std::optional<train::LossScaleState> loss_scale;  // fp16
};

/// The data a run draws from, as far as going on in its middle needs them unchanged.
struct DataIdentity {
  std::int64_t tokens = 0, samples = 0, max_length = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::uint32_t crc = 0;         // of tokens from the beginning, the middle and the end
  std::string packing = "none";  // or the strategy
};
[[nodiscard]] DataIdentity identity_of(const RunData& data, const Options& options, std::int64_t max_length);

/// The manifest's "training" object and back.
[[nodiscard]] std::string training_text(const Progress& progress, const DataIdentity& data, const Options& options);
/// Throws Error (data) if it is not there or not of this form; Error (usage) naming what differs if the data are
/// others, unless `ignore_data`: then samples is 0.
[[nodiscard]] Progress read_progress(const io::Manifest& manifest, const std::string& directory,
                                     const DataIdentity& data, bool ignore_data);

/// The settings that decide how training continues from a state and may change on resuming: learning rate and schedule,
/// optimizer, clipping, precision, batch. Kept in run.json and in the run metadata of each checkpoint ("settings").
[[nodiscard]] nlohmann::ordered_json training_settings(const train::TrainerOptions& options);
struct SettingChange {
  std::string name, before, after;  // as JSON
};
/// What of `now` differs from what the checkpoint was made with, as far as its manifest says: one made before settings
/// were kept has the optimizer's and the types alone.
[[nodiscard]] std::vector<SettingChange> changed_settings(const io::Manifest& manifest,
                                                          const nlohmann::ordered_json& now);

struct Candidate {
  std::string checkpoint;  // ".../v0-…/checkpoint-200"
  std::string directory;   // the run directory to go on in; "": a new one (an explicit PATH)
};
/// --resume_from_checkpoint auto: by what is under --output_dir.
[[nodiscard]] bool resumes_automatically(const Options& options);
/// Collective. The checkpoints to try, best first, by --resume_from_checkpoint; empty: start afresh. `auto`: of
/// the newest version directory under
/// --output_dir that holds any, newest step first, then of older ones; those that are not whole are told and passed
/// over. PATH: that checkpoint, or the newest of that run directory. Throws Error (data) on every rank alike: no such
/// checkpoint; checkpoints are there and none is whole.
[[nodiscard]] std::vector<Candidate> resume_candidates(World& world, const Options& options);

}  // namespace tessera::jobs
