// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/log_lines.hpp"

#include <algorithm>
#include <cmath>

#include "io/data/packing.hpp"
#include "io/tokenizer/utf8.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/trainable.hpp"
#include "jobs/cli/session/versions.hpp"
#include "runtime/base/device_info.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

std::string state_precision(const std::vector<StateSpec>& states) {
  const bool fp32 = std::ranges::all_of(states, [](const StateSpec& state) { return state.dtype == DType::f32; });
  return fp32 ? "master weights and optimizer state fp32" : "master weights fp32, optimizer state 8-bit";
}

std::string batch_line(const plan::BatchPlan& batch, int row_ranks) {
  const std::int64_t full = batch.micro_batch * batch.accumulation * batch.data_ranks;
  std::string text =
      strfmt("global %ld %s micro %ld x accumulation %d x %s %d", batch.global_batch,
             batch.global_batch == full ? "=" : "<", batch.micro_batch, batch.accumulation,
             row_ranks > 1 ? strfmt("groups of %d ranks", row_ranks).c_str() : "ranks", batch.data_ranks);
  if (batch.global_batch != full) text += strfmt(" = %ld: the last micro-batches are short or empty", full);
  return text;
}

std::string reduction_text(const plan::BatchPlan& batch, const std::string& decided) {
  return decided.empty() || batch.accumulation == 1 ? ""
                                                    : " | gradients are reduced after the last micro-batch: " + decided;
}

std::string data_line(const char* what, const std::vector<io::DatasetFile>& files, const io::TokenStream& tokens,
                      const io::SampleCount& count, std::int64_t length) {
  std::string text = strfmt("%s: ", what);
  if (!files.empty()) { text += files.size() == 1 ? files[0].path + ", " : strfmt("%zu files, ", files.size()); }
  if (const io::PackedStream* packed = tokens.packed()) {
    const io::PackingCount& c = packed->count();
    const bool pairs = io::has_pairs(packed->packing()), answers = packed->packing() == io::Packing::unpaired;
    const char* const of = pairs ? "pairs" : answers ? "answers" : "documents";
    text += strfmt("%s tokens in %ld %s, ", human_count(c.tokens).c_str(), c.documents, of) +
            (packed->masked() ? strfmt("%s of them with loss, ", human_count(c.targets).c_str()) : "") +
            (pairs ? strfmt("each a sample of two rows of up to %ld", c.longest)
             : packed->packing() == io::Packing::padded || answers
                 ? strfmt("each a sample: %ld of up to %ld tokens", c.samples, c.longest)
                 : strfmt("packed into %ld samples of %ld, %.1f%% full", c.samples, length,
                          100 * static_cast<double>(c.tokens) /
                              (static_cast<double>(c.samples) * static_cast<double>(length))));
    if (c.cut > 0)
      text += strfmt(", %ld of them %s", c.cut, packed->truncation() == io::Truncation::split ? "split" : "shortened");
    if (c.too_long > 0) text += strfmt(", %ld %s of more tokens left out", c.too_long, of);
    if (c.no_loss > 0) text += strfmt(", %ld %s without loss left out", c.no_loss, of);
    return text + (c.dropped > 0 ? strfmt(", %ld %s of one token dropped", c.dropped, of) : "");
  }
  return text + strfmt("%s tokens, %ld samples of %ld, %ld tokens left over", human_count(tokens.size()).c_str(),
                       count.samples, length, count.dropped_tokens);
}

namespace {

void memory_table(const StartUp& start, std::vector<std::string>& lines) {
  std::string head = "memory    per rank   ", plan_row = "          plan       ",
              measured_row = "          measured   ";
  for (int c = 0; c < plan::num_categories; ++c) {
    head += strfmt("%12s", plan::name_of(static_cast<plan::Category>(c)));
    plan_row += strfmt("%12s", human_bytes(start.plan->costs.memory[c]).c_str());
    measured_row += strfmt("%12s", human_bytes(start.measured.by_category[c]).c_str());
  }
  lines.push_back(head + strfmt("%12s%12s", "total", "limit"));
  lines.push_back(plan_row + strfmt("%12s%12s", human_bytes(start.plan->costs.total).c_str(),
                                    human_bytes(start.memory_limit).c_str()));
  lines.push_back(measured_row + strfmt("%12s", human_bytes(start.measured.total()).c_str()));
  const plan::MovedBytes& moved = start.plan->costs.moved;
  for (const Memory memory : {Memory::pinned, Memory::disk}) {
    std::size_t offloaded = 0;
    std::string row = memory == Memory::disk ? "          on disk    " : "          on host    ";
    for (int c = 0; c < plan::num_categories; ++c) {
      const std::size_t bytes = plan::offloaded_bytes(*start.plan, static_cast<plan::Category>(c), memory);
      row += strfmt("%12s", human_bytes(bytes).c_str());
      offloaded += bytes;
    }
    if (offloaded > 0)
      lines.push_back(row + strfmt("%12s | fetched %s, stored %s a step", human_bytes(offloaded).c_str(),
                                   human_bytes(moved.fetched).c_str(), human_bytes(moved.stored).c_str()));
  }
  if (const std::size_t frozen = plan::frozen_bytes(*start.plan); frozen > 0)
    lines.push_back(strfmt("          frozen     %12s", human_bytes(frozen).c_str()));
}

/// The plan's figure; for packed documents their average, which the plan cannot know.
double flops_of_a_step(const StartUp& start) {
  const io::PackedStream* packed = start.data->train->packed();
  if (packed == nullptr) return start.plan->costs.flops_per_step;
  const io::PackingCount& count = packed->count();
  const double all = start.model->train_flops(static_cast<double>(count.tokens), static_cast<double>(count.squares));
  return all / static_cast<double>(count.samples) * static_cast<double>(start.plan->spec.batch.global_batch);
}

}  // namespace

void warn_of_unplanned_memory(const plan::RunPlan& plan, const MemoryTable& measured) {
  if (const std::string differs = plan::compare_memory(plan, measured); !differs.empty())
    log::warn_here(29, "memory is not as planned: " + differs);
}

std::vector<std::string> start_up_block(const StartUp& start) {
  const models::Model& model = *start.model;
  const plan::RunPlan& plan = *start.plan;
  const World& world = *start.world;
  std::vector<std::string> lines{version_line()};
  lines.push_back(strfmt("model     %s %s | %s | vocabulary %ld | T %ld of %ld", model.family.c_str(),
                         start.config->path.c_str(), parameters_text(model.own_params()).c_str(), model.vocab,
                         plan.spec.tokens, model.max_tokens) +
                  model.limit_note());
  if (plan.spec.tokens == default_max_length && model.max_tokens > default_max_length)
    lines.back() += strfmt(", the default of --max_length");
  lines.push_back("data      " + data_line("train", start.data->train_files, *start.data->train,
                                           start.data->train_count, plan.spec.tokens));
  const std::vector<ValidationSet>& sets = start.data->validation;
  constexpr std::size_t most_sets = 6;
  for (std::size_t i = 0; i < std::min(sets.size(), most_sets); ++i)
    lines.push_back("          " +
                    data_line("validation", sets[i].files, *sets[i].tokens, sets[i].count, plan.spec.tokens));
  if (sets.size() > most_sets)
    lines.push_back(strfmt("          and %zu more validation data sets", sets.size() - most_sets));
  for (const std::string& tokens : start.data->tokenized) lines.push_back("tokens    " + tokens);
  if (!start.data->tokenized.empty()) lines.push_back("          " + start.data->tokenizer->describe());
  lines.push_back(strfmt("parallel  %s %s | %d rank%s on %d node%s | transport %s | prefetch %d/%d | %zu units",
                         plan.spec.strategy.name.c_str(), plan.spec.strategy.mesh.str().c_str(), world.size(),
                         world.size() == 1 ? "" : "s", world.node_count(), world.node_count() == 1 ? "" : "s",
                         name_of(plan.spec.topology.transport), plan.spec.strategy.policy.forward_prefetch,
                         plan.spec.strategy.policy.backward_prefetch, plan.units.size()));
  if (const models::ContextShare& context = model.context; context.ranks > 1)
    lines.push_back(strfmt("          rows are shared by %d ranks | %s", context.ranks, name_of(context.kind)));
  if (model.tensor_ranks > 1) lines.push_back(strfmt("          matrices are shared by %d ranks", model.tensor_ranks));
  lines.push_back("precision " + precision_text(plan) + " | " + state_precision(plan.spec.states) + " | " +
                  start.precision_source);
  const bool on_device = plan.spec.device != host_device;
  if (on_device)
    lines.push_back(strfmt("compute   rank 0 on %s (visible GPU %d) | ", device_name(plan.spec.device).c_str(),
                           plan.spec.device.index) +
                    (start.peak->flops() > 0
                         ? strfmt("mfu is a share of %.0f TFLOP/s, the published %s peak of all ranks' GPUs",
                                  start.peak->flops() * 1e-12, name_of(plan.spec.strategy.policy.param_dtype))
                         : "no mfu: " + start.peak->why_unknown()));
  else
    lines.push_back(strfmt(
        "compute   cpu (%s) | %d thread%s per rank, rank 0 on CPU%s %s%s | GEMM peak %.1f GFLOP/s over all ranks",
        cuda_built ? "no GPU in use" : "built without CUDA", start.threads.threads,
        start.threads.threads == 1 ? "" : "s", start.threads.cpus.size() == 1 ? "" : "s",
        cpu_list(start.threads.cpus).c_str(),
        start.threads.share + 1e-6 < static_cast<double>(start.threads.cpus.size()) ? ", shared with other ranks" : "",
        start.peak->flops() * 1e-9));
  lines.push_back("binding   " + start.threads.binding);
  if (!start.choices.empty()) lines.push_back("kernels   " + start.choices);
  lines.push_back("batch     " + batch_line(plan.spec.batch, plan.spec.row_ranks()) +
                  reduction_text(plan.spec.batch, start.reduction));
  if (plan.spec.flat_tokens > 0)
    lines.back() += strfmt(" | samples end to end, at most %ld tokens", plan.spec.flat_tokens);
  memory_table(start, lines);
  if (!start.recompute.empty()) lines.push_back(start.recompute);
  lines.push_back(strfmt("steps     %ld, %ld an epoch of %ld samples | %s FLOPs a step", start.length.total_steps,
                         start.length.steps_per_epoch, start.length.samples,
                         human_flops(flops_of_a_step(start)).c_str()));
  std::size_t shown = 0, more = 0;
  for (const ExternalKey& key : *start.external_keys) {
    if (key.outcome == ExternalKey::Outcome::option) continue;
    const bool typed = key.key.starts_with("--");  // an option of another tool, not a key of its file
    if (typed || !key.overridden.empty() || (key.outcome != ExternalKey::Outcome::harmless && shown < 8))
      lines.push_back("config    " + key.where + " " + key.key + ": " + key.str()), ++shown;
    else ++more;
  }
  if (more > 0)
    lines.push_back(strfmt("config    %zu more keys of other tools; tessera config explain FILE lists them", more));
  if (!start.preferences.empty()) lines.push_back("loss      " + start.preferences);
  if (!start.stage.empty()) lines.push_back("stage     " + start.stage);
  lines.push_back("output    " + start.output);
  lines.push_back(strfmt("ready     %.2f s after the start", start.ready_seconds));
  return lines;
}

void Interval::add(const train::StepReport& report) {
  ++steps;
  tokens += report.tokens;
  processed += report.processed;
  flops += report.flops;
  seconds += report.seconds;
  data_seconds += report.data_seconds;
  if (!report.times_waits) return;
  ++comm_steps;
  comm_seconds += report.comm_seconds;
  comm_of += report.seconds;
}

std::string step_bound(const StepShares& shares) {
  const double rest = shares.seconds - shares.exposed - shares.updates;
  if (shares.exposed >= std::max(shares.updates, rest)) return "most waits for states to move";
  return shares.updates >= rest ? "most is updates, which the host's memory bounds" : "most is computation";
}

namespace {

std::string bytes_in_a_word(std::uint64_t bytes) {
  std::string text = human_bytes(bytes);
  std::erase(text, ' ');
  return text;
}

/// "1.23GiB/40%" of what a rank may use; with a GPU "50.9GiB/36% host 450.0MiB", of the card.
std::string memory_word(const StepLine& line) {
  const auto share = [](std::uint64_t part, std::uint64_t all) {
    return strfmt("/%.0f%%", all > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(all) : 0.0);
  };
  const std::string host = bytes_in_a_word(line.memory);
  if (line.gpu.card == 0) return host + share(line.memory, line.memory_limit);
  return bytes_in_a_word(line.gpu.process) + share(line.gpu.process, line.gpu.card) + " host " + host;
}

}  // namespace

std::string token_rates(const StepLine& line) {
  const double seconds = std::max(line.interval.seconds, 1e-12);
  const auto rate = [&](std::int64_t tokens) { return human_count(static_cast<double>(tokens) / seconds); };
  if (line.figures != Figures::tokens)
    return rate(line.interval.processed) +
           strfmt(", %.3g %s/s", static_cast<double>(line.interval.tokens) / seconds, unit_of(line.figures));
  return line.masked ? rate(line.interval.processed) + ", " + rate(line.interval.tokens) + " with loss"
                     : rate(line.interval.tokens);
}

std::vector<std::string> memory_lines(const MemoryUse& use) {
  const std::string host =
      strfmt("PSS %s on the largest rank, %s over all ranks | arena %s | other %s (PSS - arena - PSS at the start)",
             human_bytes(use.pss.largest).c_str(), human_bytes(use.pss.all).c_str(), human_bytes(use.arena).c_str(),
             human_bytes(use.other).c_str());
  if (use.card == 0) return {"memory    " + host};
  return {
      strfmt("memory    GPU %s of %s on the largest rank, %s over all ranks | arena %s | other %s (context, libraries)",
             human_bytes(use.gpu.largest).c_str(), human_bytes(use.card).c_str(), human_bytes(use.gpu.all).c_str(),
             human_bytes(use.gpu_arena).c_str(), human_bytes(use.gpu_other).c_str()),
      "          host: " + host};
}

const char* unit_of(Figures figures) {
  return figures == Figures::tokens ? "tokens" : figures == Figures::answers ? "answers" : "pairs";
}

std::vector<std::pair<std::string, double>> preference_figures(const infer::PreferenceReport& report, Figures of) {
  if (of == Figures::rewards)
    return {{"accuracy", report.accuracy},
            {"margin", report.margin},
            {"min_reward", report.least_reward},
            {"mean_reward", report.mean_reward},
            {"max_reward", report.most_reward}};
  if (of == Figures::answers) {
    std::vector<std::pair<std::string, double>> figures = {
        {"rewards/chosen", report.chosen_reward}, {"rewards/rejected", report.rejected_reward},
        {"rewards/margins", report.margin},       {"logps/chosen", report.chosen_logp},
        {"logps/rejected", report.rejected_logp}, {"kl", report.kl}};
    std::erase_if(figures, [](const auto& figure) { return std::isnan(figure.second); });
    return figures;
  }
  return {{"rewards/chosen", report.chosen_reward},
          {"rewards/rejected", report.rejected_reward},
          {"rewards/accuracies", report.accuracy},
          {"rewards/margins", report.margin},
          {"logps/chosen", report.chosen_logp},
          {"logps/rejected", report.rejected_logp},
          {"nll_loss", report.nll}};
}

std::vector<std::pair<std::string, double>> step_figures(const train::StepReport& report, Figures of) {
  if (of != Figures::tokens) return preference_figures(report.preference, of);
  return {{"token_acc", report.token_accuracy}};
}

namespace {
std::string preference_words(const infer::PreferenceReport& report, Figures of) {
  std::string text;
  for (const auto& [name, value] : preference_figures(report, of))
    text += strfmt(name.starts_with("logps") ? " | %s %.2f" : " | %s %.4f", name.c_str(), value);
  return text;
}
}  // namespace

std::string step_line(const StepLine& line) {
  const double seconds = std::max(line.interval.seconds, 1e-12);
  return strfmt(
      "step %ld/%ld | loss %.4f%s%s%s | grad_norm %.3f | lr %.2e | tok/s %s%s | mem %s | data %.1f%% comm "
      "%.1f%% | %s<%s",
      line.report.step, line.total_steps, line.report.loss,
      line.figures != Figures::tokens ? preference_words(line.report.preference, line.figures).c_str() : "",
      line.experts ? strfmt(" | aux_loss %.4f", line.report.aux_loss).c_str() : "",
      line.scaled
          ? strfmt(" | scale %g%s", line.report.loss_scale, line.report.skipped ? " overflow: step skipped" : "")
                .c_str()
          : "",
      line.report.grad_norm, line.report.learning_rate, token_rates(line).c_str(),
      line.mfu ? strfmt(" | mfu %.1f%%", 100 * *line.mfu).c_str() : "", memory_word(line).c_str(),
      100 * line.interval.data_seconds / seconds,
      100 * line.interval.comm_seconds / std::max(line.interval.comm_of, 1e-12), human_time(line.elapsed).c_str(),
      human_time(line.remaining).c_str());
}

std::string eval_line(std::int64_t step, std::int64_t total, const infer::EvalReport& report, const std::string& set,
                      Figures figures) {
  if (figures != Figures::tokens)
    return strfmt("eval %ld/%ld%s | loss %.4f%s | %ld %s in %.1f s", step, total,
                  set.empty() ? "" : (" | " + set).c_str(), report.loss,
                  preference_words(report.preference(), figures).c_str(), report.tokens, unit_of(figures),
                  report.seconds);
  return strfmt("eval %ld/%ld%s | loss %.4f | ppl %.2f | token_acc %.3f | tok/s %s", step, total,
                set.empty() ? "" : (" | " + set).c_str(), report.loss, std::exp(report.loss), report.token_accuracy,
                human_count(static_cast<double>(report.tokens) / std::max(report.seconds, 1e-12)).c_str());
}

std::string printable(const std::vector<std::int32_t>& ids) {
  std::string bytes;
  for (const std::int32_t id : ids) bytes += id >= 0 && id < 256 ? static_cast<char>(id) : '?';
  return printable_text(bytes);
}

std::string printable_text(const std::string& bytes) {
  std::string out;
  for (std::string_view rest = bytes; !rest.empty();) {
    const io::utf8::Step step = io::utf8::step(rest);
    const auto length = static_cast<std::size_t>(step.valid ? step.length : 1);
    const auto first = static_cast<unsigned char>(rest[0]);
    const bool control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
    if (!step.valid || control) out += '?';
    else out += rest.substr(0, length);
    rest.remove_prefix(length);
  }
  return out;
}

}  // namespace tessera::jobs
