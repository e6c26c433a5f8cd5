// SPDX-License-Identifier: Apache-2.0
#pragma once
// ChatTemplate: the template of a model, applied to conversations as transformers' apply_chat_template does.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/jinja/template.hpp"

namespace tessera::io {

/// What a template is applied to.
struct Conversation {
  nlohmann::ordered_json messages;             // an array of objects with "role" and, mostly, "content"
  nlohmann::ordered_json tools = nullptr;      // an array of JSON schemas of functions, or null
  nlohmann::ordered_json documents = nullptr;  // an array of objects, or null
  bool add_generation_prompt = false;          // end with the header of an assistant's answer
  /// More variables (`enable_thinking`, …); they take precedence over special tokens and documents.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
};

class ChatTemplate {
 public:
  /// The template of a model directory: chat_template.jinja (with additional_chat_templates/NAME.jinja), or
  /// `chat_template` of tokenizer_config.json, a text or a list of named texts. `choice`: "" for it; else a name in
  /// that list, a name of `names()`, or a file. Special tokens are those of the directory in any case. Throws Error
  /// (data, or usage for a choice that is nothing).
  [[nodiscard]] static ChatTemplate load(const std::string& model_directory, const std::string& choice = {});
  /// Whether a model directory has one. Throws Error (data): it is not valid.
  [[nodiscard]] static bool is_in(const std::string& model_directory);
  /// A template as text, with special tokens by variable ("bos_token"). `name` is for errors. Throws TemplateError.
  [[nodiscard]] static ChatTemplate parse(const std::string& text, const std::string& name,
                                          const std::map<std::string, std::string>& special_tokens = {});
  /// Templates that come with the program.
  [[nodiscard]] static std::vector<std::string> names();
  /// What the program's template of this name writes around messages, which a tokenizer should have as tokens; empty
  /// for other templates.
  [[nodiscard]] static std::vector<std::string> markers(const std::string& name);

  /// The text of a conversation. As in transformers, keys of messages whose value is null are dropped, and a message's
  /// reasoning is there as `reasoning_content` and `thinking` whichever of these, or `reasoning`, it came under. Throws
  /// TemplateError (data): see jinja::Template::render; Error (data): no message, a message that is no object.
  [[nodiscard]] jinja::Rendered render(const Conversation& conversation,
                                       const jinja::RenderOptions& options = {}) const;

  /// The template that is used for a conversation with or without tools.
  [[nodiscard]] const jinja::Template& used(bool with_tools) const;
  /// A hash of all templates and special tokens.
  [[nodiscard]] std::uint64_t hash() const;
  /// "bos_token", "eos_token", … as templates see them.
  [[nodiscard]] const std::map<std::string, std::string>& special_tokens() const { return special_tokens_; }

 private:
  explicit ChatTemplate(std::map<std::string, jinja::Template> templates) : templates_(std::move(templates)) {}
  std::map<std::string, jinja::Template> templates_;  // "default", and "tool_use" if there is one
  std::map<std::string, std::string> special_tokens_;
};

}  // namespace tessera::io
