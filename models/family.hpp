// SPDX-License-Identifier: Apache-2.0
#pragma once
// Family: a Hugging Face model_type, as a row of one table. docs/adding-a-model.md shows how to add one.

#include <span>
#include <string>

#include "models/config_reader.hpp"
#include "models/module.hpp"

namespace tessera::models {

struct Family {
  const char* name;  // model_type
  /// Throws Error (usage) as models::make does.
  Model (*make)(const ConfigReader& config, DType dtype);
  /// See models::canonical_name.
  std::string (*canonical_name)(const std::string& name);
};

/// In the order shown to users.
[[nodiscard]] std::span<const Family> families();
/// Null if there is none of that name.
[[nodiscard]] const Family* find_family(const std::string& name);

// The functions of the table's rows; each family has a file.
[[nodiscard]] Model make_gpt2_model(const ConfigReader& config, DType dtype);
[[nodiscard]] std::string gpt2_canonical_name(const std::string& name);
[[nodiscard]] Model make_llama(const ConfigReader& config, DType dtype);
[[nodiscard]] Model make_mistral(const ConfigReader& config, DType dtype);
[[nodiscard]] Model make_qwen2(const ConfigReader& config, DType dtype);
[[nodiscard]] Model make_qwen3(const ConfigReader& config, DType dtype);
[[nodiscard]] Model make_qwen3_moe(const ConfigReader& config, DType dtype);
[[nodiscard]] Model make_qwen3_vl_moe_text(const ConfigReader& config, DType dtype);
[[nodiscard]] Model make_mixtral(const ConfigReader& config, DType dtype);
[[nodiscard]] Model make_phi3(const ConfigReader& config, DType dtype);
[[nodiscard]] Model make_olmo2(const ConfigReader& config, DType dtype);
[[nodiscard]] Model make_smollm3(const ConfigReader& config, DType dtype);
[[nodiscard]] Model make_granite(const ConfigReader& config, DType dtype);
[[nodiscard]] Model make_gemma2(const ConfigReader& config, DType dtype);
[[nodiscard]] Model make_gemma3_text(const ConfigReader& config, DType dtype);
[[nodiscard]] Model make_gpt_oss(const ConfigReader& config, DType dtype);
[[nodiscard]] Model make_llama4_text(const ConfigReader& config, DType dtype);
/// Of models of text and images: wrappers.cpp.
[[nodiscard]] Model make_text_part(const ConfigReader& config, DType dtype);
[[nodiscard]] std::string text_part_canonical_name(const std::string& name);
[[nodiscard]] std::string decoder_canonical_name(const std::string& name);

}  // namespace tessera::models
