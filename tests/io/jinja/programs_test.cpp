// SPDX-License-Identifier: Apache-2.0
// Templates drawn at random: equal to Jinja's answers, and nothing but errors with a line where they are damaged.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "io/jinja/template.hpp"
#include "tests/io/files.hpp"

namespace tessera::io::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string read(const std::string& name) { return test::bytes_of(std::string(TESSERA_TEST_DATA) + "/jinja/" + name); }

/// The output with its generation spans; "?" if it is refused.
std::string answer(const std::string& text, const Json& context, const RenderOptions& options = {}) {
  try {
    const Rendered rendered = Template::parse(text, "t").render(context, options);
    std::string out = rendered.text;
    for (const Span& span : rendered.generation)
      out += ";" + std::to_string(span.begin) + "," + std::to_string(span.end);
    return out;
  } catch (const TemplateError& error) {
    EXPECT_GE(error.line(), 1);
    EXPECT_LE(error.line(),
              1 + std::count(text.begin(), text.end(), '\n') + std::count(text.begin(), text.end(), '\r'));
    return "?";
  }
}

TEST(JinjaPrograms, AnswerAsJinja) {
  const Json golden = Json::parse(read("programs.golden.json"));
  int wrong = 0;
  for (const Json& program : golden["programs"]) {
    const std::string text = program[0], want = program[2];
    const std::string got = answer(text, golden["contexts"][program[1].get<std::size_t>()]);
    if (got != want && ++wrong <= 5) ADD_FAILURE() << text << "\n  want: " << want << "\n  got: " << got;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(golden["programs"].size(), 500u);
}

/// A text with some bytes or lines removed, doubled, exchanged, or replaced by parts of the language.
std::string damaged(std::string text, std::mt19937& random) {
  constexpr const char* parts[] = {"{%",
                                   "%}",
                                   "{{",
                                   "}}",
                                   "-%}",
                                   "{#",
                                   "|",
                                   "(",
                                   ")",
                                   "[",
                                   "]",
                                   "'",
                                   "\"",
                                   "\\",
                                   ".",
                                   ",",
                                   ":",
                                   " is ",
                                   " in ",
                                   " if ",
                                   " else ",
                                   "*",
                                   "**",
                                   "~",
                                   "-",
                                   "{% endfor %}",
                                   "{% for x in y %}",
                                   "{% set x = x %}",
                                   "99999999999999999999",
                                   "loop",
                                   "namespace(",
                                   "|list",
                                   "[::-1]",
                                   "\xc3",
                                   "{% endif %}",
                                   "|tojson",
                                   "range("};
  const auto upto = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n)(random); };
  for (std::size_t i = upto(4); i <= 4 && !text.empty(); ++i) {
    const std::size_t at = upto(text.size() - 1), length = upto(upto(1) ? 3 : 60);
    switch (upto(3)) {
      case 0: text.erase(at, length); break;
      case 1: text.insert(upto(text.size()), text.substr(at, length)); break;
      case 2: text.replace(at, upto(1), parts[upto(std::size(parts) - 1)]); break;
      default: std::swap(text[at], text[upto(text.size() - 1)]); break;
    }
  }
  return text;
}

TEST(JinjaPrograms, DamagedOnesAreRefusedOrRun) {
  const Json golden = Json::parse(read("programs.golden.json"));
  std::vector<std::string> texts;
  for (const char* name : {"chatml", "deepseek", "gemma", "llama3_1", "mistral", "phi", "qwen2_5", "qwen3", "typed"})
    texts.push_back(read(std::string("templates/") + name + ".jinja"));
  for (const Json& program : golden["programs"]) texts.push_back(program[0]);
  RenderOptions options;
  options.max_steps = 50'000;
  options.max_bytes = 8 << 20;
  options.max_output = 1 << 20;
  std::mt19937 random(7);
  int refused = 0, ran = 0;
  for (int i = 0; i < 6000; ++i) {
    const std::string text = damaged(texts[random() % (i % 2 ? 9 : texts.size())], random);
    ++(answer(text, golden["contexts"][random() % golden["contexts"].size()], options) == "?" ? refused : ran);
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(ran, 500);
}

}  // namespace
}  // namespace tessera::io::jinja
