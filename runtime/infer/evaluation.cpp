// SPDX-License-Identifier: Apache-2.0
#include "runtime/infer/evaluation.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "kernels/preference_formulas.hpp"
#include "runtime/base/transfer.hpp"
#include "runtime/exec/batches.hpp"
#include "runtime/plan/activations.hpp"

namespace tessera::infer {

PreferenceReport PreferenceReport::of(const Sums& sums, std::int64_t pairs, std::int64_t right) {
  PreferenceReport report;
  if (pairs == 0) return report;
  const auto count = [&](kernels::PreferenceSum sum) { return sums[static_cast<std::size_t>(sum)]; };
  std::int64_t chosen = count(kernels::PreferenceSum::chosen_rows),
               rejected = count(kernels::PreferenceSum::rejected_rows);
  if (chosen + rejected == 0) chosen = rejected = pairs;
  const auto mean = [&](kernels::PreferenceSum sum, std::int64_t of) {
    return of == 0 ? NAN : static_cast<double>(count(sum)) * kernels::preference_unit / static_cast<double>(of);
  };
  report.chosen_reward = mean(kernels::PreferenceSum::chosen_reward, chosen);
  report.rejected_reward = mean(kernels::PreferenceSum::rejected_reward, rejected);
  report.margin = report.chosen_reward - report.rejected_reward;
  report.mean_reward = (report.chosen_reward + report.rejected_reward) / 2;
  report.accuracy = static_cast<double>(right) / static_cast<double>(pairs);
  report.chosen_logp = mean(kernels::PreferenceSum::chosen_logp, chosen);
  report.rejected_logp = mean(kernels::PreferenceSum::rejected_logp, rejected);
  const std::int64_t targets = count(kernels::PreferenceSum::nll_targets);
  report.nll = targets == 0 ? 0.0 : mean(kernels::PreferenceSum::nll, targets);
  return report;
}

void ScoreRange::add(const ScoreRange& other) {
  least = std::min(least, other.least);
  most = std::max(most, other.most);
}

void ScoreRange::agree(World& world) {
  most = world.max(most);
  least = -world.max(-least);
}

void ScoreRange::write(PreferenceReport& report) const {
  if (least > most) return;
  report.least_reward = static_cast<double>(least) * kernels::preference_unit;
  report.most_reward = static_cast<double>(most) * kernels::preference_unit;
}

ScoreRange last_scores(const exec::RunContext& parts, const exec::SampleBatches& batches, int micros,
                       std::int64_t most) {
  ScoreRange range;
  std::vector<double> scores(static_cast<std::size_t>(most));
  const std::byte* const all = parts.arena->data({SlotUse::sequences});
  for (int micro = 0; micro < micros; ++micro) {
    const auto count = static_cast<std::size_t>(batches.sequences(micro));
    if (count == 0) continue;
    copy_now(parts.plan.spec.device, scores.data(), all + static_cast<std::size_t>(micro * most) * sizeof(double),
             count * sizeof(double));
    for (const double score : std::span(scores).first(count)) {
      const std::int64_t units = kernels::preference_units(score);
      range.add({units, units});
    }
  }
  return range;
}

PreferenceReport EvalReport::preference() const {
  PreferenceReport report = PreferenceReport::of(preference_sums, tokens, sums.correct);
  report.kl = tokens > 0 ? kl_sum / static_cast<double>(tokens) : 0;
  scores.write(report);
  return report;
}

void EvalReport::add(const EvalReport& other) {
  sums.loss.add(other.sums.loss);
  sums.tokens += other.sums.tokens;
  sums.correct += other.sums.correct;
  seconds += other.seconds;
  flags = other.flags;
  complete = complete && other.complete;
  for (std::size_t i = 0; i < preference_sums.size(); ++i) preference_sums[i] += other.preference_sums[i];
  nll_weight = other.nll_weight;
  kl_sum += other.kl_sum;
  scores.add(other.scores);
  tokens = sums.tokens;
  if (tokens == 0) return;
  loss = sums.loss.value() / static_cast<double>(tokens);
  if (nll_weight != 0) loss += nll_weight * PreferenceReport::of(preference_sums, tokens, sums.correct).nll;
  token_accuracy = static_cast<double>(sums.correct) / static_cast<double>(tokens);
}

/// The pass is done: its norm, or its end, has been waited for.
static void take_sequences(const Evaluation& evaluation, const exec::SampleBatches& batches) {
  const std::int64_t sequences = batches.sequences(0);
  if (sequences == 0) return;
  std::vector<double> sums(static_cast<std::size_t>(sequences));
  const exec::RunContext& parts = *evaluation.parts;
  copy_now(parts.plan.spec.device, sums.data(), parts.arena->data({SlotUse::sequences}), sums.size() * sizeof(double));
  evaluation.take_sequences(batches.first_sample(0), sums);
}

/// Micro-batches of an evaluation: one a pass and rank.
static plan::BatchPlan eval_batch(const plan::RunSpec& spec) {
  plan::BatchPlan batch = spec.batch;
  batch.micro_batch = spec.eval_rows();
  batch.accumulation = 1;
  batch.global_batch = batch.micro_batch * batch.data_ranks;
  return batch;
}

KlEstimate estimate_kl(const Evaluation& evaluation, const SampleRange& samples) {
  exec::RunContext& parts = *evaluation.parts;
  const plan::RunSpec& spec = parts.plan.spec;
  const plan::BatchPlan batch = eval_batch(spec);
  exec::SampleBatches batches(batch, parts.data_rank(), spec.tokens, spec.flat_eval_tokens);
  batches.use_sequence(1);
  std::vector<std::int64_t> extra(static_cast<std::size_t>(spec.model->num_extra_sums()));
  const auto kl =
      static_cast<std::size_t>(spec.model->router.num_losses()) + static_cast<std::size_t>(kernels::PreferenceSum::kl);
  std::int64_t sum = 0;
  KlEstimate estimate;
  for (std::int64_t done = 0; done < samples.count; done += batch.global_batch) {
    exec::StepBlock block;
    block.step = evaluation.step;
    block.callback = evaluation.callback;
    block.times_waits = evaluation.times_waits;
    const std::int64_t count = std::min(batch.global_batch, samples.count - done);
    batches.set(samples.tokens, samples.sampler, samples.first + done, count);
    const io::PackedCounts work = batches.work();
    estimate.work.tokens += work.tokens;
    estimate.work.squares += work.squares;
    std::ranges::fill(extra, 0);
    block.extra = extra;
    parts.abort_on_error(block.step, [&] { evaluation.executor->run(*evaluation.program, batches, block); });
    sum += extra[kl];
    estimate.data_seconds += block.data_seconds;
    estimate.comm_seconds += block.comm_seconds;
    estimate.move_seconds += block.move_seconds;
    if (evaluation.progress) evaluation.progress(done + count, 2 * samples.count);
    estimate.flags = block.sums.flags;
    estimate.complete = estimate.flags.stop == 0;
    if (!estimate.complete) return estimate;
  }
  estimate.kl = std::max(0.0, static_cast<double>(sum) * kernels::preference_unit / static_cast<double>(samples.count));
  return estimate;
}

EvalReport evaluate(const Evaluation& evaluation, const io::TokenStream& tokens, std::int64_t max_samples) {
  const auto begin = std::chrono::steady_clock::now();
  exec::RunContext& parts = *evaluation.parts;
  const plan::RunSpec& spec = parts.plan.spec;
  std::int64_t samples = io::count_samples(tokens, spec.tokens).samples;
  if (max_samples > 0) samples = std::min(samples, max_samples);
  const plan::BatchPlan batch = eval_batch(spec);
  exec::SampleBatches batches(batch, parts.data_rank(), spec.tokens, spec.flat_eval_tokens, spec.sequences,
                              parts.context());
  EvalReport report, all;
  all.nll_weight = evaluation.nll_weight;
  KlEstimate kl;
  if (evaluation.needs_kl) kl = estimate_kl(evaluation, {tokens, nullptr, 0, samples});
  all.flags = kl.flags, all.complete = kl.complete;
  if (!kl.complete) samples = 0;
  batches.set_kl(kl.kl);
  const std::int64_t before = evaluation.needs_kl ? samples : 0;  // that progress counts
  const auto balance = static_cast<std::size_t>(spec.model->router.num_losses());
  std::vector<std::int64_t> extra(spec.model->num_metrics > 0 ? static_cast<std::size_t>(spec.model->num_extra_sums())
                                                              : 0);
  for (std::int64_t first = 0; first < samples; first += batch.global_batch) {
    exec::StepBlock block;
    block.step = evaluation.step;
    block.callback = evaluation.callback;
    const std::int64_t count = std::min(batch.global_batch, samples - first);
    batches.set(tokens, nullptr, first, count);
    std::ranges::fill(extra, 0);
    block.extra = extra;
    parts.abort_on_error(block.step, [&] { evaluation.executor->run(*evaluation.program, batches, block); });
    all.sums.loss.add(block.sums.loss);
    all.sums.tokens += block.sums.tokens;
    all.sums.correct += block.sums.correct;
    for (std::size_t i = balance; i < extra.size(); ++i) all.preference_sums[i - balance] += extra[i];
    if (spec.model->score >= 0) all.scores.add(last_scores(parts, batches, 1, batches.sequences(0)));
    if (evaluation.take_sequences) take_sequences(evaluation, batches);
    if (evaluation.progress) evaluation.progress(before + first + count, before + samples);
    all.flags = block.sums.flags;
    all.complete = all.flags.stop == 0 || first + count >= samples;
    if (!all.complete) break;
  }
  if (spec.model->score >= 0) all.scores.agree(parts.world);
  all.kl_sum = kl.kl * static_cast<double>(all.sums.tokens);
  report.add(all);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace tessera::infer
