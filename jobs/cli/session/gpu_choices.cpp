#include "jobs/cli/session/gpu_choices.hpp"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>

#include "io/file/text_file.hpp"
#include "kernels/attention.hpp"

namespace tessera::jobs {

namespace {

constexpr std::size_t most_bytes = 16u << 20;  // a line for each product: thousands of them

using kernels::DeviceAttention;

bool wants_library(const Options& options) { return options.text("attention") == "cudnn"; }
bool times_attention(const Options& options) { return options.text("attention") == "measured"; }

/// Why cuDNN cannot compute on this rank's device; "": it can.
std::string library_missing(const World& world) {
  try {
    kernels::require_cudnn_attention(world.device());
  } catch (const Error& error) { return error.what(); }
  return {};
}

/// Seconds of a rehearsed step on the slowest rank, the better of two; the first makes the kernels.
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

/// Has attention computed by whose kernels make the faster step, and says why.
std::string measure_attention(const WarmUpRun& run) {
  if (kernels::device_attention() == DeviceAttention::own) {  // since check_gpu_choices
    const std::string reason = library_missing(*run.world);
    return "our own kernels (" + (reason.empty() ? "other ranks have no cuDNN" : reason) + ")";
  }
  const std::int64_t calls = kernels::cudnn_attention_calls();
  const double theirs = warm_up_seconds(run, DeviceAttention::cudnn_or_own);
  const std::string refusal = kernels::cudnn_attention_refusal();
  const bool is_taken = run.world->max(kernels::cudnn_attention_calls() - calls) > 0;
  const bool is_refused = run.world->max(refusal.empty() ? 0 : 1) > 0;
  const double own = warm_up_seconds(run, DeviceAttention::own);
  if (is_refused) return "our own kernels (" + (refusal.empty() ? "cuDNN refused on another rank" : refusal) + ")";
  if (!is_taken) return "our own kernels (cuDNN takes none of this model's attention)";
  if (theirs < own) kernels::set_device_attention(DeviceAttention::cudnn);
  return strfmt("%s (a rehearsed step takes %.2f ms by ours, %.2f ms by cuDNN's)",
                theirs < own ? "cuDNN" : "our own kernels", 1e3 * own, 1e3 * theirs);
}

/// Has the trainer choose, and says how.
std::string choose_gemms(const WarmUpRun& run) {
  World& world = *run.world;
  const std::string file = run.options->text("gemm_choice_file");
  train::GemmChoiceArgs args{.warmup = run.step, .kept = {}, .from = file};
  world.run_and_agree([&] {
    if (world.rank() == 0 && !file.empty() && std::filesystem::exists(file))
      args.kept = io::read_text(file, most_bytes);
  });
  args.kept = world.broadcast(args.kept);
  const train::GemmChoices choices = run.trainer->choose_gemms(args);
  if (file.empty())
    return strfmt("the fastest algorithm for each, for this run alone: %zu measured now", choices.timed);
  world.run_and_agree([&] {
    if (world.rank() == 0 && choices.timed > 0) io::write_text(file, choices.text);
  });
  return strfmt("the fastest algorithm for each: %zu kept in %s, %zu measured now and added", choices.kept,
                file.c_str(), choices.timed);
}

}  // namespace

void choose_attention(const Options& options, Device device) {
  if (wants_library(options) && device == host_device)
    throw options.refuse("attention", "cuDNN computes on GPUs, and this is a run on the CPU",
                         "Drop it, or use --backend cuda");
  if (times_attention(options) && device == host_device)
    throw options.refuse("attention", "attention is measured on GPUs, and this is a run on the CPU",
                         "Drop it, or use --backend cuda");
  const bool may_be_library = wants_library(options) || times_attention(options);
  kernels::set_device_attention(may_be_library ? DeviceAttention::cudnn : DeviceAttention::own);
}

void check_gpu_choices(const Options& options, World& world) {
  if (options.text("gemm_choice") == "measured" && world.device() == host_device)
    throw options.refuse("gemm_choice", "products are measured on GPUs, and this run computes on the CPU",
                         "Drop it, or use --backend cuda");
  choose_attention(options, world.device());
  if (wants_library(options)) world.run_and_agree([&] { kernels::require_cudnn_attention(world.device()); });
  if (times_attention(options) && world.max(library_missing(world).empty() ? 0 : 1) > 0)
    kernels::set_device_attention(DeviceAttention::own);
}

std::string choose_gpu_kernels(const WarmUpRun& run) {
  if (run.world->device() == host_device) return {};
  const bool halves = run.trainer->plan().spec.model->dtype != DType::f32;  // bench step has a side that is not
  const bool cudnn = wants_library(*run.options) && halves;
  std::string attention = cudnn ? "cuDNN" : "our own kernels", products = "the library's first algorithm for each";
  if (times_attention(*run.options)) attention = measure_attention(run);
  const std::int64_t calls = kernels::cudnn_attention_calls();
  if (run.options->text("gemm_choice") == "measured") products = choose_gemms(run);
  else if (cudnn) run.trainer->warm_up(run.step);
  if (cudnn &&
      run.world->max(kernels::cudnn_attention_calls() - calls) == 0)  // of all: a rank without rows calls nothing
    throw run.options->refuse(
        "attention",
        "cuDNN takes none of this model's attention: heads are not of 64 or 128, or sequences too long for its scratch",
        "Use --attention own");
  return "attention by " + attention + " | products by " + products;
}

}  // namespace tessera::jobs
