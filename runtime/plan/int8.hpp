// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which collectives of a run send int8 (--reduce_dtype int8, --gather_dtype int8).

#include "runtime/plan/plan.hpp"
#include "runtime/shard/builder.hpp"

namespace tessera::plan {

/// What of a unit is sent as int8: over groups on several nodes, or everywhere, and only what is sent. The plan has its
/// spec and layout.
[[nodiscard]] shard::Int8Collectives int8_of(const RunPlan& plan, int unit);

/// Throws Error (usage) if the run's options, device or strategies cannot have the int8 collectives of its units.
void check_int8(const RunPlan& plan, const shard::ScheduleInput& input);

}  // namespace tessera::plan
