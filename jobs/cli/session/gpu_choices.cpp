// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/gpu_choices.hpp"

#include <chrono>
#include <filesystem>
#include <limits>

#include "io/file/text_file.hpp"
#include "jobs/cli/options/model_cache.hpp"
#include "jobs/cli/session/precision.hpp"
#include "kernels/attention.hpp"
#include "kernels/gemm_choice.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

constexpr std::size_t max_file_bytes = 16u << 20;  // one line for each GEMM, of which there are thousands

using kernels::DeviceAttention;

/// `auto`: cuDNN where every rank finds it and it takes the model's attention. With --reproducible the libraries that a
/// machine has decide nothing.
bool takes_library_if_found(const Options& options) {
  return options.text("attention") == "auto" && !options.flag("reproducible") &&
         precision_of(options).compute != DType::f32;
}
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

/// Why cuDNN has not computed the attention of the warm-up steps since its call number `calls` on all ranks; "" if it
/// has.
std::string refused_attention(const WarmUpRun& run, std::int64_t calls) {
  const std::string refusal = kernels::cudnn_attention_refusal();
  const bool is_taken = run.world->max(kernels::cudnn_attention_calls() - calls) > 0;  // a rank may have no samples
  const bool is_refused = run.world->max(refusal.empty() ? 0 : 1) > 0;
  if (is_refused) return refusal.empty() ? "cuDNN refused it on another rank" : refusal;
  return is_taken ? "" : "cuDNN cannot compute this model's attention";
}

/// Chooses between both kinds of kernel, and returns which and why: cuDNN if it takes the attention and, with
/// --attention measured, a step is faster with it.
std::string choose_attention_of(const WarmUpRun& run) {
  if (kernels::device_attention() == DeviceAttention::own) {  // since check_gpu_choices
    const std::string reason = library_missing(*run.world);
    return "Tessera's kernels (" + (reason.empty() ? "other ranks have no cuDNN" : reason) + ")";
  }
  const std::int64_t calls = kernels::cudnn_attention_calls();
  if (!times_attention(*run.options)) {
    kernels::set_device_attention(DeviceAttention::cudnn_or_own);
    run.trainer->warm_up(run.step);
    const std::string refusal = refused_attention(run, calls);
    if (!refusal.empty()) kernels::set_device_attention(DeviceAttention::own);
    return refusal.empty() ? "cuDNN" : "Tessera's kernels (" + refusal + ")";
  }
  const double theirs = warm_up_seconds(run, DeviceAttention::cudnn_or_own);
  const std::string refusal = refused_attention(run, calls);
  const double own = warm_up_seconds(run, DeviceAttention::own);
  if (!refusal.empty()) return "Tessera's kernels (" + refusal + ")";
  if (theirs < own) kernels::set_device_attention(DeviceAttention::cudnn_or_own);
  return strfmt("%s (a warm-up step takes %.2f ms with Tessera's kernels, %.2f ms with cuDNN's)",
                theirs < own ? "cuDNN" : "Tessera's kernels", 1e3 * own, 1e3 * theirs);
}

/// The lines of the text of choices that name the library and the kind of GPU.
std::string library_and_gpu() {
  const std::string text = kernels::gemm_choices();
  return text.substr(0, text.find('\n', text.find('\n') + 1));
}

/// The file in which `auto` keeps the algorithms of one library on one kind of GPU; "" without a home directory.
std::string kept_gemms() {
  const std::string directory = user_cache_directory();
  if (directory.empty()) return {};
  return strfmt("%s/tessera/gemms-%016llx.txt", directory.c_str(),
                static_cast<unsigned long long>(hash64(library_and_gpu())));
}

/// Rank 0's text of `file`; "" if there is none. Where refused choices are forgotten, also if it is damaged.
std::string choices_in(const std::string& file, kernels::RefusedChoice refused, World& world) {
  const bool replaces = refused == kernels::RefusedChoice::forgotten;
  std::string text;
  world.run_and_agree([&] {
    if (world.rank() != 0 || file.empty() || !std::filesystem::exists(file)) return;
    try {
      text = io::read_text(file, max_file_bytes);
      if (replaces) (void)kernels::apply_gemm_choices(text, file, refused);
    } catch (const Error&) {
      if (!replaces) throw;
      text.clear();
    }
  });
  return world.broadcast(text);
}

/// Lets the trainer choose the algorithms; returns how.
std::string choose_gemms(const WarmUpRun& run) {
  World& world = *run.world;
  const bool is_auto = run.options->text("gemm_choice") == "auto";
  std::string file = world.broadcast(is_auto ? kept_gemms() : run.options->text("gemm_choice_file"));
  if (is_auto && world.max(library_and_gpu() != world.broadcast(library_and_gpu()) ? 1 : 0) > 0) {
    run.trainer->warm_up(run.step);
    return "the library's first algorithm of each (the ranks' GPUs or libraries differ)";
  }
  const auto refused = is_auto ? kernels::RefusedChoice::forgotten : kernels::RefusedChoice::error;
  const train::GemmChoices choices = run.trainer->choose_gemms(
      {.warmup = run.step, .kept = choices_in(file, refused, world), .from = file, .refused = refused});
  world.run_and_agree([&] {
    if (world.rank() != 0 || choices.timed == 0 || file.empty()) return;
    try {
      if (is_auto) std::filesystem::create_directories(std::filesystem::path(file).parent_path());
      io::write_text(file, choices.text);
    } catch (const std::exception&) {
      if (!is_auto) throw;
      file.clear();
    }
  });
  file = world.broadcast(file);
  if (file.empty()) return strfmt("the fastest algorithm of each: %zu measured, for this run alone", choices.timed);
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
  const bool may_be_library =
      wants_library(options) || times_attention(options) || (takes_library_if_found(options) && device != host_device);
  kernels::set_device_attention(may_be_library ? DeviceAttention::cudnn : DeviceAttention::own);
}

void check_gpu_choices(const Options& options, World& world) {
  if (options.text("gemm_choice") == "measured") require_gpu(options, "gemm_choice", world.device());
  choose_attention(options, world.device());
  if (wants_library(options)) world.run_and_agree([&] { kernels::require_cudnn_attention(world.device()); });
  if (!wants_library(options) && kernels::device_attention() != DeviceAttention::own &&
      world.max(library_missing(world).empty() ? 0 : 1) > 0)
    kernels::set_device_attention(DeviceAttention::own);
}

std::string choose_gpu_kernels(const WarmUpRun& run) {
  if (run.world->device() == host_device) return {};
  const bool is_16_bit = run.trainer->plan().spec.model->dtype != DType::f32;  // bench step measures fp32 too
  const bool cudnn = wants_library(*run.options) && is_16_bit;
  std::string attention = cudnn ? "cuDNN" : "Tessera's kernels", gemms = "the library's first algorithm of each";
  if (times_attention(*run.options) || (takes_library_if_found(*run.options) && is_16_bit))
    attention = choose_attention_of(run);
  const std::int64_t calls = kernels::cudnn_attention_calls();
  const std::string choice = run.options->text("gemm_choice");
  if (choice == "measured" || (choice == "auto" && !run.options->flag("reproducible"))) gemms = choose_gemms(run);
  else run.trainer->warm_up(run.step);  // kernels are loaded at their first call: not in the first step, which is timed
  if (cudnn &&
      run.world->max(kernels::cudnn_attention_calls() - calls) == 0)  // on all ranks: one without samples makes no call
    throw run.options->refuse(
        "attention",
        "cuDNN cannot compute this model's attention: its head size is not 64 or 128, or sequences are too long",
        "Use --attention own");
  return "attention by " + attention + " | GEMMs by " + gemms;
}

void warn_of_refused_attention() {
  if (kernels::device_attention() != DeviceAttention::cudnn_or_own) return;
  if (const std::string refusal = kernels::cudnn_attention_refusal(); !refusal.empty())
    log::warn_here(57,
                   "cuDNN refused attention of a shape that the warm-up step did not have, Tessera's kernels compute "
                   "it: " +
                       refusal);
}

}  // namespace tessera::jobs
