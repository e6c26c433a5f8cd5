#include "jobs/run/products.hpp"

#include <filesystem>

#include "io/json_file.hpp"

namespace tessera::jobs {

namespace {

constexpr std::size_t most_bytes = 16u << 20;  // a line for each product: thousands of them

}  // namespace

void check_products(const Options& options, const World& world) {
  if (options.text("gemm_choice") == "measured" && world.device() == host_device)
    throw options.refuse("gemm_choice", "products are measured on GPUs, and this run computes on the CPU", "Drop it, or use --backend cuda");
}

std::string choose_products(const ProductsOfRun& run) {
  World& world = *run.world;
  if (world.device() == host_device) return {};
  if (run.options->text("gemm_choice") != "measured") return "the library's first algorithm for each";
  const std::string file = run.options->text("gemm_choice_file");
  train::ProductChoiceArgs args{.tokens = run.tokens, .sampler = run.sampler, .count = run.count, .kept = {}, .from = file};
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

}  // namespace tessera::jobs
