// SPDX-License-Identifier: Apache-2.0
// The table of families.
#include "models/family.hpp"

namespace tessera::models {

namespace {
constexpr Family table[] = {
    {"gpt2", make_gpt2_model, gpt2_canonical_name},
    {"llama", make_llama, decoder_canonical_name},
    {"mistral", make_mistral, decoder_canonical_name},
    {"qwen2", make_qwen2, decoder_canonical_name},
    {"qwen3", make_qwen3, decoder_canonical_name},
    {"qwen3_moe", make_qwen3_moe, decoder_canonical_name},
    {"mixtral", make_mixtral, decoder_canonical_name},
    {"phi3", make_phi3, decoder_canonical_name},
    {"olmo2", make_olmo2, decoder_canonical_name},
    {"smollm3", make_smollm3, decoder_canonical_name},
    {"granite", make_granite, decoder_canonical_name},
    {"gemma2", make_gemma2, decoder_canonical_name},
    {"gemma3_text", make_gemma3_text, decoder_canonical_name},
    {"gpt_oss", make_gpt_oss, decoder_canonical_name},
    {"llama4_text", make_llama4_text, decoder_canonical_name},
    {"gemma3", make_text_part, text_part_canonical_name},
    {"llama4", make_text_part, text_part_canonical_name},
    {"mistral3", make_text_part, text_part_canonical_name},
    {"qwen2_vl", make_text_part, text_part_canonical_name},
    {"qwen2_5_vl", make_text_part, text_part_canonical_name},
    {"qwen3_vl", make_text_part, text_part_canonical_name},
    {"qwen3_vl_moe", make_text_part, text_part_canonical_name},
};
}  // namespace

std::span<const Family> families() { return table; }

const Family* find_family(const std::string& name) {
  for (const Family& family : table)
    if (name == family.name) return &family;
  return nullptr;
}

}  // namespace tessera::models
