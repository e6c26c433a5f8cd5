// SPDX-License-Identifier: Apache-2.0
#pragma once
// Quantized base weights (QLoRA): which parameters of a model are kept in 4 or 8 bits.

#include <string>

#include "runtime/base/quantized.hpp"

namespace tessera::models {

struct Model;

/// Keeps the frozen weights of Linears in `format`: of attention, MLPs and experts. Norms, biases, embeddings, the
/// head, routers and adapters stay what they are, as transformers' integration of bitsandbytes leaves lm_head. The
/// parameters keep their places in Model::params and their names, and become vectors of bytes (ParamSpec::quantized).
/// If `config_json`, the model's, has a quantization_config, its files hold quantized weights: experts, which
/// transformers 5 does not quantize, and the modules that llm_int8_skip_modules names then stay what they are, too.
/// After add_lora. Throws Error (usage): a weight that is stored as (in, out) (GPT-2), whose rows bitsandbytes
/// transposes; a model without such weights; llm_int8_skip_modules that are no list of regular expressions.
void quantize(Model& model, QuantFormat format, const std::string& config_json = "");

/// The format of a config.json's quantization_config; none: it has none, or weights that are read as floats. Throws
/// Error (usage) with the key: another method than bitsandbytes, mxfp4 and fp8; another code of 4 bits than nf4 and
/// fp4, or a type of storage other than uint8; FP8 without blocks, or with scales of activations.
[[nodiscard]] QuantFormat quantization_of(const std::string& config_json, const std::string& source);
/// The method ("mxfp4", "fp8") of a quantization_config whose weights are read as floats (io/model/coded_tensors.hpp);
/// "": there is none.
[[nodiscard]] std::string coded_method(const std::string& config_json);
/// The config.json of a model in floats: without quantization_config, other keys in their order; byte for byte if it
/// has none.
[[nodiscard]] std::string without_quantization(const std::string& config_json);

}  // namespace tessera::models
