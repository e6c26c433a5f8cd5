#pragma once
// Parts of the table's rows: internal to the table.

#include <span>

#include "jobs/cli/options/table.hpp"

namespace tessera::jobs {

/// Options of convert, inspect and checkpoint.
[[nodiscard]] std::span<const OptionSpec> file_rows();
/// Types that a run computes and reduces in.
[[nodiscard]] std::span<const OptionSpec> precision_rows();
/// Options that are refused by name, or accepted without effect.
[[nodiscard]] std::span<const OptionSpec> later_rows();

}  // namespace tessera::jobs
