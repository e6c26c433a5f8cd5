// SPDX-License-Identifier: Apache-2.0
#pragma once
// Inference: evaluation or generation with sharded parameters, without gradients and optimizer states. As in training,
// the model may be larger than the memory of a rank.

#include <memory>
#include <span>

#include "runtime/infer/evaluation.hpp"
#include "runtime/infer/generation.hpp"

namespace tessera::io {
class PackedStream;  // io/data/packing.hpp
}

namespace tessera::infer {

struct InferenceOptions {
  plan::RunSpec run;  // purpose evaluate or generate; topology and rank are filled from the world
  Stream::Mode comm_streams = Stream::Mode::threaded;  // tests
  bool replays = true;                                 // exec::Executor::Parts::replays; false: tests
  double nll_weight = 0;                               // Evaluation::nll_weight
};

/// Passes of one kind on this rank, added up.
struct PassTimes {
  /// tokens: input tokens of unfinished rows, on the first of the ranks that generate the same ones.
  std::int64_t passes = 0, tokens = 0;
  std::int64_t replayed = 0;  // of the passes, on a device: as one graph
  double seconds = 0;
};

struct GenerateReport {
  std::vector<Completion> completions;  // by prompt; empty except on rank 0
  PassTimes prefill, decode;
};

class Inference {
 public:
  /// Collective. Plans, checks that all ranks have the same plan, allocates. The model must outlive it.
  Inference(World& world, const InferenceOptions& options);
  ~Inference();

  [[nodiscard]] const plan::RunPlan& plan() const;
  /// This rank's shards, to load a model into. Afterwards all ranks call parameters_loaded().
  [[nodiscard]] std::vector<io::ShardView> shards();
  /// The same of a reference model with parameters of its own.
  [[nodiscard]] std::vector<io::ShardView> reference_shards();
  /// Collective. Gathers the units that stay gathered.
  void parameters_loaded();
  /// Collective. Initializes the parameters instead of loading them.
  void initialize(std::uint64_t seed);

  /// Purpose evaluate. As evaluate.
  [[nodiscard]] EvalReport evaluate(const io::TokenStream& tokens, std::int64_t max_samples = 0,
                                    const std::function<void(std::int64_t, std::int64_t)>& progress = {});
  /// Collective, with a head of models::sequence_log_probs: the log-probability of every sequence of every sample, on
  /// every rank.
  [[nodiscard]] std::vector<double> sequence_log_probs(
      const io::PackedStream& samples, const std::function<void(std::int64_t, std::int64_t)>& progress = {});
  /// Purpose generate. Collective: the same request on every rank. Of D data ranks number m mod D generates micro-batch
  /// m of B prompts, so that the tokens are the same at any number of ranks and any strategy, at equal threads per
  /// rank. Ranks that have parts of the same matrices are one data rank: sums over them have another order.
  GenerateReport generate(const GenerateRequest& request);

  /// As Trainer's.
  [[nodiscard]] MemoryTable measured_memory() const;
  [[nodiscard]] TrafficCount traffic(AxisSet axes) const;
  [[nodiscard]] Arena& arena();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tessera::infer
