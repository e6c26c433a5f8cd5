// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checks every collective bit for bit against a plain reference, in a world of threads or processes.

#include <cstddef>
#include <vector>

#include "runtime/comm/world.hpp"

namespace tessera::test {

/// Throws std::runtime_error with the first difference. Every mesh of the world of two axes, each of them; every
/// set of axes of a mesh of three; chunks of 0 … `largest`
/// floats, in place and not; counted bytes equal the formulas.
void check_collectives(World& world, std::size_t largest);
/// The same of the groups along one axis of one mesh, with chunks of these sizes, the largest last.
void check_collective(World& world, const Mesh& mesh, Axis axis, const std::vector<std::size_t>& chunks);
/// sum, max, broadcast, gather, require_equal, run_and_agree.
void check_world(World& world);

}  // namespace tessera::test
