// SPDX-License-Identifier: Apache-2.0
// Model: counts, and the choice of the family for a config.
#include <algorithm>

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

/// FLOPs of a sequence of T tokens: per_token·T + per_square·T².
struct FlopsPerSequence {
  double per_token = 0, per_square = 0;
};

/// The two terms of `of(T)`, which has both.
template <class F>
FlopsPerSequence terms_of(const F& of) {
  const double one = of(1), two = of(2), per_square = (two - 2 * one) / 2;
  return {one - per_square, per_square};
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
    sum.per_token += terms.per_token;
    sum.per_square += terms.per_square;
  }
  for (const auto& module : model.reference) {
    const FlopsPerSequence more = terms_of([&](std::int64_t tokens) { return module->forward_flops({1, tokens}); });
    sum.per_token -= more.per_token;
    sum.per_square -= more.per_square;
  }
  return sum;
}

}  // namespace

double Model::train_flops(double tokens, double squares) const {
  const bool frozen = !reference.empty() || !std::ranges::all_of(params, &ParamSpec::trainable);
  const FlopsPerSequence less = frozen ? left_out(*this) : FlopsPerSequence{};
  return (6.0 * static_cast<double>(matmul_params) - less.per_token) * tokens +
         (12.0 * static_cast<double>(attention_width) - less.per_square) * squares;
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
