// SPDX-License-Identifier: Apache-2.0
// RoPE frequencies and their scaling.
#include "models/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/base/error.hpp"

namespace tessera::models {
namespace {

constexpr double largest = 1e12;  // of any number in these objects

std::vector<double> plain(std::int64_t head_dim, double theta) {
  std::vector<double> inv;
  for (std::int64_t j = 0; 2 * j < head_dim; ++j)
    inv.push_back(std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim)));
  return inv;
}

/// As transformers, which prefers the config's number to that of the object. Where they are not the same, or the family
/// has one of its own that a missing number is taken for, it is refused.
std::int64_t original_length(const ConfigReader& config, const ConfigReader& scaling, const RopeShape& shape) {
  const char* const key = "original_max_position_embeddings";
  if (config.is_null(key))
    config.refuse(key, "is null, which transformers does not take with this type of RoPE", "Leave it out");
  const bool is_fixed = config.has(key) || shape.original > 0;
  const std::int64_t outer =
      config.integer({key}, 2, std::int64_t{1} << 24, shape.original > 0 ? shape.original : shape.max_tokens);
  const std::int64_t length = scaling.integer({key}, 2, std::int64_t{1} << 24, outer);
  if (is_fixed && length != outer)
    scaling.refuse(key, strfmt("is %ld, but that of the config is %ld%s", length, outer,
                               config.has(key) ? "" : ", which transformers takes where it is missing"));
  return length;
}

/// Long wavelengths are multiplied by `factor`, short ones kept, those between interpolated (Llama 3.1). Equal bounds
/// (Llama 4 Scout) have none between.
void scale_llama3(const ConfigReader& scaling, std::int64_t original, Rope& rope) {
  const double factor = scaling.number("factor", 1, largest, {}),
               low = scaling.number("low_freq_factor", 1e-6, largest, {}),
               high = scaling.number("high_freq_factor", 1e-6, largest, {}), length = static_cast<double>(original);
  if (high < low) scaling.refuse("high_freq_factor", strfmt("is %g, below \"low_freq_factor\" = %g", high, low));
  for (double& inv : rope.inv_freq) {
    const double wave = 2 * std::numbers::pi / inv;
    if (wave < length / high) continue;
    const double smooth = wave > length / low ? 0.0 : high > low ? (length / wave - low) / (high - low) : 1.0;
    inv = (1 - smooth) * inv / factor + smooth * inv;
  }
}

/// YaRN (Peng et al. 2023): high frequencies are kept, low ones interpolated, with a ramp between.
void scale_yarn(const ConfigReader& scaling, const RopeShape& shape, std::int64_t original, double theta, Rope& rope) {
  const auto length = static_cast<double>(original);
  const double factor = scaling.number("factor", 1, largest, static_cast<double>(shape.max_tokens) / length);
  const double fast = scaling.number("beta_fast", 1e-6, largest, 32),
               slow = scaling.number("beta_slow", 1e-6, largest, 1);
  const auto d = static_cast<double>(shape.head_dim);
  const auto dimension = [&](double turns) {
    return d * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = dimension(fast), high = dimension(slow);
  if (scaling.boolean("truncate", true)) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, d - 1);
  if (high == low) high += 0.001;
  for (std::size_t j = 0; j < rope.inv_freq.size(); ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    rope.inv_freq[j] = ramp * rope.inv_freq[j] / factor + (1 - ramp) * rope.inv_freq[j];
  }
  const auto of = [factor](double m) { return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1.0; };
  const double mscale = scaling.number("mscale", 0, largest, 0.0),
               all = scaling.number("mscale_all_dim", 0, largest, 0.0);
  rope.scale = scaling.number("attention_factor", 1e-6, largest, mscale > 0 && all > 0 ? of(mscale) / of(all) : of(1));
}

/// A list of positive numbers, one for each frequency.
std::vector<double> factors_of(const ConfigReader& scaling, const char* name, std::size_t count) {
  std::vector<double> factors = scaling.numbers(name, 1e-6, largest);
  if (factors.empty()) scaling.refuse(name, "is missing");
  if (factors.size() != count) scaling.refuse(name, strfmt("has %zu numbers, expected %zu", factors.size(), count));
  return factors;
}

/// LongRoPE (Ding et al. 2024): a factor for each frequency, others for sequences longer than the original length.
void scale_longrope(const ConfigReader& scaling, const RopeShape& shape, std::int64_t length, Rope& rope) {
  rope.original = length;
  rope.long_inv_freq = rope.inv_freq;
  const auto divide = [&](std::vector<double>& frequencies, const char* name) {
    const std::vector<double> factors = factors_of(scaling, name, frequencies.size());
    for (std::size_t j = 0; j < factors.size(); ++j) frequencies[j] /= factors[j];
  };
  divide(rope.inv_freq, "short_factor");
  divide(rope.long_inv_freq, "long_factor");
  const auto original = static_cast<double>(rope.original);
  const double factor = scaling.number("factor", 1e-6, largest, static_cast<double>(shape.max_tokens) / original);
  rope.scale = scaling.number("attention_factor", 1e-6, largest,
                              factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original)));
}

/// How many numbers of a head are rotated.
std::int64_t rotated(const ConfigReader& config, const ConfigReader& scaling, const RopeShape& shape) {
  const char* const key = "partial_rotary_factor";
  const double outer = config.number(key, 0, 1, 1.0), factor = scaling.number(key, 0, 1, outer);
  for (const ConfigReader* source : {&config, &scaling})
    if (!shape.partial && source->number(key, 0, 1, 1.0) != 1.0)
      source->refuse(key, "is not 1: rotating a part of the head is not supported");
  if (config.has(key) && factor != outer)
    scaling.refuse(key, strfmt("is %g, but that of the config is %g", factor, outer));
  const auto width = static_cast<std::int64_t>(static_cast<double>(shape.head_dim) * factor);
  if (width < 2 || width % 2 != 0)
    config.refuse(key, strfmt("is %g: of heads of %ld, %ld numbers would be rotated, expected an even number", factor,
                              shape.head_dim, width));
  return width;
}

/// The object with the numbers of transformers 5: "rope_parameters", or, of a kind of layers, the one in it.
ConfigReader parameters_of(const ConfigReader& config, const RopeShape& shape) {
  ConfigReader all = config.object("rope_parameters");
  if (shape.layers.empty()) return all;
  for (const std::string& key : all.unread())
    if (!key.ends_with("_attention"))
      all.refuse(key, "is set, but the numbers of this family stand in objects of kinds of layers",
                 "Move it into \"full_attention\" or \"sliding_attention\"");
  return all.object(shape.layers);
}

/// The config's object for scaling, and its type.
ConfigReader scaling_of(const ConfigReader& config, const RopeShape& shape, std::string& type) {
  const auto type_of = [](const ConfigReader& object) {
    std::string word = object.text(object.has("rope_type") ? "rope_type" : "type", "default");
    if (object.has("rope_type") && object.has("type") && object.text("type") != word)
      object.refuse("type", "is \"" + object.text("type") + "\", but \"rope_type\" is \"" + word + "\"");
    return word;
  };
  const ConfigReader v5 = parameters_of(config, shape), v4 = config.object("rope_scaling");
  const bool has_v5 = shape.layers.empty() ? config.has("rope_parameters")
                                           : config.object("rope_parameters").has(shape.layers),
             has_v4 = shape.scaled && config.has("rope_scaling");
  if (!has_v5 && !has_v4) return type = "default", v5;
  type = type_of(has_v5 ? v5 : v4);
  if (has_v5 && has_v4 && type_of(v4) != type)
    config.refuse("rope_scaling",
                  "is of type \"" + type_of(v4) + "\", but \"rope_parameters\" of type \"" + type + "\"", "Keep one");
  if (has_v5 && has_v4)
    for (const std::string& key : v4.unread())
      if (!v4.has_value_of(v5, key))
        config.refuse("rope_scaling", "has another \"" + key + "\" than \"rope_parameters\"", "Keep one");
  return has_v5 ? v5 : v4;
}

double theta_of(const ConfigReader& config, const ConfigReader& scaling, const RopeShape& shape) {
  constexpr double low = 1.0001;
  const double outer = config.number(shape.theta_key, low, largest, shape.default_theta);
  const double theta = scaling.number("rope_theta", low, largest, outer);
  if (config.has(shape.theta_key) && theta != outer)
    config.refuse(shape.theta_key, strfmt("is %g, but \"rope_parameters.%srope_theta\" is %g", outer,
                                          shape.layers.empty() ? "" : (shape.layers + ".").c_str(), theta));
  return theta;
}

}  // namespace

Rope parse_rope(const ConfigReader& config, const RopeShape& shape) {
  std::string type;
  const ConfigReader scaling = scaling_of(config, shape, type);
  const std::vector<std::string> known =
      shape.types.empty() ? std::vector<std::string>{"default", "linear", "dynamic", "llama3", "yarn", "longrope"}
                          : shape.types;
  if (std::ranges::find(known, type) == known.end()) {
    std::string all;
    for (const std::string& one : known) all += (all.empty() ? "" : ", ") + one;
    scaling.refuse(scaling.has("rope_type") ? "rope_type" : "type", "is \"" + type + "\", which is not supported",
                   "Supported: " + all);
  }
  const double theta = theta_of(config, scaling, shape);
  Rope rope{plain(rotated(config, scaling, shape), theta), 1};
  // Dynamic NTK stretches sequences longer than max_position_embeddings, which there are none of here.
  if (type == "dynamic") (void)scaling.number("factor", 1, largest, {});
  if (type == "default" || type == "linear" || type == "dynamic") {  // transformers' have no original length
    (void)config.has("original_max_position_embeddings");
    const double factor = type == "linear" ? scaling.number("factor", 1e-6, largest, {}) : 1;
    for (double& inv : rope.inv_freq) inv /= factor;
    return rope;
  }
  const std::int64_t original = original_length(config, scaling, shape);
  if (type == "llama3") scale_llama3(scaling, original, rope);
  else if (type == "yarn") scale_yarn(scaling, shape, original, theta, rope);
  else scale_longrope(scaling, shape, original, rope);
  return rope;
}

}  // namespace tessera::models
