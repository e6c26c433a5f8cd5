// SPDX-License-Identifier: Apache-2.0
#pragma once
// The verifier: proves before a run that a schedule is safe in every interleaving that its dependencies allow.

#include <string>
#include <vector>

#include "runtime/comm/mesh.hpp"
#include "runtime/shard/schedule.hpp"

namespace tessera::shard {

struct Violation {
  int instruction = -1;  // index in the list
  std::string what;      // "backward h.2 m0 reads unit h.2, whose gather is not ordered before it"
};

/// Follows the contents of every buffer over two steps, and proves by happens-before (vector clocks over ranks and
/// streams) that no two conflicting uses of a buffer can change places. Two ranks of each axis stand for all, since all
/// ranks run the same list. Proves:
/// - a unit is read after a gather of its current version (or while resident), and before its slot is released or
///   written again; in place, peers are readers too: an update comes after every peer's reads;
/// - a slot has one unit at a time, and no write to it is unordered against another use of it; a gradient slot is in
///   use until the reduce that reads it has ended, on this rank and on peers that read it in place;
/// - all contributions to a gradient come before its reduce; the accumulations count every micro-batch once; update
///   follows norm, and norm follows every reduce;
/// - in each micro-batch, the modules of every reference model run in order before the model's own forward, and nothing
///   of a reference has a backward: an activation is read before another one of the same buffer is written;
/// - activations: an instruction reads the value that it wants, complete, and none is overwritten before it is read;
///   this holds of exchanges too, which read and write them on a stream of their own, each once in each pass;
/// - a resident unit that is not trainable has been gathered before the first run, by the list of `load`; it is not
///   updated;
/// - an offloaded state is fetched before it is used, and it is the one of the current step; what has changed in
///   a staging slot is stored before the slot has another state; the params of a finished step are those of its update;
/// - dependencies point to earlier instructions, and the collectives of a communicator have one order on every rank, on
///   streams of the host and of a device alike. So the list is one launch order over all communicators of a device:
///   launching in list order cannot deadlock: a launch waits only for earlier ones.
/// Empty: safe. `load`: the schedule of build_load that has run before; null: none has.
[[nodiscard]] std::vector<Violation> verify(const Schedule& schedule, const Mesh& mesh, const Schedule* load = nullptr);

/// Throws std::logic_error with the first violations if there are any.
void require_safe(const Schedule& schedule, const Mesh& mesh, const Schedule* load = nullptr);

}  // namespace tessera::shard
