// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/trainer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>

#include "kernels/gemm_choice.hpp"
#include "models/reference.hpp"
#include "runtime/base/transfer.hpp"
#include "runtime/exec/batches.hpp"
#include "runtime/exec/bound_schedule.hpp"
#include "runtime/exec/run_context.hpp"
#include "runtime/infer/sampling.hpp"
#include "runtime/plan/activations.hpp"

namespace tessera::train {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// What must be equal on all ranks beside the plan, as text.
std::string agreed(const TrainerOptions& options) {
  std::string text = strfmt("seed %lu, ", options.seed);
  text += text_of(options.optimizer);
  text += strfmt(", clip %a, lr %a %a %a/%a/%a kind %d/%d", options.max_grad_norm, options.lr.learning_rate,
                 options.lr.min_lr, options.lr.warmup_steps, options.lr.total_steps, options.lr.decay_steps,
                 static_cast<int>(options.lr.kind), static_cast<int>(options.lr.warmup));
  if (options.loss_scale)
    text += strfmt(", loss scale %a %a %ld %d %ld %d", options.loss_scale->initial, options.loss_scale->least,
                   options.loss_scale->window, options.loss_scale->patience, options.loss_scale->hysteresis,
                   int{options.loss_scale->consecutive_hysteresis});
  return text;
}

/// The plan's input: the optimizer says which states there are.
plan::RunSpec run_of(const TrainerOptions& options) {
  plan::RunSpec run = options.run;
  run.states = optimizer_states(options.optimizer);
  return run;
}

}  // namespace

struct Trainer::Parts : exec::RunContext {
  Parts(World& world_, const TrainerOptions& options_);
  void run(exec::Executor::BoundSchedule& program, exec::BatchSource& source, exec::StepBlock& block) {
    abort_on_error(block.step, [&] { executor.run(program, source, block); });
  }

  /// The inputs of a step with so much work.
  [[nodiscard]] exec::StepBlock block_of(std::int64_t step, const io::PackedCounts& work);

  [[nodiscard]] infer::Evaluation evaluation() {
    infer::Evaluation made{.parts = this, .executor = &executor, .program = eval.get(), .step = done.steps};
    made.nll_weight = options.nll_weight;
    made.needs_kl = options.needs_kl;
    made.times_waits = times_waits;
    return made;
  }

  TrainerOptions options;
  std::unique_ptr<exec::Optimizer> optimizer;
  std::unique_ptr<exec::Executor::BoundSchedule> load, train, eval, logits;  // load: null if there is nothing to load
  exec::Executor executor;  // after the bound schedules: its streams end before them
  exec::SampleBatches batches;
  std::vector<std::int64_t> extra;  // exec::StepBlock::extra, and its balance losses
  std::vector<double> aux_losses;
  const models::FlopTerms flops;
  StepsDone done;
  std::optional<LossScale> loss_scale;
  double gradient_scale = 1;  // of the last step
  exec::StepCallback* callback = nullptr;
  bool times_waits = true;
};

Trainer::Parts::Parts(World& world_, const TrainerOptions& options_)
    : exec::RunContext(world_, run_of(options_), agreed(options_), options_.test_hooks),
      options(options_),
      optimizer(make_optimizer(options.optimizer, plan.spec.model->params)),
      executor({&plan, &manager, optimizer.get(), arena.get(), options.comm_streams}),
      batches(plan.spec.batch, data_rank(), plan.spec.tokens, plan.spec.flat_tokens, plan.spec.sequences, context()),
      extra(static_cast<std::size_t>(plan.spec.model->num_extra_sums())),
      aux_losses(static_cast<std::size_t>(plan.spec.model->router.num_losses())),
      flops(plan.spec.model->train_terms()) {
  if (options.loss_scale) loss_scale.emplace(*options.loss_scale);
  if (!plan.load.list.empty()) load = executor.bind(plan.load, models::Phase::eval);
  train = executor.bind(plan.train, models::Phase::train);
  eval = executor.bind(plan.eval, models::Phase::eval);
  logits = executor.bind(plan.logits, models::Phase::logits);
}

exec::StepBlock Trainer::Parts::block_of(std::int64_t step, const io::PackedCounts& work) {
  exec::StepBlock block;
  block.step = step;
  block.seed = options.seed;
  block.max_grad_norm = options.max_grad_norm;
  block.loss_scale = 1.0 / static_cast<double>(batches.num_terms(work));
  if (loss_scale) {
    block.skips = true;
    block.gradient_scale = loss_scale->scale();
    block.loss_scale *= block.gradient_scale;
  }
  std::ranges::fill(extra, 0);
  block.extra = extra;
  return block;
}

Trainer::Trainer(World& world, const TrainerOptions& options) : parts_(std::make_unique<Parts>(world, options)) {}
Trainer::~Trainer() = default;

const plan::RunPlan& Trainer::plan() const { return parts_->plan; }
World& Trainer::world() { return parts_->world; }
Arena& Trainer::arena() { return *parts_->arena; }

void Trainer::initialize() {
  parts_->initialize(parts_->options.seed);
  parameters_changed();
}

void Trainer::initialize_adapters() {
  parts_->initialize(parts_->options.seed, exec::RunContext::Initialized::adapters);
  parameters_changed();
}

std::vector<io::ShardView> Trainer::shards() { return parts_->shards(); }
std::vector<io::ShardView> Trainer::reference_shards() { return parts_->shards(exec::RunContext::Units::reference); }

io::TrainingState Trainer::state() {
  io::TrainingState state{parts_->plan.saved_states(), {}};
  for (const io::ShardView& view : shards()) {
    io::StateView& vectors =
        state.shards.emplace_back(io::StateView{.unit = view.unit, .shard = view.shard, .data = {}, .part = view.part});
    vectors.data.push_back(view.data);
    std::ranges::copy(parts_->manager.states(view.unit), std::back_inserter(vectors.data));
    if (parts_->manager.has_residuals(view.unit)) vectors.data.push_back(parts_->manager.residual_sum(view.unit));
  }
  return state;
}

std::span<std::byte> Trainer::slot_memory(SlotId slot) { return parts_->arena->memory(slot); }

void Trainer::collect_residuals() {
  parts_->executor.synchronize();
  parts_->manager.collect_residuals();
}

void Trainer::resume_at(const StepsDone& done) {
  parts_->done = done;
  parts_->manager.restore_residuals();
}

std::int64_t Trainer::skipped_steps() const { return parts_->done.skipped; }

std::optional<LossScaleState> Trainer::loss_scale() const {
  return parts_->loss_scale ? std::optional(parts_->loss_scale->state()) : std::nullopt;
}

void Trainer::resume_loss_scale(const LossScaleState& state) {
  if (parts_->loss_scale) parts_->loss_scale->resume(state);
}

void Trainer::resume_schedule(const LrSchedule& schedule) { parts_->options.lr = schedule; }

void Trainer::set_times_waits(bool times_waits) { parts_->times_waits = times_waits; }

void Trainer::set_callback(exec::StepCallback* callback) { parts_->callback = callback; }

void Trainer::parameters_changed() {
  parts_->manager.cast_masters();
  parts_->executor.synchronize();
  parts_->world.barrier();
  if (!parts_->load) return;
  exec::StepBlock block;
  parts_->run(*parts_->load, parts_->batches, block);
}

void Trainer::end_scaled_step(Parts& p, const StepReport& report) {
  if (!report.skipped) return p.loss_scale->passed();
  ++p.done.skipped;
  if (p.loss_scale->overflowed()) return;
  throw Error(ExitCode::diverged,
              strfmt("gradients overflow fp16 even at the lowest loss scale, %g", report.loss_scale),
              strfmt("step %ld", report.step), "Lower the learning rate, or train with --mixed_precision bf16");
}

StepReport Trainer::step(const io::TokenStream& tokens, const io::Sampler& sampler, std::int64_t first,
                         std::int64_t count) {
  Parts& p = *parts_;
  const auto begin = Clock::now();
  const std::int64_t step = p.done.steps + 1;
  const std::int64_t updates = p.done.steps - p.done.skipped;
  const io::ScratchTimes disk_before = p.scratch != nullptr ? p.scratch->times() : io::ScratchTimes();
  StepReport report{.step = step, .learning_rate = p.options.lr.at(updates), .samples = count};
  p.world.set_step(step);
  infer::KlEstimate kl;
  if (p.options.needs_kl) kl = infer::estimate_kl(p.evaluation(), {tokens, &sampler, first, count});
  p.batches.set_kl(kl.kl);
  p.batches.set(tokens, &sampler, first, count);

  const io::PackedCounts work = p.batches.work();
  report.processed = work.tokens;
  report.flops = p.flops.of(static_cast<double>(work.tokens), static_cast<double>(work.squares));
  if (p.options.needs_kl)
    report.flops += models::forward_flops(*p.plan.spec.model, static_cast<double>(kl.work.tokens),
                                          static_cast<double>(kl.work.squares));
  exec::StepBlock block = p.block_of(step, work);
  block.optimizer = p.optimizer->scalars(updates - p.done.states_from + 1, report.learning_rate);
  block.callback = p.callback;
  block.times_waits = report.times_waits = p.times_waits;
  report.loss_scale = p.gradient_scale = block.gradient_scale;
  p.run(*p.train, p.batches, block);

  p.done.steps = step;
  report.skipped = block.skipped;
  if (p.loss_scale) end_scaled_step(p, report);
  std::ranges::transform(std::span(p.extra).first(p.aux_losses.size()), p.aux_losses.begin(),
                         [](std::int64_t n) { return static_cast<double>(n) * exec::StepBlock::balance_unit; });
  if (!p.aux_losses.empty()) report.aux_loss = p.aux_losses.front();
  report.tokens = block.sums.tokens;
  report.loss = block.sums.loss.value() / static_cast<double>(block.sums.tokens);
  report.token_accuracy = static_cast<double>(block.sums.correct) / static_cast<double>(block.sums.tokens);
  if (p.plan.spec.model->num_metrics > 0) {
    infer::PreferenceReport::Sums sums{};
    std::ranges::copy(std::span(p.extra).last(sums.size()), sums.begin());
    report.preference = infer::PreferenceReport::of(sums, report.tokens, block.sums.correct);
    report.preference.kl = kl.kl;
    if (p.plan.spec.model->score >= 0) {
      infer::ScoreRange scores =
          infer::last_scores(p, p.batches, p.plan.spec.batch.accumulation, p.plan.spec.train_sequences());
      scores.agree(p.world);
      scores.write(report.preference);
    }
    if (p.options.nll_weight != 0) report.loss += p.options.nll_weight * report.preference.nll;
  }
  report.grad_norm = block.grad_norm;
  report.data_seconds = block.data_seconds + kl.data_seconds;
  report.comm_seconds = block.comm_seconds + kl.comm_seconds;
  report.move_seconds = block.move_seconds + kl.move_seconds;
  report.update_seconds = block.update_seconds;
  if (p.scratch != nullptr) report.disk = p.scratch->times().since(disk_before);
  report.flags = block.sums.flags;
  report.seconds = seconds_since(begin);
  return report;
}

void Trainer::warm_up(const WarmupArgs& args) {
  Parts& p = *parts_;
  p.batches.set(*args.tokens, args.sampler, 0, args.count);
  exec::StepBlock block = p.block_of(0, p.batches.work());
  block.warmup = true;
  p.run(*p.train, p.batches, block);
  p.manager.restore_residuals();
}

GemmChoices Trainer::choose_gemms(const GemmChoiceArgs& args) {
  Parts& p = *parts_;
  GemmChoices choices;
  p.world.run_and_agree([&] {
    if (!args.kept.empty()) choices.kept = kernels::apply_gemm_choices(args.kept, args.from, args.refused);
    kernels::record_gemms();
  });
  warm_up(args.warmup);
  const bool root = p.world.rank() == 0;
  p.world.run_and_agree([&] {
    choices.timed = kernels::finish_recording_gemms(root ? kernels::Timing::on : kernels::Timing::off);
    if (root) choices.text = kernels::gemm_choices();
  });
  choices.text = p.world.broadcast(choices.text);
  p.world.run_and_agree([&] {
    if (!root) (void)kernels::apply_gemm_choices(choices.text, "rank 0", args.refused);
  });
  choices.timed = static_cast<std::size_t>(p.world.max(static_cast<std::int64_t>(choices.timed)));
  return choices;
}

std::span<const double> Trainer::layer_aux_losses() const {
  const std::span<const double> all(parts_->aux_losses);
  return all.empty() ? all : all.subspan(1);
}

std::vector<double> Trainer::unit_gradient_norms() {
  Parts& p = *parts_;
  const auto units = static_cast<std::size_t>(p.plan.layout.num_units());
  std::vector<double> mine(units);
  for (std::size_t u = 0; u < units; ++u) mine[u] = p.manager.squared_norm(static_cast<int>(u));
  const std::string bytes(reinterpret_cast<const char*>(mine.data()), units * sizeof(double));
  std::vector<double> norms;
  for (const std::string& of_rank : p.world.gather(bytes)) {
    norms.resize(units);
    for (std::size_t u = 0; u < units; ++u) {
      double squared = 0;
      std::memcpy(&squared, of_rank.data() + u * sizeof(double), sizeof squared);
      norms[u] += squared;
    }
  }
  for (double& norm : norms) norm = std::sqrt(norm) / p.gradient_scale;
  return norms;
}

infer::EvalReport Trainer::evaluate(const io::TokenStream& tokens, std::int64_t max_samples,
                                    const infer::EvalProgress& progress) {
  Parts& p = *parts_;
  infer::Evaluation evaluation = p.evaluation();
  evaluation.progress = progress;
  evaluation.callback = p.callback;
  return infer::evaluate(evaluation, tokens, max_samples);
}

std::optional<std::vector<std::int32_t>> Trainer::generate(std::span<const std::int32_t> prompt, int count,
                                                           double temperature, std::uint64_t seed) {
  Parts& p = *parts_;
  TESSERA_ASSERT(!p.plan.logits.list.empty(), "generation by ranks that share rows");
  std::vector<std::int32_t> ids(prompt.begin(), prompt.end());
  if (ids.empty()) ids.push_back(0);
  const float* const logits = exec::Executor::logits(*p.logits);
  exec::PromptBatch batch(ids, p.plan.spec.tokens);
  for (int i = 0; i < count; ++i) {
    exec::StepBlock block;
    block.step = p.done.steps;
    block.callback = p.callback;
    p.run(*p.logits, batch, block);
    if (block.sums.flags.stop > 0 && i + 1 < count) return std::nullopt;
    ids.push_back(infer::pick_token({logits, static_cast<std::size_t>(p.plan.spec.model->vocab)}, temperature, seed,
                                    static_cast<std::uint64_t>(i)));
  }
  return ids;
}

MemoryTable Trainer::measured_memory() const { return parts_->measure_memory(); }

TrafficCount Trainer::traffic(AxisSet axes) const { return parts_->traffic(axes); }
TrafficCount Trainer::exchange_traffic(AxisSet axes) const { return parts_->exchange_traffic(axes); }

void Trainer::start_trace(int steps) { parts_->executor.start_trace(steps); }
std::vector<exec::TraceSpan> Trainer::take_trace() { return parts_->executor.take_trace(); }
std::optional<io::ScratchTimes> Trainer::disk_times() const {
  if (parts_->scratch == nullptr) return std::nullopt;
  return parts_->scratch->times();
}
io::ScratchMedium Trainer::disk_medium() const { return parts_->scratch->medium(); }

std::uint64_t Trainer::state_hash() const { return parts_->manager.state_hash(); }

std::vector<float> Trainer::reduced_gradient(int unit) const {
  std::vector<float> gradient(static_cast<std::size_t>(parts_->plan.layout.shard_numel(unit)));
  copy_now(parts_->manager.gradient_device(unit), gradient.data(), parts_->manager.reduced_gradient(unit),
           gradient.size() * sizeof(float));
  return gradient;
}

}  // namespace tessera::train
