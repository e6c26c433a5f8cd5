// SPDX-License-Identifier: Apache-2.0
#pragma once
// The learning-rate schedule across resumes: what a checkpoint keeps of it, and how it goes on with another batch,
// other data or another length.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "io/checkpoint/manifest.hpp"
#include "jobs/cli/options/options.hpp"
#include "runtime/train/lr_schedule.hpp"

namespace tessera::jobs {

/// The schedule of a run and the batch that its updates are of.
struct ScheduleState {
  train::LrSchedule lr;
  std::int64_t global_batch = 0;  // samples of an update
  std::int64_t from_step = 0;     // steps done after lr.from_update updates; a skipped step (fp16) is no update

  /// Steps of the whole run, if the kind depends on it: a constant rate does not.
  [[nodiscard]] std::optional<std::int64_t> run_steps() const;
};

/// "constant", "linear", …: the value of --lr_scheduler_type.
[[nodiscard]] const char* name_of(train::LrSchedule::Kind kind);
/// The schedule by the names of the options; numbers that are whole as integers.
[[nodiscard]] nlohmann::ordered_json to_json(const train::LrSchedule& lr);
/// "schedule" of the manifest's "training" object.
[[nodiscard]] nlohmann::ordered_json to_json(const ScheduleState& state);
/// Reads it; in a checkpoint of an older program, what its run metadata say of the settings. None: neither says batch,
/// schedule and length. Throws Error (data): values that no run has.
[[nodiscard]] std::optional<ScheduleState> read_schedule(const io::Manifest& manifest, const std::string& directory);

/// Where a run goes on.
struct ResumePoint {
  std::int64_t step = 0, updates = 0;  // done; updates: without skipped steps
  std::int64_t samples = 0;            // of these updates, over all runs
  std::int64_t global_batch = 0;       // of this run
  std::int64_t run_steps = 0;          // of this run, with the steps done
  bool same_data = true;               // as the checkpoint's
};
struct ResumedSchedule {
  ScheduleState state;
  bool continued = false;             // batch, data and length are the checkpoint's: the same rates, to the bit
  std::optional<double> rate_before;  // of the next update by the checkpoint's schedule; none: unknown
  std::string warmup_ignored;         // what is said of a warm-up that this run asks for and does not get; "": nothing
};
/// With batch, data and length as in the checkpoint the schedule is indexed by updates, as in a run that was not
/// interrupted. Otherwise it goes on from t = samples / global_batch, with t + (the steps left) in all, and the k-th
/// further update has the rate at t + k. A warm-up that is over keeps its length in samples, and is over; one that is
/// not, and the decay of wsd, keep theirs unless the options give it. `then`: of the checkpoint; none: unknown.
[[nodiscard]] ResumedSchedule resume_schedule(const Options& options, const std::optional<ScheduleState>& then,
                                              const ResumePoint& at);

}  // namespace tessera::jobs
