// SPDX-License-Identifier: Apache-2.0
#include "runtime/infer/inference.hpp"

#include <chrono>
#include <cstring>
#include <sstream>

#include "io/data/packing.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/exec/bound_schedule.hpp"
#include "runtime/exec/run_context.hpp"

namespace tessera::infer {

namespace {

using Clock = std::chrono::steady_clock;

/// What must be equal on all ranks.
std::string agreed(const GenerateRequest& request) {
  const Sampling& s = request.sampling;
  std::uint64_t hash = hash64("");
  const auto mix = [&](const TokenIds& ids) {
    hash = hash64({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(std::int32_t)},
                  hash64(std::to_string(ids.size()), hash));
  };
  for (const TokenIds& prompt : request.prompts) mix(prompt);
  mix(request.stop);
  return strfmt("%zu prompts %016lx, %ld new, temperature %a top_k %ld top_p %a penalty %a seed %lu",
                request.prompts.size(), hash, request.max_new_tokens, s.temperature, s.top_k, s.top_p,
                s.repetition_penalty, s.seed);
}

/// "stopped id id …"
std::string to_text(const Completion& completion) {
  std::string text = completion.stopped ? "1" : "0";
  for (const std::int32_t id : completion.ids) text += " " + std::to_string(id);
  return text + "\n";
}

std::vector<Completion> from_text(const std::string& text) {
  std::vector<Completion> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Completion completion;
    words >> completion.stopped;
    for (std::int32_t id = 0; words >> id;) completion.ids.push_back(id);
    all.push_back(std::move(completion));
  }
  return all;
}

}  // namespace

struct Inference::Parts : exec::RunContext {
  Parts(World& world_, const InferenceOptions& options);
  void run(exec::Executor::BoundSchedule& program, exec::BatchSource& source, exec::StepBlock& block) {
    abort_on_error(block.step, [&] { executor.run(program, source, block); });
  }
  /// Of ranks that generate the same rows the first, which tells them.
  [[nodiscard]] bool leads() const { return plan.spec.strategy.mesh.coordinate(world.rank(), Axis::tensor) == 0; }
  /// Runs one micro-batch per rank until all rows are finished.
  void run_round(GenerationBatch& rows, GenerateReport& report);

  double nll_weight;
  std::unique_ptr<exec::Executor::BoundSchedule> load, main;
  exec::Executor executor;  // after the bound schedules: its streams end before them
};

Inference::Parts::Parts(World& world_, const InferenceOptions& options)
    : exec::RunContext(world_, options.run, ""),
      nll_weight(options.nll_weight),
      executor({&plan, &manager, nullptr, arena.get(), options.comm_streams, options.replays}) {
  const models::Phase phase =
      plan.spec.purpose == plan::Purpose::evaluate ? models::Phase::eval : models::Phase::logits;
  TESSERA_ASSERT(plan.spec.purpose != plan::Purpose::train);
  if (!plan.load.list.empty()) load = executor.bind(plan.load, phase);
  main = executor.bind(plan.main(), phase);
}

void Inference::Parts::run_round(GenerationBatch& rows, GenerateReport& report) {
  for (std::int64_t pass = 0;; ++pass) {
    PassTimes& times = pass == 0 ? report.prefill : report.decode;
    times.tokens += leads() ? rows.num_input_tokens() : 0;
    exec::StepBlock block;
    block.step = pass;
    const auto begin = Clock::now();
    run(*main, rows, block);
    times.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    ++times.passes;
    times.replayed += block.replayed ? 1 : 0;
    if (block.sums.tokens == 0) return;  // no rank has an unfinished row
  }
}

Inference::Inference(World& world, const InferenceOptions& options) : parts_(std::make_unique<Parts>(world, options)) {}
Inference::~Inference() = default;

const plan::RunPlan& Inference::plan() const { return parts_->plan; }
std::vector<io::ShardView> Inference::shards() { return parts_->shards(); }
std::vector<io::ShardView> Inference::reference_shards() { return parts_->shards(exec::RunContext::Units::reference); }

void Inference::parameters_loaded() {
  Parts& p = *parts_;
  p.executor.synchronize();
  p.world.barrier();
  if (!p.load) return;
  exec::StepBlock block;
  GenerateRequest nothing;
  GenerationBatch none(nothing, 0, 0);
  p.run(*p.load, none, block);
}

void Inference::initialize(std::uint64_t seed) {
  parts_->initialize(seed);
  parameters_loaded();
}

EvalReport Inference::evaluate(const io::TokenStream& tokens, std::int64_t max_samples,
                               const std::function<void(std::int64_t, std::int64_t)>& progress) {
  Parts& p = *parts_;
  TESSERA_ASSERT(p.plan.spec.purpose == plan::Purpose::evaluate);
  Evaluation evaluation{&p, &p.executor, p.main.get(), 0, progress};
  evaluation.nll_weight = p.nll_weight;
  evaluation.needs_kl = p.plan.spec.needs_kl;
  return infer::evaluate(evaluation, tokens, max_samples);
}

std::vector<double> Inference::sequence_log_probs(const io::PackedStream& samples,
                                                  const std::function<void(std::int64_t, std::int64_t)>& progress) {
  Parts& p = *parts_;
  TESSERA_ASSERT(p.plan.spec.model->writes_sequences, "a head that computes no log-probabilities of sequences");
  const auto sequences = static_cast<std::size_t>(samples.sequences());
  std::vector<double> all(static_cast<std::size_t>(samples.count().samples) * sequences);
  std::string mine;  // (first value, number of values, values) of each pass
  const auto take = [&](std::int64_t first, std::span<const double> sums) {
    const std::uint64_t head[] = {static_cast<std::uint64_t>(first) * sequences, sums.size()};
    mine.append(reinterpret_cast<const char*>(head), sizeof head);
    mine.append(reinterpret_cast<const char*>(sums.data()), sums.size_bytes());
  };
  (void)infer::evaluate({.parts = &p,
                         .executor = &p.executor,
                         .program = p.main.get(),
                         .step = 0,
                         .progress = progress,
                         .take_sequences = take},
                        samples, 0);
  std::string joined;
  for (const std::string& text : p.world.gather(mine)) joined += text;
  joined = p.world.broadcast(joined);
  for (std::size_t at = 0; at < joined.size();) {
    std::uint64_t head[2];
    std::memcpy(head, joined.data() + at, sizeof head);
    at += sizeof head;
    std::memcpy(all.data() + head[0], joined.data() + at, head[1] * sizeof(double));
    at += head[1] * sizeof(double);
  }
  return all;
}

GenerateReport Inference::generate(const GenerateRequest& request) {
  Parts& p = *parts_;
  const plan::RunSpec& spec = p.plan.spec;
  const auto micro = static_cast<std::size_t>(spec.batch.micro_batch), prompts = request.prompts.size();
  const GenerationShape shape = generation_shape(request, spec.batch.micro_batch);
  TESSERA_ASSERT(spec.purpose == plan::Purpose::generate && shape.tokens <= spec.tokens &&
                 shape.cache_tokens <= spec.cache_tokens);
  p.world.require_equal("the prompts", agreed(request));

  GenerateReport report;
  GenerateRequest told = request;
  if (!p.leads()) told.on_token = {};
  GenerationBatch rows(told, spec.batch.micro_batch, spec.model->vocab);
  const std::size_t data_ranks = static_cast<std::size_t>(spec.batch.data_ranks),
                    data_rank = static_cast<std::size_t>(p.data_rank());
  for (std::size_t round = 0; round < prompts; round += micro * data_ranks) {
    const std::size_t first = std::min(round + data_rank * micro, prompts), count = std::min(micro, prompts - first);
    rows.begin(first, count);
    p.run_round(rows, report);
    std::string mine;
    for (std::size_t r = 0; r < count && p.leads(); ++r) mine += to_text(rows.completion(r));
    // World ranks are in the order of data ranks.
    for (const std::string& text : p.world.gather(mine))
      for (Completion& completion : from_text(text)) {
        if (request.on_completion) request.on_completion(report.completions.size(), completion);
        report.completions.push_back(std::move(completion));
      }
  }
  return report;
}

MemoryTable Inference::measured_memory() const { return parts_->measure_memory(); }
TrafficCount Inference::traffic(AxisSet axes) const { return parts_->traffic(axes); }
Arena& Inference::arena() { return *parts_->arena; }

}  // namespace tessera::infer
