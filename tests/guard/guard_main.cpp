// SPDX-License-Identifier: Apache-2.0
// Fingerprints of 200 short runs: what they compute, save, plan and schedule. A change that moves code and alters
// nothing prints the same lines before and after (tests/guard/guard).
//   guard_runs [FIRST LAST]        runs FIRST to LAST-1
// A line: number, configuration, hashes of losses and norms, of weights, of gradients, of generated tokens and the
// evaluation, of the checkpoint's files, of the plan (slots, bytes, traffic, FLOPs), of the schedules' text; or what
// refused the configuration.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "io/checkpoint/checkpoint.hpp"
#include "io/data/packing.hpp"
#include "models/lora.hpp"
#include "models/quantize.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

/// FNV-1a, 64 bits.
class Hash {
 public:
  Hash& bytes(const void* data, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i)
      value_ = (value_ ^ static_cast<const unsigned char*>(data)[i]) * std::uint64_t{1099511628211};
    return *this;
  }
  Hash& text(const std::string& s) { return bytes(s.data(), s.size() + 1); }
  template <class T>
  Hash& all(const std::vector<T>& values) {
    return bytes(values.data(), values.size() * sizeof(T));
  }
  [[nodiscard]] std::string str() const { return strfmt("%016llx", static_cast<unsigned long long>(value_)); }

 private:
  std::uint64_t value_ = std::uint64_t{14695981039346656037U};
};

/// A configuration, and what it is called.
struct Configuration {
  std::string name;
  models::Model model;
  std::shared_ptr<const io::TokenStream> tokens;
  Variant variant;
};

constexpr const char* family_names[] = {"gpt2",         "qwen3",     "experts",    "gpt2-lora",   "qwen3-lora",
                                        "experts-lora", "qwen3-nf4", "qwen3-int8", "gpt2-frozen", "qwen3-frozen"};

models::Model model_of(const std::string& name, DType dtype) {
  const std::string family = name.substr(0, name.find('-')),
                    tuning = name.substr(std::min(name.size(), family.size() + 1));
  models::Model model = models::make(family == "gpt2"    ? config_json({.layers = 3})
                                     : family == "qwen3" ? std::string(qwen3_config)
                                                         : std::string(experts_config),
                                     "guard", dtype);
  if (tuning == "frozen") freeze(model, frozen_sets[2].frozen);
  if (tuning == "lora" || tuning == "nf4" || tuning == "int8")
    models::add_lora(model, {.rank = 3, .alpha = 6, .dropout = tuning == "lora" ? 0.25 : 0.0});
  if (tuning == "nf4") models::quantize(model, QuantFormat::nf4);
  if (tuning == "int8") models::quantize(model, QuantFormat::int8);
  return model;
}

std::shared_ptr<const io::TokenStream> tokens_of(bool packed, std::int64_t tokens) {
  const auto random = std::make_shared<RandomTokens>(900, 37);
  if (!packed) return random;
  std::vector<std::int64_t> ends;
  for (std::int64_t at = 0, i = 0; at < 900; ++i) ends.push_back(at = std::min<std::int64_t>(900, at + 1 + i * i % 23));
  return std::make_shared<io::PackedStream>(random, io::Documents{0, ends}, tokens, io::Packing::binpack);
}

/// Configuration `i`: every option takes its values in turn, each at its own pace, so that all pairs of neighbours
/// occur.
Configuration configuration(int i) {
  const std::string family = family_names[i % 10];
  const DType dtypes[] = {DType::f32, DType::bf16, DType::f32, DType::f16};
  const DType dtype = dtypes[i / 3 % 4];
  const char* const strategies[] = {"0", "1", "2", "3", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "3"};
  Variant v{.world = 1 + i / 2 % 4, .strategy = strategies[i / 5 % 7]};
  const bool hybrid = v.strategy[0] == 'H';
  if (hybrid) v.world = 4, v.group = 2;
  v.global_batch = i % 3 == 0 ? 7 : i % 3 == 1 ? 12 : v.world;
  v.micro_batch = 1 + i / 7 % 2;
  v.tokens = i / 11 % 2 == 0 ? 9 : 13;
  v.dtype = dtype;
  if (dtype == DType::bf16 && i % 2 == 0) v.reduce_dtype = DType::bf16;
  v.reduce = i / 4 % 3 == 0 ? shard::Reduce::each : i / 4 % 3 == 1 ? shard::Reduce::last : shard::Reduce::shard_each;
  v.prefetch = i / 6 % 3;
  switch (i / 8 % 4) {
    case 1: v.recompute = true; break;
    case 2: v.selective = true; break;
    case 3: v.keep_all = true; break;
    default: break;
  }
  switch (i / 9 % 6) {
    case 1: v.placement = {shard::Tier::device, shard::Tier::host, shard::Tier::host}; break;
    case 2: v.placement = {shard::Tier::host, shard::Tier::host, shard::Tier::host}; break;
    case 3: v.offload_activations = true; break;
    default: break;
  }
  v.reproducible = i / 13 % 5 == 1 && v.world != 3;
  if (v.reproducible) v.reduce = shard::Reduce::each;
  v.copies = i / 5 % 2 == 1;
  v.ranks_per_node = v.world == 4 && i % 4 == 1 ? 2 : 0;
  v.updates_before_norm = i % 17 == 5;
  if (v.updates_before_norm) v.max_grad_norm = 0;
  if (i % 19 == 7) v.unit_strategies = {{"*", "NO_SHARD"}};
  if (i % 23 == 11) v.wrap.blocks_per_unit = 2;
  if (i % 29 == 3 && dtype != DType::f16) v.compression.gradients = v.compression.everywhere = true;
  if (i % 31 == 9) v.optimizer.kind = train::OptimizerKind::adamw_8bit;
  if (i % 37 == 13) v.optimizer.kind = train::OptimizerKind::sgd, v.optimizer.momentum = 0.9;
  const bool packed = i / 10 % 4 == 1 || i / 10 % 4 == 2;
  v.padding_free = packed && i / 10 % 4 == 2;
  if (i % 41 == 2) v.experts = shard::ExpertUnits::block;
  const std::string name = strfmt("%s%s%s B%lld ", family.c_str(), packed ? " packed" : "",
                                  v.padding_free ? " padding-free" : "", static_cast<long long>(v.micro_batch));
  return {name + v.str(), model_of(family, dtype), tokens_of(packed, v.tokens), v};
}

std::string hash_of_files(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);
  Hash hash;
  for (const auto& file : files) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    hash.text(file.lexically_relative(directory).string()).text(text.str());
  }
  return hash.str();
}

std::string hash_of_plan(const plan::RunPlan& plan) {
  Hash hash;
  for (const ArenaSlot& s : plan.slots)
    hash.text(strfmt("%s %d %d %zu %d %d %d %d", s.name.c_str(), static_cast<int>(s.category),
                     static_cast<int>(s.placement), s.bytes, static_cast<int>(s.memory), s.sharers, s.index, s.group));
  const plan::Costs& c = plan.costs;
  for (const std::size_t bytes : c.memory) hash.text(std::to_string(bytes));
  for (const std::size_t bytes : c.in) hash.text(std::to_string(bytes));
  hash.text(strfmt("%zu %llu %llu %llu %.17g %.17g", c.total, static_cast<unsigned long long>(c.moved.fetched),
                   static_cast<unsigned long long>(c.moved.stored), static_cast<unsigned long long>(c.moved.updated),
                   c.flops_per_step, c.recompute_flops_per_step));
  return hash.str();
}

/// Saves what the trainer has, and removes it again.
std::string hash_of_checkpoint(train::Trainer& trainer, const models::Model& model, const std::string& directory) {
  io::SaveRequest request;
  request.directory = directory;
  request.step = 3;
  request.params = model.params;
  request.layout = &trainer.plan().layout;
  request.state = trainer.state();
  io::CheckpointSave(trainer.world(), request).commit();
  std::string hash;
  if (trainer.world().rank() == 0) hash = hash_of_files(directory), std::filesystem::remove_all(directory);
  return hash;
}

std::string line_of(const Configuration& c, const std::string& directory) {
  constexpr int steps = 3;
  std::string checkpoint, plan, schedules;
  std::vector<int> done(static_cast<std::size_t>(c.variant.world));
  const auto at_the_end = [&](train::Trainer& trainer) {
    if (++done[static_cast<std::size_t>(trainer.world().rank())] < steps) return;
    const std::string hash = hash_of_checkpoint(trainer, c.model, directory);
    if (trainer.world().rank() != 0) return;
    checkpoint = hash, plan = hash_of_plan(trainer.plan());
    Hash text;
    for (const shard::Schedule* schedule : trainer.plan().schedules()) text.text(shard::text(*schedule));
    schedules = text.str();
  };
  try {
    const Outcome o =
        run({&c.model, c.tokens.get(), steps, "", /*evaluate=*/c.tokens->packed() == nullptr, at_the_end}, c.variant);
    return "curve " + Hash().all(o.losses).all(o.norms).all(o.tokens).str() + " weights " + Hash().all(o.params).str() +
           " gradients " + Hash().all(o.grads).str() + " inference " +
           Hash().all(o.generated).bytes(&o.eval_loss, sizeof o.eval_loss).str() + " checkpoint " + checkpoint +
           " plan " + plan + " schedules " + schedules;
  } catch (const Error& error) { return "refused: " + error.line(); }
}

}  // namespace
}  // namespace tessera::test

int main(int argc, char** argv) {
  using namespace tessera::test;
  const int first = argc > 2 ? std::atoi(argv[1]) : 0, last = argc > 2 ? std::atoi(argv[2]) : 200;
  const std::string directory =
      (std::filesystem::temp_directory_path() / tessera::strfmt("guard-%d", static_cast<int>(::getpid()))).string();
  for (int i = first; i < last; ++i) {
    std::string line;
    try {
      const Configuration c = configuration(i);
      line = c.name + ": " + line_of(c, directory);
    } catch (const tessera::Error& error) { line = "refused: " + error.line(); }
    std::printf("%3d %s\n", i, line.c_str());
    std::fflush(stdout);
  }
}
