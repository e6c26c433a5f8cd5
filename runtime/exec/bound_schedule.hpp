// SPDX-License-Identifier: Apache-2.0
#pragma once
// BoundSchedule: a schedule bound to a run's memory. Internal to the executor.

#include <optional>

#include "kernels/dequantize.hpp"
#include "kernels/step.hpp"
#include "runtime/base/graph.hpp"
#include "runtime/base/timed_event.hpp"
#include "runtime/exec/executor.hpp"

namespace tessera::exec {

class Executor::BoundSchedule {
 public:
  /// Part of a gradient buffer.
  struct MemoryRange {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    DType dtype = DType::f32;
  };
  /// One instruction with its pointers.
  struct Step {
    const models::Module* module = nullptr;
    models::Phase phase = models::Phase::train;  // eval: forward of a module without a backward
    std::vector<TensorView> params, dparams;     // in the order of Module::params(); dparams of frozen ones are absent
    std::vector<kernels::DequantizeArgs>
        quantized;                         // into those of `params` that are quantized, before the module runs
    std::vector<std::uint8_t> accumulate;  // per parameter
    std::vector<MemoryRange> gaps;         // padding of the units whose gradients this backward writes first
    std::vector<MemoryRange> gradients;    // the full gradient buffers of these units, for an empty micro-batch
    std::byte *x = nullptr, *y = nullptr, *saved = nullptr;
    std::byte *dx = nullptr, *dy = nullptr;           // backward; no dx: no module before this one has a backward
    std::byte* kept = nullptr;                        // with selective checkpointing, of a module that has two parts
    std::vector<std::byte*> values, value_gradients;  // shard::ModuleUse::values; of an exchange: from, to
    std::byte* home = nullptr;                        // fetch, store of activations: in host memory
    shard::ShardManager::SlotMemory slots;
    models::Cache cache;  // generation
  };

  Executor* executor = nullptr;
  const shard::Schedule* schedule = nullptr;
  models::Phase phase = models::Phase::train;
  std::vector<Step> steps;
  std::unique_ptr<Event[]> events;  // one per instruction
  std::byte *workspace = nullptr, *logits = nullptr, *host_logits = nullptr;
  /// On a device, those of all micro-batches one after another, and in generation the positions of decode passes.
  BatchMemory buffers, host_buffers;  // read by kernels; written by the host: on a device, pinned memory
  std::int64_t tokens_per_micro = 0,
               sequences_per_micro = 0;  // distance between micro-batches; 0: they share the buffers
  BatchMemory current_tokens;
  double* router = nullptr;        // training with experts
  std::byte* reference = nullptr;  // Batch::reference
  std::byte* sequences = nullptr;  // Batch::sequence_values, of all micro-batches
  // On a device:
  kernels::StepScalars *step = nullptr, *pinned_step = nullptr;  // training
  std::unique_ptr<Event[]> copied;                               // per micro-batch: its token buffers are on the device
  std::int32_t *chosen = nullptr, *host_chosen = nullptr;        // generation: BatchSource::take_chosen
  double *draws = nullptr, *host_draws = nullptr;                // and draw
  Event logits_copied;                                           // to host_logits, or host_chosen
  int norm = -1;                                                 // its instruction; -1: none
  bool replays = false;  // nothing but forwards of generation before `norm`, and Parts::replays
  /// The decode pass of `rows` rows that ran before; as a graph, if captured.
  struct Decode {
    std::int64_t rows = 0;
    bool wants_logits = true, captured = false;
    std::optional<kernels::SampleRule> rule;  // BatchSource::sampling
    LaunchGraph graph;
  } decode;
  /// Waits of the compute stream for instructions of other streams, in list order.
  struct Wait {
    int instruction = 0;
    TimedEvent from, to;
  };
  std::vector<Wait> waits;        // training
  std::size_t waited = 0;         // how many of them this run has had
  std::vector<TimedEvent> spans;  // trace: begin and end of each instruction, then the begin of the run
  double began_s = 0;             // the begin of the run, in the executor's clock
  // Of the run in progress:
  BatchSource* source = nullptr;
  StepBlock* block = nullptr;
};

}  // namespace tessera::exec
