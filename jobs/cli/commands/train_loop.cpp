// SPDX-License-Identifier: Apache-2.0
// The loop of a training run: steps, lines, evaluations, traces. What follows it is in train_end.cpp.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "io/scratch/scratch_file.hpp"
#include "jobs/cli/commands/train.hpp"
#include "jobs/cli/session/bigram.hpp"
#include "jobs/cli/session/gpu_choices.hpp"
#include "jobs/cli/session/progress.hpp"
#include "jobs/cli/session/signals.hpp"
#include "jobs/cli/session/trace.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

using Json = nlohmann::ordered_json;
constexpr double gib_of_log = 1073741824.0;

}  // namespace

double TrainRun::elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - loop_started_).count();
}

bool TrainRun::loop() {
  loop_started_ = std::chrono::steady_clock::now();
  loss_trend_ = LossTrend(length_.total_steps - first_step_);
  if (world_.max(stop_signal()) > 0) return stop_now();  // it came while the run began
  if (!data_.validation.empty() && options_.flag("eval_on_start") && first_step_ == 0 && evaluate(0).flags.stop > 0)
    return stop_now();
  ProgressView steps({.name = "train", .unit = Work::Unit::steps, .prints_lines = false});  // step lines say it
  while (progress_.step < length_.total_steps) {
    train::StepReport report = one_step();
    warn_of_refused_attention();
    const std::int64_t done = progress_.step;
    steps(static_cast<std::uint64_t>(done - first_step_),
          static_cast<std::uint64_t>(length_.total_steps - first_step_));
    const bool last = done == length_.total_steps;
    if (last) train_seconds_ = elapsed();
    // Before the checkpoint, which records whether it is the best one; a run that must stop has no time for it.
    if (report.flags.stop == 0 && evaluates_after(done)) {
      const infer::EvalReport evaluation = evaluate(done);
      report.flags.stop = evaluation.flags.stop;
      if (last && evaluation.complete) last_evaluation_ = evaluation;
    }
    const std::int64_t samples_every = options_.integer("eval_generate_steps");
    if (report.flags.stop == 0 && !last && samples_every > 0 && done % samples_every == 0 && !sample(done))
      report.flags.stop = 1;
    if (checkpoint_manager_->after_step(report, progress_, progress_.samples % length_.samples == 0)) return false;
  }
  checkpoint_manager_->finish(progress_);
  return true;
}

/// Those of --profile_steps; else one step of rank 0 for the report: the tenth of this process, when caches are warm.
std::optional<StepRange> TrainRun::traced_steps() const {
  if (options_.has("profile_steps")) return parse_range(options_.text("profile_steps"));
  if (!writes_report(options_) || world_.rank() != 0) return std::nullopt;
  const std::int64_t step = std::min(first_step_ + 10, length_.total_steps);
  return StepRange{step, step};
}

train::StepReport TrainRun::one_step() {
  const std::int64_t done = progress_.step + 1;
  const std::optional<StepRange> range = traced_steps();
  if (range && done == range->first)
    trainer_->start_trace(static_cast<int>(std::min<std::int64_t>(range->last - range->first + 1, 10000)));
  const bool planned_line = done % options_.steps("logging_steps", length_.total_steps) == 0 ||
                            done == length_.total_steps || (done == 1 && options_.flag("logging_first_step"));
  trainer_->set_times_waits(planned_line || world_.device() == host_device);  // for its line
  const std::int64_t count = length_.next(progress_.samples, trainer_options_.run.batch.global_batch);
  train::StepReport report;
  try {
    report = trainer_->step(*data_.train, *sampler_, progress_.samples, count);
  } catch (const Error& error) {
    if (error.code() == ExitCode::diverged) throw;  // all ranks throw it, before the update
    output_->fail();
    io::remove_own_scratch_files();
    world_.abort(error);
  }
  step_shares_.seconds += report.seconds;
  step_shares_.exposed += report.move_seconds;
  step_shares_.updates += report.update_seconds;
  disk_in_steps_.add(report.disk);
  progress_.step = done;
  progress_.samples += count;
  if (!report.skipped) progress_.updated_samples += count;
  progress_.tokens += report.tokens;
  progress_.skipped = trainer_->skipped_steps();
  progress_.loss_scale = trainer_->loss_scale();
  interval_.add(report);
  loss_trend_.add(report.loss, report.skipped ? 0 : report.tokens);
  if (done == length_.total_steps) warn_of_loss();  // before its line, so that logging.jsonl has the warning
  if (!report.skipped) {                            // a skipped step's loss may be NaN
    loss_sum_ += report.loss * static_cast<double>(report.tokens);
    tokens_ += report.tokens;
    processed_ += report.processed;
  }
  if (range && (done == range->last || (done == length_.total_steps && done >= range->first && done < range->last)))
    options_.has("profile_steps") ? write_trace() : keep_report_trace();
  if (planned_line || report.skipped) log_step(report);
  return report;
}

void TrainRun::log_step(const train::StepReport& report) {
  StepLine line{.experts = model_.router.layers > 0,
                .scaled = progress_.loss_scale.has_value(),
                .report = report,
                .interval = interval_,
                .total_steps = length_.total_steps};
  line.mfu = peak_.mfu(world_, interval_.flops, interval_.seconds);
  line.masked = data_.train->masked();
  line.figures = figures_of_run();
  const auto largest = [&](std::uint64_t mine) {
    return static_cast<std::uint64_t>(world_.max(static_cast<std::int64_t>(mine)));
  };
  line.memory = largest(pss_bytes());
  line.memory_limit = memory_limit_;
  if (world_.device() != host_device) {
    line.gpu = gpu_memory(world_.device(), trainer_->measured_memory());
    line.gpu.process = largest(line.gpu.process);
  }
  line.elapsed = elapsed();
  line.remaining = line.elapsed / static_cast<double>(report.step - first_step_) *
                   static_cast<double>(length_.total_steps - report.step);
  log::info(step_line(line));
  Json json = {{"loss", json_number(report.loss)},
               {"grad_norm", json_number(report.grad_norm)},
               {"learning_rate", report.learning_rate}};
  for (const auto& [name, value] : step_figures(report, figures_of_run())) json[name] = json_number(value);
  if (line.scaled)
    json.update(
        {{"loss_scale", report.loss_scale}, {"skipped", int{report.skipped}}, {"skipped_steps", progress_.skipped}});
  if (model_.router.layers > 0) {
    json["aux_loss"] = json_number(report.aux_loss);
    for (const double loss : trainer_->layer_aux_losses()) json["aux_loss_layers"].push_back(json_number(loss));
  }
  const auto steps = static_cast<double>(interval_.steps);
  json.update({{"epoch", static_cast<double>(progress_.samples) / static_cast<double>(length_.samples)},
               {"global_step", report.step},
               {"max_steps", length_.total_steps},
               {"elapsed_time", line.elapsed},
               {"remaining_time", line.remaining},
               {"memory(GiB)", static_cast<double>(line.gpu.card > 0 ? line.gpu.process : line.memory) / gib_of_log}});
  if (line.gpu.card > 0)
    json.update({{"memory_total(GiB)", static_cast<double>(line.gpu.card) / gib_of_log},
                 {"host_memory(GiB)", static_cast<double>(line.memory) / gib_of_log}});
  const double seconds = std::max(interval_.seconds, 1e-12);
  json["tokens_per_second"] = static_cast<double>(line.masked ? interval_.processed : interval_.tokens) / seconds;
  const std::string counted = unit_of(line.figures);
  const std::string with_loss = line.figures == Figures::tokens ? "loss_tokens_per_second" : counted + "_per_second";
  if (line.masked) json[with_loss] = static_cast<double>(interval_.tokens) / seconds;
  if (line.mfu) json["mfu"] = *line.mfu;
  json.update({{counted, report.tokens},
               {"time_step", interval_.seconds / steps},
               {"time_data", interval_.data_seconds / steps},
               {"time_comm", interval_.comm_seconds / std::max(static_cast<double>(interval_.comm_steps), 1.0)}});
  const std::int64_t every = options_.integer("hash_params_every");
  if (every > 0 && (report.step / every > logged_ / every || report.step % every == 0)) {
    std::string all;
    for (const std::string& hash : world_.gather(strfmt("%016lx", trainer_->state_hash()))) all += hash;
    json["state_hash"] = strfmt("%016lx", hash64(all));
  }
  world_.run_and_agree([&] { output_->log(json); });
  if (reports_to_tensorboard(options_)) log_unit_norms(report.step);
  interval_ = {};
  logged_ = report.step;
}

void TrainRun::log_unit_norms(std::int64_t step) {
  const std::vector<double> norms = trainer_->unit_gradient_norms();
  if (output_->tensorboard() == nullptr) return;
  std::vector<io::SummaryValue> values;
  const plan::RunPlan& plan = trainer_->plan();
  for (std::size_t u = 0; u < norms.size(); ++u)
    if (plan.layout.trainable(static_cast<int>(u)))
      values.push_back({"grad_norm/" + plan.units[u].name, static_cast<float>(norms[u])});
  output_->tensorboard()->write(step, std::move(values));
}

void TrainRun::keep_report_trace() {
  const std::vector<exec::TraceSpan> spans = trainer_->take_trace();
  try {
    io::make_directories(output_->file("trace"));
    io::write_text(output_->file("trace/rank-00000.json"), trace_text(spans));
  } catch (const Error& error) { log::warn(52, "report.html will have no timeline: " + error.line()); }
}

std::string TrainRun::trace_text(const std::vector<exec::TraceSpan>& spans) const {
  return chrome_trace(spans, world_.rank(), world_.size(), world_.host(),
                      name_of(trainer_->plan().spec.topology.transport));
}

void TrainRun::write_trace() {
  const std::vector<exec::TraceSpan> spans = trainer_->take_trace();
  const std::vector<std::string>& ranks = options_.list("profile_ranks");
  const bool wanted =
      ranks.empty() || std::find(ranks.begin(), ranks.end(), std::to_string(world_.rank())) != ranks.end();
  const std::string directory = options_.has("trace_dir") ? options_.text("trace_dir") : output_->file("trace");
  world_.run_and_agree([&] {
    std::error_code error;
    if (world_.rank() == 0) std::filesystem::create_directories(directory, error);
    if (error)
      throw Error(ExitCode::data, "cannot make the directory for traces: " + error.message(), directory,
                  "Choose another --trace_dir");
  });
  world_.run_and_agree([&] {
    if (!wanted) return;
    io::write_text(directory + strfmt("/rank-%05d.json", world_.rank()), trace_text(spans));
  });
  log::info("trace     " + directory + "/rank-*.json");
}

void TrainRun::memory_line() {
  const MemoryTable measured = trainer_->measured_memory();
  const std::size_t on_gpu = measured.by_memory[static_cast<int>(Memory::device)], arena = measured.total() - on_gpu;
  const std::uint64_t pss = pss_bytes();
  // The difference is below 0 if pages of the arena have not been touched, which PSS does not count, or if more
  // processes than at start share the pages of the program and its libraries, which lowers PSS. Then 0 is printed.
  const std::int64_t other = std::max<std::int64_t>(
      0, static_cast<std::int64_t>(pss) - static_cast<std::int64_t>(arena) - static_cast<std::int64_t>(baseline_pss_));
  const auto largest = [&](std::uint64_t mine) {
    return static_cast<std::uint64_t>(world_.max(static_cast<std::int64_t>(mine)));
  };
  const auto sum = [&](std::uint64_t mine) {
    return static_cast<std::uint64_t>(world_.sum(static_cast<std::int64_t>(mine)));
  };
  const GpuMemory gpu = gpu_memory(world_.device(), measured);
  const MemoryUse use{.pss = {largest(pss), sum(pss)},
                      .gpu = {largest(gpu.process), sum(gpu.process)},
                      .arena = largest(arena),
                      .other = largest(static_cast<std::uint64_t>(other)),
                      .card = largest(gpu.card),
                      .gpu_arena = largest(on_gpu),
                      .gpu_other = largest(gpu.process - on_gpu)};
  for (const std::string& line : memory_lines(use)) log::info(line);
}

/// Of rank 0.
void TrainRun::disk_line() {
  const std::optional<io::ScratchTimes> times = trainer_->disk_times();
  if (!times) return;
  const io::ScratchTimes& steps = disk_in_steps_;
  const auto text = [](std::uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  const double rate = static_cast<double>(steps.bytes_read + steps.bytes_written) / std::max(steps.busy_seconds, 1e-9);
  // A device's steps do not measure what is exposed.
  const std::string exposed =
      world_.device() == host_device
          ? strfmt(" | exposed %.1f s and updates %.1f s of %.1f s in steps: %s", step_shares_.exposed,
                   step_shares_.updates, step_shares_.seconds, step_bound(step_shares_).c_str())
          : std::string();
  log::info(strfmt("disk      rank 0: steps read %s, written %s, %.2f GiB/s while busy (%.1f s)%s",
                   text(steps.bytes_read).c_str(), text(steps.bytes_written).c_str(), rate / 1073741824.0,
                   steps.busy_seconds, exposed.c_str()));
  log::info(strfmt("          outside of steps (initial values, evaluation, checkpoints): read %s, written %s",
                   text(times->bytes_read - steps.bytes_read).c_str(),
                   text(times->bytes_written - steps.bytes_written).c_str()));
}

void TrainRun::print_baseline(const infer::EvalReport& last) {
  std::string line;
  world_.run_on_rank_0([&] {
    const BigramResult bigram = bigram_loss(*data_.train, *data_.validation.front().tokens, model_.vocab);
    line = strfmt("baseline bigram | loss %.4f | ppl %.2f | k %g lambda %g | the model's loss is %.4f %s", bigram.loss,
                  std::exp(bigram.loss), bigram.k, bigram.lambda, std::abs(bigram.loss - last.loss),
                  last.loss < bigram.loss ? "lower" : "higher");
    output_->log({{"bigram_loss", json_number(bigram.loss)},
                  {"eval_loss", json_number(last.loss)},
                  {"global_step", progress_.step}});
  });
  log::info(line);
}

}  // namespace tessera::jobs
