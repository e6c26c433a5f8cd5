// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/gpu_choices.hpp"

#include <chrono>
#include <filesystem>
#include <limits>

#include "io/file/text_file.hpp"
#include "kernels/attention.hpp"

namespace tessera::jobs {

namespace {

constexpr std::size_t max_file_bytes = 16u << 20;  // one line for each GEMM, of which there are thousands

using kernels::DeviceAttention;

bool wants_library(const Options& options) { return options.text("attention") == "cudnn"; }
bool times_attention(const Options& options) { return options.text("attention") == "measured"; }

/// Why cuDNN cannot compute on this rank's GPU; "" if it can.
std::string library_missing(const World& world) {
  try {
    kernels::require_cudnn_attention(world.device());
  } catch (const Error& error) { return error.what(); }
  return {};
}

/// Seconds of a warm-up step on the slowest rank: the faster of two, after one that builds the kernels.
double warm_up_seconds(const WarmUpRun& run, DeviceAttention who) {
  kernels::set_device_attention(who);
  run.trainer->warm_up(run.step);
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < 2; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run.trainer->warm_up(run.step);
    const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - begin;
    best = std::min(best, run.world->max(taken.count()));
  }
  return 1e-9 * static_cast<double>(best);
}

/// Times a step with either kind of kernel and uses the faster one; returns which and why.
std::string measure_attention(const WarmUpRun& run) {
  if (kernels::device_attention() == DeviceAttention::own) {  // since check_gpu_choices
    const std::string reason = library_missing(*run.world);
    return "Tessera's kernels (" + (reason.empty() ? "other ranks have no cuDNN" : reason) + ")";
  }
  const std::int64_t calls = kernels::cudnn_attention_calls();
  const double theirs = warm_up_seconds(run, DeviceAttention::cudnn_or_own);
  const std::string refusal = kernels::cudnn_attention_refusal();
  const bool is_taken = run.world->max(kernels::cudnn_attention_calls() - calls) > 0;
  const bool is_refused = run.world->max(refusal.empty() ? 0 : 1) > 0;
  const double own = warm_up_seconds(run, DeviceAttention::own);
  if (is_refused) return "Tessera's kernels (" + (refusal.empty() ? "cuDNN refused it on another rank" : refusal) + ")";
  if (!is_taken) return "Tessera's kernels (cuDNN cannot compute this model's attention)";
  if (theirs < own) kernels::set_device_attention(DeviceAttention::cudnn);
  return strfmt("%s (a warm-up step takes %.2f ms with Tessera's kernels, %.2f ms with cuDNN's)",
                theirs < own ? "cuDNN" : "Tessera's kernels", 1e3 * own, 1e3 * theirs);
}

/// Lets the trainer choose the algorithms; returns how.
std::string choose_gemms(const WarmUpRun& run) {
  World& world = *run.world;
  const std::string file = run.options->text("gemm_choice_file");
  train::GemmChoiceArgs args{.warmup = run.step, .kept = {}, .from = file};
  world.run_and_agree([&] {
    if (world.rank() == 0 && !file.empty() && std::filesystem::exists(file))
      args.kept = io::read_text(file, max_file_bytes);
  });
  args.kept = world.broadcast(args.kept);
  const train::GemmChoices choices = run.trainer->choose_gemms(args);
  if (file.empty()) return strfmt("the fastest algorithm of each: %zu measured, for this run alone", choices.timed);
  world.run_and_agree([&] {
    if (world.rank() == 0 && choices.timed > 0) io::write_text(file, choices.text);
  });
  return strfmt("the fastest algorithm of each: %zu read from %s, %zu measured and added to it", choices.kept,
                file.c_str(), choices.timed);
}

/// Throws Error (usage) if the run computes on the CPU.
void require_gpu(const Options& options, const char* name, Device device) {
  if (device == host_device)
    throw options.refuse(
        name, strfmt("--%s %s needs a GPU, and this run computes on the CPU", name, options.text(name).c_str()),
        "Drop it, or use --backend cuda");
}

}  // namespace

void choose_attention(const Options& options, Device device) {
  if (wants_library(options) || times_attention(options)) require_gpu(options, "attention", device);
  const bool may_be_library = wants_library(options) || times_attention(options);
  kernels::set_device_attention(may_be_library ? DeviceAttention::cudnn : DeviceAttention::own);
}

void check_gpu_choices(const Options& options, World& world) {
  if (options.text("gemm_choice") == "measured") require_gpu(options, "gemm_choice", world.device());
  choose_attention(options, world.device());
  if (wants_library(options)) world.run_and_agree([&] { kernels::require_cudnn_attention(world.device()); });
  if (times_attention(options) && world.max(library_missing(world).empty() ? 0 : 1) > 0)
    kernels::set_device_attention(DeviceAttention::own);
}

std::string choose_gpu_kernels(const WarmUpRun& run) {
  if (run.world->device() == host_device) return {};
  const bool is_16_bit = run.trainer->plan().spec.model->dtype != DType::f32;  // bench step measures fp32 too
  const bool cudnn = wants_library(*run.options) && is_16_bit;
  std::string attention = cudnn ? "cuDNN" : "Tessera's kernels", gemms = "the library's first algorithm of each";
  if (times_attention(*run.options)) attention = measure_attention(run);
  const std::int64_t calls = kernels::cudnn_attention_calls();
  if (run.options->text("gemm_choice") == "measured") gemms = choose_gemms(run);
  else if (cudnn) run.trainer->warm_up(run.step);
  if (cudnn &&
      run.world->max(kernels::cudnn_attention_calls() - calls) == 0)  // on all ranks: one without samples makes no call
    throw run.options->refuse(
        "attention",
        "cuDNN cannot compute this model's attention: its head size is not 64 or 128, or sequences are too long",
        "Use --attention own");
  return "attention by " + attention + " | GEMMs by " + gemms;
}

}  // namespace tessera::jobs
