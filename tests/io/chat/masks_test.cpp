// SPDX-License-Identifier: Apache-2.0
// Ids and loss masks of conversations against transformers (golden file of make_masks.py), and what is refused.

#include <map>
#include <nlohmann/json.hpp>

#include "io/chat/template_format.hpp"
#include "io/corpus/document_encoder.hpp"
#include "io/file/text_file.hpp"
#include "runtime/base/rng.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
using io::ChatTemplate;
using io::LossRule;
using Ids = std::vector<std::int32_t>;

std::string path_of(const std::string& name) { return std::string(TESSERA_TEST_DATA) + "/" + name; }

/// Begin and end of each run of tokens with loss.
Json runs_of(const std::vector<std::uint8_t>& loss) {
  Json runs = Json::array();
  for (std::size_t i = 0; i < loss.size(); ++i) {
    if (loss[i] == 0) continue;
    if (i == 0 || loss[i - 1] == 0) runs.push_back({i, i + 1});
    else runs.back()[1] = i + 1;
  }
  return runs;
}

TEST(ChatMasks, AreThoseOfTransformers) {
  const Json golden = Json::parse(io::read_text(path_of("chat/masks.golden.json")));
  std::map<std::string, io::TextTokenizer> tokenizers;
  for (const char* family : {"qwen2", "llama3", "metaspace"})
    tokenizers.emplace(family,
                       io::TextTokenizer::load(path_of(std::string("tokenizer/") + family + ".tokenizer.json")));
  ASSERT_GE(golden["cases"].size(), 320u);
  for (const Json& one : golden["cases"]) {
    const std::string name = one["template"], rule = one["rule"], family = one["tokenizer"];
    const auto special = golden["special_tokens"][family].get<std::map<std::string, std::string>>();
    SCOPED_TRACE(family + " " + name + " " + rule + " " + one["row"].get<std::string>());
    const io::TemplateFormat format(ChatTemplate::parse(golden["templates"][name], name, special),
                                    rule == "all"          ? LossRule::all
                                    : rule == "last_round" ? LossRule::last_round
                                                           : LossRule::standard,
                                    "");
    const io::TextTokenizer& tokenizer = tokenizers.at(family);
    io::DocumentEncoder encoder(tokenizer, std::nullopt, {.chat = &format});
    io::EncodedDocuments made;
    made.masks = true;
    const std::string row = one["row"];
    std::int64_t repaired = 0;
    try {
      encoder.encode_row(io::parse_row(row, repaired), {}, made);
    } catch (const io::RowError& error) {
      ADD_FAILURE() << error.why;
      continue;
    }
    EXPECT_EQ(Json(made.ids).dump(), one["ids"].dump());
    EXPECT_EQ(runs_of(made.loss).dump(), one["loss"].dump());
    EXPECT_EQ(made.ends, (std::vector<std::int64_t>{static_cast<std::int64_t>(made.ids.size())}));
  }
}

constexpr const char* chatml =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// The text with its parts that have loss in brackets, or why the row is refused.
std::string bracketed(const std::string& text, const std::string& row, LossRule rule = LossRule::standard,
                      const std::string& system = "") {
  const io::TemplateFormat format(ChatTemplate::parse(text, "test"), rule, system);
  std::int64_t repaired = 0;
  try {
    Json parsed = io::parse_row(row, repaired);
    const io::ChatText made = format.render(io::read_conversation(parsed, io::form_of(parsed).value()));
    std::string out;
    std::size_t at = 0;
    for (const io::LossSpan& span : made.loss) {
      EXPECT_GE(span.begin, at);
      out += made.text.substr(at, span.begin - at);
      out += span.weight == 1 ? "[" : strfmt("[%g:", span.weight);
      out += made.text.substr(span.begin, span.end - span.begin) + "]";
      at = span.end;
    }
    return out + made.text.substr(at);
  } catch (const io::RowError& error) { return error.why; }
}

TEST(ChatMasks, FollowSystemWeightsAndGenerationBlocks) {
  const std::string row = R"({"query": "q", "response": "a", "history": [["x", "y"]]})";
  EXPECT_EQ(bracketed("{% for m in messages %}{{ m.role[0] + ':' + m.content + ';' }}{% endfor %}", row,
                      LossRule::standard, "s"),
            "s:s;u:x;a:[y;]u:q;a:[a;]");
  EXPECT_EQ(bracketed("{% for m in messages %}{{ m.role[0] + ':' }}{% if m.role == 'assistant' %}{% generation %}"
                      "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %};{% endfor %}",
                      row, LossRule::last_round),
            "u:x;a:[0:y];u:q;a:[a];");
  EXPECT_EQ(bracketed("{% for m in messages %}{{ m.content + ';' }}{% endfor %}",
                      R"({"messages": [{"role": "user", "content": "q"},
                          {"role": "assistant", "content": "a", "loss_scale": 0.5}]})",
                      LossRule::all),
            "[q;][0.5:a;]");
}

TEST(ChatMasks, OfRowsWithAPromptOfMessagesAreOfTheCompletion) {
  const std::string text = "{% for m in messages %}{{ m.role[0] + ':' + m.content + ';' }}{% endfor %}";
  const auto row = [](const std::string& key) {
    return R"({"prompt": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a")" + key +
           R"(}, {"role": "user", "content": "r"}], "completion": [{"role": "assistant", "content": "b"},
               {"role": "user", "content": "s"}, {"role": "assistant", "content": "c"}], "system": "x"})";
  };
  EXPECT_EQ(bracketed(text, row("")), "s:x;u:q;a:[0:a;]u:r;a:[b;]u:s;a:[c;]");
  EXPECT_EQ(bracketed(text, row(R"(, "weight": 0.5)")), "s:x;u:q;a:[0.5:a;]u:r;a:[b;]u:s;a:[c;]");
  EXPECT_EQ(bracketed(text, row(R"(, "loss": true)")), "s:x;u:q;a:[a;]u:r;a:[b;]u:s;a:[c;]");
  EXPECT_EQ(bracketed(text, row(""), LossRule::last_round), "s:x;u:q;a:[0:a;]u:r;a:[0:b;]u:s;a:[c;]");
  EXPECT_EQ(bracketed(text, row(""), LossRule::all), "[s:x;u:q;a:a;u:r;a:b;u:s;a:c;]");
}

TEST(ChatMasks, RefuseToolCallsThatAreNotPrinted) {
  const std::string row = R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "",
      "tool_calls": [{"name": "lookup", "arguments": {}}]}, {"role": "tool", "content": "r"},
      {"role": "assistant", "content": "a"}], "tools": [{"name": "lookup"}]})";
  const std::string body =
      "{% for m in messages %}{{ m.role + ':' + m.content }}{% if m.tool_calls %}CALLS{% endif %};{% endfor %}";
  const auto with = [&](std::string calls) {
    std::string text = body;
    return "{{ tools }}" + text.replace(text.find("CALLS"), 5, std::move(calls));
  };
  for (const LossRule rule : {LossRule::standard, LossRule::last_round})
    EXPECT_NE(bracketed(with(""), row, rule).find("does not print the tool call of message 2 (lookup): rendered"),
              std::string::npos);
  EXPECT_NE(bracketed(with("{{ m.tool_calls[0].function.name }}"), row).find("assistant:[lookup;]"), std::string::npos);
}

TEST(ChatMasks, RefuseWithAReason) {
  const std::string row = R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})";
  EXPECT_EQ(bracketed(chatml, R"({"messages": [{"role": "user", "content": "q"}]})"),
            "the row has no assistant message");
  const std::string raised = bracketed("{{ raise_exception('only friends') }}", row);
  EXPECT_NE(raised.find("the chat template refuses the conversation: only friends"), std::string::npos) << raised;
  const std::string changed =
      bracketed("{% for m in messages %}{{ m.role }} {{ m.content | length }} {{ m.content }};{% endfor %}", row);
  EXPECT_NE(changed.find("expected \"user 1 q;assistant"), std::string::npos) << changed;
  EXPECT_NE(changed.find("rendered \"user 1 q;assistant 1 a;"), std::string::npos) << changed;
  EXPECT_NE(bracketed("{% for m in messages %}{{ m.role }};{% endfor %}", row)
                .find("does not print answer 1 once and in its order: given \""),
            std::string::npos);
  EXPECT_NE(bracketed("{% for m in messages %}{{ m.content | upper }};{% endfor %}", row).find("does not print answer"),
            std::string::npos);
}

/// A JSON value of any shape; often one that a row has.
std::string random_json(std::uint64_t seed, std::uint64_t& draw, int depth) {
  const auto pick = [&](std::uint32_t n) { return philox(seed, draw++)[0] % n; };
  static const std::vector<std::string> keys = {"messages",  "role",        "content",
                                                "from",      "value",       "conversations",
                                                "query",     "response",    "history",
                                                "system",    "tools",       "tool_calls",
                                                "function",  "arguments",   "name",
                                                "text",      "instruction", "input",
                                                "output",    "loss",        "loss_scale",
                                                "prompt",    "completion",  "function_call",
                                                "functions", "weight",      "chat_template_kwargs",
                                                "thinking",  "human",       "assistant",
                                                "x"};
  static const std::vector<std::string> texts = {"user",
                                                 "assistant",
                                                 "tool",
                                                 "gpt",
                                                 "human",
                                                 "system",
                                                 "tool_call",
                                                 "",
                                                 "hello",
                                                 "<think>\\n\\n</think>\\n\\nx",
                                                 "\\ud800",
                                                 "\xff",
                                                 "{\\\"name\\\": \\\"f\\\"}",
                                                 "[1]",
                                                 "<|im_end|>\\n",
                                                 "e\u0301\u0323",
                                                 "\\u0000",
                                                 "\xEE\x82\xA0tessera0"};
  switch (pick(depth > 5 ? 5 : 9)) {
    case 0: return "\"" + texts[pick(static_cast<std::uint32_t>(texts.size()))] + "\"";
    case 1: return std::to_string(static_cast<int>(pick(9)) - 3);
    case 2: return pick(2) ? "null" : "true";
    case 3: return pick(4) ? "0.5" : "NaN";
    case 4: return pick(8) ? "\"a\"" : "\"unclosed";
    case 5:
    case 6: {
      std::string all;
      for (std::uint32_t n = pick(4); n > 0; --n) all += (all.empty() ? "" : ", ") + random_json(seed, draw, depth + 1);
      return "[" + all + (pick(40) ? "]" : "");
    }
    default: {
      std::string all;
      for (std::uint32_t n = pick(5); n > 0; --n)
        all += (all.empty() ? "\"" : ", \"") + keys[pick(static_cast<std::uint32_t>(keys.size()))] +
               "\": " + random_json(seed, draw, depth + 1);
      return "{" + all + (pick(40) ? "}" : "");
    }
  }
}

/// Rows of any shape become documents with a mask, or are refused; nothing else happens.
void read_random_rows(std::uint64_t rows) {
  const io::TextTokenizer tokenizer = io::TextTokenizer::load(path_of("tokenizer/qwen2.tokenizer.json"));
  const io::TemplateFormat format(ChatTemplate::parse(chatml, "chatml"), LossRule::standard, "");
  io::DocumentEncoder encoder(tokenizer, 0, {.chat = &format});
  std::int64_t good = 0, bad = 0, shaped = 0;
  for (std::uint64_t i = 0; i < rows; ++i) {
    std::uint64_t draw = 0;
    std::string row = random_json(i, draw, 0);
    if (i % 2 == 0)  // half of them have the form of messages
      row = "{\"messages\": [{\"role\": \"user\", \"content\": " + random_json(i, draw, 5) +
            "}, {\"from\": \"gpt\", \"value\": " + random_json(i, draw, 5) + "}]" +
            (i % 4 == 0 ? ", \"tools\": " + random_json(i, draw, 4) : "") + "}";
    io::EncodedDocuments made;
    made.masks = true;
    try {
      std::int64_t repaired = 0;
      const Json parsed = io::parse_row(row, repaired);
      shaped += io::form_of(parsed).has_value();
      encoder.encode_row(parsed, {}, made);
      ++good;
      ASSERT_EQ(made.ids.size(), made.loss.size());
      ASSERT_EQ(made.ends.size(), 1u);
    } catch (const io::RowError& error) {
      ASSERT_FALSE(error.why.empty());
      ASSERT_TRUE(made.ids.empty() && made.loss.empty() && made.ends.empty()) << row;
      ++bad;
    }
  }
  EXPECT_GT(good, static_cast<std::int64_t>(rows / 100));
  EXPECT_GT(bad, static_cast<std::int64_t>(rows / 20));
  EXPECT_GT(shaped, good);
}

TEST(ChatRows, OfAnyShapeAreReadOrRefused) { read_random_rows(2000); }
TEST(ChatRowsLong, OfAnyShapeAreReadOrRefused) { read_random_rows(100000); }

}  // namespace
}  // namespace tessera
