// SPDX-License-Identifier: Apache-2.0
#pragma once
// The buffers of the interpreter: what each contains, as a tag.

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/shard/schedule.hpp"

namespace tessera::test {

/// A buffer: `stamp` changes with every write that begins.
struct Cell {
  int writers = 0;
  std::uint64_t stamp = 0;
};

struct Snapshot {
  const Cell* cell = nullptr;
  std::uint64_t stamp = 0;
};

struct ParamMemory : Cell {  // one rank's interval of a parameter slot
  int unit = -1;
  int version = -1;
};

struct View : Cell {  // what a rank expects in a slot
  int unit = -1;
  bool fresh = false;
};

struct Gradient : Cell {  // a gradient slot, accumulator or sum slot
  int unit = -1;
  int step = -1;
  std::uint64_t sum = 0;  // bit micro·modules + module for every contribution
  bool reduced = false;
  int over = 0;  // summed over 0: no ranks; 1: the shard group; 2: all ranks
};

struct Master : Cell {
  int version = 0;
};

struct Stage : Cell {  // a staging slot, but for gradient accumulators, which are cells of their own
  int unit = -1;
  int version = 0;
  std::vector<Gradient> sums;
};

struct Done {  // (step, micro, module) whose activations a buffer holds
  int step = -1, micro = -1, module = -1;
  friend bool operator==(const Done&, const Done&) = default;
};

struct Activations : Cell {  // a slot of activations, a staging slot of them, or host memory
  Done content;
  int name = 0;  // which value of the module; of a reference model, its input alone
};

struct Home {  // states of a unit that are offloaded
  Master params, optimizer;
  Master updated;  // params that the host has written for the device
  std::vector<Gradient> sums;
};

struct Scalar : Cell {  // the loss, the norm
  int step = -1;
  int count = 0;
};

struct Rank {
  std::vector<View> views;
  std::vector<Gradient> grads, sums;                // by slot
  std::vector<std::vector<Gradient>> accumulators;  // by unit
  std::vector<Master> masters;
  std::vector<Stage> stages;          // by slot
  std::vector<Home> homes;            // by unit
  std::vector<std::uint64_t> normed;  // by unit: what went into the norm
  Scalar loss, norm;
  std::vector<Done> output, saved;                    // by module
  std::vector<Activations> staged;                    // by slot
  std::vector<Activations> input_homes, saved_homes;  // by module
  Done recomputed, backward;
  Done reference;                        // the latest module of a reference model
  int reference_instance = 0;            // which
  std::vector<Done> reference_outcomes;  // by reference model: of its last module
  // progress
  std::array<int, shard::num_streams> done{}, next{};  // by stream: events that have ended, and the next one
  std::array<bool, shard::num_streams> running{};      // the next one has started
  std::array<std::vector<Snapshot>, shard::num_streams> reading;
  std::array<std::vector<Cell*>, shard::num_streams> writing;
  std::array<const char*, shard::num_streams> waits_for{};  // by stream: a flag below that the next event waits for
  std::vector<char> started, ended;                         // step · length + instruction
  int num_ended = 0;
};

}  // namespace tessera::test
