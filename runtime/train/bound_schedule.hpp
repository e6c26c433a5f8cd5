#pragma once
// BoundSchedule: a schedule bound to a run's memory. Internal to the executor.

#include "kernels/step.hpp"
#include "runtime/base/timed_event.hpp"
#include "runtime/train/executor.hpp"

namespace tessera::train {

class Executor::BoundSchedule {
 public:
  /// A stretch of a gradient buffer.
  struct MemoryRange {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  /// One instruction with its pointers.
  struct Step {
    const models::Module* module = nullptr;
    std::vector<TensorView> params, dparams;  // in the order of Module::params()
    std::vector<std::uint8_t> accumulate;     // per parameter
    std::vector<MemoryRange> gaps;            // padding of the units whose gradient this backward is the first to touch
    std::vector<MemoryRange> whole;           // and their whole buffers, for an empty micro-batch
    std::byte *x = nullptr, *y = nullptr, *saved = nullptr;
    std::byte* slot = nullptr;  // of gather and reduce
    models::Cache cache;        // generation
  };

  Executor* executor = nullptr;
  const shard::Schedule* schedule = nullptr;
  models::Phase phase = models::Phase::train;
  std::vector<Step> steps;
  std::unique_ptr<Event[]> events;  // one per instruction
  std::byte *dx = nullptr, *workspace = nullptr, *logits = nullptr;
  /// TokenBuffers of micro-batches: of the micro-batch in work; on a device one stretch behind the other.
  struct TokenBuffers {
    std::int32_t *ids = nullptr, *targets = nullptr;
    std::int32_t* positions = nullptr;  // packed rows; generation on a device
  };
  TokenBuffers words, pinned;         // where kernels read them; on a device, where the host writes them
  std::int64_t tokens_per_micro = 0;  // from one micro-batch to the next; 0: they share one stretch
  [[nodiscard]] static TokenBuffers at(const TokenBuffers& all, std::int64_t offset) {
    const auto from = [offset](std::int32_t* words) { return words != nullptr ? words + offset : nullptr; };
    return {from(all.ids), from(all.targets), from(all.positions)};
  }
  TokenBuffers current_tokens;
  double* router = nullptr;  // training with experts
  // On a device:
  std::byte* pinned_logits = nullptr;
  kernels::StepScalars *step = nullptr, *pinned_step = nullptr;  // training
  std::unique_ptr<Event[]> copied;                               // one for each micro-batch: its words are there
  Event took;                                                    // logits are in pinned memory
  int norm = -1;                                                 // the instruction; -1: none
  /// What compute waits for on other streams, in list order, from one moment to another.
  struct Wait {
    int instruction = 0;
    TimedEvent from, to;
  };
  std::vector<Wait> waits;        // training
  std::size_t waited = 0;         // of them in this run
  std::vector<TimedEvent> spans;  // of a trace: begin and end of each instruction, and last where the run began
  double began_s = 0;             // that in the executor's clock
  // Of the run in progress:
  BatchSource* source = nullptr;
  StepBlock* block = nullptr;
};

}  // namespace tessera::train
