// SPDX-License-Identifier: Apache-2.0
// Conversations with tool calls, reasoning and system messages under templates of the shape of published ones: which
// text has loss, and what is left out. The texts are those of transformers.

#include <nlohmann/json.hpp>

#include "io/chat/row_form.hpp"
#include "io/chat/template_format.hpp"
#include "io/corpus/chat_turn.hpp"
#include "io/data/rows.hpp"
#include "tests/io/chat/made.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

using io::LossRule;
using test::Made;
using test::made_of;

// Tools before the last question, calls alone in their turn, roles that alternate, identifiers of nine characters.
constexpr const char* mistral = R"({{- bos_token }}
{%- set ns = namespace(index=0) %}
{%- for m in messages %}
    {%- if not (m.role == "tool" or m.tool_calls is defined) %}
        {%- if (m["role"] == "user") != (ns.index % 2 == 0) %}{{ raise_exception("roles must alternate") }}{%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{%- set asked = messages | selectattr("role", "equalto", "user") | list %}
{%- for m in messages %}
    {%- if m["role"] == "user" %}
        {%- if tools and m == asked[-1] %}{{- "[AVAILABLE_TOOLS]" + (tools | tojson) + "[/AVAILABLE_TOOLS]" }}{%- endif %}
        {{- "[INST] " + m["content"] + "[/INST]" }}
    {%- elif m.tool_calls is defined %}
        {{- "[TOOL_CALLS] [" }}
        {%- for call in m.tool_calls %}
            {%- if call.id is not defined or call.id | length != 9 %}{{ raise_exception("ids have 9 characters") }}{%- endif %}
            {{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' + ("" if loop.last else ", ") }}
        {%- endfor %}
        {{- "]" + eos_token }}
    {%- elif m["role"] == "assistant" %}
        {{- " " + m["content"] | trim + eos_token }}
    {%- else %}
        {{- '[TOOL_RESULTS] {"content": ' + m.content + ', "call_id": "' + m.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %})";

constexpr const char* asks_twice = R"({"tools": [{"type": "function", "function": {"name": "depth"}}], "messages": [
    {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Deep?"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "a23456789", "type": "function", "function":
      {"name": "depth", "arguments": {"lake": "Baikal"}}}]},
    {"role": "tool", "tool_call_id": "a23456789", "content": "1642"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "b23456789", "type": "function", "function":
      {"name": "depth", "arguments": {"lake": "Ohrid"}}}], "loss": false},
    {"role": "tool", "tool_call_id": "b23456789", "content": "288"},
    {"role": "assistant", "content": "Baikal is."}]})";

TEST(ChatTools, OfATemplateThatRefusesTheirAbsence) {
  const Made made = made_of(mistral, asks_twice);
  EXPECT_EQ(made.why, "");
  EXPECT_EQ(made.text,
            "<s>[INST] Hi[/INST] ⟦Hello.</s>⟧[AVAILABLE_TOOLS][{\"type\": \"function\", \"function\": {\"name\": "
            "\"depth\"}}][/AVAILABLE_TOOLS][INST] Deep?[/INST]⟦[TOOL_CALLS] [{\"name\": \"depth\", \"arguments\": "
            "{\"lake\": \"Baikal\"}, \"id\": \"a23456789\"}]</s>⟧[TOOL_RESULTS] {\"content\": 1642, \"call_id\": "
            "\"a23456789\"}[/TOOL_RESULTS]⟦0:[TOOL_CALLS] [{\"name\": \"depth\", \"arguments\": {\"lake\": \"Ohrid\"}, "
            "\"id\": \"b23456789\"}]</s>⟧[TOOL_RESULTS] {\"content\": 288, \"call_id\": \"b23456789\"}[/TOOL_RESULTS]"
            " ⟦Baikal is.</s>⟧");
}

// Channels; another end of the last turn; analysis is printed of the last turn, and of calls without an answer.
constexpr const char* channels = R"(
{%- set called = namespace(name=none) %}
{%- for m in messages %}
    {%- if m.role == "assistant" and "tool_calls" in m %}
        {%- set later = namespace(answer=false) %}
        {%- for other in messages[loop.index:] %}
            {%- if other.role == "assistant" and "tool_calls" not in other %}{%- set later.answer = true %}{%- endif %}
        {%- endfor %}
        {%- if m.content and m.thinking %}{{ raise_exception("content and thinking") }}
        {%- elif m.thinking and not later.answer %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + m.thinking + "<|end|>" }}{%- endif %}
        {%- set call = m.tool_calls[0].function %}
        {{- "<|start|>assistant to=functions." + call.name + "<|channel|>commentary json<|message|>" + (call.arguments | tojson) + "<|call|>" }}
        {%- set called.name = call.name %}
    {%- elif m.role == "assistant" and loop.last %}
        {%- if m.thinking %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + m.thinking + "<|end|>" }}{%- endif %}
        {{- "<|start|>assistant<|channel|>final<|message|>" + m.content + "<|return|>" }}
    {%- elif m.role == "assistant" %}
        {{- "<|start|>assistant<|channel|>final<|message|>" + m.content + "<|end|>" }}
        {%- set called.name = none %}
    {%- elif m.role == "tool" %}
        {%- if called.name is none %}{{ raise_exception("no call before the tool") }}{%- endif %}
        {{- "<|start|>functions." + called.name + " to=assistant<|message|>" + (m.content | tojson) + "<|end|>" }}
    {%- else %}{{- "<|start|>" + m.role + "<|message|>" + m.content + "<|end|>" }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- "<|start|>assistant" }}{%- endif %})";

TEST(ChatTools, OfATemplateThatNamesTheCallInTheResult) {
  const Made made = made_of(channels, R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"},
      {"role": "assistant", "thinking": "look", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
      {"role": "tool", "content": "7"}, {"role": "assistant", "thinking": "so", "content": "b"}]})");
  EXPECT_EQ(made.why, "");
  EXPECT_EQ(made.text,
            "<|start|>user<|message|>q<|end|><|start|>assistant⟦<|channel|>final<|message|>a<|end|>⟧<|start|>user"
            "<|message|>r<|end|><|start|>assistant⟦ to=functions.f<|channel|>commentary json<|message|>{\"x\": 1}"
            "<|call|>⟧<|start|>functions.f to=assistant<|message|>\"7\"<|end|><|start|>assistant⟦<|channel|>analysis"
            "<|message|>so<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>⟧");
  EXPECT_TRUE(made.chat.lacks_reasoning) << "the call's";
  EXPECT_EQ(made_of(channels, R"({"messages": [{"role": "user", "content": "q"}, {"role": "tool_call", "content":
      {"name": "f", "arguments": {"x": 1}}}, {"role": "tool", "content": "7"}, {"role": "tool_call", "content":
      {"name": "f", "arguments": {"x": 2}}, "loss": false}, {"role": "tool", "content": "7"},
      {"role": "tool_call", "content": {"name": "f", "arguments": {"x": 2}}}]})")
                .text,
            "<|start|>user<|message|>q<|end|><|start|>assistant⟦ to=functions.f<|channel|>commentary json<|message|>{"
            "\"x\": 1}<|call|>⟧<|start|>functions.f to=assistant<|message|>\"7\"<|end|><|start|>assistant⟦0: "
            "to=functions.f<|channel|>commentary json<|message|>{\"x\": 2}<|call|>⟧<|start|>functions.f to=assistant"
            "<|message|>\"7\"<|end|><|start|>assistant⟦ to=functions.f<|channel|>commentary json<|message|>{\"x\": 2}"
            "<|call|>⟧")
      << "equal results";
}

TEST(ChatTurns, EndAlsoWhereTheTemplateEndsTheLastOneOtherwise) {
  EXPECT_EQ(made_of(channels, R"({"query": "q", "response": "a <b", "history": [["x", "y z"]]})").text,
            "<|start|>user<|message|>x<|end|><|start|>assistant⟦<|channel|>final<|message|>y z<|end|>⟧<|start|>user"
            "<|message|>q<|end|><|start|>assistant⟦<|channel|>final<|message|>a <b<|return|>⟧");
}

TEST(ChatTurns, WithoutAnEndLeaveOutWhatFollows) {
  const std::string text =
      "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '\\n' if m.role == 'user' else "
      "'<|' + m.role + '|>\\n' + m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";
  EXPECT_EQ(made_of(text, R"({"query": "my secret", "response": "b", "history": [["x", "y"], ["", "z"]]})").text,
            "<|user|>\nx\n<|assistant|>\n⟦y⟧<|user|>\n\n<|assistant|>\n⟦z⟧<|user|>\nmy secret\n<|assistant|>\n⟦b⟧");
  const Made tools = made_of(text, R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content":
      "", "tool_calls": [{"name": "f", "arguments": {}}]}, {"role": "tool", "content": "secret"},
      {"role": "assistant", "content": "a"}]})");
  EXPECT_EQ(tools.why, "");
  EXPECT_EQ(tools.text, "<|user|>\nq\n<|assistant|>\n⟦f⟧<|tool|>\nsecret<|assistant|>\n⟦a⟧");
  // The last turn ends in a token that others do not: a user's text is not taken for the end of the others.
  const std::string last =
      "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% if loop.last and m.role == 'assistant' %}"
      "{{ '<|return|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";
  EXPECT_EQ(made_of(last, R"({"query": "secret", "response": "b", "history": [["x", "y"]]})").text,
            "<|user|>x<|assistant|>⟦y⟧<|user|>secret<|assistant|>⟦b<|return|>⟧");
}

// A result's number is that of a call before it; the prompt goes on where an answer without a call begins.
constexpr const char* commands = R"({{- bos_token }}
{%- set ns = namespace(calls=0, results=0) %}
{%- for m in messages %}
    {%- if m.role == "assistant" and m.tool_calls %}
        {{- "<|START|><|BOT|><|ACTION|>[\n" }}
        {%- for call in m.tool_calls %}
            {{- '    {"id": "' ~ ns.calls ~ '", "tool_name": "' + call.function.name + '", "parameters": ' + (call.function.arguments | tojson) + "}" + ("\n" if loop.last else ",\n") }}
            {%- set ns.calls = ns.calls + 1 %}
        {%- endfor %}
        {{- "]<|END_ACTION|><|END|>" }}
    {%- elif m.role == "assistant" %}{{- "<|START|><|BOT|><|ANSWER|>" + m.content + "<|END_ANSWER|><|END|>" }}
    {%- elif m.role == "tool" %}
        {%- if ns.results >= ns.calls %}{{ raise_exception("a result without a call") }}{%- endif %}
        {{- "<|START|><|SYSTEM|><|RESULT|>" ~ ns.results ~ ": " + m.content + "<|END_RESULT|><|END|>" }}
        {%- set ns.results = ns.results + 1 %}
    {%- else %}{{- "<|START|><|USER|>" + m.content + "<|END|>" }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- "<|START|><|BOT|><|ANSWER|>" }}{%- endif %})";

TEST(ChatTools, OfATemplateThatCountsThem) {
  const Made made = made_of(commands, R"({"messages": [{"role": "user", "content": "q"},
      {"role": "tool_call", "content": "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {\"n\": 2}}]"},
      {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}, {"role": "assistant", "content": "a"}]})");
  EXPECT_EQ(made.why, "");
  EXPECT_EQ(
      made.text,
      "<s><|START|><|USER|>q<|END|><|START|><|BOT|>⟦<|ACTION|>[\n    {\"id\": \"0\", \"tool_name\": \"f\", "
      "\"parameters\": {}},\n    {\"id\": \"1\", \"tool_name\": \"g\", \"parameters\": {\"n\": 2}}\n]<|END_ACTION|>"
      "<|END|>⟧<|START|><|SYSTEM|><|RESULT|>0: 1<|END_RESULT|><|END|><|START|><|SYSTEM|><|RESULT|>1: "
      "2<|END_RESULT|><|END|><|START|><|BOT|><|ANSWER|>⟦a<|END_ANSWER|><|END|>⟧");
}

constexpr const char* text_arguments =
    "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}{% for c in m.tool_calls or [] %}"
    "{{ c.function.name + ARGUMENTS }}{% endfor %}{{ '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}";

std::string with_arguments(const std::string& expression) {
  std::string text = text_arguments;
  return text.replace(text.find("ARGUMENTS"), 9, expression);
}

TEST(ChatTools, HaveArgumentsAsTheTemplateWantsThem) {
  const std::string row = R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "",
      "tool_calls": [{"function": {"name": "f", "arguments": "{\"city\":\"Oslo\"}"}}]}, {"role": "tool", "content": "r"},
      {"role": "assistant", "content": "a"}]})";
  const auto expected = [](const std::string& arguments) {
    return "<user>q<end><assistant>⟦f" + arguments + "<end>⟧<tool>r<end><assistant>⟦a<end>⟧";
  };
  EXPECT_EQ(made_of(with_arguments("c.function.arguments"), row).text, expected(R"({"city":"Oslo"})")) << "by +";
  EXPECT_EQ(made_of(with_arguments("'' ~ c.function.arguments"), row).text, expected(R"({"city":"Oslo"})")) << "by ~";
  EXPECT_EQ(made_of(with_arguments("(c.function.arguments | tojson)"), row).text, expected(R"({"city": "Oslo"})"));
  const Made value = made_of(with_arguments("c.function.arguments"), R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}]})");
  EXPECT_NE(value.why.find("the chat template refuses the conversation"), std::string::npos) << value.why;
}

TEST(ChatPrompts, AreThoseOfTraining) {
  const auto asked = [](const std::string& text, const std::string& row) {
    std::int64_t repaired = 0;
    return io::render_prompt(io::ChatTemplate::parse(text, "test"),
                             io::read_conversation(io::parse_row(row, repaired), io::RowForm::messages), "");
  };
  const std::string row = R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "",
      "tool_calls": [{"function": {"name": "f", "arguments": "{\"city\":\"Oslo\"}"}}]},
      {"role": "tool", "content": "r", "train": 1}], "chat_template_kwargs": {"voice": "low", "tone": 2}})";
  const auto expected = [](const std::string& arguments) {
    return "<user>q<end><assistant>f" + arguments + "<end><tool>r<end><assistant>low";
  };
  const auto with = [](const std::string& arguments) { return with_arguments(arguments) + "{{ voice }}"; };
  EXPECT_EQ(asked(with("c.function.arguments"), row).text, expected(R"({"city":"Oslo"})")) << "by +";
  EXPECT_EQ(asked(with("'' ~ c.function.arguments"), row).text, expected(R"({"city":"Oslo"})")) << "by ~";
  EXPECT_EQ(asked(with("(c.function.arguments | tojson)"), row).text, expected(R"({"city": "Oslo"})"));
  EXPECT_EQ(asked(with("''"), row).unread, (std::vector<std::string>{"messages[].train", "chat_template_kwargs.tone"}));
  const std::string large = R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "",
      "tool_calls": [{"function": {"name": "f", "arguments": {"n": 18446744073709551617}}}]},
      {"role": "tool", "content": "r"}]})";
  EXPECT_EQ(asked(with("(c.function.arguments | tojson)"), large).text,
            "<user>q<end><assistant>f{\"n\": 18446744073709551617}<end><tool>r<end><assistant>");
  EXPECT_THROW((void)asked(with("c.function.arguments"), large), io::jinja::TemplateError);
}

TEST(ChatTools, OfTheOldFormAndTheirNumbersAreKept) {
  const std::string text = with_arguments("(c.function.arguments | tojson)");
  EXPECT_EQ(made_of(text, R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": null,
      "function_call": {"name": "f", "arguments": "{\"id\": 18446744073709551617, \"m\": -9223372036854775809}"}},
      {"role": "function", "name": "f", "content": "r"}, {"role": "assistant", "content": "a"}]})")
                .text,
            "<user>q<end><assistant>⟦f{\"id\": 18446744073709551617, \"m\": -9223372036854775809}<end>⟧<tool>r<end>"
            "<assistant>⟦a<end>⟧");
}

TEST(ChatTurns, OfATemplateThatDemandsASystemMessage) {
  const std::string text =
      "{% if messages[0].role != 'system' %}{{ raise_exception('a system message first') }}{% endif %}" +
      with_arguments("''");
  EXPECT_EQ(made_of(text, R"({"query": "q", "response": "a", "system": "s"})").text,
            "<system>s<end><user>q<end><assistant>⟦a<end>⟧");
  EXPECT_NE(made_of(text, R"({"query": "q", "response": "a"})").why.find("a system message first"), std::string::npos);
  const io::TextTokenizer tokenizer =
      io::TextTokenizer::load(std::string(TESSERA_TEST_DATA) + "/tokenizer/qwen2.tokenizer.json");
  const auto end_of_turn = [&](const std::string& demand) {
    return io::end_of_turn(
        io::ChatTemplate::parse("{% if messages[0].role != '" + demand +
                                    "' %}{{ raise_exception('no') }}{% endif %}"
                                    "{% for m in messages %}{{ m.content + '<|im_end|>' }}{% endfor %}",
                                "test"),
        tokenizer);
  };
  EXPECT_EQ(end_of_turn("system"), tokenizer.id_of("<|im_end|>"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(end_of_turn("wizard"), std::nullopt);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("warning W081: the chat template refuses a question"),
            std::string::npos);
}

TEST(ChatTurns, BeginBehindAnEmptyThinkBlock) {
  const std::string head = "{% for m in messages %}{{ '<' + m.role + '>' }}{% if m.role == 'assistant' %}",
                    tail =
                        "{% else %}{{ m.content }}{% endif %}{{ '<end>' }}{% endfor %}"
                        "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}",
                    row = R"({"query": "q", "response": "a", "chat_template_kwargs": {"enable_thinking": false}})";
  const std::string expected = "<user>q<end><assistant><think>\n\n</think>\n\n⟦a";
  EXPECT_EQ(made_of(head + "{{ '<think>\\n\\n</think>\\n\\n' + m.content }}" + tail, row).text, expected + "<end>⟧");
  EXPECT_EQ(
      made_of(head + "{% generation %}{{ '<think>\\n\\n</think>\\n\\n' + m.content }}{% endgeneration %}" + tail, row)
          .text,
      expected + "⟧<end>");
  const std::string prompted = tail.substr(0, tail.find("<assistant>")) + "<assistant><think>\\n' }}{% endif %}";
  EXPECT_EQ(made_of(head + "{{ '<think>\\n\\n</think>\\n\\n' + m.content }}" + prompted, row).text, expected + "<end>⟧")
      << "the prompt has the beginning of the block";
  EXPECT_EQ(made_of(head + "{{ '\\n<think></think>\\n' + m.content }}" + tail, row).text,
            "<user>q<end><assistant>\n<think></think>\n⟦a<end>⟧");
  EXPECT_EQ(made_of(head + "{{ '<think>\\nhm\\n</think>\\n\\n' + m.content }}" + tail, row).text,
            "<user>q<end><assistant>⟦<think>\nhm\n</think>\n\na<end>⟧");
  const std::string reads = head +
                            "{% if enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
                            "{{ m.content }}" +
                            tail;
  const Made made = made_of(reads, row);
  EXPECT_EQ(made.text, expected + "<end>⟧") << "the row's chat_template_kwargs";
  EXPECT_TRUE(made.chat.unread.empty());
}

TEST(ChatRowKeys, ThatTheTemplateDoesNotReadAreNamed) {
  const std::string row = R"({"messages": [{"role": "user", "content": "q", "train": false, "tone": "dry"},
      {"role": "assistant", "content": "a", "tool_calls": [{"function": {"name": "f", "arguments": {}}, "cost": 3}]}],
      "chat_template_kwargs": {"voice": "low"}})";
  const std::string text = with_arguments("''");
  EXPECT_EQ(made_of(text, row).chat.unread,
            (std::vector<std::string>{"messages[].train", "messages[].tone", "messages[].tool_calls[].cost",
                                      "chat_template_kwargs.voice"}));
  EXPECT_EQ(made_of("{{ voice }}{{ messages[0].tone }}" + text, row).chat.unread,
            (std::vector<std::string>{"messages[].train", "messages[].tool_calls[].cost"}));
  EXPECT_TRUE(made_of("{{ voice }}{{ messages | tojson }};" + text, row).chat.unread.empty()) << "all is printed";
}

TEST(ChatRowKeys, NamesAreReadOfTheRolesThatTheTemplatePrintsThemOf) {
  const auto row = [](const std::string& user, const std::string& tool) {
    return R"({"messages": [{"role": "user", "content": "q")" + user + R"(}, {"role": "assistant", "content": "",
        "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {}}}]}, {"role": "tool", "content": "r")" +
           tool + R"(}, {"role": "assistant", "content": "a"}]})";
  };
  const std::string of_user = R"(, "name": "Ada")", of_tool = R"(, "name": "f", "tool_call_id": "1")",
                    plain = with_arguments("''"), tools = "{% for m in messages if m.role == 'tool' %}",
                    reads = tools + "{{ m.name + m.tool_call_id }}{% endfor %}" + plain,
                    demands = tools +
                              "{% if m.tool_call_id is not defined %}{{ raise_exception('id') }}{% endif %}"
                              "{% endfor %}" +
                              plain;
  using Keys = std::vector<std::string>;
  EXPECT_EQ(made_of(plain, row(of_user, "")).chat.unread, Keys{"messages[].name"}) << "it reads the call's";
  EXPECT_EQ(made_of(plain, row("", of_tool)).chat.unread, Keys{}) << "a result's are the call's";
  EXPECT_EQ(made_of(plain, row(R"(, "tool_call_id": "1")", of_tool)).chat.unread, Keys{"messages[].tool_call_id"});
  EXPECT_EQ(made_of(reads, row("", of_tool)).chat.unread, Keys{});
  EXPECT_EQ(made_of(reads, row(of_user, of_tool)).chat.unread, Keys{"messages[].name"});
  EXPECT_EQ(made_of(demands, row("", of_tool)).chat.unread, Keys{});
}

TEST(ChatReasoning, ThatIsNotPrintedIsCounted) {
  const std::string plain = with_arguments("''"),
                    prints =
                        "{% for m in messages %}{{ '<' + m.role + '>' }}{% if m.reasoning_content %}{{ '<think>' + "
                        "m.reasoning_content + '</think>' }}{% endif %}{{ m.content + '<end>' }}{% endfor %}",
                    drops =
                        "{% for m in messages %}{{ '<' + m.role + '>' + m.content.split('</think>')[-1] + '<end>' }}"
                        "{% endfor %}";
  const auto row = [](const std::string& answer) {
    return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", )" + answer + "}]}";
  };
  for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
    const std::string answer = row(std::string("\"content\": \"a\", \"") + key + "\": \"because\"");
    EXPECT_TRUE(made_of(plain, answer).chat.lacks_reasoning) << key;
    EXPECT_FALSE(made_of(prints, answer).chat.lacks_reasoning) << key;
    EXPECT_TRUE(made_of(plain, answer, LossRule::all).chat.lacks_reasoning) << key;
  }
  const std::string inside = row(R"("content": "<think>\nbecause\n</think>\n\na")");
  EXPECT_FALSE(made_of(plain, inside).chat.lacks_reasoning);
  EXPECT_TRUE(made_of(drops, inside).chat.lacks_reasoning);
  EXPECT_FALSE(made_of(drops, row(R"("content": "<think>\n\n</think>\n\na")")).chat.lacks_reasoning) << "none to drop";
}

TEST(ChatDocuments, AreThoseOfTheRow) {
  const std::string text =
      "{% for d in documents or [] %}{{ '[' + d.text + ']' }}{% endfor %}"
      "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}{% endfor %}";
  const auto row = [](const std::string& documents) {
    return R"({"query": "q", "response": "a", "chat_template_kwargs": {"documents": )" + documents + "}}";
  };
  EXPECT_EQ(made_of(text, row(R"([{"text": "x"}, {"text": "y"}])")).text, "[x][y]<user>q<assistant>⟦a⟧");
  EXPECT_EQ(made_of(text, row("null")).text, "<user>q<assistant>⟦a⟧");
  for (const char* bad : {"[1]", "{}", "\"x\""})
    EXPECT_EQ(made_of(text, row(bad)).why, "the \"documents\" of \"chat_template_kwargs\" are not a list of objects");
  EXPECT_EQ(made_of(text.substr(text.find("{% for m")), row("[]")).chat.unread,
            (std::vector<std::string>{"chat_template_kwargs.documents"}));
}

}  // namespace
}  // namespace tessera
