// SPDX-License-Identifier: Apache-2.0
// Finding a model's template and special tokens; the variables of a template.
#include "io/chat/chat_template.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>

#include "io/chat/builtin_templates.hpp"
#include "io/data/row_json.hpp"
#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "runtime/base/hash.hpp"

namespace tessera::io {
namespace {

using Json = nlohmann::ordered_json;
using Templates = std::map<std::string, jinja::Template>;

/// A JSON file that holds an object; an empty object if there is no such file.
Json optional_object(const std::string& path) {
  if (!exists(path)) return Json::object();
  Json json = Json::parse(read_text(path), nullptr, false);
  if (!json.is_object()) throw Error(ExitCode::data, "the file is not a JSON object", path);
  return json;
}

/// A token as text: a string, or the content of an AddedToken.
const std::string* token_text(const Json& token) {
  if (token.is_string()) return token.get_ptr<const std::string*>();
  if (!token.is_object()) return nullptr;
  const auto content = token.find("content");
  return content == token.end() ? nullptr : content->get_ptr<const std::string*>();
}

void add_special_tokens(std::map<std::string, std::string>& tokens, const Json& config) {
  for (const auto& [key, value] : config.items())
    if (const std::string* text = token_text(value); text && key.ends_with("_token")) tokens.emplace(key, *text);
  if (const auto extra = config.find("extra_special_tokens"); extra != config.end() && extra->is_object()) {
    for (const auto& [key, value] : extra->items())
      if (const std::string* text = token_text(value)) tokens.emplace(key, *text);
  }
}

/// The templates that tokenizer_config.json has.
Templates configured(const Json& config, const std::string& path) {
  Templates out;
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return out;
  const auto add = [&](const std::string& name, const Json& text) {
    if (!text.is_string()) throw Error(ExitCode::data, "chat_template '" + name + "' is not a text", path);
    out.emplace(name, jinja::Template::parse(text.get<std::string>(),
                                             path + " (chat_template" + (name == "default" ? "" : " " + name) + ")"));
  };
  if (found->is_string()) add("default", *found);
  else if (found->is_object())
    for (const auto& [name, text] : found->items()) add(name, text);
  else if (found->is_array())
    for (const Json& entry : *found) {
      const bool named =
          entry.is_object() && entry.contains("name") && entry["name"].is_string() && entry.contains("template");
      if (!named) throw Error(ExitCode::data, "an entry of chat_template has no name or no template", path);
      add(entry["name"].get<std::string>(), entry["template"]);
    }
  else throw Error(ExitCode::data, "chat_template is neither a text nor a list of named texts", path);
  return out;
}

jinja::Template read_template(const std::string& path) {
  return jinja::Template::parse(read_text(path, jinja::max_template_bytes), "chat template " + path);
}

/// All templates of a model directory, by name; "default" is the one of most conversations.
Templates own_templates(const std::string& directory, const Json& config) {
  Templates out = configured(config, directory + "/tokenizer_config.json");
  const std::string file = directory + "/chat_template.jinja", more = directory + "/additional_chat_templates";
  if (exists(file)) out.insert_or_assign("default", read_template(file));
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(more, unreadable))
    if (entry.path().extension() == ".jinja")
      out.insert_or_assign(entry.path().stem().string(), read_template(entry.path().string()));
  return out;
}

[[noreturn]] void no_such_template(const std::string& choice, const Templates& own) {
  std::string known;
  for (const std::string& name : ChatTemplate::names()) known += (known.empty() ? "" : ", ") + name;
  for (const auto& [name, unused] : own) known += ", " + name;
  throw Error(ExitCode::usage, "there is no chat template or file '" + choice + "'", "--template",
              "Leave it out for the model's own template, give a file, or one of " + known +
                  "; other tools' names of templates are not known");
}

Json prepared_message(const Json& message) {
  constexpr std::array<const char*, 3> reasoning_keys = {"reasoning_content", "thinking", "reasoning"};
  Json kept = Json::object();
  for (const auto& [key, value] : message.items())
    if (!value.is_null()) append_key(kept, key, value);
  const auto reasoning =
      std::find_if(reasoning_keys.begin(), reasoning_keys.end(), [&](const char* key) { return kept.contains(key); });
  if (reasoning == reasoning_keys.end()) return kept;
  const Json text = kept[*reasoning];
  Json out = Json::object();
  append_key(out, "thinking", kept.value("thinking", text));
  for (const auto& [key, value] : kept.items())
    if (key != "thinking") append_key(out, key, value);
  out["reasoning_content"] = text;
  return out;
}

}  // namespace

std::vector<std::string> ChatTemplate::names() {
  std::vector<std::string> out;
  for (const BuiltinTemplate& builtin : builtin_templates()) out.emplace_back(builtin.name);
  return out;
}

std::vector<std::string> ChatTemplate::markers(const std::string& name) {
  std::vector<std::string> out;
  for (const BuiltinTemplate& builtin : builtin_templates()) {
    if (name != builtin.name) continue;
    std::istringstream words(builtin.markers);
    for (std::string word; words >> word;) out.push_back(word);
  }
  return out;
}

ChatTemplate ChatTemplate::parse(const std::string& text, const std::string& name,
                                 const std::map<std::string, std::string>& special_tokens) {
  Templates templates;
  templates.emplace("default", jinja::Template::parse(text, name));
  ChatTemplate out(std::move(templates));
  out.special_tokens_ = special_tokens;
  return out;
}

bool ChatTemplate::is_in(const std::string& directory) {
  return !own_templates(directory, optional_object(directory + "/tokenizer_config.json")).empty();
}

ChatTemplate ChatTemplate::load(const std::string& directory, const std::string& choice) {
  const Json config = optional_object(directory + "/tokenizer_config.json");
  Templates templates;
  const auto builtins = builtin_templates();
  const auto builtin =
      std::find_if(builtins.begin(), builtins.end(), [&](const BuiltinTemplate& b) { return choice == b.name; });
  if (builtin != builtins.end()) {
    templates.emplace("default", jinja::Template::parse(builtin->text, "chat template " + choice));
  } else if (!choice.empty() && choice.find_first_of("./") != std::string::npos && exists(choice)) {
    templates.emplace("default", read_template(choice));
  } else {
    templates = own_templates(directory, config);
    if (!choice.empty()) {
      const auto chosen = templates.find(choice);
      if (chosen == templates.end() && !exists(choice)) no_such_template(choice, templates);
      jinja::Template one = chosen == templates.end() ? read_template(choice) : chosen->second;
      templates.clear();
      templates.emplace("default", std::move(one));
    }
  }
  if (templates.empty())
    throw Error(ExitCode::data, "the model has no chat template", directory, "Choose one with --template NAME|FILE");
  if (templates.count("default") == 0)
    throw Error(ExitCode::data, "the model has several chat templates and none is named default", directory,
                "Choose one with --template NAME");
  ChatTemplate out(std::move(templates));
  add_special_tokens(out.special_tokens_, config);
  add_special_tokens(out.special_tokens_, optional_object(directory + "/special_tokens_map.json"));
  return out;
}

const jinja::Template& ChatTemplate::used(bool with_tools) const {
  const auto tool_use = templates_.find("tool_use");
  return with_tools && tool_use != templates_.end() ? tool_use->second : templates_.at("default");
}

std::uint64_t ChatTemplate::hash() const {
  std::uint64_t hash = hash64("chat template");
  for (const auto& [name, one] : templates_) hash = hash64(one.hash(), hash64(name, hash));
  for (const auto& [name, text] : special_tokens_) hash = hash64(text, hash64(name, hash));
  return hash;
}

jinja::Rendered ChatTemplate::render(const Conversation& conversation, const jinja::RenderOptions& options) const {
  const bool with_tools = !conversation.tools.is_null();
  const jinja::Template& chosen = used(with_tools);
  if (!conversation.messages.is_array() || conversation.messages.empty())
    throw Error(ExitCode::data, "a conversation without messages", chosen.name());
  Json context = Json::object();
  for (const auto& [name, text] : special_tokens_) context[name] = text;
  context["documents"] = conversation.documents;
  for (const auto& [name, value] : conversation.variables.items()) context[name] = value;
  Json& messages = context["messages"] = Json::array();
  for (const Json& message : conversation.messages) {
    if (!message.is_object()) throw Error(ExitCode::data, "a message is not an object", chosen.name());
    messages.push_back(prepared_message(message));
  }
  context["tools"] = conversation.tools;
  context["add_generation_prompt"] = conversation.add_generation_prompt;
  return chosen.render(context, options);
}

}  // namespace tessera::io
