// SPDX-License-Identifier: Apache-2.0
// The pass over all samples that computes a reference model's log-probabilities before training.
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "io/data/packing.hpp"
#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "io/tokenizer/byte_hash.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/progress.hpp"
#include "jobs/cli/session/quantization.hpp"
#include "jobs/cli/session/tokenized_data.hpp"
#include "jobs/cli/session/weights.hpp"
#include "models/preference_loss.hpp"
#include "models/quantize.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/log.hpp"
#include "runtime/infer/inference.hpp"

namespace tessera::jobs {

namespace {

constexpr std::uint64_t reference_form = 1;  // increase when the same key would mean other numbers
constexpr char reference_magic[8] = {'T', 'S', 'R', 'R', 'E', 'F', 'L', '1'};

struct CacheHeader {
  char magic[8] = {};
  std::uint64_t key = 0, count = 0, hash = 0;
};

/// Names, sizes and times of the files in a model's directory.
std::uint64_t files_stamp(const std::string& directory, std::uint64_t key) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") || name.ends_with(".json") || name.ends_with(".h5")) names.push_back(name);
  }
  std::ranges::sort(names);
  for (const std::string& name : names) {
    struct stat status {};
    if (::stat((directory + "/" + name).c_str(), &status) != 0) continue;
    key = hash64(name, key);
    for (const auto number :
         {status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec})
      key = hash64(static_cast<std::uint64_t>(number), key);
  }
  return key;
}

std::uint64_t directory_stamp(const std::string& directory, std::uint64_t key) {
  return files_stamp(directory, hash64(std::filesystem::absolute(directory).lexically_normal().string(), key));
}

/// Of the tokens that the samples are made of, and of which are targets.
std::uint64_t token_hash(const io::PackedStream& samples, std::uint64_t key) {
  key = hash64(samples.hash(), key);
  std::vector<std::int32_t> ids(std::size_t{1} << 16);
  std::vector<std::uint8_t> loss(ids.size());
  for (std::int64_t at = 0; at < samples.size(); at += std::ssize(ids)) {
    const std::int64_t n = std::min<std::int64_t>(std::ssize(ids), samples.size() - at);
    samples.read(at, n, ids.data());
    samples.read_loss(at, n, loss.data());
    key = hash64({reinterpret_cast<const char*>(ids.data()), static_cast<std::size_t>(n) * sizeof(std::int32_t)}, key);
    key = hash64({reinterpret_cast<const char*>(loss.data()), static_cast<std::size_t>(n)}, key);
  }
  return key;
}

std::string read_cache(const std::string& path, std::uint64_t key, std::size_t count) {
  if (!io::exists(path)) return {};
  const io::MappedFile map(path);
  const std::string_view bytes = map.bytes();
  CacheHeader header;
  if (bytes.size() != sizeof header + count * sizeof(double)) return {};
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::string_view sums = bytes.substr(sizeof header);
  const bool good = std::memcmp(header.magic, reference_magic, sizeof reference_magic) == 0 && header.key == key &&
                    header.count == count && header.hash == hash64(sums);
  return good ? std::string(sums) : std::string();
}

void write_cache(const std::string& path, std::uint64_t key, std::string_view sums) {
  CacheHeader header{.key = key, .count = sums.size() / sizeof(double), .hash = hash64(sums)};
  std::memcpy(header.magic, reference_magic, sizeof reference_magic);
  std::string text(reinterpret_cast<const char*>(&header), sizeof header);
  text += sums;
  io::make_directories(io::directory_of(path));
  io::write_text(path, text);
}

ModelConfig config_of_reference(const ReferencePass& of) {
  ModelConfig config = of.config;
  if (of.options.has("ref_model")) {
    config.directory = of.options.text("ref_model");
    config.path = config.directory + "/config.json";
    config.text = io::read_text(config.path);
  }
  return config;
}

/// The reference model alone, without gradients; made when the first samples are not in the cache.
class Pass {
 public:
  Pass(const ReferencePass& of, const RunData& data) : of_(of), data_(data) {}
  [[nodiscard]] std::vector<double> sums(const io::PackedStream& samples) {
    if (!run_) start();
    return run_->sequence_log_probs(samples, evaluation_progress());
  }
  [[nodiscard]] bool ran() const { return run_ != nullptr; }

 private:
  void start() {
    const ModelConfig config = config_of_reference(of_);
    require_weights(of_.world, config.directory);
    model_ = models::make(config.text, config.path, of_.run.model->dtype);
    for (ParamSpec& param : model_.params) param.storage_dtype = model_.dtype;
    if (const QuantFormat format = quantization_of_reference(of_.options, config.text, config.path);
        format != QuantFormat::none)
      models::quantize(model_, format, config.text);
    models::set_loss(model_, models::sequence_log_probs(preference_spec(of_.options).tail_weight));
    plan::RunSpec spec;
    spec.purpose = plan::Purpose::evaluate;
    spec.model = &model_;
    spec.strategy = of_.run.strategy;
    spec.strategy.policy.reduce_dtype = DType::f32;  // nothing is reduced
    spec.strategy.policy.compression = {};
    spec.topology = of_.world.topology();
    const std::int64_t samples = of_.run.batch.micro_batch;
    spec.batch = {.global_batch = samples * of_.world.size(),
                  .micro_batch = samples,
                  .data_ranks = of_.world.size(),
                  .accumulation = 1};
    spec.tokens = of_.run.tokens;
    spec.sequences = needs_kl(of_.options) ? 2 : of_.run.sequences;  // of labelled samples, also those of the KL
    spec.packed = of_.run.packed;
    if (of_.run.flat_tokens > 0) data_.set_flat_tokens(spec);
    spec.loss_weights = of_.run.loss_weights;
    spec.nvme_path = of_.run.nvme_path;
    run_ = std::make_unique<infer::Inference>(of_.world, infer::InferenceOptions{.run = spec});
    const std::vector<io::ShardView> shards = run_->shards();
    read_weights(of_.world, config.directory,
                 {.model = &model_, .layout = &run_->plan().layout, .shards = shards, .threads = 2});
    run_->parameters_loaded();
  }

  const ReferencePass& of_;
  const RunData& data_;
  models::Model model_;
  std::unique_ptr<infer::Inference> run_;
};

}  // namespace

std::string reference_stamp(const Options& options, const models::Model& model, const ModelConfig& config) {
  if (!learns_preferences(options)) return "";
  const ReferenceSource source = reference_source(options, model);
  if (source != ReferenceSource::own && source != ReferenceSource::known) return "";
  std::uint64_t key = files_stamp(reference_directory(options, config.directory), 0);
  if (const QuantFormat format = format_of_reference(options, model, config); format != QuantFormat::none)
    key = hash64(name_of(format), key);
  return strfmt("%016lx", key);
}

void precompute_reference(const ReferencePass& of, RunData& data) {
  World& world = of.world;
  const std::string directory = reference_directory(of.options, of.config.directory);
  Pass pass(of, data);
  const double tail_weight = preference_spec(of.options).tail_weight;
  for (const auto& samples : data.packed) {
    const auto count = static_cast<std::size_t>(samples->count().samples * samples->sequences());
    std::uint64_t key = 0;
    std::string path, bytes;
    const std::string found = world.text_of_rank_0([&] {
      key = hash64(name_of(of.run.model->dtype), reference_form);
      key = hash64(name_of(format_of_reference(of.options, *of.run.model, of.config)), key);
      if (tail_weight != 1) key = hash64(strfmt("ld_alpha %a", tail_weight), key);
      if (of.run.flat_tokens > 0) key = hash64("padding_free", key);  // other sums, to the last digits
      key = token_hash(*samples, directory_stamp(directory, key));
      path = cache_directory(of.options) + strfmt("/reference-%016lx.bin", key);
      return read_cache(path, key, count);
    });
    const bool cached = found.size() == count * sizeof(double);
    std::vector<double> sums(count);
    if (cached) std::memcpy(sums.data(), found.data(), found.size());
    else sums = pass.sums(*samples);
    world.run_on_rank_0([&] {
      if (!cached) write_cache(path, key, {reinterpret_cast<const char*>(sums.data()), count * sizeof(double)});
      log::info(strfmt("reference log-probabilities of %zu answers %s ", count, cached ? "found in" : "computed:") +
                path);
    });
    samples->set_reference_sums(std::move(sums));
  }
}

}  // namespace tessera::jobs
