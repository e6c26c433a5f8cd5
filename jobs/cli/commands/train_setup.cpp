// SPDX-License-Identifier: Apache-2.0
// What keeps a training run from starting.
#include "jobs/cli/commands/train.hpp"
#include "jobs/cli/session/checkpointing.hpp"
#include "jobs/cli/session/resources.hpp"
#include "jobs/cli/session/setup_errors.hpp"

namespace tessera::jobs {

void TrainRun::choose_recompute() { recompute_line_ = jobs::choose_recompute(options_, world_, trainer_options_.run); }

void TrainRun::check_memory() {
  memory_limit_ = require_fit(options_, world_, plan::make_plan(trainer_options_.run),
                              "Lower per_device_train_batch_size, shard more, or use --gradient_checkpointing full; "
                              "tessera plan shows what fits");
}

/// Everything that can be refused before the run makes or allocates anything but the files of --cache_dir (tokens of
/// text, the index of packed samples), which a dry run makes too; what is independent is told at once.
void TrainRun::check_setup() {
  try {
    prepare();
    choose_recompute();
    if (!options_.flag("dry_run")) check_memory();
  } catch (const Error& error) {
    throw_with_others(options_, world_, error,
                      {[this] {
                         if (config_.text.empty()) (void)read_model_config(options_, &world_);
                       },
                       [this] { require_dataset(options_); },
                       [this] {
                         if (data_.train == nullptr || options_.flag("dry_run")) return;  // T is of the data
                         choose_recompute();
                         check_memory();
                       }});
  }
}

}  // namespace tessera::jobs
