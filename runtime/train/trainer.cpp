#include "runtime/train/trainer.hpp"

#include <chrono>

#include "kernels/init.hpp"
#include "runtime/plan/activations.hpp"
#include "runtime/train/batches.hpp"
#include "runtime/train/program.hpp"
#include "runtime/train/sampling.hpp"

namespace tessera::train {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// What every rank must have planned alike before anybody waits for anybody.
std::string fingerprint(const TrainerOptions& options, const plan::RunPlan& plan) {
  const auto& spec = plan.spec;
  std::string text = strfmt("mesh %s, collectives %016llx %016llx, G %lld B %lld T %lld E %lld, seed %llu, ", spec.strategy.mesh.str().c_str(),
                            static_cast<unsigned long long>(shard::collective_hash(plan.train)),
                            static_cast<unsigned long long>(shard::collective_hash(plan.eval)), static_cast<long long>(spec.batch.global_batch),
                            static_cast<long long>(spec.batch.micro_batch), static_cast<long long>(spec.tokens), static_cast<long long>(spec.eval_batch),
                            static_cast<unsigned long long>(options.seed));
  text += strfmt("adamw %a %a %a %a, clip %a, lr %a %a %lld/%lld/%lld kind %d", options.adamw.beta1, options.adamw.beta2, options.adamw.eps,
                 options.adamw.weight_decay, options.max_grad_norm, options.lr.learning_rate, options.lr.min_lr,
                 static_cast<long long>(options.lr.warmup_steps), static_cast<long long>(options.lr.total_steps),
                 static_cast<long long>(options.lr.decay_steps), static_cast<int>(options.lr.kind));
  for (const auto& param : spec.model->params) text += " " + param.name + param.shape.str();
  return text;
}

}  // namespace

/// The parts of a run, in the order they are built.
struct Trainer::Parts {
  Parts(World& world_, const TrainerOptions& options_);
  [[nodiscard]] plan::RunPlan make_plan();
  [[nodiscard]] std::unique_ptr<Communicator> communicator(Axis axis);
  [[nodiscard]] std::byte* share(const ArenaSlot& slot, std::size_t bytes);
  [[nodiscard]] std::unique_ptr<Arena> make_arena();
  [[nodiscard]] int place() const;
  /// Does `work`. What one rank alone runs into in it ends the run everywhere, since its peers wait in a collective.
  void alone(std::int64_t step, const auto& work);
  void run(Executor::Program& program, BatchSource& source, StepBlock& block);

  World& world;
  TrainerOptions options;
  plan::RunPlan plan;
  std::unique_ptr<Communicator> shard_axis, replicate_axis;
  std::unique_ptr<Arena> arena;
  shard::ShardManager manager;
  AdamW optimizer;
  std::unique_ptr<Executor::Program> train, eval, logits;
  Executor executor;  // after the programs: its streams end before them
  SampleBatches batches;
  std::int64_t steps_done = 0;
};

plan::RunPlan Trainer::Parts::make_plan() {
  options.run.rank = world.rank();
  options.run.topology = world.topology();
  plan::RunPlan result = plan::make_plan(options.run);
  for (auto& slot : result.slots)
    if (slot.name == options.shortened_slot) slot.bytes -= 64;
  world.agree("the configuration", fingerprint(options, result));
  return result;
}

std::unique_ptr<Communicator> Trainer::Parts::communicator(Axis axis) {
  if (plan.spec.strategy.mesh.size(axis) == 1) return nullptr;
  std::unique_ptr<Communicator> inner;
  alone(0, [&] { inner = world.communicator(plan.spec.strategy.mesh, axis); });
  const Delay& d = options.delay;
  const bool slow = d.gather_s > 0 || d.reduce_s > 0 || d.norm_s > 0 || d.per_byte_s > 0 || d.disturb;
  return slow ? delayed(std::move(inner), d) : std::move(inner);
}

/// Memory may be refused to one rank, windows to one node.
std::unique_ptr<Arena> Trainer::Parts::make_arena() {
  std::unique_ptr<Arena> made;
  alone(0, [&] { made = std::make_unique<Arena>(plan.slots, [this](const ArenaSlot& slot, std::size_t bytes) { return share(slot, bytes); }); });
  return made;
}

/// Row-major over the axes that share the data out: micro-batch m = a·W + place.
int Trainer::Parts::place() const {
  const Mesh& mesh = plan.spec.strategy.mesh;
  return mesh.coordinate(world.rank(), Axis::replicate) * mesh.size(Axis::shard) + mesh.coordinate(world.rank(), Axis::shard);
}

std::byte* Trainer::Parts::share(const ArenaSlot& slot, std::size_t bytes) {
  Communicator& axis = shard_axis ? *shard_axis : *replicate_axis;
  const SharedRegion region = axis.share(bytes);
  TESSERA_ASSERT(region, "no shared memory for %s", slot.name.c_str());
  return slot.placement == Placement::node ? region.base : region.base + static_cast<std::size_t>(axis.rank() - region.first) * bytes;
}

Trainer::Parts::Parts(World& world_, const TrainerOptions& options_)
    : world(world_),
      options(options_),
      plan(make_plan()),
      shard_axis(communicator(Axis::shard)),
      replicate_axis(communicator(Axis::replicate)),
      arena(make_arena()),
      manager({&plan.layout, &plan.train, shard_axis.get(), replicate_axis.get(), arena.get(),
               plan.spec.strategy.mesh.coordinate(world.rank(), Axis::shard)}),
      optimizer(options.adamw, plan.spec.model->params),
      executor({&plan, &manager, &optimizer, arena.get(), options.comm_streams}),
      batches(plan.spec.batch, place(), plan.spec.tokens) {
  train = executor.bind(plan.train, models::Phase::train);
  eval = executor.bind(plan.eval, models::Phase::eval);
  logits = executor.bind(plan.logits, models::Phase::logits);
}

void Trainer::Parts::alone(std::int64_t step, const auto& work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.code() == ExitCode::diverged || error.code() == ExitCode::communication) throw;  // known to all, or of all
    world.abort(error);
  } catch (const std::exception& error) {
    world.abort(Error(ExitCode::internal, error.what(), strfmt("step %lld", static_cast<long long>(step))));
  }
}

void Trainer::Parts::run(Executor::Program& program, BatchSource& source, StepBlock& block) {
  alone(block.step, [&] { executor.run(program, source, block); });
}

Trainer::Trainer(World& world, const TrainerOptions& options) : parts_(std::make_unique<Parts>(world, options)) {}
Trainer::~Trainer() = default;

const plan::RunPlan& Trainer::plan() const { return parts_->plan; }
World& Trainer::world() { return parts_->world; }
Arena& Trainer::arena() { return *parts_->arena; }

void Trainer::initialise() {
  const auto& layout = parts_->plan.layout;
  const int shard = parts_->plan.spec.strategy.mesh.coordinate(parts_->world.rank(), Axis::shard);
  for (int u = 0; u < layout.num_units(); ++u)
    for (const auto& segment : layout.segments(u, shard))
      kernels::initialise(parts_->plan.spec.model->params[static_cast<std::size_t>(segment.param)], parts_->options.seed, segment.param_offset,
                          segment.length, parts_->manager.master(u) + (segment.unit_offset - shard * layout.shard_numel(u)));
  parameters_changed();
}

std::vector<io::ShardView> Trainer::shards() {
  std::vector<io::ShardView> views;
  const int shard = parts_->plan.spec.strategy.mesh.coordinate(parts_->world.rank(), Axis::shard);
  for (int u = 0; u < parts_->plan.layout.num_units(); ++u) views.push_back({u, shard, parts_->manager.master(u)});
  return views;
}

void Trainer::parameters_changed() { parts_->world.barrier(); }

bool Trainer::writes_shards() const {
  return parts_->plan.spec.strategy.mesh.coordinate(parts_->world.rank(), Axis::replicate) == 0;
}

StepReport Trainer::step(const io::TokenStream& tokens, const io::Sampler& sampler, std::int64_t first, std::int64_t count) {
  Parts& p = *parts_;
  const auto begin = Clock::now();
  const std::int64_t step = p.steps_done + 1;
  StepReport report{.step = step, .learning_rate = p.options.lr.at(p.steps_done), .samples = count};
  p.world.set_step(step);
  p.batches.set(tokens, &sampler, first, count);
  p.optimizer.begin(step, report.learning_rate);

  StepBlock block;
  block.step = step;
  block.max_grad_norm = p.options.max_grad_norm;
  block.loss_scale = 1.0 / static_cast<double>(count * p.plan.spec.tokens);  // every target of a full sample is valid
  p.run(*p.train, p.batches, block);

  p.steps_done = step;
  report.tokens = block.sums.tokens;
  report.loss = block.sums.loss.value() / static_cast<double>(block.sums.tokens);
  report.grad_norm = block.grad_norm;
  report.data_seconds = block.data_seconds;
  report.comm_seconds = block.comm_seconds;
  report.seconds = seconds_since(begin);
  return report;
}

EvalReport Trainer::evaluate(const io::TokenStream& tokens, std::int64_t max_samples) {
  Parts& p = *parts_;
  const auto begin = Clock::now();
  const auto& spec = p.plan.spec;
  std::int64_t samples = io::count_samples(tokens.size(), spec.tokens).samples;
  if (max_samples > 0) samples = std::min(samples, max_samples);
  plan::BatchPlan batch = spec.batch;
  if (spec.eval_batch > 0) batch.micro_batch = spec.eval_batch;
  batch.accumulation = 1;
  batch.global_batch = batch.micro_batch * batch.world;

  SampleBatches batches(batch, p.place(), spec.tokens);
  ExactSum loss;
  EvalReport report;
  std::int64_t correct = 0;
  for (std::int64_t first = 0; first < samples; first += batch.global_batch) {
    StepBlock block;
    block.step = p.steps_done;
    batches.set(tokens, nullptr, first, std::min(batch.global_batch, samples - first));
    p.run(*p.eval, batches, block);
    loss.add(block.sums.loss);
    report.tokens += block.sums.tokens;
    correct += block.sums.correct;
  }
  if (report.tokens > 0) {
    report.loss = loss.value() / static_cast<double>(report.tokens);
    report.token_accuracy = static_cast<double>(correct) / static_cast<double>(report.tokens);
  }
  report.seconds = seconds_since(begin);
  return report;
}

std::vector<std::int32_t> Trainer::generate(std::span<const std::int32_t> prompt, int count, double temperature, std::uint64_t seed) {
  Parts& p = *parts_;
  std::vector<std::int32_t> ids(prompt.begin(), prompt.end());
  if (ids.empty()) ids.push_back(0);
  const auto* logits = reinterpret_cast<const float*>(p.arena->data(plan::logits_name));
  PromptBatch batch(ids, p.plan.spec.tokens);
  for (int i = 0; i < count; ++i) {
    StepBlock block;
    block.step = p.steps_done;
    p.run(*p.logits, batch, block);
    ids.push_back(pick_token({logits, static_cast<std::size_t>(p.plan.spec.model->vocab)}, temperature, seed, static_cast<std::uint64_t>(i)));
  }
  return ids;
}

const std::size_t* Trainer::measured_memory() const { return parts_->arena->bytes(); }

TrafficCount Trainer::traffic(Axis axis) const {
  const auto& communicator = axis == Axis::shard ? parts_->shard_axis : parts_->replicate_axis;
  return communicator ? communicator->traffic() : TrafficCount{};
}

void Trainer::start_trace(int steps) { parts_->executor.start_trace(steps); }
std::vector<TraceSpan> Trainer::take_trace() { return parts_->executor.take_trace(); }
std::uint64_t Trainer::state_hash() const { return parts_->manager.state_hash(); }

std::span<const float> Trainer::reduced_gradient(int unit) const {
  return {parts_->manager.reduced_gradient(unit), static_cast<std::size_t>(parts_->plan.layout.shard_numel(unit))};
}

std::string Trainer::broken_canary() const { return parts_->arena->broken_canary(); }

}  // namespace tessera::train
