// SPDX-License-Identifier: Apache-2.0
// Where answers begin and end under templates that print several messages in one turn, or begin a turn otherwise where
// there is reasoning.

#include <gtest/gtest.h>

#include "tests/io/chat/made.hpp"

namespace tessera {
namespace {

using test::Made;
using test::made_of;

// Results are printed with their calls only, in the model's turn; HEADER says when an answer has a header of its own.
std::string turns_that_go_on(const std::string& header, const std::string& remark = "") {
  std::string text = R"({%- for m in messages %}
    {%- if m.role == "user" %}{{- "<turn>user\n" + m.content + "<turn_end>\n" }}
    {%- elif m.role == "assistant" %}
        {%- if HEADER %}{{- "<turn>model\n" }}{%- endif %}
        {%- if m.reasoning_content and (loop.last or messages[-1].role == "tool") %}
            {{- "<|thought|>" + m.reasoning_content + "<|thought_end|>" }}
        {%- endif %}
        {%- for c in m.tool_calls or [] %}{{- "<call>" + c.function.name + "<call_end>" }}{%- endfor %}
        {%- if m.tool_calls %}
            {{- "<result>" }}
            {%- set ns = namespace(open=true) %}
            {%- for t in messages[loop.index:] %}
                {%- if t.role != "tool" %}{%- set ns.open = false %}
                {%- elif ns.open %}{{- t.content + "<result_end>" }}{%- endif %}
            {%- endfor %}REMARK
        {%- else %}{{- m.content + "<turn_end>\n" }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- "<turn>model\n" }}{%- endif %})";
  text.replace(text.find("HEADER"), 6, header);
  return text.replace(text.find("REMARK"), 6, remark);
}
constexpr const char* continued = "loop.first or messages[loop.index0 - 1].role != 'tool'";

constexpr const char* calls_twice = R"({"messages": [{"role": "user", "content": "q"},
    {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {}}]},
    {"role": "tool", "content": "secret"},
    {"role": "assistant", "content": "", "tool_calls": [{"name": "g", "arguments": {}}, {"name": "h", "arguments": {}}]},
    {"role": "tool", "content": "secret"}, {"role": "tool", "content": "more"}, {"role": "assistant", "content": "a"},
    {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}]})";

TEST(ChatTurns, ThatGoOnBehindResultsLeaveTheseOut) {
  const Made made = made_of(turns_that_go_on(continued), calls_twice);
  EXPECT_EQ(made.why, "");
  EXPECT_EQ(made.text,
            "<turn>user\nq<turn_end>\n<turn>model\n⟦<call>f<call_end><result>⟧secret<result_end>⟦<call>g<call_end>"
            "<call>h<call_end><result>⟧secret<result_end>more<result_end>⟦a<turn_end>\n⟧<turn>user\nr<turn_end>\n"
            "<turn>model\n⟦b<turn_end>\n⟧");
  const Made headers = made_of(turns_that_go_on("true"), calls_twice);
  EXPECT_EQ(headers.why, "");
  EXPECT_EQ(headers.text,
            "<turn>user\nq<turn_end>\n<turn>model\n⟦<call>f<call_end><result>⟧secret<result_end><turn>model\n"
            "⟦<call>g<call_end><call>h<call_end><result>⟧secret<result_end>more<result_end><turn>model\n⟦a<turn_end>\n"
            "⟧<turn>user\nr<turn_end>\n<turn>model\n⟦b<turn_end>\n⟧");
}

TEST(ChatTurns, ThatGoOnWhereReasoningIsDropped) {
  const Made made = made_of(turns_that_go_on(continued), R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "", "reasoning_content": "look", "tool_calls": [{"name": "f", "arguments": {}}]},
      {"role": "tool", "content": "secret"}, {"role": "assistant", "content": "a", "reasoning_content": "so"}]})");
  EXPECT_EQ(made.why, "");
  EXPECT_EQ(made.text,
            "<turn>user\nq<turn_end>\n<turn>model\n⟦<call>f<call_end><result>⟧secret<result_end>⟦<|thought|>so"
            "<|thought_end|>a<turn_end>\n⟧");
  EXPECT_TRUE(made.chat.lacks_reasoning) << "the call's";
}

TEST(ChatTurns, WithTextBehindResults) {
  const std::string row = R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "I look.", "tool_calls": [{"name": "f", "arguments": {}}]},
      {"role": "tool", "content": "secret"}, {"role": "assistant", "content": "a"}]})";
  EXPECT_EQ(
      made_of(turns_that_go_on(continued, "{{- m.content }}"), row).text,
      "<turn>user\nq<turn_end>\n<turn>model\n⟦<call>f<call_end><result>⟧secret<result_end>I look.⟦a<turn_end>\n⟧");
  const std::string joined =
      "{{- m.content + ('\n' if messages[-1].role == 'assistant' and not loop.last else "
      "'<turn_end>\n') }}";
  EXPECT_NE(made_of(turns_that_go_on(continued, joined), row)
                .why.find("prints answers 1 and 2 so that where one ends cannot be found"),
            std::string::npos);
}

// The prompt opens the reasoning; an answer without it begins with the end of the reasoning.
constexpr const char* opened = R"({%- for m in messages %}
    {%- if m.role == "assistant" %}
        {{- "<bot>" + ("<think>" + m.reasoning_content if m.reasoning_content else "") + "</think>" + m.content }}
        {%- for c in m.tool_calls or [] %}{{- "<call>" + c.function.name }}{%- endfor %}{{- "<end>" }}
    {%- else %}{{- "<" + m.role + ">" + m.content }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- "<bot><think>" }}{%- endif %})";

TEST(ChatTurns, WithReasoningThatThePromptOpens) {
  EXPECT_EQ(made_of(opened, R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a", "reasoning_content": "hm"}, {"role": "user", "content": "r"},
      {"role": "assistant", "content": "b", "reasoning_content": "well"}]})")
                .text,
            "<user>q<bot><think>⟦hm</think>a<end>⟧<user>r<bot><think>⟦well</think>b<end>⟧");
  std::string last = opened;
  last.replace(last.find("if m.reasoning_content"), 22, "if m.reasoning_content and loop.last");
  const Made dropped = made_of(last, R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a", "reasoning_content": "hm"}, {"role": "user", "content": "r"},
      {"role": "assistant", "content": "<think>well</think>b"}]})");
  EXPECT_EQ(dropped.text, "<user>q<bot></think>⟦a<end>⟧<user>r<bot></think>⟦<think>well</think>b<end>⟧");
  EXPECT_TRUE(dropped.chat.lacks_reasoning);
  EXPECT_EQ(made_of(last, R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a", "reasoning_content": "hm"}, {"role": "user", "content": "r"},
      {"role": "assistant", "content": "b", "reasoning_content": "well"}]})")
                .text,
            "<user>q<bot></think>⟦a<end>⟧<user>r<bot><think>⟦well</think>b<end>⟧");
  const Made called = made_of(opened, R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "", "reasoning_content": "look", "tool_calls": [{"name": "f", "arguments": {}}]},
      {"role": "tool", "content": "secret"}, {"role": "assistant", "content": "a", "reasoning_content": "so"}]})");
  EXPECT_EQ(called.why, "");
  EXPECT_EQ(called.text, "<user>q<bot><think>⟦look</think><call>f<end>⟧<tool>secret<bot><think>⟦so</think>a<end>⟧");
  EXPECT_EQ(made_of(opened, R"({"query": "q", "response": "a"})").text, "<user>q<bot></think>⟦a<end>⟧");
}

// Every conversation ends in the beginning of another turn: of the system, or of the answer that is asked for.
std::string with_trailer(const std::string& behind, const std::string& prompt) {
  return R"({{- "<turn><system>Rules.<end>" }}
{%- for m in messages %}
    {{- "<turn><" + m.role + ">" }}
    {%- if m.tool_calls %}{%- for c in m.tool_calls %}{{- "<call>" + c.function.name }}{%- endfor %}
    {%- else %}{{- m.content + ("<stop>" if m.role == "assistant" else "") }}{%- endif %}{{- "<end>" }}
{%- endfor %}
{{- ")" + behind +
         R"(" }}{%- if add_generation_prompt %}{{- ")" + prompt + R"(" }}{%- endif %})";
}

TEST(ChatTurns, BehindEveryConversationHaveNoLoss) {
  for (const auto& [behind, prompt] : {std::pair("<turn><system>Act.<end>", "<turn><assistant>"),
                                       std::pair("<turn><assistant>", ""), std::pair("<turn><assistant><think>", "")}) {
    EXPECT_EQ(made_of(with_trailer(behind, prompt), R"({"query": "q", "response": "a", "history": [["x", "y"]]})").text,
              std::string("<turn><system>Rules.<end><turn><user>x<end><turn><assistant>⟦y<stop><end>⟧<turn><user>q<end>"
                          "<turn><assistant>⟦a<stop><end>⟧") +
                  behind);
    const Made made = made_of(with_trailer(behind, prompt), calls_twice);
    EXPECT_EQ(made.why, "");
    EXPECT_EQ(
        made.text,
        std::string("<turn><system>Rules.<end><turn><user>q<end><turn><assistant>⟦<call>f<end>⟧<turn><tool>secret"
                    "<end><turn><assistant>⟦<call>g<call>h<end>⟧<turn><tool>secret<end><turn><tool>more<end><turn>"
                    "<assistant>⟦a<stop><end>⟧<turn><user>r<end><turn><assistant>⟦b<stop><end>⟧") +
            behind);
  }
  // The end of a text is no turn.
  EXPECT_EQ(made_of("{% for m in messages %}{{ '<' + m.role + '>' + m.content }}{% endfor %}{{ '<stop><eos>' }}",
                    R"({"query": "q", "response": "a"})")
                .text,
            "<user>q<assistant>⟦a<stop><eos>⟧");
}

TEST(ChatMarks, OfOneAnswerMayBeSeveral) {
  const auto with = [](const std::string& between) {
    return "{% for m in messages %}{{ '<' + m.role + '>' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content "
           "}}"
           "{% endgeneration %}" +
           between + "{% generation %}<end>{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
  };
  const std::string row = R"({"query": "q", "response": "a", "history": [["x", "y"]]})";
  EXPECT_EQ(made_of(with(""), row).text, "<user>x<assistant>⟦y<end>⟧<user>q<assistant>⟦a<end>⟧");
  EXPECT_EQ(made_of(with(" "), row).why,
            "the chat template marks 4 answers with {% generation %}, and the conversation has 2");
}

/// True if the template leaves out a message of the row.
bool leaves_out(const std::string& text, const std::string& messages, const std::string& more = "") {
  const Made made =
      made_of(text, R"({"messages": [)" + messages + R"(, {"role": "assistant", "content": "a"}])" + more + "}");
  EXPECT_EQ(made.why, "");
  return made.chat.lacks_message;
}

TEST(ChatMessages, ThatTheTemplateLeavesOutAreCounted) {
  const std::string known =
                        "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ '<' + m.role + '>' + "
                        "m.content + '<end>' }}{% endif %}{% endfor %}",
                    standard = "{{ '<system>Be good.<end>' }}" + known,
                    otherwise =
                        "{% if messages[0].role == 'system' %}{{ '<s>' }}{% else %}{{ 'Be good.' }}{% endif %}" + known,
                    q = R"({"role": "user", "content": "q"})", last = R"(, {"role": "user", "content": "r"})";
  for (const char* role : {"system", "developer", "tool"}) {
    const std::string message = std::string(R"({"role": ")") + role + R"(", "content": " Be brief. "})";
    EXPECT_TRUE(leaves_out(known, message + ", " + q)) << role;
    EXPECT_TRUE(leaves_out(standard, q + ", " + message + last)) << role;
    EXPECT_FALSE(leaves_out("{% for m in messages %}{{ '<' + m.role + '>' + m.content + '<end>' }}{% endfor %}",
                            message + ", " + q))
        << role;
  }
  EXPECT_TRUE(leaves_out(otherwise, R"({"role": "system", "content": "Be brief."}, )" + q)) << "instead of the default";
  EXPECT_TRUE(leaves_out(known, q, R"(, "system": "Be brief.")")) << "the row's";
  EXPECT_FALSE(leaves_out(known, q));
  EXPECT_FALSE(leaves_out(known, R"({"role": "tool", "content": " "}, )" + q)) << "nothing to leave out";
  EXPECT_TRUE(leaves_out(known, q + R"(, {"role": "tool", "content": "q"})" + last)) << "a text that stands before";
  const std::string first =
      "{{ '<user>' + messages[0].content + '<end>' }}{% for m in messages[1:] %}"
      "{% if m.role == 'assistant' %}{{ m.content + '<end>' }}{% endif %}{% endfor %}";
  EXPECT_TRUE(leaves_out(first, q + last)) << "the user's second";
}

TEST(ChatMessages, ThatThePrintedTextHasOtherwiseAreNot) {
  const std::string row = R"({"role": "system", "content": "say \"hi\""}, {"role": "user", "content": "Ask"},
      {"role": "tool", "content": "{\"x\": 1}"}, {"role": "user", "content": "q"})";
  const auto printing = [](const std::string& expression) {
    return "{% for m in messages %}{{ '<' + m.role + '>' }}{% if m.role == 'assistant' %}{{ m.content }}{% else %}{{ " +
           expression + " }}{% endif %}{{ '<end>' }}{% endfor %}";
  };
  EXPECT_FALSE(leaves_out(printing("m.content | tojson"), row));
  EXPECT_FALSE(leaves_out(printing("m.content | upper"), row)) << "in capitals the other text is not found either";
  EXPECT_FALSE(
      leaves_out("{% if messages[0].content == 'say \"hi\"' %}{{ '<hi>' }}{% endif %}"
                 "{% for m in messages[1:] %}{{ '<' + m.role + '>' + m.content + '<end>' }}{% endfor %}",
                 row))
      << "the template reads it";
  EXPECT_FALSE(
      leaves_out("{% for m in messages | reverse %}{% if m.role != 'assistant' %}{{ m.content + ';' }}{% endif %}"
                 "{% endfor %}{% for m in messages if m.role == 'assistant' %}{{ '<assistant>' + m.content }}"
                 "{% endfor %}",
                 row))
      << "in another order";
}

TEST(ChatMessages, OfTheOptionSystemAreCountedToo) {
  const std::string text =
      "{% for m in messages if m.role != 'system' %}{{ '<' + m.role + '>' + m.content }}{% endfor %}";
  io::ConversationRow row;
  row.add("user", "q");
  row.add("assistant", "a");
  const auto lacks = [&](const std::string& system) {
    return io::TemplateFormat(io::ChatTemplate::parse(text, "test"), io::LossRule::standard, system)
        .render(row)
        .lacks_message;
  };
  EXPECT_TRUE(lacks("Be brief."));
  EXPECT_FALSE(lacks(""));
}

}  // namespace
}  // namespace tessera
