// SPDX-License-Identifier: Apache-2.0
// Options to strategy, batch and trainer options.
#include "jobs/cli/session/setup.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/directory.hpp"
#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "io/inspect/recognize.hpp"
#include "io/model/foreign_checkpoint.hpp"
#include "io/model/model_directory.hpp"
#include "jobs/cli/options/model_cache.hpp"
#include "jobs/cli/options/model_presets.hpp"
#include "jobs/cli/session/best_checkpoint.hpp"
#include "jobs/cli/session/config_warnings.hpp"
#include "jobs/cli/session/default_precision.hpp"
#include "jobs/cli/session/lora.hpp"
#include "jobs/cli/session/param_groups.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/quantization.hpp"
#include "jobs/cli/session/reward_model.hpp"
#include "jobs/cli/session/strategy.hpp"
#include "jobs/cli/session/trainable.hpp"
#include "jobs/cli/session/weights.hpp"
#include "models/quantize.hpp"
#include "models/tensor_split.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

WorldOptions world_options(const Options& options) {
  WorldOptions result;
  const std::string comm = options.text("comm");
  result.comm = comm == "mpi"    ? WorldOptions::Comm::mpi
                : comm == "node" ? WorldOptions::Comm::node
                : comm == "nccl" ? WorldOptions::Comm::nccl
                                 : WorldOptions::Comm::automatic;
  const std::string backend = options.text("backend");
  result.backend = backend == "cuda"  ? WorldOptions::Backend::cuda
                   : backend == "cpu" ? WorldOptions::Backend::cpu
                                      : WorldOptions::Backend::automatic;
  result.comm_timeout_s = options.seconds("comm_timeout");
  result.ranks_per_node = static_cast<int>(options.optional_integer("ranks_per_node").value_or(0));
  return result;
}

namespace {

/// With the dtype that decide_precision will choose, without reading more files than config.json on every rank. For a
/// run that is resumed it is fp32, which takes the most.
Options with_likely_precision(Options options, const ModelConfig& config) {
  if (asked_compute(options)) return options;
  const bool own = !options.flag("from_scratch") && !options.has("resume_from_checkpoint") && cpu_has_bf16() &&
                   model_dtype(config.text, config.directory) != DType::f32;
  options.decide("mixed_precision", own ? "bf16" : "no", "likely");
  return options;
}

}  // namespace

std::uint64_t shared_bytes(const Options& given, int world, int local) {
  const int node = static_cast<int>(given.optional_integer("ranks_per_node").value_or(local));
  if (world < 2 || node < 2 || given.text("comm") == "mpi") return 0;
  try {
    const ModelConfig config = read_model_config(given, nullptr);
    const Options options = with_likely_precision(given, config);
    const bool trains = (options.commands & for_inference) == 0;
    const DType compute = precision_of(options).compute;
    models::Model model = trains ? make_training_model(options, config.text, config.path, compute, config.adapter)
                                 : make_inference_model(options, config, compute);
    if (!trains) {
      quantize_base(model, options, config.text, config.path, /*trains=*/false);
      models::split_tensors(model, tensor_ranks_of(options));
    }
    const Topology topology{.transport = Transport::node, .ranks_per_node = std::min(node, world)};
    plan::RunSpec spec = trains ? run_spec(options, model, world, topology) : plan::RunSpec();
    if (!trains) {  // shared windows have parameters alone, so lengths do not matter
      spec = {.purpose = plan::Purpose::evaluate,
              .model = &model,
              .strategy = strategy_of(options, world, topology.ranks_per_node),
              .topology = topology,
              .batch = {.global_batch = world, .micro_batch = 1, .data_ranks = world, .accumulation = 1},
              .tokens = model.tensor_ranks};
      spec.batch.data_ranks = spec.strategy.mesh.size(Mesh::data_axes());
    }
    const plan::RunPlan plan = plan::make_plan(spec);
    std::vector<plan::ArenaSlot> shared;
    std::ranges::copy_if(plan.slots, std::back_inserter(shared),
                         [](const plan::ArenaSlot& slot) { return slot.placement != plan::Placement::own; });
    return planned_memory(shared).total() * static_cast<std::uint64_t>(std::max(local, 1));
  } catch (const Error&) {
    return 0;  // the run itself reports the error, once
  }
}

namespace {

/// The checkpoint at a path, or the newest one of the run directory there. Throws Error (data).
std::string checkpoint_at(const std::string& path) {
  const io::LocatedPath located = io::recognize(path, io::Prefer::checkpoint);
  if (located.kind == io::PathKind::checkpoint) return located.path;
  throw Error(ExitCode::data, path + " is " + io::name_of(located.kind) + ", not a checkpoint", "--checkpoint",
              "Give a model with --model");
}

/// Throws Error (data) if the directory has no model itself, and runs in it (vN-…) have: names the newest.
void refuse_runs_as_model(const std::string& directory) {
  for (const auto& [version, run] : io::list_versions(directory))
    if (io::exists(run + "/config.json"))
      throw Error(ExitCode::data, directory + " holds runs and no config.json", "--model", "Use --model " + run);
}

/// The newest model in a directory of transformers' Trainer; "" if it is none, or has a model itself.
std::string trainer_model(const std::string& directory) {
  if (io::exists(directory + "/config.json")) return {};
  return io::newest_trainer_checkpoint(directory, io::weight_file_names);
}

/// config.json of a checkpoint. Throws Error (data).
std::string checkpoint_config(const std::string& directory) {
  for (const io::AuxiliaryFileRecord& file : io::read_manifest(directory).auxiliary_files)
    if (file.name == "config.json") return io::read_auxiliary_file(directory, file);
  throw Error(ExitCode::data, "the checkpoint has no config.json", directory,
              "Name a checkpoint that tessera train has written");
}

/// Throws Error (data) if --model is the name of a model and no such file or directory exists.
void check_model_exists(const Options& options) {
  const std::string model = options.text("model");
  std::error_code ignored;
  if (std::filesystem::exists(model, ignored) || !is_hub_name(model)) return;
  throw Error(ExitCode::data, "--model " + model + ": no such file or directory, and it is in no local cache",
              options.value("model").source.text,
              "Tessera downloads nothing. To download it from the Hugging Face Hub, where there is a network: " +
                  download_command(model, options.text("model_revision")));
}

}  // namespace

ModelConfig read_model_config(const Options& options, World* world) {
  if (options.has("shape")) {
    if (options.has("model")) {
      throw Error(ExitCode::usage, "--shape and --model both name a model", option_sources(options, {"shape", "model"}),
                  "Keep one of the two");
    }
    return {model_preset_config(options.text("shape")), "--shape " + options.text("shape"), ""};
  }
  const bool named = (options.commands & for_inference) != 0 && options.has("checkpoint");
  const bool checkpoint = named || ((options.commands & for_inference) != 0 && options.has("model") &&
                                    io::exists(options.text("model") + "/" + io::manifest_name));
  if (named && options.has("model"))
    throw Error(ExitCode::usage, "--checkpoint and --model both name a model",
                option_sources(options, {"checkpoint", "model"}), "Keep one of the two");
  const bool by_adapter = !checkpoint && !options.has("model") && options.has("adapters");
  if (!checkpoint && !by_adapter && !options.has("model")) {
    throw Error(ExitCode::usage, "no model is given", "--model",
                std::string("Give --model DIR (with a config.json), or --model CONFIG.json") +
                    ((options.commands & for_runs) != 0 ? ", or --shape NAME to start from scratch" : ""));
  }
  std::filesystem::path given = options.text(named ? "checkpoint" : "model");
  ModelConfig config;
  const auto read = [&] {
    if (checkpoint) {
      given = checkpoint_at(given.string());
      config.path = (given / "config.json").string();
      config.text = checkpoint_config(given.string());
      config.adapter = adapter_of_checkpoint(given.string());
      return;
    }
    if (options.has("adapters")) config.adapter = locate_adapter(options.text("adapters"));
    if (by_adapter) given = base_of_adapter(config.adapter);
    else check_model_exists(options);
    given = io::directory_of_model(given.string());
    if (const std::string trainer = trainer_model(given.string()); !trainer.empty()) {
      if (world != nullptr) log::info("model     " + given.string() + " has a Trainer's checkpoints: " + trainer);
      given = trainer;
    }
    std::error_code ignored;
    const bool directory = std::filesystem::is_directory(given, ignored);
    config.path = (directory ? given / "config.json" : given).string();
    if (directory && !io::exists(config.path)) {
      refuse_adapter_as_model(given.string());
      refuse_runs_as_model(given.string());
    }
    if (!io::exists(config.path) || !directory)
      if (const auto foreign = io::find_foreign_checkpoint(given.string())) throw foreign->error(given.string());
    config.text = io::read_text(config.path, 16u << 20);
  };
  const auto read_all = [&] {
    read();
    config.directory = io::directory_of(config.path);
    if (const std::string method = models::coded_method(config.text); !method.empty()) {
      (void)models::quantization_of(config.text, config.path);
      if (world != nullptr) log::info("model     weights of " + method + " are read as floats, and saved as floats");
      config.text = models::without_quantization(config.text);
    }
    make_reward_config(options, config, world == nullptr ? PadToken::any : PadToken::of_tokenizer);
  };
  if (world == nullptr) read_all();
  else {
    world->run_on_rank_0(read_all);
    config.new_score = world->broadcast(config.new_score ? std::string("yes") : std::string()) == "yes";
    config.path = world->broadcast(config.path);
    config.text = world->broadcast(config.text);
    config.adapter.text = world->broadcast(config.adapter.text);
    config.adapter.directory = world->broadcast(config.adapter.directory);
  }
  config.directory = io::directory_of(config.path);
  if (by_adapter && world != nullptr)
    log::info("adapter   its base model is " + config.directory + " (" + config.adapter.source() + ")");
  if (world != nullptr) warn_of_config(config);
  return config;
}

models::Model make_inference_model(const Options& options, const ModelConfig& config, DType dtype) {
  models::Model model = models::make(config.text, config.path, dtype);
  if (config.adapter.text.empty()) return model;
  add_adapters(model, config.adapter, /*dropout=*/0.0);
  if (options.has("checkpoint") && options.has("adapters"))
    throw options.refuse("adapters", "the checkpoint has an adapter already", "Drop --adapters");
  return model;
}

std::int64_t sequence_length(const Options& options, const models::Model& model) {
  const std::int64_t tokens =
      options.optional_integer("max_length").value_or(std::min(model.max_tokens, default_max_length));
  if (tokens > model.max_tokens)
    throw options.refuse("max_length",
                         strfmt("max_length %ld is longer than the model's %ld positions", tokens, model.max_tokens) +
                             model.limit_note(),
                         strfmt("Set it to at most %ld", model.max_tokens));
  return tokens;
}

plan::BatchPlan batch_of(const Options& options, int ranks) {
  const int sharing = row_ranks_of(options), groups = std::max(1, ranks / sharing);
  const auto global = options.optional_integer("global_batch_size"),
             micro = options.optional_integer("per_device_train_batch_size");
  auto accumulation = options.optional_integer("gradient_accumulation_steps");
  if (!global && !accumulation && options.text("stage") != "pt") {
    const std::int64_t per_pass = micro.value_or(1) * groups;
    accumulation = (sft_global_batch + per_pass - 1) / per_pass;
  }
  try {
    return plan::solve_batch(global, micro, accumulation, {groups, sharing});
  } catch (const Error& error) {
    throw Error(
        error.code(), error.line(),
        option_sources(options, {"global_batch_size", "per_device_train_batch_size", "gradient_accumulation_steps"}));
  }
}

std::int64_t eval_rows_of(const Options& options) {
  constexpr std::int64_t default_rows = 8;
  return options.optional_integer("per_device_eval_batch_size").value_or(default_rows);
}

plan::RunSpec run_spec(const Options& options, const models::Model& model, int world, const Topology& topology) {
  plan::RunSpec spec;
  spec.model = &model;
  spec.strategy = strategy_of(options, world, topology.ranks_per_node);
  if (options.has("nvme_path")) spec.nvme_path = options.text("nvme_path");
  spec.topology = topology;
  spec.batch = batch_of(options, world);
  spec.tokens = sequence_length(options, model);
  spec.eval_batch = options.optional_integer("per_device_eval_batch_size").value_or(0);
  spec.packed = options.flag("packing") || options.flag("padding_free");
  set_preferences(spec, options);
  if (options.flag("padding_free")) {
    spec.flat_tokens = spec.train_sequences() * spec.tokens;
    spec.flat_eval_tokens = spec.eval_sequences() * spec.tokens;
  }
  const train::OptimizerOptions optimizer = optimizer_options(options);
  spec.states = train::optimizer_states(optimizer);
  (void)param_rates(options, model, optimizer.weight_decay);  // refuses what the run would refuse
  if (options.flag("async_save"))
    spec.snapshot = options.flag("save_only_model") ? plan::Snapshot::model : plan::Snapshot::all;
  return spec;
}

std::int64_t RunLength::next(std::int64_t done, std::int64_t global_batch) const {
  return std::min(global_batch, samples - done % samples);
}

void RunLength::resume(std::int64_t steps_done, std::int64_t samples_done, std::int64_t global_batch) {
  if (fixed) return;
  const auto batches = [&](std::int64_t n) { return (n + global_batch - 1) / global_batch; };
  const std::int64_t epoch = samples_done / samples, in_epoch = samples_done % samples;
  const std::int64_t last_epoch = total_steps / steps_per_epoch, left_in_last = total_steps % steps_per_epoch;
  const std::int64_t end_in_last = std::min(samples, left_in_last * global_batch);
  const std::int64_t left =
      epoch >= last_epoch ? (epoch == last_epoch ? batches(std::max<std::int64_t>(0, end_in_last - in_epoch)) : 0)
                          : batches(samples - in_epoch) + (last_epoch - epoch - 1) * steps_per_epoch + left_in_last;
  total_steps = steps_done + left;
}

RunLength run_length(const Options& options, std::int64_t samples, std::int64_t global_batch) {
  RunLength length{samples, (samples + global_batch - 1) / global_batch, 0};
  const std::int64_t max_steps = options.integer("max_steps");
  length.fixed = max_steps > 0;
  length.total_steps =
      max_steps > 0 ? max_steps
                    : static_cast<std::int64_t>(std::ceil(
                          options.real("num_train_epochs") * static_cast<double>(length.steps_per_epoch) - 1e-9));
  if (length.total_steps < 1)
    throw options.refuse("num_train_epochs", "the run has no steps", "Set max_steps or num_train_epochs above 0");
  check_best_steps(options, length.total_steps);
  return length;
}

std::uint64_t data_seed(const Options& options) {
  return static_cast<std::uint64_t>(options.optional_integer("data_seed").value_or(options.integer("seed")));
}

train::LrSchedule lr_schedule(const Options& options, double total_steps) {
  train::LrSchedule lr;
  lr.kind = train::parse_lr_kind(options.text("lr_scheduler_type"));
  lr.learning_rate = options.real("learning_rate");
  if (options.given("min_lr") && options.has("min_lr_rate") &&
      options.value("min_lr").source.precedence == options.value("min_lr_rate").source.precedence)
    throw Error(ExitCode::usage, "--min_lr and --min_lr_rate both give the final learning rate",
                option_sources(options, {"min_lr", "min_lr_rate"}), "Keep one of the two");
  if (lr.kind == train::LrSchedule::Kind::cosine_with_min_lr && !options.given("min_lr") && !options.has("min_lr_rate"))
    throw options.refuse("lr_scheduler_type", "cosine_with_min_lr without a final learning rate",
                         "Add --min_lr or --min_lr_rate; to end at 0, use cosine");
  const bool by_rate = options.has("min_lr_rate") &&
                       options.value("min_lr_rate").source.precedence > options.value("min_lr").source.precedence;
  lr.min_lr = by_rate ? options.real("min_lr_rate") * lr.learning_rate : options.real("min_lr");
  if (lr.min_lr > lr.learning_rate)
    throw options.refuse("min_lr", strfmt("min_lr %g is above the learning rate %g", lr.min_lr, lr.learning_rate),
                         "Lower it");
  lr.total_steps = total_steps;
  lr.warmup = options.text("warmup_type") == "log" ? train::LrSchedule::Warmup::log : train::LrSchedule::Warmup::linear;
  // The number that a DeepSpeed schedule has by default yields to a ratio that someone wrote.
  const bool implied = options.value("warmup_steps").source.precedence == precedence::preset &&
                       options.value("warmup_ratio").source.precedence > precedence::preset;
  const std::int64_t warmup =
      implied ? 0 : options.steps("warmup_steps", static_cast<std::int64_t>(std::ceil(total_steps)));
  lr.warmup_steps = warmup > 0 ? static_cast<double>(warmup)
                               : std::max(0.0, std::ceil(options.real("warmup_ratio") * total_steps - 1e-9));
  lr.decay_steps = options.has("lr_decay_steps") ? static_cast<double>(options.integer("lr_decay_steps"))
                                                 : std::ceil(total_steps / 5 - 1e-9);
  return lr;
}

std::string cut_schedule(const train::LrSchedule& lr) {
  if (lr.warmup_steps > 0 && lr.warmup_steps >= lr.total_steps)
    return strfmt("the warm-up has %g steps, and the run %g: the learning rate ends at %g and never reaches %g",
                  lr.warmup_steps, lr.total_steps, lr.rate(lr.total_steps - 1), lr.learning_rate);
  const double left = lr.total_steps - lr.warmup_steps;
  if (lr.kind == train::LrSchedule::Kind::wsd && lr.decay_steps > left)
    return strfmt("the decay has %g steps, and %g are left behind the warm-up: it takes these", lr.decay_steps, left);
  return {};
}

train::OptimizerOptions optimizer_options(const Options& options) {
  const std::string optim = options.text("optim");
  const bool sgd = optim == "sgd";
  train::OptimizerOptions result;
  result.kind = sgd                       ? train::OptimizerKind::sgd
                : optim.ends_with("8bit") ? train::OptimizerKind::adamw_8bit
                                          : train::OptimizerKind::adamw;
  result.beta1 = options.real("adam_beta1");
  result.beta2 = options.real("adam_beta2");
  result.eps = options.real("adam_epsilon");
  result.momentum = options.real("momentum");
  result.nesterov = options.flag("nesterov");
  result.weight_decay = options.real("weight_decay");
  if (options.has("lorap_lr_ratio")) result.param_groups.push_back(lora_plus_group(options));
  for (Options::Item& item : options.in_order({"param_groups"})) result.param_groups.push_back(std::move(item.text));
  if (sgd && result.nesterov && result.momentum == 0)
    throw options.refuse("nesterov", "--nesterov needs momentum, and --momentum is 0", "Add --momentum 0.9");
  return result;
}

train::TrainerOptions trainer_options(const Options& options, const models::Model& model, const World& world,
                                      std::int64_t total_steps) {
  train::TrainerOptions result;
  result.run = run_spec(options, model, world.size(), world.topology());
  result.run.rank = world.rank();
  result.run.device = world.device();
  result.optimizer = optimizer_options(options);
  result.optimizer.rates = param_rates(options, model, result.optimizer.weight_decay);
  result.lr = lr_schedule(options, static_cast<double>(total_steps));
  result.max_grad_norm = options.real("max_grad_norm");
  result.seed = static_cast<std::uint64_t>(options.integer("seed"));
  result.loss_scale = loss_scale_of(options);
  if (learns_preferences(options)) result.nll_weight = preference_spec(options).nll;
  result.needs_kl = needs_kl(options);
  return result;
}

}  // namespace tessera::jobs
