// SPDX-License-Identifier: Apache-2.0
// Model: counts, and the choice of the family for a config.
#include <algorithm>
#include <cmath>

#include "models/config_keys.hpp"
#include "models/family.hpp"
#include "models/quantize.hpp"
#include "models/reference.hpp"
#include "models/score_head.hpp"

namespace tessera::models {

static std::int64_t elements_of(std::span<const ParamSpec> params) {
  std::int64_t sum = 0;
  for (const ParamSpec& param : params) sum += param.elements();
  return sum;
}

std::int64_t Model::num_params() const { return elements_of(params); }
std::int64_t Model::num_own_params() const { return elements_of(own_params()); }

std::size_t Model::lowest_trainable() const {
  std::size_t lowest = 0;
  const auto trains = [&](const Module& module) { return Wanted(params, module.params(), /*dx=*/false).any_param(); };
  while (lowest < modules.size() && !trains(*modules[lowest])) ++lowest;
  return lowest;
}

Wanted Model::wanted(std::size_t module) const {
  return {params, modules[module]->params(), module > lowest_trainable()};
}

FlopTerms& FlopTerms::operator+=(const FlopTerms& more) {
  per_token += more.per_token;
  per_square += more.per_square;
  for (const auto& [window, flops] : more.per_key) per_key[window] += flops;
  return *this;
}

double FlopTerms::of(double tokens, double squares) const {
  double windowed = 0;
  for (const auto& [window, flops] : per_key)
    windowed += flops * std::min(squares, static_cast<double>(window) * tokens);
  return per_token * tokens + per_square * squares + windowed;
}

/// The terms of `flops`, of one row, which has at most one window.
template <class F>
static FlopTerms terms_of(const F& flops) {
  constexpr std::int64_t longer = std::int64_t{1} << 30;  // than any window
  const auto of = [&](std::int64_t tokens) { return flops(BatchShape{1, tokens}); };
  const double one = of(1), square = (of(2) - 2 * one) / 2, token = one - square;
  if (square == 0) return {.per_token = token};
  const std::int64_t window = std::llround((of(longer) / static_cast<double>(longer) - token) / square);
  if (window >= longer) return {.per_token = token, .per_square = square};
  return {.per_token = token, .per_key = {{window, square}}};
}

static FlopTerms forward_terms_of(const std::vector<std::unique_ptr<Module>>& modules) {
  FlopTerms sum;
  for (const auto& module : modules) sum += terms_of([&](BatchShape row) { return module->forward_flops(row); });
  return sum;
}

FlopTerms Model::forward_terms() const { return whole_flops ? whole_flops->first : forward_terms_of(modules); }

FlopTerms Model::train_terms() const {
  if (whole_flops) return whole_flops->second;
  FlopTerms sum = forward_terms_of(reference);
  for (std::size_t m = 0; m < modules.size(); ++m) {
    const Wanted of = wanted(m);
    sum +=
        terms_of([&](BatchShape row) { return modules[m]->forward_flops(row) + modules[m]->backward_flops(row, of); });
  }
  return sum;
}

double Model::train_flops_per_token(std::int64_t tokens) const { return train_flops(1, static_cast<double>(tokens)); }

std::int64_t Model::num_matmul_params() const { return std::llround(forward_terms().per_token / 2); }

double forward_flops(const Model& model, double tokens, double squares) {
  FlopTerms sum = model.forward_terms();
  return (sum += forward_terms_of(model.reference)).of(tokens, squares);
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
    refuse_unsupported_keys(config);
    return model;
  }
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
