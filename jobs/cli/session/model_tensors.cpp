#include "jobs/cli/session/model_tensors.hpp"

#include "io/model/model_match.hpp"

namespace tessera::jobs {

ModelTensors match_model_tensors(const models::Model& model, const io::TensorCatalog& stored,
                                 const std::string& source) {
  std::vector<io::TensorInfo> infos;
  for (const io::TensorEntry& t : stored.tensors)
    infos.push_back({t.name, t.shape, t.type, t.known && is_float(t.dtype)});
  const io::ModelMatch match = io::match_model(
      infos, source, model.params, [&](const std::string& name) { return models::tensor_use(model, name); });
  ModelTensors result;
  for (std::size_t i = 0; i < model.params.size(); ++i) {
    const auto& [tensor, first] = match.params[i];
    const ParamSpec& param = model.params[i];
    result.tensors.push_back({param.name, DType::f32, param.shape, {{tensor, first, param.numel()}}});
  }
  for (const auto& [tensor, param] : match.copies)
    result.copies.push_back({tensor, match.params[static_cast<std::size_t>(param)].tensor});
  return result;
}

std::optional<DType> parse_dtype(const std::string& word) {
  if (word == "fp32" || word == "float32") return DType::f32;
  if (word == "bf16" || word == "bfloat16") return DType::bf16;
  if (word == "fp16" || word == "float16") return DType::f16;
  return std::nullopt;
}

}  // namespace tessera::jobs
