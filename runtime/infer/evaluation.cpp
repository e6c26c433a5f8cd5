// SPDX-License-Identifier: Apache-2.0
#include "runtime/infer/evaluation.hpp"

#include <chrono>

#include "runtime/exec/batches.hpp"

namespace tessera::infer {

void EvalReport::add(const EvalReport& other) {
  sums.loss.add(other.sums.loss);
  sums.tokens += other.sums.tokens;
  sums.correct += other.sums.correct;
  seconds += other.seconds;
  flags = other.flags;
  complete = complete && other.complete;
  tokens = sums.tokens;
  if (tokens == 0) return;
  loss = sums.loss.value() / static_cast<double>(tokens);
  token_accuracy = static_cast<double>(sums.correct) / static_cast<double>(tokens);
}

EvalReport evaluate(const Evaluation& evaluation, const io::TokenStream& tokens, std::int64_t max_samples) {
  const auto begin = std::chrono::steady_clock::now();
  exec::RunContext& parts = *evaluation.parts;
  const plan::RunSpec& spec = parts.plan.spec;
  std::int64_t samples = io::count_samples(tokens, spec.tokens).samples;
  if (max_samples > 0) samples = std::min(samples, max_samples);
  plan::BatchPlan batch = spec.batch;
  batch.micro_batch = spec.eval_rows();
  batch.accumulation = 1;
  batch.global_batch = batch.micro_batch * batch.data_ranks;

  exec::SampleBatches batches(batch, parts.data_rank(), spec.tokens, spec.flat_eval_tokens);
  EvalReport report, all;
  for (std::int64_t first = 0; first < samples; first += batch.global_batch) {
    exec::StepBlock block;
    block.step = evaluation.step;
    block.callback = evaluation.callback;
    const std::int64_t count = std::min(batch.global_batch, samples - first);
    batches.set(tokens, nullptr, first, count);
    parts.abort_on_error(block.step, [&] { evaluation.executor->run(*evaluation.program, batches, block); });
    all.sums.loss.add(block.sums.loss);
    all.sums.tokens += block.sums.tokens;
    all.sums.correct += block.sums.correct;
    if (evaluation.progress) evaluation.progress(first + count, samples);
    all.flags = block.sums.flags;
    all.complete = all.flags.stop == 0 || first + count >= samples;
    if (!all.complete) break;
  }
  report.add(all);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace tessera::infer
