// SPDX-License-Identifier: Apache-2.0
// Templates: what Jinja answers, what is refused and where, limits.
#include "io/jinja/template.hpp"

#include <gtest/gtest.h>

namespace tessera::io::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string rendered(const std::string& text, const Json& context = Json::object()) {
  return Template::parse(text, "t").render(context).text;
}

/// The error of parsing or rendering: "LINE: WHAT".
std::string refused(const std::string& text, const Json& context = Json::object(), const RenderOptions& options = {}) {
  try {
    (void)Template::parse(text, "t").render(context, options);
  } catch (const TemplateError& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return std::to_string(error.line()) + ": " + static_cast<const Error&>(error).what();
  }
  return "nothing";
}

TEST(Jinja, VariablesOfALoopEndWithIt) {
  EXPECT_EQ(rendered("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}"),
            "12 13 1");
  EXPECT_EQ(rendered("{% set n = namespace(x=0) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}"),
            "3");
}

TEST(Jinja, AVariableThatABranchSetsIsRead) {
  const auto reads = [](const std::string& text) { return Template::parse(text, "t").reads("x"); };
  EXPECT_TRUE(reads("{% if y %}{% set x = y %}{% endif %}{{ x }}"));
  EXPECT_TRUE(reads("{% if y %}{% set x = y %}{% elif z %}{% set x = z %}{% endif %}{% for i in x %}{% endfor %}"));
  EXPECT_TRUE(reads("{% if y %}{% set x = y %}{% else %}{% endif %}{% for i in y %}{{ x }}{% endfor %}"));
  EXPECT_TRUE(reads("{% if y %}{% if z %}{% set x = y %}{% endif %}{% else %}{% set x = z %}{% endif %}{{ x }}"));
  EXPECT_FALSE(reads("{% if y %}{% set x = y %}{{ x }}{% endif %}"));
  EXPECT_FALSE(reads("{% if y %}{% set x = y %}{% else %}{% set x = z %}{% endif %}{{ x }}"));
  EXPECT_FALSE(reads("{% if y %}{% set x = y %}{% endif %}{% set x = z %}{{ x }}"));
  EXPECT_FALSE(reads("{% set x = z %}{% if y %}{% set x = y %}{% endif %}{% for i in y %}{{ x }}{% endfor %}"));
}

TEST(Jinja, ANameThatIsSetLaterHidesTheContext) {
  EXPECT_EQ(rendered("{% for i in [1] %}{{ x }}|{% endfor %}{% set x = 2 %}{{ x }}", {{"x", 1}}), "|2");
  EXPECT_EQ(rendered("{{ x }}{% for i in [1] %}{{ x }}|{% endfor %}{% set x = 2 %}{{ x }}", {{"x", 1}}), "11|2");
}

TEST(Jinja, GenerationSpansCountCodePointsAndBytes) {
  const auto out = Template::parse("é{% generation %}aé{% endgeneration %}-{% generation %}b{% endgeneration %}", "t")
                       .render(Json::object());
  EXPECT_EQ(out.text, "éaé-b");
  ASSERT_EQ(out.generation.size(), 2u);
  EXPECT_EQ(out.generation[0].begin, 1u);
  EXPECT_EQ(out.generation[0].end, 3u);
  EXPECT_EQ(out.generation[0].begin_byte, 2u);
  EXPECT_EQ(out.generation[0].end_byte, 5u);
  EXPECT_EQ(out.generation[1].begin, 4u);
  EXPECT_EQ(out.generation[1].end, 5u);
}

TEST(Jinja, PlusEscapesBesideASafeText) {
  EXPECT_EQ(rendered("{{ '<a>'|safe + s + '\\n'|safe + {'k': 1}|tojson }}", {{"s", "&<>'\"é"}}),
            "<a>&amp;&lt;&gt;&#39;&#34;é\n{&#34;k&#34;: 1}");
  EXPECT_EQ(rendered("{% set x = s + ('<' + 'b'|safe) %}{{ x }}{{ x ~ s }}{{ x|string + s }}", {{"s", "<"}}),
            "&lt;&lt;b&lt;&lt;b<&lt;&lt;b&lt;");
  EXPECT_EQ(rendered("{{ s|safe }}{{ [s|safe, s]|join }}{{ '{}'.format(s|safe) }}", {{"s", "<i>"}}), "<i><i><i><i>");
}

TEST(Jinja, TheClockIsGiven) {
  RenderOptions options;
  options.clock = [] { return std::chrono::system_clock::from_time_t(86400 * 200); };
  EXPECT_EQ(Template::parse("{{ strftime_now('%Y %% %Z') }}", "t").render(Json::object(), options).text, "1970 % ");
}

TEST(Jinja, AFilterOfABranchThatIsNotTakenMayBeUnknown) {
  EXPECT_EQ(rendered("{% if false %}{{ x|frobnicate }}{% for i in [x|shine] %}{% endfor %}{% else %}a{% endif %}"),
            "a");
  EXPECT_EQ(rendered("{{ x|frobnicate if false else 'b' }}{{ 'c' if true else (x is shiny) }}"), "bc");
  EXPECT_EQ(refused("{% if true %}\n{{ x|frobnicate }}{% endif %}"), "2: filter 'frobnicate' is not supported [t:2]");
  EXPECT_EQ(refused("{{ x|frobnicate if true else 'b' }}"), "1: filter 'frobnicate' is not supported [t:1]");
  EXPECT_EQ(refused("{% if false %}{% endif %}{{ x|frobnicate }}"), "1: filter 'frobnicate' is not supported [t:1]");
}

TEST(Jinja, IntegersBeyond64BitsKeepTheirDigits) {
  const Json big = {{"x", std::uint64_t{18446744073709551615U}}, {"y", 1}};
  EXPECT_EQ(
      rendered("{{ x }} {{ x | tojson }} {{ [x] }} {{ x | int }} {{ x is integer }} {{ x == x }} {{ x == y }}", big),
      "18446744073709551615 18446744073709551615 [18446744073709551615] 18446744073709551615 True True False");
  EXPECT_EQ(refused("{{ x + 1 }}", big),
            "1: an integer beyond 64 bits can be printed, not calculated with: 18446744073709551615 [t:1]");
  EXPECT_NE(refused("{{ x > 1 }}", big), "nothing");
}

TEST(Jinja, RefusesWhatItDoesNotKnowByNameAndLine) {
  EXPECT_EQ(refused("a\n{{ x|frobnicate }}"), "2: filter 'frobnicate' is not supported [t:2]");
  EXPECT_EQ(refused("\n\n{% if x is shiny %}{% endif %}"), "3: test 'shiny' is not supported [t:3]");
  EXPECT_EQ(refused("{% include 'x' %}"), "1: the statement 'include' is not supported [t:1]");
  EXPECT_EQ(refused("{% for x in y recursive %}{% endfor %}"),
            "1: recursive loops are not supported [t:1]. Use a macro that calls itself");
  EXPECT_EQ(refused("x\n{{ 'a'.encode() }}"), "2: the method 'encode' of str is not supported [t:2]");
}

TEST(Jinja, NamesTheLineOfAnError) {
  EXPECT_EQ(refused("\n{{ raise_exception('no ' ~ 1) }}"), "2: no 1 [t:2]");
  EXPECT_EQ(refused("\n\n{{ x.y.z }}", {{"x", Json::object()}}),
            "3: 'dict object' has no attribute 'y', so it has no attribute 'z' [t:3]");
  EXPECT_EQ(refused("{% for i in [1] %}\n{{ i + 'a' }}{% endfor %}"),
            "2: unsupported operands for +: 'int' and 'str' [t:2]");
  EXPECT_EQ(refused("{% if x %}\n"), "1: the block 'if' has no 'endif' [t:1]");
  EXPECT_EQ(refused("\n{{ 'a }}"), "2: the string has no end [t:2]");
  EXPECT_EQ(refused("{{ 9223372036854775807 + 1 }}"), "1: the result of + does not fit 64 bits [t:1]");
  EXPECT_EQ(refused("a\n\xff"), "2: the template is not UTF-8 [t:2]");
  EXPECT_EQ(refused("{{ [1]|map('upper') }}"), "1: a generator has no text [t:1]. Add |list to read its items");
}

TEST(Jinja, EndsWhatDoesNotEnd) {
  RenderOptions options;
  options.max_steps = 1'000'000;
  const auto starts = [&](const std::string& text, const std::string& what) {
    const std::string got = refused(text, Json::object(), options);
    EXPECT_NE(got.find(what), std::string::npos) << got;
  };
  starts("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply");
  starts("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "steps");
  starts("{{ range(100001) }}", "range has more than 100000 items");
  starts("{% set n = namespace(x='abcdefgh') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}", "bytes");
  starts("{{ 'a' * 9999999999 }}", "bytes");
  starts("{% set n = namespace(x=[1]) %}{% for i in range(999) %}{% set n.x = [n.x, n.x] %}{% endfor %}",
         "nested more than 200 deep");
  starts("{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x == n.x }}",
         "steps");
  starts("{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
         "steps");
  starts("{% set n = namespace() %}{% set n.n = n %}{{ n }}", "nested too deeply");
  starts("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}", "nested too deeply");
  starts("{{ 1" + std::string(5000, '|') + " }}", "unexpected");
  std::string sums = "{{ 1", dots = "{{ x", blocks;
  for (int i = 0; i < 5000; ++i) {
    sums += " + 1";
    dots += ".a";
    blocks += "{% if true %}";
  }
  starts(sums + " }}", "nested too deeply");
  starts(dots + " }}", "nested too deeply");
  starts(blocks, "nested too deeply");
}

TEST(Jinja, WhatHoldsItselfIsFreed) {
  EXPECT_EQ(rendered("{% set n = namespace() %}{% set n.n = [n] %}{% macro m() %}{{ n }}{% endmacro %}{% set n.m = m %}"
                     "{% for x in [1, 2] %}{% set n.l = loop %}{{ loop.changed([loop]) }}{% endfor %}{{ n.l.index }}"),
            "TrueFalse2");
}

}  // namespace
}  // namespace tessera::io::jinja
