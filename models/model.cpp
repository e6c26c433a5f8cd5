// SPDX-License-Identifier: Apache-2.0
// Model: counts, and the choice of the family for a config.
#include <algorithm>
#include <cmath>

#include "models/config_keys.hpp"
#include "models/family.hpp"
#include "models/quantize.hpp"

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

constexpr std::int64_t no_window = 0;

/// FLOPs of a sequence of T tokens: per_token·T + Σ over windows of per_square·T·min(T, window).
struct FlopsPerSequence {
  double per_token = 0;
  std::map<std::int64_t, double> per_square = {};  // by window

  void add(const FlopsPerSequence& other, double sign) {
    per_token += sign * other.per_token;
    for (const auto& [window, flops] : other.per_square) per_square[window] += sign * flops;
  }
  /// Of sequences of `tokens` in all, whose squared lengths sum to `squares`.
  [[nodiscard]] double of(double tokens, double squares) const {
    double sum = per_token * tokens;
    for (const auto& [window, flops] : per_square)
      sum += flops * (window == no_window ? squares : std::min(squares, static_cast<double>(window) * tokens));
    return sum;
  }
};

/// The terms of `of(T)`, which has at most one window.
template <class F>
FlopsPerSequence terms_of(const F& of) {
  constexpr std::int64_t longer = std::int64_t{1} << 30;  // than any window
  const double one = of(1), two = of(2), square = (two - 2 * one) / 2, token = one - square;
  if (square == 0) return {token, {}};
  const double keys = (of(longer) / static_cast<double>(longer) - token) / square;
  const std::int64_t window = std::llround(keys);
  return {token, {{window < longer ? window : no_window, square}}};
}

/// What backward leaves out for frozen parameters, less what a reference model adds; 0 if all are trainable and there
/// is none.
FlopsPerSequence left_out(const Model& model) {
  FlopsPerSequence sum;
  const std::size_t lowest = model.lowest_trainable();
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    const Module& module = *model.modules[m];
    const Wanted wanted(model.params, module.params(), /*dx=*/m > lowest);
    const FlopsPerSequence terms = terms_of([&](std::int64_t tokens) {
      return 2 * module.forward_flops({1, tokens}) - module.backward_flops({1, tokens}, wanted);
    });
    sum.add(terms, 1);
  }
  for (const auto& module : model.reference) {
    const FlopsPerSequence more = terms_of([&](std::int64_t tokens) { return module->forward_flops({1, tokens}); });
    sum.add(more, -1);
  }
  return sum;
}

}  // namespace

double Model::train_flops(double tokens, double squares) const {
  const bool frozen = !reference.empty() || !std::ranges::all_of(params, &ParamSpec::trainable);
  const FlopsPerSequence less = frozen ? left_out(*this) : FlopsPerSequence{};
  FlopsPerSequence all{6.0 * static_cast<double>(matmul_params),
                       {{no_window, 12.0 * static_cast<double>(attention_width)}}};
  for (const auto& [window, width] : windowed_width) all.per_square[window] = 12.0 * static_cast<double>(width);
  all.add(less, -1);
  return all.of(tokens, squares);
}

namespace {

/// "resid_pdrop = 0.1, …"; "" if no key asks for dropout.
std::string dropout_of(const ConfigReader& config) {
  std::string asked;
  for (const char* key : {"embd_pdrop", "attn_pdrop", "resid_pdrop", "attention_dropout"})
    if (const double p = config.number(key, 0.0, 1.0, 0.0); p != 0)
      asked += strfmt("%s%s = %g", asked.empty() ? "" : ", ", key, p);
  return asked;
}

}  // namespace

Model make(const std::string& config_json, const std::string& source, DType dtype) {
  TESSERA_ASSERT(dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16 || dtype == DType::f16,
                 "no kernels for %s", name_of(dtype));
  const ConfigReader config(config_json, source);
  (void)quantization_of(config_json, source);  // refuses those that cannot be read
  const std::string word = config.text("model_type");
  if (const Family* family = find_family(word)) {
    Model model = family->make(config, dtype);
    model.dropout = dropout_of(config);
    refuse_other_families_keys(config);
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
  return {.parts = {canonical}, .shape = {}, .same_as = ""};
}

}  // namespace tessera::models
