// SPDX-License-Identifier: Apache-2.0
// Model: counts, and the choice of the family for a config.
#include <algorithm>
#include <cmath>

#include "models/config_keys.hpp"
#include "models/family.hpp"
#include "models/quantize.hpp"
#include "models/reference.hpp"
#include "models/score_head.hpp"
#include "models/wrappers.hpp"

namespace tessera::models {

static std::int64_t elements_of(std::span<const ParamSpec> params) {
  std::int64_t sum = 0;
  for (const ParamSpec& param : params) sum += param.elements();
  return sum;
}

std::int64_t Model::num_params() const { return elements_of(params); }
std::int64_t Model::num_own_params() const { return elements_of(own_params()); }

double Model::train_flops_per_token(std::int64_t tokens) const { return train_flops(1, static_cast<double>(tokens)); }

std::size_t Model::lowest_trainable() const {
  std::size_t lowest = 0;
  const auto trains = [&](const Module& module) {
    return module.has_param_gradients() && Wanted(params, module.params(), /*dx=*/false).any_param();
  };
  while (lowest < modules.size() && !trains(*modules[lowest])) ++lowest;
  return lowest;
}

Wanted Model::wanted(std::size_t module) const {
  return {params, modules[module]->params(), module > lowest_trainable()};
}

namespace {

/// A count of FLOPs, of sequences of T tokens: per_token·T + per_square·T² + Σ per_key·T·min(T, window), the last
/// summed over layers with windows.
struct Flops {
  double per_token = 0, per_square = 0;
  double windowed = 0;  // the last term, of all sequences

  void add(const Flops& other, double sign) {
    per_token += sign * other.per_token;
    per_square += sign * other.per_square;
    windowed += sign * other.windowed;
  }
};

/// Sequences of `tokens` in all, whose squared lengths sum to `squares`.
struct Sequences {
  double tokens = 0, squares = 0;

  [[nodiscard]] double keys(std::int64_t window) const {  // Σ T·min(T, window)
    return std::min(squares, static_cast<double>(window) * tokens);
  }
};

/// The terms of `of(T)`, which has at most one window and is for multiples of `unit`.
template <class F>
Flops terms_of(const F& of, const Sequences& sequences, std::int64_t unit) {
  const std::int64_t longer = (std::int64_t{1} << 30) / unit * unit;  // than any window
  const auto u = static_cast<double>(unit);
  const double one = of(unit), two = of(2 * unit), square = (two - 2 * one) / (2 * u * u), token = one / u - square * u;
  if (square == 0) return {.per_token = token};
  const double keys = (of(longer) / static_cast<double>(longer) - token) / square;
  const std::int64_t window = std::llround(keys);
  if (window >= longer) return {.per_token = token, .per_square = square};
  return {.per_token = token, .windowed = square * sequences.keys(window)};
}

/// How many ranks work on a row together.
int row_ranks(const Model& model) { return model.tensor_ranks * model.context.ranks; }

/// A row of so many tokens, for all of these.
BatchShape row_of(const Model& model, std::int64_t tokens) { return {row_ranks(model), tokens / row_ranks(model)}; }

/// What backward leaves out for frozen parameters, less what a reference model adds; 0 if all are trainable and there
/// is none.
Flops left_out(const Model& model, const Sequences& sequences) {
  Flops sum;
  const std::size_t lowest = model.lowest_trainable();
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    const Module& module = *model.modules[m];
    const Wanted wanted(model.params, module.params(), /*dx=*/m > lowest);
    const auto without = [&](std::int64_t tokens) {
      const BatchShape row = row_of(model, tokens);
      return 2 * module.forward_flops(row) - module.backward_flops(row, wanted);
    };
    sum.add(terms_of(without, sequences, row_ranks(model)), 1);
  }
  for (const auto& module : model.reference) {
    const auto more = [&](std::int64_t tokens) { return module->forward_flops(row_of(model, tokens)); };
    sum.add(terms_of(more, sequences, row_ranks(model)), -1);
  }
  return sum;
}

}  // namespace

double forward_flops(const Model& model, double tokens, double squares) {
  Flops sum;
  for (const auto* part : {&model.modules, &model.reference})
    for (const auto& module : *part)
      sum.add(terms_of([&](std::int64_t length) { return module->forward_flops(row_of(model, length)); },
                       Sequences{tokens, squares}, row_ranks(model)),
              1);
  return sum.per_token * tokens + sum.per_square * squares + sum.windowed;
}

double Model::train_flops(double tokens, double squares) const {
  const bool frozen = !reference.empty() || !std::ranges::all_of(params, &ParamSpec::trainable);
  const Sequences sequences{tokens, squares};
  const Flops less = frozen ? left_out(*this, sequences) : Flops{};
  double windowed = -less.windowed;
  for (const auto& [window, width] : windowed_width)
    windowed += 12.0 * static_cast<double>(width) * sequences.keys(window);
  return (6.0 * static_cast<double>(matmul_params) - less.per_token) * tokens +
         (12.0 * static_cast<double>(attention_width) - less.per_square) * squares + windowed;
}

Model make(const std::string& config_json, const std::string& source, DType dtype) {
  TESSERA_ASSERT(dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16 || dtype == DType::f16,
                 "no kernels for %s", name_of(dtype));
  const ConfigReader config(config_json, source);
  (void)quantization_of(config_json, source);  // refuses those that cannot be read
  const std::string word = config.text("model_type");
  if (const Family* family = find_family(word)) {
    Model model = family->make(config, dtype);
    if (model.dropout.empty()) model.dropout = dropout_of(config);
    if (has_score(config_json)) make_score(model, config);
    refuse_other_families_keys(config);
    return model;
  }
  refuse_known_wrapper(word, source);
  std::string known;
  for (const Family& family : families()) known += (known.empty() ? "" : ", ") + std::string(family.name);
  config.refuse("model_type", "is \"" + word + "\", which is not supported", "Supported: " + known);
}

std::string canonical_name(const Model& model, const std::string& name) {
  const Family* family = find_family(model.family);
  TESSERA_ASSERT(family != nullptr, "%s", model.family.c_str());
  return model.aliases.contains(name) ? "" : family->canonical_name(name);
}

TensorUse tensor_use(const Model& model, const std::string& name) {
  if (const auto alias = model.aliases.find(name); alias != model.aliases.end()) return alias->second;
  const std::string canonical = canonical_name(model, name);
  if (canonical.empty()) return {};
  if (const auto alias = model.aliases.find(canonical); alias != model.aliases.end()) return alias->second;
  return {.parts = {canonical}, .shape = {}, .same_as = ""};
}

}  // namespace tessera::models
