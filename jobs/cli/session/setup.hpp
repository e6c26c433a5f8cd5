// SPDX-License-Identifier: Apache-2.0
#pragma once
// Options to the parts of a run: model, batch, trainer options, data. Functions that take a World are
// collective.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/data/packing.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "jobs/cli/options/options.hpp"
#include "jobs/cli/session/adapter_config.hpp"
#include "models/module.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/plan/plan.hpp"
#include "runtime/train/trainer.hpp"

namespace tessera::jobs {

/// A model's config.json and where it was found.
struct ModelConfig {
  std::string text;        // byte for byte
  std::string path;        // "models/tiny/config.json", or "--shape gpt2"
  std::string directory;   // where model.safetensors would be, or the checkpoint; "" for a built-in shape
  AdapterConfig adapter;   // of --adapters, or of a checkpoint of a LoRA run
  bool new_score = false;  // `text` is of the reward model that a run makes of the language model there
};
/// From --model, --shape or --checkpoint; rank 0 reads and broadcasts (`world` null: reads here). Throws Error (usage:
/// none is given; data).
[[nodiscard]] ModelConfig read_model_config(const Options& options, World* world);
/// The model that `generate` and `eval` run, with the adapters of the config.
[[nodiscard]] models::Model make_inference_model(const Options& options, const ModelConfig& config,
                                                 DType dtype = DType::f32);

inline constexpr std::int64_t default_max_length = 4096;
/// Sequence length T: --max_length, else the model's positions, at most default_max_length. Throws Error (usage) beyond
/// the model's positions.
[[nodiscard]] std::int64_t sequence_length(const Options& options, const models::Model& model);

/// Solves the batch equation. Throws Error (usage) that names contradicting options and what to change.
[[nodiscard]] plan::BatchPlan batch_of(const Options& options, int ranks);
/// Samples, or prompts, of a rank at a time in eval and generate: --per_device_eval_batch_size, else 8.
[[nodiscard]] std::int64_t eval_rows_of(const Options& options);

/// The planner's input for a world and topology.
[[nodiscard]] plan::RunSpec run_spec(const Options& options, const models::Model& model, int world,
                                     const Topology& topology);

/// Throws Error (usage) for options that contradict one another, where no file is needed to see it.
void check_options(const Options& options);

[[nodiscard]] WorldOptions world_options(const Options& options);

/// Bytes of /dev/shm that the planned run takes on a node. Called before MPI starts, so every rank reads config.json; 0
/// if that is not enough to know, or if the run will be refused anyway.
[[nodiscard]] std::uint64_t shared_bytes(const Options& options, int world, int local);

/// The seed of the order of samples: --data_seed, else --seed.
[[nodiscard]] std::uint64_t data_seed(const Options& options);

/// One of the validation data sets: a value of --val_dataset, or what --split_dataset_ratio holds out.
struct ValidationSet {
  std::string name;  // of the file, without its ending; other values' names get "_2", "_3", …
  std::vector<io::DatasetFile> files;
  std::shared_ptr<const io::TokenStream> tokens;
  io::SampleCount count;
};

/// Training and validation tokens, memory-mapped on every rank, and the tokenizer that made them.
struct RunData {
  std::shared_ptr<const io::TextTokenizer> tokenizer;  // null: bytes, or unknown (.bin files)
  std::vector<std::string> tokenized;                  // token files made from text, for the log
  std::vector<io::DatasetFile> train_files;
  std::shared_ptr<const io::TokenStream> train;
  io::SampleCount train_count;
  std::vector<ValidationSet> validation;
  std::vector<std::shared_ptr<io::PackedStream>> packed;  // the packed ones of train and validation

  /// True if some tokens have weights in the loss (RunSpec::loss_weights).
  [[nodiscard]] bool weighted() const;
  /// T of the run, at most `tokens`: where rows hold one document each, no more than the longest has, and as much more
  /// as `ranks` that share rows need to divide it.
  [[nodiscard]] std::int64_t row_tokens(std::int64_t tokens, int ranks = 1) const;
  /// --padding_free: sets how many tokens the samples of a micro-batch may have end to end, in training and evaluation.
  void set_flat_tokens(plan::RunSpec& spec) const;
};
/// Throws Error (usage) if --dataset is not given.
void require_dataset(const Options& options);
/// Collective. --tokenizer auto looks in `model_directory`. Throws Error (data) on every rank: those of load_tokenizer,
/// tokenized and open_dataset; ids beyond the vocabulary; fewer tokens than one sample.
[[nodiscard]] RunData open_data(const Options& options, World& world, const models::Model& model, std::int64_t tokens,
                                const std::string& model_directory);
/// The same for `eval`: --dataset alone, in train, train_files and train_count.
[[nodiscard]] RunData open_eval_data(const Options& options, World& world, const models::Model& model,
                                     std::int64_t tokens, const std::string& model_directory);

/// The length of a run.
struct RunLength {
  std::int64_t samples = 0;          // of an epoch
  std::int64_t steps_per_epoch = 0;  // the last one may be partial
  std::int64_t total_steps = 0;
  bool fixed = false;  // by max_steps
  /// Samples of the next step, after `done` samples over all epochs; a batch ends where its epoch ends.
  [[nodiscard]] std::int64_t next(std::int64_t done, std::int64_t global_batch) const;
  /// Continues after so many steps and samples, perhaps made with another batch size: computes total_steps again. A run
  /// by epochs ends with the sample with which it would have ended with this batch size from the start.
  void resume(std::int64_t steps_done, std::int64_t samples_done, std::int64_t global_batch);
};
[[nodiscard]] RunLength run_length(const Options& options, std::int64_t samples, std::int64_t global_batch);

/// `total_steps`: a whole number, unless the run goes on with another batch (LrSchedule).
[[nodiscard]] train::LrSchedule lr_schedule(const Options& options, double total_steps);
/// For W082: that the run ends within the warm-up, or that the decay of `wsd` is longer than what is left behind the
/// warm-up; "" if neither.
[[nodiscard]] std::string cut_schedule(const train::LrSchedule& lr);

/// The optimizer and its options, without OptimizerOptions::rates, which need a model; those of another optimizer are
/// not read. Throws Error (usage): --nesterov without momentum.
[[nodiscard]] train::OptimizerOptions optimizer_options(const Options& options);

/// The Trainer's options.
[[nodiscard]] train::TrainerOptions trainer_options(const Options& options, const models::Model& model,
                                                    const World& world, std::int64_t total_steps);

}  // namespace tessera::jobs
