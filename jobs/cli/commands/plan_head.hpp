// SPDX-License-Identifier: Apache-2.0
#pragma once
// The text of `tessera plan` around its tables, and what they share.

#include <cstdint>
#include <stdexcept>
#include <string>

#include "jobs/cli/commands/commands.hpp"

namespace tessera::jobs {

/// Prints model, strategy, precision, batch, work and the size of checkpoints.
void print_plan_head(const plan::RunPlan& plan, const PlanOf& of);
/// Prints how the figures of the tables are made.
void explain_plan(const plan::RunSpec& spec);
/// A cell of the tables: "-" for none.
[[nodiscard]] std::string bytes_or_dash(std::uint64_t bytes);
/// A row of the tables whose schedule the verifier refuses: its text.
[[nodiscard]] std::string fault_text(const std::logic_error& error);

}  // namespace tessera::jobs
