// SPDX-License-Identifier: Apache-2.0
// The known keys of config.json. A family that reads a new one adds it here.
#include "models/config_keys.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "models/architectures.hpp"
#include "models/family.hpp"
#include "models/wrappers.hpp"
#include "runtime/base/error.hpp"

namespace tessera::models {

namespace {

/// What families read, or refuse by value.
constexpr std::string_view read_keys[] = {"activation_function",
                                          "add_cross_attention",
                                          "attention_bias",
                                          "attention_chunk_size",
                                          "attention_dropout",
                                          "attention_multiplier",
                                          "attn_logit_softcapping",
                                          "attn_pdrop",
                                          "attn_scale",
                                          "attn_temperature_tuning",
                                          "decoder_sparse_step",
                                          "embd_pdrop",
                                          "embedding_multiplier",
                                          "experts_per_token",
                                          "final_logit_softcapping",
                                          "floor_scale",
                                          "head_dim",
                                          "hidden_act",
                                          "hidden_activation",
                                          "hidden_size",
                                          "initializer_range",
                                          "interleave_moe_layer_step",
                                          "intermediate_size",
                                          "intermediate_size_mlp",
                                          "is_causal",
                                          "is_encoder_decoder",
                                          "layer_norm_epsilon",
                                          "layer_types",
                                          "logits_scaling",
                                          "max_position_embeddings",
                                          "max_window_layers",
                                          "mlp_bias",
                                          "mlp_only_layers",
                                          "model_type",
                                          "moe_intermediate_size",
                                          "moe_layers",
                                          "n_ctx",
                                          "n_embd",
                                          "n_head",
                                          "n_inner",
                                          "n_layer",
                                          "n_positions",
                                          "no_rope_layer_interval",
                                          "no_rope_layers",
                                          "norm_topk_prob",
                                          "num_attention_heads",
                                          "num_experts",
                                          "num_experts_per_tok",
                                          "num_hidden_layers",
                                          "num_key_value_heads",
                                          "num_local_experts",
                                          "original_max_position_embeddings",
                                          "output_router_logits",
                                          "partial_rotary_factor",
                                          "per_layer_config",
                                          "pruned_heads",
                                          "quantization_config",
                                          "query_pre_attn_scalar",
                                          "reorder_and_upcast_attn",
                                          "resid_pdrop",
                                          "residual_multiplier",
                                          "rms_norm_eps",
                                          "rope_local_base_freq",
                                          "rope_parameters",
                                          "rope_scaling",
                                          "rope_theta",
                                          "router_aux_loss_coef",
                                          "router_jitter_noise",
                                          "scale_attn_by_inverse_layer_idx",
                                          "scale_attn_weights",
                                          "sliding_window",
                                          "sliding_window_pattern",
                                          "swiglu_alpha",
                                          "swiglu_limit",
                                          "tie_word_embeddings",
                                          "use_bidirectional_attention",
                                          "use_qk_norm",
                                          "use_sliding_window",
                                          "vocab_size"};

/// What transformers and others keep there: names, types, tokens, defaults of generation, and settings of other heads.
constexpr std::string_view other_keys[] = {"_attn_implementation",
                                           "_attn_implementation_autoset",
                                           "_attn_implementation_internal",
                                           "_commit_hash",
                                           "_flash_attn_2_enabled",
                                           "_name_or_path",
                                           "_sliding_window_pattern",  // of transformers' own object
                                           "architectures",
                                           "attn_implementation",
                                           "auto_map",
                                           "bad_words_ids",
                                           "base_model_tp_plan",
                                           "begin_suppress_tokens",
                                           "bos_token_id",
                                           "cache_implementation",
                                           "chunk_size_feed_forward",
                                           "classifier_dropout",
                                           "cross_attention_hidden_size",
                                           "decoder_start_token_id",
                                           "diversity_penalty",
                                           "do_sample",
                                           "dtype",
                                           "early_stopping",
                                           "encoder_no_repeat_ngram_size",
                                           "eos_token_id",
                                           "exponential_decay_length_penalty",
                                           "finetuning_task",
                                           "forced_bos_token_id",
                                           "for_llm_compressor",
                                           "forced_eos_token_id",
                                           "gradient_checkpointing",
                                           "id2label",
                                           "initial_context_length",  // of gpt-oss; transformers does not read it
                                           "is_decoder",
                                           "is_llama_config",
                                           "keys_to_ignore_at_inference",
                                           "label2id",
                                           "length_penalty",
                                           "max_length",
                                           "max_new_tokens",
                                           "max_sequence_length",
                                           "min_length",
                                           "model_max_length",
                                           "no_repeat_ngram_size",
                                           "num_beam_groups",
                                           "num_beams",
                                           "num_labels",
                                           "num_return_sequences",
                                           "output_attentions",
                                           "output_hidden_states",
                                           "output_scores",
                                           "pad_token_id",
                                           "prefix",
                                           "pretraining_tp",
                                           "problem_type",
                                           "remove_invalid_values",
                                           "repetition_penalty",
                                           "return_dict",
                                           "return_dict_in_generate",
                                           "sep_token_id",
                                           "sliding_window_size",
                                           "summary_activation",
                                           "summary_first_dropout",
                                           "summary_proj_to_labels",
                                           "summary_type",
                                           "summary_use_proj",
                                           "suppress_tokens",
                                           "task_specific_params",
                                           "temperature",
                                           "tf_legacy_loss",
                                           "tie_encoder_decoder",
                                           "tie_last_hidden_states",
                                           "tokenizer_class",
                                           "top_k",
                                           "top_p",
                                           "torch_dtype",
                                           "torchscript",
                                           "transformers.js_config",
                                           "transformers_version",
                                           "typical_p",
                                           "unsloth_fixed",
                                           "unsloth_version",
                                           "use_bfloat16",
                                           "use_cache"};

/// Of released models, which say with false what is so here; with true they are not known.
constexpr std::string_view known_as_false[] = {"lm_head_bias", "rope_interleaved", "use_mrope"};

/// Of models of text and images: of other parts than the text.
constexpr std::string_view wrapper_keys[] = {
    "boi_token_index",      "eoi_token_index",       "image_token_id",
    "image_token_index",    "mm_tokens_per_image",   "multimodal_projector_bias",
    "projector_hidden_act", "spatial_merge_size",    "text_config",
    "video_token_id",       "vision_config",         "vision_end_token_id",
    "vision_feature_layer", "vision_start_token_id", "vision_token_id"};

/// Those that no family but the readers minds: without effect alone.
constexpr std::string_view harmless_where_unread[] = {"max_window_layers", "quantization_config"};

/// Keys of which transformers takes null as it takes a missing key: in these families, or in all but these. A null of
/// any other key that a family reads is refused.
struct NullRule {
  std::string_view key;
  std::string_view families = {};  // "llama mistral"; none: all families
  bool others = false;             // all but those
};
constexpr bool all_but = true;
constexpr NullRule null_rules[] = {{"add_cross_attention", "gpt2", all_but},
                                   {"attention_bias", "mistral"},
                                   {"attention_chunk_size"},
                                   {"attention_dropout", "gpt2 llama gemma2 gemma3_text"},
                                   {"attn_logit_softcapping"},
                                   {"attn_pdrop", "gpt2", all_but},
                                   {"embd_pdrop", "gpt2 phi3", all_but},
                                   {"experts_per_token"},
                                   {"final_logit_softcapping"},
                                   {"head_dim", "llama mistral mixtral"},
                                   {"hidden_act", "gemma2 gemma3_text"},
                                   {"is_encoder_decoder"},
                                   {"layer_types"},
                                   {"mlp_bias", "mistral"},
                                   {"mlp_only_layers"},
                                   {"moe_layers"},
                                   {"n_ctx"},
                                   {"n_inner"},
                                   {"no_rope_layers"},
                                   {"num_key_value_heads"},  // refused where it has no default
                                   {"original_max_position_embeddings", "phi3", all_but},
                                   {"partial_rotary_factor", "phi3", all_but},
                                   {"per_layer_config"},
                                   {"pruned_heads"},
                                   {"quantization_config"},
                                   {"resid_pdrop", "gpt2 phi3", all_but},
                                   {"rope_parameters"},
                                   {"rope_scaling"},
                                   {"sliding_window"},
                                   {"use_bidirectional_attention"},
                                   {"use_sliding_window", "qwen2 qwen3 qwen3_moe smollm3", all_but}};

/// The same of the objects of RoPE.
constexpr std::string_view rope_nulls[] = {"attention_factor", "beta_fast",      "beta_slow", "factor",
                                           "mscale",           "mscale_all_dim", "type"};

/// Of the objects "rope_parameters" and "rope_scaling", whatever their type.
constexpr std::string_view rope_keys[] = {"attention_factor",
                                          "beta_fast",
                                          "beta_slow",
                                          "factor",
                                          "finetuned",
                                          "high_freq_factor",
                                          "long_factor",
                                          "low_freq_factor",
                                          "mscale",
                                          "mscale_all_dim",
                                          "original_max_position_embeddings",
                                          "partial_rotary_factor",
                                          "rope_theta",
                                          "rope_type",
                                          "short_factor",
                                          "truncate",
                                          "type"};

/// Objects in "rope_parameters" of families whose kinds of layers have frequencies of their own.
constexpr const char* rope_layers[] = {"full_attention", "sliding_attention"};

/// In the rope objects of released models; transformers does not read them either (its name is attention_factor).
constexpr std::string_view unread_rope_keys[] = {"attn_factor"};

template <std::size_t N>
bool has_key(const std::string_view (&keys)[N], const std::string& key) {
  return std::ranges::find(keys, key) != std::end(keys);
}

bool takes_null(const std::string& family, const std::string& key) {
  const auto names = [&](std::string_view families) {
    return (" " + std::string(families) + " ").find(" " + family + " ") != std::string::npos;
  };
  return std::ranges::any_of(null_rules, [&](const NullRule& rule) {
    return rule.key == key && (rule.families.empty() || names(rule.families) != rule.others);
  });
}

/// Refuses a null that transformers refuses too, or does not take as it takes a missing key.
void refuse_nulls(const ConfigReader& config) {
  const std::string family = config.text("model_type");
  const auto refuse = [&](const ConfigReader& object, const std::string& key) {
    object.refuse(key, "is null, which transformers does not take in models of \"" + family + "\"",
                  "Write the value, or leave the key out if it is the default");
  };
  for (const std::string& key : config.read_nulls())
    if (has_key(read_keys, key) && !takes_null(family, key)) refuse(config, key);
  for (const char* name : {"rope_parameters", "rope_scaling"})
    for (const std::string& key : config.object(name).read_nulls())
      if (!has_key(rope_nulls, key)) refuse(config.object(name), key);
  for (const char* layers : rope_layers)
    for (const ConfigReader of = config.object("rope_parameters").object(layers);
         const std::string& key : of.read_nulls())
      if (!has_key(rope_nulls, key)) refuse(of, key);
}

/// Refuses what is something else in models of any family.
void refuse_generic_keys(const ConfigReader& config) {
  refuse_other_tasks(config);
  if (config.is_null("is_causal"))
    config.refuse("is_causal", "is null, which transformers reads as false", "Remove it");
  config.require("is_causal", true, "attention to later tokens");
  constexpr const char* layers = "per_layer_config";
  if (config.has(layers) && !has_no_value(config.json().at(layers)))
    config.refuse(layers, "is set: layers that have a config of their own are not supported");
}

}  // namespace

void refuse_unsupported_keys(const ConfigReader& config) {
  refuse_generic_keys(config);
  for (const std::string& key : config.unread())
    if (has_key(read_keys, key) && !has_key(harmless_where_unread, key) && config.json().at(key) != false)
      config.refuse(key, "is set, which is not supported in models of \"" + config.text("model_type") + "\"",
                    "Remove it if it has no effect");
  for (const char* name : {"rope_parameters", "rope_scaling"})
    for (const std::string& key : config.object(name).unread())
      if (!has_key(rope_keys, key) && !has_key(unread_rope_keys, key))
        config.object(name).refuse(key, "is set, which is not supported", "Remove it if it has no effect");
  for (const char* layers : rope_layers)
    for (const ConfigReader of = config.object("rope_parameters").object(layers); const std::string& key : of.unread())
      if (!has_key(rope_keys, key)) of.refuse(key, "is set, which is not supported", "Remove it if it has no effect");
  if (!is_text_part(config.text("model_type"))) refuse_nulls(config);
}

std::string dropout_of(const ConfigReader& config) {
  std::string asked;
  for (const char* key : {"embd_pdrop", "attn_pdrop", "resid_pdrop", "attention_dropout"})
    if (const double p = config.number(key, 0.0, 1.0, 0.0); p != 0)
      asked += strfmt("%s%s = %g", asked.empty() ? "" : ", ", key, p);
  return asked;
}

std::vector<std::string> unknown_config_keys(const std::string& config_json) {
  const auto json = nlohmann::json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> unknown;
  if (!json.is_object() || !json.contains("model_type") || !json.at("model_type").is_string()) return unknown;
  const std::string family = json.at("model_type").get<std::string>();
  if (find_family(family) == nullptr) return unknown;
  const bool wraps = is_text_part(family);
  const auto is_unknown = [](const std::string& key, const nlohmann::json& value) {
    return !has_no_value(value) && !has_key(read_keys, key) && !has_key(other_keys, key) &&
           !(value == false && has_key(known_as_false, key));
  };
  if (wraps && json.contains("text_config") && json.at("text_config").is_object())
    for (const auto& [key, value] : json.at("text_config").items())
      if (is_unknown(key, value) && !(key.ends_with("_token_id") && has_key(wrapper_keys, key)))
        unknown.push_back("text_config." + key);
  for (const auto& [key, value] : json.items()) {
    if (is_unknown(key, value) && !(wraps && has_key(wrapper_keys, key))) unknown.push_back(key);
    if ((key != "rope_parameters" && key != "rope_scaling") || !value.is_object()) continue;
    for (const std::string_view inner : unread_rope_keys)
      if (value.contains(std::string(inner))) unknown.push_back(key + "." + std::string(inner));
  }
  return unknown;
}

}  // namespace tessera::models
