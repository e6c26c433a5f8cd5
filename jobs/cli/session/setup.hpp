#pragma once
// From options to what a run is made of: model, strategy, batch, trainer options, data. No
// collective but where a World is asked for.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/data/packing.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "jobs/cli/options/options.hpp"
#include "models/module.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/plan/plan.hpp"
#include "runtime/train/trainer.hpp"

namespace tessera::jobs {

/// A model's config.json and where it stands.
struct ModelConfig {
  std::string text;       // byte for byte
  std::string path;       // "models/tiny/config.json", or "--shape gpt2"
  std::string directory;  // where model.safetensors would be, or the checkpoint; "" for a built-in shape
};
/// Of --model, --shape or --checkpoint; rank 0 reads and the others are told (`world` null: read here). Throws
/// Error (usage: none given; data).
[[nodiscard]] ModelConfig read_model_config(const Options& options, World* world);

/// Sequence length T: --max_length, else the model's longest. Throws Error (usage) beyond the model's.
[[nodiscard]] std::int64_t sequence_length(const Options& options, const models::Model& model);

/// Strategy with its policy, of all sharding options. Throws Error (usage) with the option and its source.
[[nodiscard]] shard::Strategy strategy_of(const Options& options, int world, int ranks_per_node);

/// The policy's knobs that options set on any strategy.
void apply_policy(const Options& options, shard::ShardPolicy& policy);

/// Solved batch equation; contradictions name the options and the three ways out.
[[nodiscard]] plan::BatchPlan batch_of(const Options& options, int world);

/// What the planner needs; topology and world given.
[[nodiscard]] plan::RunSpec run_spec(const Options& options, const models::Model& model, int world,
                                     const Topology& topology);

/// Refuses options that contradict one another, as far as that shows before any file is read.
void check_options(const Options& options);

[[nodiscard]] WorldOptions world_options(const Options& options);

/// Bytes of /dev/shm that a run's windows will take on a node, by its plan, as far as that is known before MPI starts
/// (every rank reads config.json for it); 0 if it is not, or if the run will be refused anyway.
[[nodiscard]] std::uint64_t shared_bytes(const Options& options, int world, int local);

/// Of the order of samples: --data_seed, else --seed.
[[nodiscard]] std::uint64_t data_seed(const Options& options);

/// Training and validation tokens, opened on every rank (the files are mapped, not copied), and the tokenizer that made
/// them.
struct RunData {
  std::shared_ptr<const io::TextTokenizer> tokenizer;  // null: bytes, or ids of whatever made the .bin files
  std::vector<std::string> tokenized;                  // where text lies as tokens, for people
  std::vector<io::DatasetFile> train_files, val_files;
  std::shared_ptr<const io::TokenStream> train, validation;  // validation: null if there is none
  io::SampleCount train_count, val_count;
  std::vector<std::shared_ptr<io::PackedStream>>
      packed;  // those of train and validation that are: RunSpec::index_bytes counts them

  [[nodiscard]] std::size_t index_bytes() const;
  /// Puts what says which document is in which sample into the room that the plan has for it (plan::index_name).
  void move_index(std::span<std::byte> room) const;
};
/// Collective. `model_directory` is where --tokenizer auto looks. Throws Error (data) on every rank alike: what
/// load_tokenizer, tokenized and open_dataset refuse; ids beyond the vocabulary; fewer tokens than one sample.
[[nodiscard]] RunData open_data(const Options& options, World& world, const models::Model& model, std::int64_t tokens,
                                const std::string& model_directory);
/// The same of --dataset alone, for `eval`: what is counted stands in train, train_files and train_count.
[[nodiscard]] RunData open_eval_data(const Options& options, World& world, const models::Model& model,
                                     std::int64_t tokens, const std::string& model_directory);

/// How long a run is.
struct RunLength {
  std::int64_t samples = 0;          // of an epoch
  std::int64_t steps_per_epoch = 0;  // the last one may be partial
  std::int64_t total_steps = 0;
  bool fixed = false;  // by max_steps
  /// Samples of the next step, after `done` samples (counting on over epochs): a batch does not cross the end of an
  /// epoch.
  [[nodiscard]] std::int64_t next(std::int64_t done, std::int64_t global_batch) const;
  /// Going on after so many steps and samples, perhaps made with another batch: counts total_steps anew.
  void resume(std::int64_t steps_done, std::int64_t samples_done, std::int64_t global_batch);
};
[[nodiscard]] RunLength run_length(const Options& options, std::int64_t samples, std::int64_t global_batch);

[[nodiscard]] train::LrSchedule lr_schedule(const Options& options, std::int64_t total_steps);

/// Everything the Trainer wants.
[[nodiscard]] train::TrainerOptions trainer_options(const Options& options, const models::Model& model,
                                                    const World& world, std::int64_t total_steps);

}  // namespace tessera::jobs
