#include "jobs/run/device_choices.hpp"

#include <filesystem>

#include "io/json_file.hpp"
#include "kernels/attention.hpp"

namespace tessera::jobs {

namespace {

constexpr std::size_t most_bytes = 16u << 20;  // a line for each product: thousands of them

bool wants_library(const Options& options) { return options.text("attention") == "cudnn"; }

/// Has the trainer choose, and says how.
std::string choose_products(const RehearsedRun& run) {
  World& world = *run.world;
  const std::string file = run.options->text("gemm_choice_file");
  train::ProductChoiceArgs args{.rehearsal = run.step, .kept = {}, .from = file};
  world.together([&] {
    if (world.rank() == 0 && !file.empty() && std::filesystem::exists(file)) args.kept = io::read_text(file, most_bytes);
  });
  args.kept = world.from_root(args.kept);
  const train::ProductChoices choices = run.trainer->choose_products(args);
  if (file.empty()) return strfmt("the fastest algorithm for each, for this run alone: %zu measured now", choices.timed);
  world.together([&] {
    if (world.rank() == 0 && choices.timed > 0) io::write_text(file, choices.text);
  });
  return strfmt("the fastest algorithm for each: %zu kept in %s, %zu measured now and added", choices.kept, file.c_str(), choices.timed);
}

}  // namespace

void choose_attention(const Options& options, Device device) {
  if (wants_library(options) && device == host_device)
    throw options.refuse("attention", "cuDNN computes on GPUs, and this is a run on the CPU", "Drop it, or use --backend cuda");
  kernels::set_device_attention(wants_library(options) ? kernels::DeviceAttention::cudnn : kernels::DeviceAttention::own);
}

void check_device_choices(const Options& options, World& world) {
  if (options.text("gemm_choice") == "measured" && world.device() == host_device)
    throw options.refuse("gemm_choice", "products are measured on GPUs, and this run computes on the CPU", "Drop it, or use --backend cuda");
  choose_attention(options, world.device());
  if (wants_library(options)) world.together([&] { kernels::require_library_attention(world.device()); });
}

std::string rehearse_choices(const RehearsedRun& run) {
  if (run.world->device() == host_device) return {};
  const bool measured = run.options->text("gemm_choice") == "measured", cudnn = wants_library(*run.options);
  const std::int64_t calls = kernels::library_attention_calls();
  std::string products = "the library's first algorithm for each";
  if (measured) products = choose_products(run);
  else if (cudnn) run.trainer->rehearse(run.step);
  const bool halves = run.trainer->plan().spec.model->dtype != DType::f32;  // bench step has a side that is not
  const bool is_taken = cudnn && halves && run.world->max(kernels::library_attention_calls() - calls) > 0;  // a rank without rows calls nothing
  if (cudnn && halves && !is_taken)
    throw run.options->refuse("attention", "cuDNN takes none of this model's attention: heads are not of 64 or 128, or sequences too long for its scratch", "Use --attention own");
  return std::string("attention by ") + (cudnn && halves ? "cuDNN" : "our own kernels") + " | products by " + products;
}

}  // namespace tessera::jobs
