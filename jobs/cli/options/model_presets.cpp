// SPDX-License-Identifier: Apache-2.0
// Configs of the built-in models: sizes and keys are those of the released config.json files.
#include "jobs/cli/options/model_presets.hpp"

#include <nlohmann/json.hpp>
#include <string_view>

#include "jobs/cli/options/table.hpp"
#include "runtime/base/error.hpp"

namespace tessera::jobs {

const char* const model_preset_names =
    "gpt2|gpt2-medium|gpt2-large|gpt2-xl|small|"
    "llama-3.2-1b|llama-3.2-3b|llama-3.1-8b|llama-3.1-70b|llama-3.1-405b|"
    "qwen2.5-0.5b|qwen2.5-1.5b|qwen2.5-3b|qwen2.5-7b|qwen2.5-14b|qwen2.5-32b|qwen2.5-72b|"
    "qwen3-0.6b|qwen3-1.7b|qwen3-4b|qwen3-8b|qwen3-14b|qwen3-32b|qwen3-30b-a3b|mixtral-8x7b|"
    "gemma2-2b|gemma2-9b|gemma3-270m|gemma3-1b|gpt-oss-20b|gpt-oss-120b|llama-4-scout|llama-4-maverick";

namespace {

using Json = nlohmann::ordered_json;

struct Gpt2Preset {
  const char* name;
  int layers, hidden, heads, vocab, positions;
};
constexpr Gpt2Preset gpt2_presets[] = {{"gpt2", 12, 768, 12, 50257, 1024},
                                       {"gpt2-medium", 24, 1024, 16, 50257, 1024},
                                       {"gpt2-large", 36, 1280, 20, 50257, 1024},
                                       {"gpt2-xl", 48, 1600, 25, 50257, 1024},
                                       {"small", 6, 384, 6, 256, 1024}};

struct DecoderPreset {
  const char *name, *family;
  int layers, hidden, inner, heads, kv_heads, head_dim, vocab, positions;
  bool tied;
  double theta, eps;
};
constexpr DecoderPreset decoder_presets[] = {
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, true, 5e5, 1e-5},
    {"llama-3.2-3b", "llama", 28, 3072, 8192, 24, 8, 128, 128256, 131072, true, 5e5, 1e-5},
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, false, 5e5, 1e-5},
    {"llama-3.1-70b", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 131072, false, 5e5, 1e-5},
    {"llama-3.1-405b", "llama", 126, 16384, 53248, 128, 8, 128, 128256, 131072, false, 5e5, 1e-5},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, true, 1e6, 1e-6},
    {"qwen2.5-1.5b", "qwen2", 28, 1536, 8960, 12, 2, 128, 151936, 131072, true, 1e6, 1e-6},
    {"qwen2.5-3b", "qwen2", 36, 2048, 11008, 16, 2, 128, 151936, 32768, true, 1e6, 1e-6},
    {"qwen2.5-7b", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 131072, false, 1e6, 1e-6},
    {"qwen2.5-14b", "qwen2", 48, 5120, 13824, 40, 8, 128, 152064, 131072, false, 1e6, 1e-5},
    {"qwen2.5-32b", "qwen2", 64, 5120, 27648, 40, 8, 128, 152064, 131072, false, 1e6, 1e-5},
    {"qwen2.5-72b", "qwen2", 80, 8192, 29568, 64, 8, 128, 152064, 131072, false, 1e6, 1e-5},
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, true, 1e6, 1e-6},
    {"qwen3-1.7b", "qwen3", 28, 2048, 6144, 16, 8, 128, 151936, 40960, true, 1e6, 1e-6},
    {"qwen3-4b", "qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 40960, true, 1e6, 1e-6},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, false, 1e6, 1e-6},
    {"qwen3-14b", "qwen3", 40, 5120, 17408, 40, 8, 128, 151936, 40960, false, 1e6, 1e-6},
    {"qwen3-32b", "qwen3", 64, 5120, 25600, 64, 8, 128, 151936, 40960, false, 1e6, 1e-6},
    {"qwen3-30b-a3b", "qwen3_moe", 48, 2048, 6144, 32, 4, 128, 151936, 40960, false, 1e6, 1e-6},
    {"mixtral-8x7b", "mixtral", 32, 4096, 14336, 32, 8, 128, 32000, 32768, false, 1e6, 1e-5},
    {"gemma2-2b", "gemma2", 26, 2304, 9216, 8, 4, 256, 256000, 8192, true, 1e4, 1e-6},
    {"gemma2-9b", "gemma2", 42, 3584, 14336, 16, 8, 256, 256000, 8192, true, 1e4, 1e-6},
    {"gemma3-270m", "gemma3_text", 18, 640, 2048, 4, 1, 256, 262144, 32768, true, 1e6, 1e-6},
    {"gemma3-1b", "gemma3_text", 26, 1152, 6912, 4, 1, 256, 262144, 32768, true, 1e6, 1e-6},
    {"gpt-oss-20b", "gpt_oss", 24, 2880, 2880, 64, 8, 64, 201088, 131072, false, 1.5e5, 1e-5},
    {"gpt-oss-120b", "gpt_oss", 36, 2880, 2880, 64, 8, 64, 201088, 131072, false, 1.5e5, 1e-5},
    {"llama-4-scout", "llama4_text", 48, 5120, 8192, 40, 8, 128, 202048, 10485760, false, 5e5, 1e-5},
    {"llama-4-maverick", "llama4_text", 48, 5120, 8192, 40, 8, 128, 202048, 1048576, false, 5e5, 1e-5}};

std::string config_of(const Gpt2Preset& preset) {
  return strfmt(
      "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": %d, \"n_embd\": %d, "
      "\"n_head\": %d, "
      "\"vocab_size\": %d, \"n_positions\": %d, \"n_inner\": null, \"activation_function\": \"gelu_new\", "
      "\"layer_norm_epsilon\": 1e-05, \"initializer_range\": 0.02, \"tie_word_embeddings\": true, "
      "\"embd_pdrop\": 0.0, \"attn_pdrop\": 0.0, \"resid_pdrop\": 0.0}\n",
      preset.layers, preset.hidden, preset.heads, preset.vocab, preset.positions);
}

const char* architecture(const std::string& family) {
  if (family == "llama") return "LlamaForCausalLM";
  if (family == "qwen2") return "Qwen2ForCausalLM";
  if (family == "qwen3") return "Qwen3ForCausalLM";
  if (family == "gemma2") return "Gemma2ForCausalLM";
  if (family == "gemma3_text") return "Gemma3ForCausalLM";
  if (family == "gpt_oss") return "GptOssForCausalLM";
  if (family == "llama4_text") return "Llama4ForCausalLM";
  return family == "mixtral" ? "MixtralForCausalLM" : "Qwen3MoeForCausalLM";
}

/// Those of text_config in the released files.
void add_llama4_keys(const DecoderPreset& preset, Json& json) {
  const bool scout = std::string_view(preset.name) == "llama-4-scout";
  json["num_local_experts"] = scout ? 16 : 128, json["num_experts_per_tok"] = 1;
  json["interleave_moe_layer_step"] = scout ? 1 : 2, json["intermediate_size_mlp"] = 16384;
  json["output_router_logits"] = false, json["router_aux_loss_coef"] = 0.001, json["router_jitter_noise"] = 0.0;
  json["use_qk_norm"] = scout, json["attention_bias"] = false;
  json["attention_chunk_size"] = json["floor_scale"] = 8192;
  json["attn_temperature_tuning"] = true, json["attn_scale"] = 0.1;
  if (scout)
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 16.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 1.0},
                            {"original_max_position_embeddings", 8192}};
}

/// Keys that only this family's config.json has.
void add_family_keys(const DecoderPreset& preset, Json& json) {
  const std::string family = preset.family;
  if (family == "llama")
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", preset.tied ? 32.0 : 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8192}};
  if (family == "qwen3_moe") {
    json["num_experts"] = 128, json["num_experts_per_tok"] = 8, json["moe_intermediate_size"] = 768;
    json["norm_topk_prob"] = true, json["decoder_sparse_step"] = 1, json["mlp_only_layers"] = Json::array();
    json["output_router_logits"] = false, json["router_aux_loss_coef"] = 0.001;
  }
  if (family == "mixtral") {
    json["num_local_experts"] = 8, json["num_experts_per_tok"] = 2;
    json["output_router_logits"] = false, json["router_aux_loss_coef"] = 0.02;
  }
  if (family.starts_with("gemma")) {
    json["hidden_act"] = json["hidden_activation"] = "gelu_pytorch_tanh";
    json["query_pre_attn_scalar"] = 256;
    json["sliding_window"] = family == "gemma2" ? 4096 : 512;
  }
  if (family == "gemma2") json["attn_logit_softcapping"] = 50.0, json["final_logit_softcapping"] = 30.0;
  if (family == "gemma3_text") json["rope_local_base_freq"] = 10000.0, json["sliding_window_pattern"] = 6;
  if (family == "llama4_text") add_llama4_keys(preset, json);
  if (family == "gpt_oss") {
    json["num_local_experts"] = preset.layers == 24 ? 32 : 128, json["num_experts_per_tok"] = 4;
    json["output_router_logits"] = false, json["router_aux_loss_coef"] = 0.9;
    json["attention_bias"] = true, json["sliding_window"] = 128, json["swiglu_limit"] = 7.0;
    json["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 32.0},    {"beta_fast", 32.0},
                            {"beta_slow", 1.0},    {"truncate", false}, {"original_max_position_embeddings", 4096}};
  }
}

std::string config_of(const DecoderPreset& preset) {
  Json json;
  json["architectures"] = {architecture(preset.family)};
  json["model_type"] = preset.family;
  json["vocab_size"] = preset.vocab, json["max_position_embeddings"] = preset.positions;
  json["hidden_size"] = preset.hidden, json["intermediate_size"] = preset.inner,
  json["num_hidden_layers"] = preset.layers;
  json["num_attention_heads"] = preset.heads, json["num_key_value_heads"] = preset.kv_heads,
  json["head_dim"] = preset.head_dim;
  json["hidden_act"] = "silu", json["rms_norm_eps"] = preset.eps, json["initializer_range"] = 0.02;
  json["rope_theta"] = preset.theta, json["tie_word_embeddings"] = preset.tied, json["attention_dropout"] = 0.0;
  add_family_keys(preset, json);
  return json.dump() + "\n";
}

}  // namespace

std::string model_preset_config(const std::string& name) {
  for (const Gpt2Preset& preset : gpt2_presets)
    if (name == preset.name) return config_of(preset);
  for (const DecoderPreset& preset : decoder_presets)
    if (name == preset.name) return config_of(preset);
  throw Error(ExitCode::usage, "--shape " + name + ": expected " + alternatives(model_preset_names), "command line");
}

}  // namespace tessera::jobs
