// SPDX-License-Identifier: Apache-2.0
#pragma once
// The files of a run directory as one JSON object, which page.html draws.

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tessera::jobs {

/// {label, directory, status, summary, command, facts, values, series, evaluations, last_evaluation, memory, trace,
/// advice, warnings, config, machine}. Series, and those of evaluations by figure and data set, are [[step, value or
/// null], …] of at most about 2000 points. `values`: what the run used (batch, ranks, precision, …), whichever options
/// said so. Throws Error (data) if a file cannot be read, or is not as a run writes it.
[[nodiscard]] nlohmann::ordered_json read_run_record(const std::string& directory);

/// A step of the traces in a directory: {rank, lanes, spans: [[lane, start in microseconds, length, name], …],
/// left_out}; null without one.
[[nodiscard]] nlohmann::ordered_json read_step_trace(const std::string& directory);

}  // namespace tessera::jobs
