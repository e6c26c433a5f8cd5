#pragma once
// Parts of the table's rows: internal to the table.

#include <span>

#include "jobs/cli/options/table.hpp"

namespace tessera::jobs {

/// Options of convert, inspect and checkpoint.
[[nodiscard]] std::span<const OptionSpec> file_options();
/// Types that a run computes and reduces in.
[[nodiscard]] std::span<const OptionSpec> precision_options();
/// Options that are refused by name, or accepted without effect.
[[nodiscard]] std::span<const OptionSpec> no_effect_options();

}  // namespace tessera::jobs
