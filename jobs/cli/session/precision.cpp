// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/precision.hpp"

#include <algorithm>
#include <cmath>

namespace tessera::jobs {

namespace {

DType dtype_of_word(const std::string& word) {
  if (word == "bf16") return DType::bf16;
  return word == "fp16" ? DType::f16 : DType::f32;
}

/// "bf16", "fp16" or "no", from the highest configuration layer that gives one of the three options.
std::string compute_word(const Options& options) {
  std::string word = "no";
  const char* from = nullptr;
  for (const char* name : {"mixed_precision", "bf16", "fp16"}) {
    const bool names_a_type = std::string(name) == "mixed_precision";
    if (!options.given(name) || (!names_a_type && !options.flag(name))) continue;
    std::string said = names_a_type ? options.text(name) : name;
    if (said == "fp32") said = "no";
    const int above =
        from == nullptr ? 1 : options.value(name).source.precedence - options.value(from).source.precedence;
    if (above == 0 && said != word)
      throw Error(ExitCode::usage, strfmt("--%s asks for %s, but --%s for %s", name, said.c_str(), from, word.c_str()),
                  both_sources(options.value(name).source, options.value(from).source), "Keep one of the two");
    if (above <= 0) continue;
    word = said;
    from = name;
  }
  return word;
}

}  // namespace

std::string Precision::str() const {
  return compute == DType::f32 ? std::string()
                               : strfmt("%s, gradients reduced in %s", name_of(compute), name_of(reduce));
}

Precision precision_of(const Options& options) {
  const DType compute = dtype_of_word(compute_word(options));
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
  if (precision_of(options).compute != DType::f16) {
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
