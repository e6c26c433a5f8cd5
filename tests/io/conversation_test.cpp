// SPDX-License-Identifier: Apache-2.0
// Forms of rows: how each becomes a conversation, and what is refused.

#include "io/chat/conversation_row.hpp"

#include "io/chat/row_form.hpp"
#include "io/data/rows.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

/// "form: role=content|role=content*weight", or why the row is refused.
std::string read(const std::string& text, const io::Columns& columns = {}) {
  std::int64_t repaired = 0;
  try {
    Json row = io::parse_row(text, repaired);
    io::rename_columns(row, columns);
    const std::optional<io::RowForm> form = io::form_of(row);
    if (!form) return "no form";
    if (form == io::RowForm::text) return "text: " + io::text_of_row(row);
    const io::ConversationRow made = io::read_conversation(row, *form);
    std::string all = std::string(io::name_of(*form)) + ":";
    for (std::size_t i = 0; i < made.messages.size(); ++i) {
      all += (i == 0 ? " " : "|") + made.role(i) + "=" + made.content(i);
      if (made.weights[i]) all += strfmt("*%g", *made.weights[i]);
      for (const auto& [key, value] : made.messages[i].items())
        if (key != "role" && key != "content") all += " " + key + value.dump();
    }
    return all + (made.tools.is_null() ? "" : " tools" + made.tools.dump());
  } catch (const io::RowError& error) { return error.why; }
}

TEST(RowForms, BecomeConversations) {
  const std::vector<std::pair<std::string, std::string>> forms = {
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})",
       "messages: user=q|assistant=a"},
      {R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}], "system": "s"})",
       "messages: system=s|user=q|assistant=a"},
      {R"({"conversation": [{"human": "q", "assistant": "a"}, {"human": "r", "assistant": "b"}]})",
       "messages: user=q|assistant=a|user=r|assistant=b"},
      {R"({"query": "q", "response": "a", "history": [["x", "y"]], "system": "s"})",
       "query and response: system=s|user=x|assistant=y|user=q|assistant=a"},
      {R"({"instruction": "do", "input": "this", "output": "a", "text": "ignored"})",
       "alpaca: user=do\nthis|assistant=a"},
      {R"({"instruction": "do", "input": "", "output": "a"})", "alpaca: user=do|assistant=a"},
      {R"({"instruction": "do", "input": "this", "response": "a"})", "alpaca: user=do\nthis|assistant=a"},
      {R"({"text": null, "query": "q", "response": "a"})", "query and response: user=q|assistant=a"},
      {R"({"messages": "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\"}]"})",
       "messages: user=q|assistant=a"},
      {R"({"prompt": "q", "completion": "a"})", "query and response: user=q|assistant=a"},
      {R"({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]})",
       "query and response: user=q|assistant=a"},
      {R"({"question": "q", "answer": "a"})", "query and response: user=q|assistant=a"},
      {R"({"text": "t", "meta": {"x": {"a": 1}, "y": {"a": 1}}, "images": [], "image": null, "audio": ""})", "text: t"},
      {R"({"text": "t", "prompt": "q", "completion": "a"})", "text: t"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}, "r"]},
           {"role": "assistant", "content": "a", "loss": false}, {"role": "assistant", "content": "b", "loss_scale": 0.5}]})",
       "messages: user=qr|assistant=a*0|assistant=b*0.5"},
      {R"({"messages": [{"role": "user", "content": "q"},
           {"role": "assistant", "content": null, "tool_calls": [{"name": "f", "arguments": "{\"x\": 1}"}]},
           {"role": "tool", "content": "r"}], "tools": "[{\"name\": \"f\"}]"})",
       R"(messages: user=q|assistant= tool_calls[{"type":"function","function":{"name":"f","arguments":{"x":1}}}]|tool=r tools[{"name":"f"}])"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "tool_call", "content": "{\"name\": \"f\", \"arguments\": {}}"},
           {"role": "tool_response", "content": "r"}, {"role": "assistant", "content": "a"}]})",
       R"(messages: user=q|assistant= tool_calls[{"type":"function","function":{"name":"f","arguments":{}}}]|tool=r|assistant=a)"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "tool_call", "content": {"name": "f"}, "loss": false},
           {"role": "tool_call", "content": {"name": "g", "parameters": 3}, "loss": false},
           {"role": "tool", "content": "r"}, {"role": "assistant", "content": "a", "weight": 0},
           {"role": "assistant", "content": "b", "weight": 1, "loss": true}]})",
       R"(messages: user=q|assistant=*0 tool_calls[{"type":"function","function":{"name":"f","arguments":null}},)"
       R"({"type":"function","function":{"name":"g","arguments":3}}]|tool=r|assistant=a*0|assistant=b*1)"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": null, "tool_calls": [],
           "function_call": {"name": "f", "arguments": "{\"x\": 1}"}}, {"role": "function", "content": "r"}]})",
       R"(messages: user=q|assistant= tool_calls[{"type":"function","function":{"name":"f","arguments":{"x":1}}}]|tool=r)"},
  };
  for (const auto& [row, expected] : forms) EXPECT_EQ(read(row), expected) << row;
  EXPECT_EQ(read(R"({"q": "1", "a": "2", "query": null})", {{"q", "query"}, {"a", "response"}}),
            "query and response: user=1|assistant=2");
}

TEST(RowForms, RefuseTwoKeysOfOneName) {
  EXPECT_EQ(read(R"({"q": "1", "response": "2", "query": "old"})", {{"q", "query"}}),
            R"("q" is to be "query" by --columns, which the row has itself)");
  EXPECT_EQ(read(R"({"text": "own", "t": "1"})", {{"t", "text"}}),
            R"("t" is to be "text" by --columns, which the row has itself)");
  EXPECT_EQ(read(R"({"q": "1", "p": "3", "response": "2"})", {{"q", "query"}, {"p", "query"}}),
            R"("p" and "q" are both to be "query" by --columns)");
  EXPECT_EQ(read(R"({"q": "1", "query": "3", "response": "2"})", {{"q", "query"}, {"query", "query"}}),
            R"("q" and "query" are both to be "query" by --columns)");
  const std::string both = "query and response: user=1|assistant=2";
  EXPECT_EQ(read(R"({"q": "1", "query": "old", "response": "2"})", {{"q", "query"}, {"query", "unused"}}), both);
  EXPECT_EQ(read(R"({"a": "1", "b": "3", "query": "1", "response": "2", "unused": "4"})",
                 {{"a", "unused"}, {"b", "unused"}, {"query", "query"}}),
            both);
  EXPECT_EQ(read(R"({"query": "2", "response": "1"})", {{"query", "response"}, {"response", "query"}}), both);
  EXPECT_EQ(read(R"({"q": null, "p": "1", "query": null, "response": "2"})", {{"q", "query"}, {"p", "query"}}), both);
  EXPECT_EQ(read(R"({"q": null, "query": "1", "response": "2"})", {{"q", "query"}}), both);
}

/// The keys of a row that nothing reads, and those that only a template may read.
std::vector<std::string> unread(const std::string& text) {
  std::int64_t repaired = 0;
  Json row = io::parse_row(text, repaired);
  const io::RowForm form = io::require_form(row);
  const io::ConversationRow made = io::read_conversation(std::move(row), form);
  std::vector<std::string> keys = made.unread;
  for (const std::string& key : made.unknown) keys.push_back("? " + key);
  return keys;
}

/// "role=content" of each message, then how many of them are the prompt; or why the row is refused.
std::string asked(const std::string& prompt, const std::string& completion, const std::string& more = "") {
  std::int64_t repaired = 0;
  try {
    Json row =
        io::parse_row(R"({"prompt": [)" + prompt + R"(], "completion": [)" + completion + "]" + more + "}", repaired);
    const io::ConversationRow made = io::read_conversation(std::move(row), io::RowForm::query);
    std::string all;
    for (std::size_t i = 0; i < made.messages.size(); ++i) all += made.role(i) + "=" + made.content(i) + "|";
    return all + std::to_string(made.prompt_messages);
  } catch (const io::RowError& error) { return error.why; }
}

TEST(RowForms, HavePromptsOfSeveralMessages) {
  const std::string q = R"({"role": "user", "content": "q"})", a = R"({"role": "assistant", "content": "a"})",
                    b = R"({"role": "assistant", "content": "b"})",
                    f = R"({"role": "tool_call", "content": "{\"name\": \"f\"}"})", comma = ", ";
  EXPECT_EQ(asked(q, a), "user=q|assistant=a|1");
  EXPECT_EQ(asked("", q + comma + a), "user=q|assistant=a|0");
  EXPECT_EQ(asked(q + comma + a + comma + q, b, R"(, "system": "s")"),
            "system=s|user=q|assistant=a|user=q|assistant=b|4");
  EXPECT_EQ(asked(R"({"human": "q", "assistant": "a"}, )" + q, b), "user=q|assistant=a|user=q|assistant=b|3");
  // A completion that begins with the prompt is the whole conversation; the order of keys, and nulls, do not count.
  EXPECT_EQ(asked(q, q + comma + a), "user=q|assistant=a|1");
  EXPECT_EQ(asked(q, R"({"content": "q", "tool_calls": null, "role": "user"}, )" + a), "user=q|assistant=a|1");
  EXPECT_EQ(asked(q + comma + a + comma + q, q + comma + a + comma + q + comma + b),
            "user=q|assistant=a|user=q|assistant=b|3");
  EXPECT_EQ(asked(q, q), "user=q|user=q|1") << "nothing follows it";
  EXPECT_EQ(asked(q + comma + f, a), "user=q|assistant=|assistant=a|2");
  EXPECT_EQ(asked(q + comma + a, f),
            "the completion begins with a tool call that is part of the prompt's last message");
}

TEST(RowForms, NameKeysThatAreNotRead) {
  using Keys = std::vector<std::string>;
  EXPECT_EQ(
      unread(R"({"query": "q", "response": "a", "history": [], "system": "s", "tools": [], "images": [], "id": 0})"),
      (Keys{"id"}));
  EXPECT_EQ(
      unread(
          R"({"instruction": "q", "input": "i", "output": "a", "text": "rendered", "answer": "other", "label": null})"),
      (Keys{"text", "answer"}));
  EXPECT_EQ(
      unread(R"({"prompt": "p", "rejected_response": "r", "system": "other", "history": [["a", "b"]], "messages": [
                      {"role": "system", "content": "s"}, {"role": "user", "content": "q", "name": "Ada"},
                      {"from": "gpt", "value": "a", "loss": true, "tool_calls": null, "refusal": null}]})"),
      (Keys{"system", "prompt", "rejected_response", "history", "? messages[].name"}));
  EXPECT_EQ(
      unread(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "q", "cache": 1}], "train": 1},
                      {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "loss": false,
                       "function": {"name": "f", "arguments": "{}", "strict": true}}], "reasoning_content": "r"},
                      {"role": "tool_call", "content": {"name": "g", "parameters": {"x": 1}}, "tool_call_id": "2"}]})"),
      (Keys{"messages[].content[].cache", "messages[].tool_call_id", "? messages[].train",
            "? messages[].tool_calls[].loss", "? messages[].tool_calls[].function.strict"}));
  Json row = {{"a", "q"}, {"b", "r"}, {"c", 3}};
  io::rename_columns(row, {{"a", "query"}, {"b", "response"}, {"c", io::unused_column}});
  EXPECT_EQ(unread(row.dump()), Keys{});
}

TEST(RowForms, HaveVariablesAndFunctions) {
  std::int64_t repaired = 0;
  Json row = io::parse_row(R"({"query": "q", "response": "a", "chat_template_kwargs": "{\"enable_thinking\": false}",
                               "functions": [{"name": "f", "parameters": {}}]})",
                           repaired);
  const io::ConversationRow made = io::read_conversation(row, io::RowForm::query);
  EXPECT_EQ(made.variables.dump(), R"({"enable_thinking":false})");
  EXPECT_EQ(made.tools.dump(), R"([{"type":"function","function":{"name":"f","parameters":{}}}])");
  EXPECT_TRUE(made.unread.empty());
}

TEST(RowForms, RefuseWhatIsNoConversation) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {R"({"a": 1})", "no form"},
      {R"({"messages": "x"})", "the messages are not a list"},
      {R"({"messages": []})", "the row has no message"},
      {R"({"messages": [3]})", "message 1 is not an object"},
      {R"({"messages": [{"content": "x"}]})", "message 1 has no role"},
      {R"({"messages": [{"role": "wizard", "content": "x"}]})",
       "message 1 has the role \"wizard\": expected system, user, assistant or tool"},
      {R"({"messages": [{"role": "user"}]})", "message 1 has no content"},
      {R"({"messages": [{"role": "user", "content": null}]})", "the content of message 1 is null"},
      {R"({"messages": [{"role": "user", "content": 3}]})", "the content of message 1 is not a string"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "the content of message 1 has a part that is not text"},
      {R"({"messages": [{"role": "user", "content": "q", "loss": true}]})",
       "message 1 has \"loss\", but its role is user: only an assistant's text has loss"},
      {R"({"messages": [{"role": "assistant", "content": "q", "loss_scale": -1}]})",
       "\"loss_scale\" of message 1 is not true, false or a number of 0 or more"},
      {R"({"messages": [{"role": "assistant", "content": "q", "tool_calls": [3]}]})",
       "a tool call of message 1 is not a JSON object"},
      {R"({"messages": [{"role": "assistant", "content": "q", "weight": 1, "loss": false}]})",
       "the keys of message 1 that weigh its loss contradict each other"},
      {R"({"messages": [{"role": "assistant", "content": "q"}, {"role": "tool_call", "content": "{\"name\": \"f\"}",
           "loss": false}]})",
       "the tool call in message 2 and the assistant's message before it are one answer, and their \"loss\" differs"},
      {R"({"messages": [{"role": "assistant", "content": "q", "function_call": {"name": "f"}, "tool_calls": [{"name": "f"}]}]})",
       "message 1 has \"tool_calls\" and \"function_call\""},
      {R"({"messages": [{"role": "user", "content": "q", "weight": 1}]})",
       "message 1 has \"weight\", but its role is user: only an assistant's text has loss"},
      {R"({"messages": [{"role": "assistant", "content": "a", "reasoning_content": "r", "thinking": "t"}]})",
       "\"reasoning_content\" and \"thinking\" of message 1 contradict each other"},
      {R"({"messages": [{"role": "assistant", "content": "a", "reasoning_content": "", "thinking": "t", "reasoning": "u"}]})",
       "\"thinking\" and \"reasoning\" of message 1 contradict each other"},
      {R"({"messages": [{"role": "assistant", "content": "a", "reasoning": "r", "thinking": "r", "reasoning_content": null}]})",
       R"(messages: assistant=a reasoning"r" thinking"r" reasoning_contentnull)"},
      {R"({"query": "q", "response": "a", "chat_template_kwargs": [1]})", "\"chat_template_kwargs\" is not an object"},
      {R"({"query": "q", "response": "a", "chat_template_kwargs": {"tools": []}})",
       "\"chat_template_kwargs\" sets \"tools\", which is the conversation's"},
      {R"({"query": "q", "response": "a", "tools": "[{"})", "\"tools\" is a text that is not JSON"},
      {R"({"query": "q", "response": "a", "tools": [{}], "functions": [{}]})",
       "the row has \"tools\" and \"functions\""},
      {R"({"query": 3, "response": "a"})", "the query is not a string"},
      {R"({"query": "q", "response": ["a"]})", "the response is not a string"},
      {R"({"query": "q", "response": "a", "history": [["x"]]})", "\"history\" is not a list of [query, response]"},
      {R"({"instruction": "", "input": "", "output": "a"})", "\"instruction\" and \"input\" are empty or missing"},
      {R"({"query": "q", "response": "a", "tools": {}})", "\"tools\" is not a list"},
      {R"({"messages": [{"role": "user", "role": "assistant", "content": "q"}]})",
       "\"role\" occurs twice in an object"},
      {R"({"text": "t", "images": ["a.png"]})", "the row has \"images\", and models here read text alone"},
      {R"({"query": "q", "response": "a", "video": "a.mp4"})",
       "the row has \"video\", and models here read text alone"},
      {R"({"query": "<image>q", "response": "a"})", "message 1 has an <image>, and models here read text alone"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image", "text": "q"}]}]})",
       "the content of message 1 has a part that is not text"},
  };
  for (const auto& [row, why] : bad) EXPECT_EQ(read(row), why) << row;
  test::expect_error(ExitCode::usage, "--columns", [] { (void)io::parse_columns("{\"a\": 3}", "--columns"); });
  EXPECT_EQ(io::parse_columns("{\"a\": \"b\"}", ""), (io::Columns{{"a", "b"}}));
  test::expect_error(ExitCode::usage, "names \"a\" twice",
                     [] { (void)io::parse_columns("{\"a\": \"b\", \"a\": \"c\"}", "--columns"); });
}

}  // namespace
}  // namespace tessera
