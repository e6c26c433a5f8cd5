// SPDX-License-Identifier: Apache-2.0
// The start of a training run; the loop is in train_loop.cpp, what follows it in train_end.cpp.
#include "jobs/cli/commands/train.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/file/file.hpp"
#include "io/model/auxiliary_files.hpp"
#include "io/model/model_io.hpp"
#include "io/model/model_part.hpp"
#include "jobs/cli/session/checkpoint_defaults.hpp"
#include "jobs/cli/session/default_precision.hpp"
#include "jobs/cli/session/gemm_peak.hpp"
#include "jobs/cli/session/gpu_choices.hpp"
#include "jobs/cli/session/lora.hpp"
#include "jobs/cli/session/model_tensors.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/resources.hpp"
#include "jobs/cli/session/signals.hpp"
#include "jobs/cli/session/start_stop.hpp"
#include "jobs/cli/session/strategy.hpp"
#include "jobs/cli/session/tokenized_data.hpp"
#include "jobs/cli/session/trainable.hpp"
#include "jobs/cli/session/versions.hpp"
#include "jobs/cli/session/weights.hpp"
#include "jobs/report/report.hpp"
#include "kernels/threads.hpp"
#include "models/lora_config.hpp"
#include "models/wrappers.hpp"
#include "runtime/base/device_info.hpp"
#include "runtime/base/log.hpp"
#include "runtime/shard/memory.hpp"

namespace tessera::jobs {

TrainRun::TrainRun(const Call& call, World& world)
    : call_(call), options_(with_checkpoint_defaults(call.options(), world)), world_(world) {}

void TrainRun::prepare() {
  check_options(options_);
  set_time_to_start(TimeLimit(options_, call_.started));  // throws now, before the run's directory is made
  config_ = read_model_config(options_, &world_);
  decide_precision(options_, config_, world_);
  decide_reduction(options_, world_.size(), world_.device());
  check_gpu_choices(options_, world_);
  model_ = make_training_model(options_, config_.text, config_.path, precision_of(options_).compute, config_.adapter);
  if (!model_.dropout.empty())
    log::warn(10, "dropout is not supported: " + model_.dropout + " in the model's config.json; training with 0");
  threads_ = set_rank_threads(options_, world_);
  trainer_options_ =
      trainer_options(options_, model_, world_, 1);  // checks strategy, batch and T; the number of steps needs the data
  if (options_.text("baseline") == "bigram" && model_.vocab > 4096)
    throw options_.refuse("baseline", strfmt("a bigram table for a vocabulary of %ld is too large", model_.vocab),
                          "Use it with a vocabulary of at most 4096");
  if (!options_.flag("from_scratch")) require_weights(world_, config_.directory);
  if (models::is_text_part(model_.family)) {
    if (options_.flag("from_scratch"))
      throw options_.refuse("from_scratch",
                            config_.path + " is of a model of text and images, whose text part is trained",
                            "Give a directory with its weights");
    if (!model_.lora)
      world_.run_and_agree([&] {
        io::check_copied_tensors(
            {config_.directory, [&](const std::string& name) { return models::tensor_use(model_, name); }});
      });
    log::info("model     the text part of " + model_.family +
              (model_.lora ? " gets adapters" : " is trained; other tensors are copied to the saved model"));
  }
  open_data();
  best_metric_ = best_metric(options_);
  require_metric();
  read_chat();
  read_sample_prompts();
  if (data_.tokenizer != nullptr && options_.has("prompt_file")) sample_end_ = document_end(options_, *data_.tokenizer);
  choose_save_dtype();
  length_ = run_length(options_, data_.train_count.samples, trainer_options_.run.batch.global_batch);
  if (options_.has("profile_steps") && parse_range(options_.text("profile_steps"))->first > length_.total_steps) {
    throw options_.refuse("profile_steps",
                          strfmt("the run ends at step %ld, before the first step to profile", length_.total_steps),
                          "Choose earlier steps");
  }
  for (const std::string& text : options_.list("profile_ranks")) {
    const std::optional<std::int64_t> rank = parse_integer(text);
    if (!rank || *rank < 0 || *rank >= world_.size()) {
      throw options_.refuse("profile_ranks",
                            "there is no rank " + text + " in a run of " + std::to_string(world_.size()) + " ranks",
                            strfmt("Give ranks from 0 to %d", world_.size() - 1));
    }
  }
  trainer_options_.lr = lr_schedule(options_, static_cast<double>(length_.total_steps));
  progress_.schedule = {trainer_options_.lr, trainer_options_.run.batch.global_batch};
  sampler_ = std::make_unique<io::Sampler>(length_.samples, options_.flag("dataset_shuffle"), data_seed(options_),
                                           options_.flag("group_by_length") ? data_.train->packed() : nullptr);
  // Whatever decides the results must be the same on every rank; hosts may read different files.
  world_.require_equal("options", options_.json());
  std::string build = std::string(program_version()) + " " + program_commit();
  if (trainer_options_.run.strategy.policy.reproducible) {
    build += strfmt(", %s, %d threads a rank, ", kernels::name_of(kernels::isa()), kernels::threads()) +
             kernels::blas_version();
    const DType compute = precision_of(options_).compute;
    if (world_.device() == host_device && size_of(compute) == 2)
      build +=
          strfmt(", a CPU of %s, %s by ", kernels::cpu_maker(), name_of(compute)) + kernels::gemm_16bit(compute).name;
  }
  world_.require_equal("the build", build);
}

void TrainRun::open_data() {
  max_length_ = trainer_options_.run.tokens;
  data_ = jobs::open_data(options_, world_, model_, max_length_, config_.directory);
  if (learns_preferences(options_) && data_.weighted())
    throw Error(ExitCode::data, "some messages have a weight other than 0 and 1, and losses of pairs have none",
                "--dataset", "Drop \"weight\" and \"loss_scale\" from the messages");
  if (learns_labels(options_)) world_.run_and_agree([&] { check_labels(options_, *data_.train->packed()); });
  if (options_.flag("group_by_length") && data_.train->packed() == nullptr)
    throw options_.refuse("group_by_length", "--group_by_length has no effect: all samples have --max_length tokens",
                          "Drop it: texts are one stream, cut into samples");
  const bool samples = options_.has("sample_prompt") || options_.has("prompt_file");  // which may be longer than rows
  if (!samples)
    trainer_options_.run.tokens = data_.row_tokens(max_length_, model_.context.ranks * model_.tensor_ranks),
    trainer_options_.run.row_stride = data_.row_tokens(max_length_);
  trainer_options_.run.packed = data_.train->packed() != nullptr;
  trainer_options_.run.loss_weights = data_.weighted();
  if (options_.flag("padding_free")) data_.set_flat_tokens(trainer_options_.run);
}

void TrainRun::choose_save_dtype() {
  if (const std::optional<DType> dtype = parse_dtype(options_.text("save_dtype"))) {
    save_dtype_ = *dtype;
  } else if (!options_.flag("from_scratch")) {
    const std::string name =
        world_.text_of_rank_0([&] { return std::string(name_of(model_dtype(config_.text, config_.directory))); });
    save_dtype_ = parse_dtype(name).value();
  }
}

void TrainRun::start() {
  peak_ = world_.device() != host_device
              ? gpu_peak(world_, trainer_options_.run.strategy.policy.param_dtype)
              : cpu_peak(world_, model_, trainer_options_.run.batch.micro_batch * trainer_options_.run.tokens, 0.06);
  if (trainer_options_.run.reference_sums)
    precompute_reference({options_, world_, config_, trainer_options_.run}, data_);
  baseline_pss_ = pss_bytes();
  trainer_ = std::make_unique<train::Trainer>(world_, trainer_options_);
  warn_of_unplanned_memory(trainer_->plan(), trainer_->measured_memory());
  if (trainer_->disk_times()) {
    const std::string path = "--nvme_path " + options_.text("nvme_path");
    if (trainer_->disk_medium() == io::ScratchMedium::memory)
      log::warn(36, path + " is in memory (tmpfs): states there save none");
    if (trainer_->disk_medium() == io::ScratchMedium::page_cache)
      log::warn(36,
                path + ": the file system has no O_DIRECT: the system keeps what is read and written in memory too");
  }
  read_reference(world_, options_, config_, trainer_->plan(), trainer_->reference_shards());
  if (models::is_text_part(model_.family) && !model_.lora)
    copied_crc_ = io::checksum_of_copied(
        world_, {config_.directory, [&](const std::string& name) { return models::tensor_use(model_, name); }});
  if (!resume()) {
    warn_of_replaced_run(world_, options_);
    read_parameters();
  }
  if (const std::string cut = cut_schedule(trainer_options_.lr); !cut.empty()) log::warn(82, cut);
  const std::int64_t samples = length_.next(0, trainer_options_.run.batch.global_batch);
  kernel_choices_ =
      choose_gpu_kernels({&options_, &world_, trainer_.get(), {data_.train.get(), sampler_.get(), samples}});
  if (options_.flag("werror") && world_.max(log::warnings()) > 0) {
    throw options_.refuse("werror", "a warning was printed", "Fix what it names, or drop --werror");
  }
  output_ = std::make_unique<RunDirectory>(
      world_, options_, ContinuedRun{run_directory_, progress_.step, progress_.step >= length_.total_steps});
  output_->set_owner(options_.text("output_dir"), world_.broadcast(lock_ ? lock_->owner() : ""));
}

void TrainRun::read_parameters() {
  if (options_.flag("from_scratch")) return trainer_->initialize();
  if (model_.score >= 0 && !model_.lora) trainer_->initialize_adapters();  // unless the files have a score
  read_base(config_.directory);
  if (options_.has("adapters"))
    read_adapter(world_, config_.adapter.directory, {&model_, &trainer_->plan().layout, trainer_->shards()});
  else if (model_.lora) return trainer_->initialize_adapters();
  trainer_->parameters_changed();
}

void TrainRun::read_base(const std::string& directory) {
  const std::vector<io::ShardView> shards = trainer_->shards();
  read_weights(world_, directory, {.model = &model_, .layout = &trainer_->plan().layout, .shards = shards});
  if (!saves_only_trainable(options_)) return;
  base_ = frozen_checksum();
  base_directory_ = std::filesystem::absolute(directory).lexically_normal().string();
}

std::string TrainRun::base_path() const {
  return config_.directory.empty() ? "" : std::filesystem::absolute(config_.directory).lexically_normal().string();
}

io::BaseModel TrainRun::frozen_checksum() const {
  return io::base_model(world_, model_.own_params(), trainer_->plan().layout, trainer_->state(),
                        io::frozen_names(model_.own_params()), model_.dtype);
}

void TrainRun::lock() {
  world_.run_on_rank_0([&] {
    io::make_directories(options_.text("output_dir"));
    lock_ = std::make_unique<io::DirectoryLock>(options_.text("output_dir"));
    if (!lock_->held()) log::warn(25, "the file system of --output_dir has no locks: a second run can write there too");
    note_killed_runs(options_, lock_->held());
  });
}

std::uint64_t TrainRun::final_model_bytes() const {
  if (!options_.flag("save_model")) return 0;
  const bool adapter_alone = model_.lora && !options_.flag("from_scratch");
  const auto count = adapter_alone ? num_trainable(model_.params) : model_.num_own_params();
  return static_cast<std::uint64_t>(count) * size_of(adapter_alone ? DType::f32 : save_dtype_);
}

void TrainRun::save_checkpoints() {
  CheckpointManager::Parts parts{
      .options = &options_, .world = &world_, .trainer = trainer_.get(), .output = output_.get()};
  world_.run_on_rank_0([&] {
    parts.auxiliary_files = {{"config.json", config_.text}};
    if (model_.lora)
      parts.auxiliary_files.push_back({io::adapter_config_name, models::lora_config_text(model_, base_path())});
    if (!config_.directory.empty())
      for (auto& a : io::read_auxiliary_files(config_.directory)) parts.auxiliary_files.push_back(std::move(a));
    for (const io::AuxiliaryFile& file : changed_files_) io::replace(parts.auxiliary_files, file);
  });
  parts.data = data_identity_;
  parts.total_steps = length_.total_steps;
  parts.model_bytes = final_model_bytes();
  parts.base = base_;
  parts.best = progress_.best;
  parts.saved_step = run_directory_.empty() ? -1 : progress_.step;
  if (!resumed_from_.empty()) parts.resumed_from = resumed_from_, parts.resumed_step = progress_.step;
  parts.run = world_.rank() == 0 ? run_json() : "{}";
  parts.started = call_.started;
  if (!resumed_from_.empty()) set_last_checkpoint(resumed_from_);
  checkpoint_manager_ = std::make_unique<CheckpointManager>(std::move(parts));
}

std::string TrainRun::run_json() const {
  const plan::RunPlan& plan = trainer_->plan();
  nlohmann::ordered_json json;
  json["program"] = "tessera";
  json["version"] = program_version();
  json["commit"] = program_commit();
  json["compiler"] = compiler();
  json["mpi"] = mpi_version();
  json["blas"] = kernels::blas_version();
  json["isa"] = kernels::name_of(kernels::isa());
  json["command"] = call_.command_line;
  json["run_name"] = options_.text("run_name");
  json["directory"] = std::filesystem::current_path().string();
  json["hosts"] = hosts_;
  json["world"] = world_.size();
  json["nodes"] = world_.node_count();
  json["transport"] = name_of(plan.spec.topology.transport);
  json["strategy"] = plan.spec.strategy.name;
  json["mesh"] = {{"replicate", plan.spec.strategy.mesh.size(Axis::replicate)},
                  {"shard", plan.spec.strategy.mesh.size(Axis::shard)}};
  if (plan.spec.context_ranks() > 1) {
    json["mesh"]["context"] = plan.spec.context_ranks();
    json["context_parallel_kind"] = name_of(plan.spec.model->context.kind);
  }
  if (plan.spec.tensor_ranks() > 1) json["mesh"]["tensor"] = plan.spec.tensor_ranks();
  json["threads_per_rank"] = threads_.threads;
  json["compute_dtype"] = name_of(plan.spec.strategy.policy.param_dtype);
  json["gradient_checkpointing"] = options_.text("gradient_checkpointing");
  json["reduce_dtype"] = reduce_name(plan.spec.strategy.policy);
  json["sgemm_gflops"] = peak_.flops() * 1e-9;  // what mfu is a share of; 0: unknown
  json["settings"] = training_settings(trainer_options_);
  json["settings"].update(text_settings(options_, trainer_options_.run.batch.micro_batch));
  if (const std::string stamp = reference_stamp(options_, model_, config_); !stamp.empty())
    json["settings"][reference_setting] = stamp;
  json["parameters"] = model_.num_own_params();
  if (const std::int64_t trainable = num_trainable(model_.params); trainable != model_.num_own_params())
    json["trainable_parameters"] = trainable;
  if (base_) json[base_model_key] = base_directory_;
  else if (models::is_text_part(model_.family)) json[base_model_key] = base_path();  // has its other tensors
  if (copied_crc_) json[copied_crc_key] = strfmt("%08x", *copied_crc_);
  json["total_steps"] = length_.total_steps;
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

/// With what a checkpoint does not record, because it is of this run alone.
std::string TrainRun::run_json_with_memory() const {
  const plan::RunPlan& plan = trainer_->plan();
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(run_json());
  const shard::UnitPolicy& policy = plan.spec.strategy.policy;
  json["gathers_twice"] = policy.shard_params && policy.reshard_after_forward;  // in forward and in backward
  json["batch"] = {{"micro_batch", plan.spec.batch.micro_batch}, {"accumulation", plan.spec.batch.accumulation}};
  const MemoryTable measured = trainer_->measured_memory();
  nlohmann::ordered_json& memory = json["memory"];
  memory["limit"] = memory_limit_;
  if (world_.device() != host_device) memory["device"] = device_name(world_.device());
  for (int c = 0; c < plan::num_categories; ++c) {
    const char* const name = plan::name_of(static_cast<plan::Category>(c));
    memory["planned"][name] = plan.costs.memory[c];
    memory["measured"][name] = measured.by_category[c];
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void TrainRun::write_report() noexcept {
  if (world_.rank() != 0 || output_ == nullptr || !writes_report(options_)) return;
  try {
    output_->write("report.html", report_page({output_->path()}, std::string("tessera ") + program_version()));
    log::info("report    " + output_->file("report.html"));
  } catch (const std::exception& error) { log::warn(52, std::string("report.html is not written: ") + error.what()); }
}

void TrainRun::announce() {
  hosts_ = world_.gather(world_.host());
  std::sort(hosts_.begin(), hosts_.end());
  hosts_.erase(std::unique(hosts_.begin(), hosts_.end()), hosts_.end());
  world_.run_and_agree([&] {
    output_->write("args.json", options_.json());
    output_->write("run.json", run_json_with_memory());
    if (output_->tensorboard() != nullptr) output_->tensorboard()->text("model_config", config_.text);
  });
  const std::vector<std::string> lines = start_up_block(
      {.config = &config_,
       .model = &model_,
       .data = &data_,
       .plan = &trainer_->plan(),
       .measured = trainer_->measured_memory(),
       .world = &world_,
       .threads = threads_,
       .length = length_,
       .peak = &peak_,
       .ready_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - call_.started).count(),
       .memory_limit = memory_limit_,
       .choices = kernel_choices_,
       .precision_source = precision_source(options_),
       .reduction = options_.value("reduce_gradients").decided,
       .recompute = recompute_line_,
       .output = output_->path(),
       .stage = stage_line(options_),
       .preferences = learns_preferences(options_) ? preference_line(options_, model_, config_) : "",
       .external_keys = &options_.external_keys});
  for (const std::string& line : lines) log::info(line);
  for (const std::string& line : resume_lines_) log::info(line);
  if (resumed_from_.empty()) return;
  nlohmann::ordered_json record = {{"resume", resumed_from_}, {"global_step", progress_.step}};
  for (const SettingChange& change : changes_)
    record["differs"][change.name] = {nlohmann::json::parse(change.before), nlohmann::json::parse(change.after)};
  if (!frozen_change_.now_trained.empty()) record["now_trained"] = frozen_change_.now_trained;
  if (!frozen_change_.now_frozen.empty()) record["now_frozen"] = frozen_change_.now_frozen;
  world_.run_and_agree([&] { output_->log(record); });
}

int TrainRun::run() {
  check_setup();
  if (options_.flag("dry_run")) {
    print_plan({options_, config_, trainer_options_.run, /*trains=*/true, recompute_line_});
    return static_cast<int>(ExitCode::ok);
  }
  // A PATH that does not exist is refused before the lock makes --output_dir; `auto` searches it under the lock.
  if (!resumes_automatically(options_)) candidates_ = resume_candidates(world_, options_);
  lock();
  if (resumes_automatically(options_)) candidates_ = resume_candidates(world_, options_);
  start();
  try {
    announce();
    save_checkpoints();
    if (!loop() || !finish()) return stopped_early();
  } catch (const Error& error) {
    // Every rank throws the same error, so rank 0 writes STATUS; only a late or dead peer is met by single ranks.
    if (error.code() == ExitCode::communication || world_.rank() == 0) output_->fail(error.line());
    write_report();
    throw;
  } catch (...) {
    output_->fail();
    write_report();
    throw;
  }
  return static_cast<int>(ExitCode::ok);
}

int train_command(const Call& call, World& world) try {
  return TrainRun(call, world).run();
} catch (const Error& error) {
  if (error.code() != ExitCode::preempted) throw;
  log::info(error.line());
  return static_cast<int>(error.code());
}

}  // namespace tessera::jobs
