// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/default_precision.hpp"

#include <nlohmann/json.hpp>

#include "io/checkpoint/checkpoint.hpp"
#include "io/file/file.hpp"
#include "jobs/cli/session/model_tensors.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/weights.hpp"
#include "kernels/threads.hpp"
#include "models/quantize.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

/// A run with weights.
DefaultPrecision of_weights(const PrecisionFacts& facts) {
  const DType own = facts.stored.value_or(facts.named.value_or(DType::f32));
  const char* const name = name_of(own);
  DefaultPrecision choice{.compute = DType::f32,
                          .why = facts.stored
                                     ? (facts.trained ? "its run computed in " : "the weights are ") + std::string(name)
                                 : facts.named ? std::string("config.json says ") + name
                                               : std::string("config.json names no dtype")};
  if (size_of(own) == 2) {
    if (facts.bf16_is_off) choice.why += ", and --bf16 is false";
    else if (!facts.has_bf16) choice.why += ", and not every rank's CPU has bf16 instructions (AVX512-BF16, AMX-BF16)";
    else choice.compute = DType::bf16;
  }
  const bool differs = facts.stored && facts.named && size_of(own) != size_of(*facts.named) && !facts.trained;
  if (differs && size_of(choice.compute) != size_of(*facts.named)) {
    choice.warning = 69;
    choice.warned = strfmt("config.json says %s, but the weights are %s: computing in %s; --mixed_precision overrides",
                           name_of(*facts.named), name, name_of(choice.compute));
  } else if (own == DType::f16 && choice.compute == DType::bf16 && facts.named != DType::bf16) {
    choice.warning = 68;
    choice.warned =
        choice.why +
        ": computing in bf16, which has 3 bits less and needs no loss scale; --mixed_precision fp16 overrides";
  }
  if (own == DType::f16 && choice.compute == DType::bf16) choice.why += ", computed in bf16";
  return choice;
}

std::optional<DType> type_at(const nlohmann::json& json, const char* key) {
  if (!json.is_object() || !json.contains(key) || !json.at(key).is_string()) return std::nullopt;
  return parse_dtype(json.at(key).get<std::string>());
}

/// What config.json says that the model is computed in.
std::optional<DType> named_type(const ModelConfig& config, QuantFormat format) {
  const auto json = nlohmann::json::parse(config.text, nullptr, /*allow_exceptions=*/false);
  if (is_4bit(format) && json.contains("quantization_config"))
    if (const auto dtype = type_at(json.at("quantization_config"), "bnb_4bit_compute_dtype")) return dtype;
  for (const char* key : {"dtype", "torch_dtype"})
    if (const auto dtype = type_at(json, key)) return dtype;
  return std::nullopt;
}

void read_weights_type(const ModelConfig& config, PrecisionFacts& facts) {
  const QuantFormat format = models::quantization_of(config.text, config.path);
  facts.named = named_type(config, format);
  if (config.directory.empty() || !holds_weights(config.directory)) return;
  if (io::exists(config.directory + "/" + io::manifest_name)) {
    const auto run =
        nlohmann::json::parse(io::read_manifest(config.directory).run_metadata, nullptr, /*allow_exceptions=*/false);
    facts.stored = type_at(run, "compute_dtype");
    facts.trained = facts.stored.has_value();
  } else if (format == QuantFormat::none) {
    facts.stored = stored_dtype(config.directory);
  }
}

DefaultPrecision choose(const Options& options, const ModelConfig& config, const PrecisionPlace& place) {
  PrecisionFacts facts{.from_scratch = options.flag("from_scratch"),
                       .on_gpu = place.on_gpu,
                       .has_bf16 = place.has_bf16,
                       .bf16_is_off = options.given("bf16") && !options.flag("bf16")};
  if (!facts.from_scratch) {
    read_weights_type(config, facts);
    const bool has_weights = !config.directory.empty() && holds_weights(config.directory);
    const bool computes_loss_or_text = (options.commands & for_inference) != 0;
    if (!has_weights && !computes_loss_or_text && options.text("stage") == "pt") facts.from_scratch = true;
  }
  return default_precision(facts);
}

void apply(Options& options, const DefaultPrecision& choice) {
  options.decide("mixed_precision", choice.compute == DType::f32 ? "no" : name_of(choice.compute), choice.why);
  if (choice.warning != 0) log::warn(choice.warning, choice.warned);
  if ((options.commands & for_inference) == 0) check_options(options);
}

}  // namespace

DefaultPrecision default_precision(const PrecisionFacts& facts) {
  if (!facts.from_scratch) return of_weights(facts);
  if (!facts.on_gpu) return {DType::f32, "from scratch on CPUs"};
  return facts.bf16_is_off ? DefaultPrecision{DType::f32, "from scratch, and --bf16 is false"}
                           : DefaultPrecision{DType::bf16, "from scratch on GPUs"};
}

bool cpu_has_bf16() { return kernels::gemm_16bit(DType::bf16).skipped.empty(); }

void decide_precision(Options& options, const ModelConfig& config, const PrecisionPlace& place) {
  if (!asked_compute(options)) apply(options, choose(options, config, place));
}

void decide_precision(Options& options, const ModelConfig& config, World& world) {
  if (asked_compute(options)) return;
  PrecisionPlace place{.on_gpu = world.device() != host_device};
  place.has_bf16 = world.max(place.on_gpu || cpu_has_bf16() ? 0 : 1) == 0;
  const std::string text = world.text_of_rank_0([&] {
    const DefaultPrecision choice = choose(options, config, place);
    return nlohmann::json{name_of(choice.compute), choice.why, choice.warning, choice.warned}.dump();
  });
  const auto choice = nlohmann::json::parse(text);
  apply(options, {parse_dtype(choice.at(0).get<std::string>()).value(), choice.at(1).get<std::string>(),
                  choice.at(2).get<int>(), choice.at(3).get<std::string>()});
}

}  // namespace tessera::jobs
