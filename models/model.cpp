// Model: counts, and which family a config belongs to.
#include "models/gpt2.hpp"
#include "models/module.hpp"

namespace tessera::models {

std::int64_t Model::num_params() const {
  std::int64_t sum = 0;
  for (const ParamSpec& param : params) sum += param.numel();
  return sum;
}

double Model::train_flops_per_token(std::int64_t tokens) const {
  return 6.0 * static_cast<double>(matmul_params) + 12.0 * static_cast<double>(attention_width) * static_cast<double>(tokens);
}

Model make(const std::string& config_json, const std::string& source, DType dtype) {
  TESSERA_ASSERT(dtype == DType::f32 || dtype == DType::f64, "no kernels for %s", name_of(dtype));
  const ConfigReader config(config_json, source);
  const std::string family = config.text("model_type");
  if (family == "gpt2") return make_gpt2(parse_gpt2(config), dtype);
  config.refuse("model_type", "is \"" + family + "\", which is not supported", "Supported: gpt2");
}

std::string canonical_name(const Model& model, const std::string& name) {
  TESSERA_ASSERT(model.family == "gpt2", "%s", model.family.c_str());
  return gpt2_canonical_name(name);
}

}  // namespace tessera::models
