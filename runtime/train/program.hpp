#pragma once
// Program: a schedule bound to a run's memory. Internal to the executor.

#include "runtime/train/executor.hpp"

namespace tessera::train {

class Executor::Program {
 public:
  /// A stretch of a gradient buffer.
  struct Stretch {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  /// One instruction with its pointers.
  struct Step {
    const models::Module* module = nullptr;
    std::vector<TensorView> params, dparams;   // in the order of Module::params()
    std::vector<std::uint8_t> accumulate;      // per parameter
    std::vector<Stretch> gaps;                 // padding of the units whose gradient this backward is the first to touch
    std::vector<Stretch> whole;                // and their whole buffers, for an empty micro-batch
    std::byte *x = nullptr, *y = nullptr, *saved = nullptr;
    std::byte* slot = nullptr;                 // of gather and reduce
    models::Cache cache;                       // generation
  };

  Executor* executor = nullptr;
  const shard::Schedule* schedule = nullptr;
  models::Phase phase = models::Phase::train;
  std::vector<Step> steps;
  std::unique_ptr<Event[]> events;  // one per instruction
  std::byte *dx = nullptr, *workspace = nullptr, *logits = nullptr;
  std::int32_t *ids = nullptr, *targets = nullptr;
  std::int32_t* positions = nullptr;  // packed rows
  double* router = nullptr;  // training with experts
  // Of the run in progress:
  BatchSource* source = nullptr;
  StepBlock* block = nullptr;
};

}  // namespace tessera::train
