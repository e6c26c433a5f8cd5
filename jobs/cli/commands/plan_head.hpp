// SPDX-License-Identifier: Apache-2.0
#pragma once
// The text of `tessera plan` around its tables.

#include "jobs/cli/commands/commands.hpp"

namespace tessera::jobs {

/// Prints model, strategy, precision, batch, work and the size of checkpoints.
void print_plan_head(const plan::RunPlan& plan, const PlanOf& of);
/// Prints how the figures of the tables are made.
void explain_plan(const plan::RunSpec& spec);

}  // namespace tessera::jobs
