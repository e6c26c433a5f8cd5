// SPDX-License-Identifier: Apache-2.0
// Gemma 3 with vision ("gemma3"), Llama 4, Mistral 3 ("mistral3"), Qwen2-VL, Qwen2.5-VL and Qwen3-VL: their text parts.
// M-RoPE takes one position three times for text, and is then RoPE.
#include "models/wrappers.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "models/config_keys.hpp"
#include "models/family.hpp"
#include "runtime/base/error.hpp"

namespace tessera::models {
namespace {

using ConfigJson = nlohmann::json;

struct Wrapper {
  const char *name, *text_type;  // model_type, and that of its text_config
  const char* family;            // of the text
  Model (*make)(const ConfigReader& config, DType dtype);
  bool tied;                       // where neither config says it
  double theta = 0, norm_eps = 0;  // where the text's config does not say them, and the family has others; 0: its own
};
constexpr Wrapper wrappers[] = {
    {"gemma3", "gemma3_text", "gemma3_text", make_gemma3_text, true},
    {"llama4", "llama4_text", "llama4_text", make_llama4_text, false},
    {"mistral3", "mistral", "mistral", make_mistral, false},
    {"qwen2_vl", "qwen2_vl_text", "qwen2", make_qwen2, false, 1e6, 1e-5},
    {"qwen2_5_vl", "qwen2_5_vl_text", "qwen2", make_qwen2, false, 1e6, 1e-5},
    {"qwen3_vl", "qwen3_vl_text", "qwen3", make_qwen3, false, 5e5},
    {"qwen3_vl_moe", "qwen3_vl_moe_text", "qwen3_moe", make_qwen3_vl_moe_text, false, 5e5},
};

const Wrapper* find_wrapper(std::string_view name) {
  for (const Wrapper& wrapper : wrappers)
    if (name == wrapper.name) return &wrapper;
  return nullptr;
}

constexpr std::string_view other_parts[] = {
    "vision_tower.",       "vision_model.",       "multi_modal_projector.",       "visual.",
    "model.vision_tower.", "model.vision_model.", "model.multi_modal_projector.", "model.visual."};

/// Types of texts whose class in transformers has no "tie_word_embeddings".
constexpr std::string_view without_tied[] = {"qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"};

/// Takes M-RoPE away from an object of RoPE.
void without_mrope(ConfigJson& text, const char* key) {
  if (!text.contains(key) || !text.at(key).is_object()) return;
  ConfigJson& rope = text.at(key);
  rope.erase("mrope_section");
  rope.erase("mrope_interleaved");
  for (const char* type : {"type", "rope_type"})
    if (rope.contains(type) && rope.at(type) == "mrope") rope[type] = "default";
}

/// Fills in what the class of the wrapper's text takes for a missing number, where its family's takes another.
void add_defaults(ConfigJson& text, const Wrapper& wrapper) {
  const auto add = [&](const char* key, const ConfigJson& value) {
    if (!text.contains(key)) text[key] = value;
  };
  const auto has_theta = [&](const char* key) {
    return text.contains(key) && text.at(key).is_object() && text.at(key).contains("rope_theta");
  };
  if (wrapper.theta > 0 && !has_theta("rope_parameters") && !has_theta("rope_scaling"))
    add("rope_theta", wrapper.theta);
  if (wrapper.norm_eps > 0) add("rms_norm_eps", wrapper.norm_eps);
  // Nulls that transformers takes here, and not in models of the family.
  const auto drop_null = [&](const char* key) {
    if (text.contains(key) && text.at(key).is_null()) text.erase(key);
  };
  const bool of_qwen2 = wrapper.family == std::string_view("qwen2");
  if (of_qwen2 || wrapper.family == std::string_view("qwen3_moe")) drop_null("head_dim");
  if (of_qwen2) {
    for (const char* key : {"attention_dropout", "max_window_layers", "use_sliding_window"}) drop_null(key);
    add("max_window_layers", 80);
  }
  if (wrapper.family == std::string_view("gemma3_text"))  // the released configs say only what is no default
    for (const auto& [key, value] : {std::pair{"vocab_size", 262208},
                                     {"hidden_size", 2304},
                                     {"intermediate_size", 9216},
                                     {"num_hidden_layers", 26},
                                     {"num_attention_heads", 8},
                                     {"num_key_value_heads", 4},
                                     {"max_position_embeddings", 131072}})
      add(key, value);
}

/// Whether the embeddings are tied. The outer key decides; transformers takes the inner one, too, when there is no
/// outer, and Qwen2-VL's when it is true; of Llama 4 the inner one alone.
ConfigJson tied_of(const ConfigJson& all, const ConfigJson& text, const Wrapper& wrapper) {
  const ConfigJson no = nullptr;
  ConfigJson outer = all.value("tie_word_embeddings", no), inner = text.value("tie_word_embeddings", no);
  if (wrapper.family == std::string_view("llama4_text")) return inner.is_null() ? ConfigJson(false) : inner;
  if (wrapper.family == std::string_view("qwen2") && outer == false && !inner.is_null()) return inner;
  return !outer.is_null() ? outer : !inner.is_null() ? inner : ConfigJson(wrapper.tied);
}

/// Refuses null, which transformers refuses too, or takes for false, unless the class of the text has no such key.
void refuse_tied_nulls(const ConfigReader& config, const Wrapper& wrapper) {
  const auto refuse = [](const ConfigReader& of) {
    if (of.is_null("tie_word_embeddings"))
      of.refuse("tie_word_embeddings", "is null, which is no missing key for transformers", "Write true or false");
  };
  refuse(config);
  if (std::ranges::find(without_tied, wrapper.text_type) == std::end(without_tied))
    refuse(config.object("text_config"));
}

/// The config of the text, as that of a model of its family.
ConfigJson text_config(const ConfigReader& config, const Wrapper& wrapper) {
  const ConfigJson& all = config.json();
  const bool is_flat = !config.has("text_config");  // Qwen2-VL as it was published
  if (is_flat && wrapper.family != std::string_view("qwen2")) config.refuse("text_config", "is missing");
  if (!is_flat) (void)config.object("text_config");  // refuses what is none
  ConfigJson text = is_flat ? all : all.at("text_config");
  if (is_flat) text.erase("vision_config");
  if (const ConfigJson type = text.value("model_type", ConfigJson(wrapper.text_type));
      type != wrapper.text_type && type != wrapper.family && type != wrapper.name)
    config.object("text_config")
        .refuse("model_type", "is " + type.dump() + ", which is not supported",
                std::string("Supported: ") + wrapper.text_type);
  text["model_type"] = wrapper.family;
  if (!is_flat && config.object("text_config").has("quantization_config"))
    config.object("text_config")
        .refuse("quantization_config", "is set, which is not supported", "Move it beside \"text_config\"");
  refuse_tied_nulls(config, wrapper);
  text["tie_word_embeddings"] = tied_of(all, text, wrapper);
  for (const char* key : {"rope_parameters", "rope_scaling"})
    if (wrapper.family != std::string_view("mistral")) without_mrope(text, key);
  add_defaults(text, wrapper);
  return text;
}

/// An object of RoPE without what is the same as nothing.
ConfigJson rope_of(const ConfigJson& config, const char* key) {
  ConfigJson one = {{key, config.value(key, ConfigJson(nullptr))}};
  without_mrope(one, key);
  ConfigJson& rope = one.at(key);
  if (!rope.is_object()) return rope;
  for (const char* type : {"type", "rope_type"})
    if (rope.contains(type) && rope.at(type) == "default") rope.erase(type);
  return rope.empty() ? ConfigJson(nullptr) : rope;
}

/// Refuses an object of RoPE beside the text's config that says something else than it.
void check_outer_rope(const ConfigReader& config, const ConfigJson& text) {
  for (const char* key : {"rope_parameters", "rope_scaling"})
    if (config.has(key) && rope_of(config.json(), key) != rope_of(text, key))
      config.refuse(key, "is not that of \"text_config\"", "Write the one that the model was trained with in both");
}

/// Keys beside the text's config that say nothing else than it: the reader of the text has them.
void mark_read(const ConfigReader& config, const ConfigJson& text) {
  const bool is_flat = !config.has("text_config");
  for (const auto& [key, value] : config.json().items())
    if (is_flat || key == "tie_word_embeddings" || key == "initializer_range" ||
        (text.contains(key) && text.at(key) == value))
      (void)config.has(key);
  for (const char* rope : {"rope_parameters", "rope_scaling"})
    for (const char* key : {"mrope_section", "mrope_interleaved"}) (void)config.object(rope).has(key);
}

}  // namespace

Model make_text_part(const ConfigReader& config, DType dtype) {
  const Wrapper* const wrapper = find_wrapper(config.text("model_type"));
  TESSERA_ASSERT(wrapper != nullptr);
  const ConfigReader text(text_config(config, *wrapper).dump(), config.source() + ": text_config");
  if (config.has("text_config")) check_outer_rope(config, text.json());
  mark_read(config, text.json());
  if (std::string_view(wrapper->family).starts_with("qwen3")) {  // transformers' class has no windows
    text.require("use_sliding_window", false, "attention in a sliding window");
    if (text.is_null("layer_types"))
      text.refuse("layer_types", "is null, which transformers does not take", "Remove it");
  }
  if (wrapper->family == std::string_view("gemma3_text") && text.has("final_logit_softcapping"))
    text.refuse("final_logit_softcapping", "is set, and transformers' class of the whole model does not read it",
                "Set it to null");
  Model model = wrapper->make(text, dtype);
  model.dropout = dropout_of(text);
  refuse_unsupported_keys(text);
  model.family = wrapper->name;
  return model;
}

/// "language_model.model.norm.weight" and "model.language_model.norm.weight" → "model.norm.weight".
std::string text_part_canonical_name(const std::string& name) {
  for (const std::string_view part : other_parts)
    if (name.starts_with(part)) return "";
  constexpr std::string_view before = "language_model.", inside = "model.language_model.";
  if (name.starts_with(before)) return decoder_canonical_name(name.substr(before.size()));
  if (name.starts_with(inside)) return decoder_canonical_name("model." + name.substr(inside.size()));
  return decoder_canonical_name(name);
}

std::string name_in_wrapper(const std::string& family, const std::string& canonical) {
  if (family == "llama4") return "language_model." + canonical;
  constexpr std::string_view text = "model.";
  return canonical.starts_with(text) ? "model.language_model." + canonical.substr(text.size()) : canonical;
}

bool is_text_part(const std::string& family) { return find_wrapper(family) != nullptr; }

}  // namespace tessera::models
