// SPDX-License-Identifier: Apache-2.0
#pragma once
// The records of a run as events for TensorBoard, under the tags of transformers' Trainer.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/tensorboard/event_file.hpp"
#include "jobs/cli/options/options.hpp"

namespace tessera::jobs {

/// True if --report_to names tensorboard.
[[nodiscard]] bool reports_to_tensorboard(const Options& options);

/// The scalars and texts of a record of logging.jsonl: "loss" becomes train/loss, "eval_loss" eval/loss; elements of an
/// array get their index, train/aux_loss_layers/0; a sample becomes a text. None without "global_step".
[[nodiscard]] std::vector<io::SummaryValue> summary_of(const nlohmann::ordered_json& record);

/// An event file of a run, on rank 0. If it cannot be written, a warning (W051) says so once, and training continues.
class TensorBoardLog {
 public:
  /// Begins a file with the options that were set. `purge_step`: as EventFile.
  TensorBoardLog(const std::string& directory, const std::string& host, const Options& options,
                 std::optional<std::int64_t> purge_step);
  /// Text under a tag: a configuration file, shown as it is.
  void text(const std::string& tag, const std::string& text);
  void record(const nlohmann::ordered_json& record);
  void write(std::int64_t step, std::vector<io::SummaryValue> values);

 private:
  std::optional<io::EventFile> file_;  // none: it could not be created
};

}  // namespace tessera::jobs
