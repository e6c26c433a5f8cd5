// SPDX-License-Identifier: Apache-2.0
// Chat templates: equal to transformers on conversations drawn at random, and what is read from a model directory.
#include "io/chat/chat_template.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/io/files.hpp"

namespace tessera::io {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of_file(const std::string& name) {
  return test::bytes_of(std::string(TESSERA_TEST_DATA) + "/jinja/" + name);
}

const Json& golden() {
  static const Json json = Json::parse(text_of_file("chats.golden.json"));
  return json;
}

/// FNV-1a, 64 bits, as hex.
std::string fnv(const std::string& text) {
  std::uint64_t value = 0xcbf29ce484222325u;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return strfmt("%016llx", static_cast<unsigned long long>(value));
}

/// The number behind the letter at `at`.
std::size_t number_in(const std::string& word, std::size_t at) { return std::stoul(word.substr(at + 1)); }

Json message_of(const std::string& word, bool parts) {
  const std::map<char, const char*> roles = {{'S', "system"}, {'U', "user"}, {'A', "assistant"}, {'T', "tool"}};
  Json message = {{"role", roles.at(word[0])}};
  const Json& content = golden()["texts"][number_in(word, 0)];
  message["content"] = content;
  if (parts && word[0] == 'U') message["content"] = Json::array({{{"type", "text"}, {"text", content}}});
  for (std::size_t i = 1; i < word.size(); ++i) {
    if (word[i] == 'r') message["reasoning_content"] = golden()["texts"][number_in(word, i)];
    if (word[i] == 'c' || word[i] == 'x') message["tool_calls"].push_back(golden()["calls"][number_in(word, i)]);
  }
  return message;
}

/// A conversation from the words that make_golden.py describes.
Conversation conversation_of(const std::string& line) {
  Conversation out;
  out.messages = Json::array();
  std::istringstream words(line);
  bool parts = false;
  for (std::string word; words >> word;) {
    if (word == "g") out.add_generation_prompt = true;
    else if (word == "o") parts = true;
    else if (word[0] == 'k') out.variables["enable_thinking"] = word == "k1";
    else if (word[0] == 'n')
      for (std::size_t i = 0; i < number_in(word, 0); ++i) out.tools.push_back(golden()["tools"][i]);
    else out.messages.push_back(message_of(word, parts));
  }
  return out;
}

jinja::RenderOptions fixed_clock() {
  jinja::RenderOptions options;
  options.clock = [] {
    std::tm date{};
    date.tm_year = 124;
    date.tm_mon = 6;
    date.tm_mday = 26;
    date.tm_hour = 12;
    return std::chrono::system_clock::from_time_t(std::mktime(&date));
  };
  return options;
}

/// The text with its generation spans; "!" and the message of raise_exception; "?" if it is refused otherwise.
std::string answer(const ChatTemplate& chat, const Conversation& conversation) {
  try {
    const jinja::Rendered rendered = chat.render(conversation, fixed_clock());
    std::string out = rendered.text;
    for (const jinja::Span& span : rendered.generation)
      out += ";" + std::to_string(span.begin) + "," + std::to_string(span.end);
    return out;
  } catch (const jinja::TemplateError& error) {
    const std::string what = error.line() > 0 ? static_cast<const Error&>(error).what() : "";
    return error.raised() ? "!" + what.substr(0, what.rfind(" [")) : "?" + what;
  }
}

TEST(ChatTemplates, EqualTransformersOnRandomConversations) {
  const auto tokens = golden()["special_tokens"].get<std::map<std::string, std::string>>();
  ASSERT_GE(golden()["conversations"].size(), 300u);
  for (const auto& [name, outputs] : golden()["outputs"].items()) {
    const ChatTemplate chat = ChatTemplate::parse(text_of_file("templates/" + name + ".jinja"), name, tokens);
    EXPECT_EQ(answer(chat, conversation_of(golden()["conversations"][7])), golden()["full"][name]) << name;
    int texts = 0, wrong = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::string line = golden()["conversations"][i], want = outputs[i];
      const std::string got = answer(chat, conversation_of(line));
      const std::string hash = got[0] == '?' ? "?" : got[0] == '!' ? "!" + fnv(got) : fnv(got);
      texts += want[0] != '?' && want[0] != '!';
      if (hash != want && ++wrong <= 3) ADD_FAILURE() << name << ", " << line << ": " << got;
    }
    EXPECT_EQ(wrong, 0) << name;
    EXPECT_GE(texts, 300) << name;
  }
}

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

Conversation hello() {
  Conversation out;
  out.messages = Json::parse(R"([{"role": "user", "content": "Hi", "name": null}])");
  return out;
}

TEST(ChatTemplates, AreReadFromTheModelDirectory) {
  const test::TempDir directory;
  const std::string path = directory.path();
  write(path + "/tokenizer_config.json", R"({"chat_template": "{{ bos_token }}{{ messages[0] }}{{ eos_token }}",
      "bos_token": "<b>", "eos_token": {"content": "<e>", "lstrip": false}, "add_bos_token": true, "unk_token": null})");
  EXPECT_EQ(ChatTemplate::load(path).render(hello()).text, "<b>{'role': 'user', 'content': 'Hi'}<e>");
  write(path + "/special_tokens_map.json", R"({"bos_token": "<other>", "pad_token": "<p>"})");
  EXPECT_EQ(ChatTemplate::load(path).special_tokens().at("bos_token"), "<b>");
  EXPECT_EQ(ChatTemplate::load(path).special_tokens().at("pad_token"), "<p>");
  write(path + "/chat_template.jinja", "file{{ tools is none }}");
  write(path + "/additional_chat_templates/tool_use.jinja", "tools {{ (tools or [])|length }}");
  EXPECT_EQ(ChatTemplate::load(path).render(hello()).text, "fileTrue");
  Conversation with_tools = hello();
  with_tools.tools = Json::array({Json::object()});
  EXPECT_EQ(ChatTemplate::load(path).render(with_tools).text, "tools 1");
  EXPECT_EQ(ChatTemplate::load(path, "tool_use").render(hello()).text, "tools 0");
}

TEST(ChatTemplates, MayBeAListOfNamedOnes) {
  const test::TempDir directory;
  const std::string config = directory.path() + "/tokenizer_config.json";
  write(config, R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "rag", "template": "r"}]})");
  EXPECT_EQ(ChatTemplate::load(directory.path()).render(hello()).text, "d");
  EXPECT_EQ(ChatTemplate::load(directory.path(), "rag").render(hello()).text, "r");
  write(config, R"({"chat_template": [{"name": "rag", "template": "r"}]})");
  EXPECT_THROW((void)ChatTemplate::load(directory.path()), Error);
  write(config, R"({"chat_template": [{"name": "default"}]})");
  EXPECT_THROW((void)ChatTemplate::load(directory.path()), Error);
  write(config, "[");
  EXPECT_THROW((void)ChatTemplate::load(directory.path()), Error);
}

TEST(ChatTemplates, CanBeChosen) {
  const test::TempDir directory;
  const std::string file = directory.path() + "/own.jinja";
  write(file, "own {{ messages|length }}");
  EXPECT_EQ(ChatTemplate::load(directory.path(), file).render(hello()).text, "own 1");
  EXPECT_EQ(ChatTemplate::load(directory.path(), "chatml").render(hello()).text, "<|im_start|>user\nHi<|im_end|>\n");
  EXPECT_THROW((void)ChatTemplate::load(directory.path()), Error);
  try {
    (void)ChatTemplate::load(directory.path(), "chatlm");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.line(),
              "there is no chat template or file 'chatlm' [--template]. Leave it out for the model's own template, "
              "give a file, or "
              "one of chatml, gemma, llama3, mistral, phi3; other tools' names of templates are not known");
  }
}

TEST(ChatTemplates, OfTheProgramMarkWhatTheAssistantWrote) {
  Conversation conversation;
  conversation.messages = Json::parse(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "A"},
      {"role": "assistant", "content": "b"}, {"role": "user", "content": "C"}, {"role": "assistant", "content": "d"}])");
  const std::map<std::string, std::vector<std::string>> wanted = {{"chatml", {"b<|im_end|>", "d<|im_end|>"}},
                                                                  {"gemma", {"b<end_of_turn>", "d<end_of_turn>"}},
                                                                  {"llama3", {"b<|eot_id|>", "d<|eot_id|>"}},
                                                                  {"mistral", {" b</s>", " d</s>"}},
                                                                  {"phi3", {"b<|end|>", "d<|end|>"}}};
  const test::TempDir directory;
  write(directory.path() + "/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  for (const std::string& name : ChatTemplate::names()) {
    const ChatTemplate chat = ChatTemplate::load(directory.path(), name);
    const jinja::Rendered whole = chat.render(conversation);
    std::vector<std::string> marked;
    for (const jinja::Span& span : whole.generation)
      marked.push_back(whole.text.substr(span.begin_byte, span.end_byte - span.begin_byte));
    EXPECT_EQ(marked, wanted.at(name)) << name;
    Conversation asked = conversation;
    asked.messages.erase(4);
    asked.add_generation_prompt = true;
    EXPECT_TRUE(whole.text.starts_with(chat.render(asked).text)) << name;
  }
}

TEST(ChatTemplates, OfTheProgramLeaveNoMessageOut) {
  const test::TempDir directory;
  write(directory.path() + "/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  const auto turn = [](const std::string& role) {
    return R"({"role": ")" + role + R"(", "content": "the )" + role + R"("})";
  };
  const std::string comma = ", ", asked = turn("user") + comma + turn("assistant");
  for (const std::string& name : ChatTemplate::names()) {
    const ChatTemplate chat = ChatTemplate::load(directory.path(), name);
    const auto text = [&](const std::string& messages) {
      Conversation conversation;
      conversation.messages = Json::parse("[" + messages + "]");
      try {
        return chat.render(conversation).text;
      } catch (const jinja::TemplateError& error) { return std::string(error.raised() ? "refused" : error.what()); }
    };
    const bool merges = name == "gemma" || name == "mistral";  // the system message with the user's
    for (const std::string& messages :
         {asked + comma + turn("system"), turn("system") + comma + turn("system") + comma + asked, turn("system"),
          turn("system") + comma + turn("assistant"), asked + comma + turn("system") + comma + asked}) {
      EXPECT_EQ(text(messages) == "refused", merges) << name << " " << messages;
      EXPECT_TRUE(merges || text(messages).find("the system") != std::string::npos) << name;
    }
    EXPECT_EQ(text(turn("system") + comma + asked).find("the system\n\nthe user") != std::string::npos, merges);
    for (const char* role : {"developer", "tool"}) {
      EXPECT_EQ(text(asked + comma + turn(role)) == "refused", name == "mistral") << name;
      EXPECT_EQ(text(asked + comma + turn(role)).find("the " + std::string(role)) != std::string::npos,
                name != "mistral");
    }
  }
}

TEST(ChatTemplates, HaveReasoningUnderEveryName) {
  const ChatTemplate chat = ChatTemplate::parse("{{ messages[0] }}", "t");
  Conversation conversation;
  conversation.messages = Json::parse(R"([{"role": "assistant", "reasoning": "r", "content": null}])");
  EXPECT_EQ(chat.render(conversation).text,
            "{'thinking': 'r', 'role': 'assistant', 'reasoning': 'r', 'reasoning_content': 'r'}");
  conversation.messages = Json::array();
  EXPECT_THROW((void)chat.render(conversation), Error);
  conversation.messages = Json::array({"text"});
  EXPECT_THROW((void)chat.render(conversation), Error);
}

}  // namespace
}  // namespace tessera::io
