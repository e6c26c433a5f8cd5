// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parts of the option table that have a source file of their own; table.cpp joins them.

#include <span>

#include "jobs/cli/options/table.hpp"

namespace tessera::jobs {

[[nodiscard]] std::span<const OptionSpec> file_options();
[[nodiscard]] std::span<const OptionSpec> precision_options();
[[nodiscard]] std::span<const OptionSpec> device_options();
[[nodiscard]] std::span<const OptionSpec> inference_options();
[[nodiscard]] std::span<const OptionSpec> logging_options();
[[nodiscard]] std::span<const OptionSpec> no_effect_options();
[[nodiscard]] std::span<const OptionSpec> preference_options();
[[nodiscard]] std::span<const OptionSpec> run_options();
[[nodiscard]] std::span<const OptionSpec> tool_options();
[[nodiscard]] std::span<const OptionSpec> tuning_options();

}  // namespace tessera::jobs
