#pragma once
// Inference: evaluation or generation with sharded parameters and nothing else: no gradient, no optimizer state. The
// model may be larger than a rank, as in training.

#include <memory>
#include <span>

#include "runtime/infer/generation.hpp"
#include "runtime/train/evaluation.hpp"

namespace tessera::infer {

struct InferenceOptions {
  plan::RunSpec run;  // purpose evaluate or generate; topology and rank are filled from the world
  Stream::Mode comm_streams = Stream::Mode::threaded;  // tests
  train::RunTestHooks test_hooks;                      // tests
};

/// One kind of pass, summed over the rounds; of this rank.
struct PassTimes {
  std::int64_t passes = 0, tokens = 0;  // tokens shown to the model in rows that are still open
  double seconds = 0;
};

struct GenerateReport {
  std::vector<Completion> completions;  // by prompt; on rank 0, elsewhere empty
  PassTimes prompt, next;               // first passes; those of one token a row
};

class Inference {
 public:
  /// Collective. Plans, agrees with the peers on the plan, allocates the arena. The model must outlive it.
  Inference(World& world, const InferenceOptions& options);
  ~Inference();

  [[nodiscard]] const plan::RunPlan& plan() const;
  /// This rank's shards, to read a model into; parameters_loaded() after writing.
  [[nodiscard]] std::vector<io::ShardView> shards();
  /// Collective. Gathers what stays gathered.
  void parameters_loaded();
  /// Collective. Fresh parameters instead, loaded.
  void initialise(std::uint64_t seed);

  /// Purpose evaluate. As train::evaluate.
  [[nodiscard]] train::EvalReport evaluate(const io::TokenStream& tokens, std::int64_t max_samples = 0,
                                           const std::function<void(std::int64_t, std::int64_t)>& progress = {});
  /// Purpose generate. Collective: the same request on every rank. Prompts go in micro-batches of B in their order,
  /// micro-batch m to rank m mod W, so the tokens are the same at any number of ranks and any strategy, at equal
  /// threads per rank.
  GenerateReport generate(const GenerateRequest& request);

  /// As Trainer's.
  [[nodiscard]] std::span<std::byte> room(const char* slot);
  [[nodiscard]] const std::size_t* measured_memory() const;
  [[nodiscard]] TrafficCount traffic(Axis axis) const;
  [[nodiscard]] Arena& arena();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tessera::infer
