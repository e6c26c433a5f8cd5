// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/precision.hpp"

#include <algorithm>
#include <cmath>

#include "jobs/cli/session/checkpoint_defaults.hpp"

namespace tessera::jobs {

namespace {

DType dtype_of_word(const std::string& word) {
  if (word == "bf16") return DType::bf16;
  return word == "fp16" ? DType::f16 : DType::f32;
}

/// What an option asks for: "bf16", "fp16", "no", or "auto".
struct Asked {
  std::string word;
  const char* option;
};

/// From the highest configuration layer that gives one of the options.
Asked asked_of(const Options& options) {
  Asked asked{options.text("mixed_precision"), "mixed_precision"};
  if (asked.word == "fp32") asked.word = "no";
  for (const char* name : {"bf16", "fp16"}) {
    if (!options.given(name)) continue;
    const Source &now = options.value(name).source, &before = options.value(asked.option).source;
    const bool wanted = options.flag(name);
    if (now.precedence < before.precedence || (!wanted && asked.word != name)) continue;
    if (now.precedence == before.precedence && (!wanted || asked.word != name) && asked.word != "auto")
      throw Error(ExitCode::usage,
                  (wanted ? strfmt("--%s asks for %s", name, name) : strfmt("--%s is false", name)) +
                      strfmt(", but --%s %sfor %s", asked.option, wanted ? "" : "asks ", asked.word.c_str()),
                  both_sources(now, before), "Keep one of the two");
    asked = {wanted ? name : "no", name};
  }
  if (asked.word != "auto" || options.text("quant_bits") != "4") return asked;
  const std::string type = options.text("bnb_4bit_compute_dtype");
  if (type == "none") return asked;
  return {type == "bfloat16" ? "bf16" : type == "float16" ? "fp16" : "no", "bnb_4bit_compute_dtype"};
}

}  // namespace

std::string Precision::str() const {
  return compute == DType::f32 ? "fp32" : strfmt("%s, gradients reduced in %s", name_of(compute), name_of(reduce));
}

std::optional<DType> asked_compute(const Options& options) {
  const std::string word = asked_of(options).word;
  return word == "auto" ? std::nullopt : std::optional(dtype_of_word(word));
}

std::string precision_source(const Options& options) {
  const char* const name = asked_of(options).option;
  const Value& value = options.value(name);
  const std::string& why = value.decided;
  if (why.starts_with(kept_from)) return why;
  if (!options.given(name)) return value.source.text;
  return why.empty() ? std::string("--") + name + ": " + value.source.text : "auto: " + why;
}

Precision precision_of(const Options& options) {
  const std::optional<DType> asked = asked_compute(options);
  TESSERA_ASSERT(asked.has_value(), "--mixed_precision auto is not decided");
  const DType compute = *asked;
  if ((options.commands & for_runs) == 0) return {compute};  // generate and eval reduce nothing
  const Precision precision{compute, dtype_of_word(options.text("reduce_dtype"))};
  if (precision.reduce != DType::f32 && precision.reduce != precision.compute)
    throw options.refuse(
        "reduce_dtype",
        strfmt("--reduce_dtype %s, but the run computes in %s", name_of(precision.reduce), name_of(precision.compute)),
        strfmt("Reduce in fp32, or compute with --mixed_precision %s", name_of(precision.reduce)));
  return precision;
}

shard::Compression compression_of(const Options& options) {
  using Gathers = shard::Compression::Gathers;
  if ((options.commands & for_runs) == 0) return {};
  const std::string& gathers = options.text("gather_dtype");
  return {.gradients = options.text("reduce_dtype") == "int8",
          .gathers = gathers == "int8"          ? Gathers::all
                     : gathers == "int8_frozen" ? Gathers::frozen
                                                : Gathers::none,
          .everywhere = options.text("compress_axes") == "all",
          .error_feedback = options.flag("error_feedback")};
}

const char* reduce_name(const shard::ShardPolicy& policy) {
  return policy.compression.gradients ? "int8" : name_of(policy.reduce_dtype);
}

std::string precision_text(const plan::RunPlan& plan) {
  const shard::ShardPolicy& policy = plan.spec.strategy.policy;
  const shard::Compression& compression = policy.compression;
  if (!compression.any()) return Precision{policy.param_dtype, policy.reduce_dtype}.str();
  std::string text = name_of(policy.param_dtype);
  if (compression.gradients)
    text +=
        std::string(", gradients reduced in int8 with") + (compression.error_feedback ? "" : "out") + " error feedback";
  if (compression.gathers != shard::Compression::Gathers::none)
    text += std::string(", ") + (compression.gathers == shard::Compression::Gathers::frozen ? "frozen " : "") +
            "parameters gathered in int8";
  text += compression.everywhere ? ", everywhere" : ", between nodes";
  const auto sends_int8 = [](const shard::ScheduledUnit& unit) {
    return unit.int8.gather || unit.int8.reduce_scatter || unit.int8.all_reduce;
  };
  if (std::ranges::none_of(plan.main().units, sends_int8))
    text += compression.everywhere ? ": nothing is, since ranks read it in place or there is one"
                                   : ": nothing is, since no group is on several nodes (--compress_axes all)";
  return text;
}

std::optional<train::LossScaleOptions> loss_scale_of(const Options& options) {
  const std::optional<DType> asked = asked_compute(options);
  if (!asked) return std::nullopt;
  if (*asked != DType::f16) {
    for (const char* name :
         {"initial_scale_power", "loss_scale_window", "min_loss_scale", "hysteresis", "consecutive_hysteresis"})
      if (options.given(name) && options.value(name).source.precedence == precedence::command_line)
        throw options.refuse(name, strfmt("--%s scales losses, which --mixed_precision fp16 alone needs", name),
                             "Drop it");
    return std::nullopt;
  }
  train::LossScaleOptions scale;
  scale.initial = std::ldexp(1.0, static_cast<int>(options.integer("initial_scale_power")));
  scale.least = options.real("min_loss_scale");
  scale.window = options.integer("loss_scale_window");
  scale.hysteresis = options.integer("hysteresis");
  scale.consecutive_hysteresis = options.flag("consecutive_hysteresis");
  int exponent = 0;
  if (std::frexp(scale.least, &exponent) != 0.5)
    throw options.refuse("min_loss_scale", strfmt("a loss scale of %g is not a power of two", scale.least),
                         "Give 1, 2, 4, ...");
  if (scale.least > scale.initial)
    throw options.refuse("min_loss_scale",
                         strfmt("the least loss scale, %g, is above the first, %g", scale.least, scale.initial),
                         "Lower it, or raise --initial_scale_power");
  return scale;
}

}  // namespace tessera::jobs
