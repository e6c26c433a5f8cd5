// SPDX-License-Identifier: Apache-2.0
// The prompt of a pair: both answers have the same one, once.
#include "io/chat/pair_row.hpp"
#include "io/data/rows.hpp"
#include "tests/io/files.hpp"
#include "tests/io/pairs.hpp"

namespace tessera::pair_prompt {
namespace {

using test::pair_of;
using test::turns_of;

TEST(PairPrompt, OneThatBeginsWithThePromptIsTheWholeConversation) {
  const std::string prompt = R"({"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
                                {"content": "r", "role": "user"})",
                    yes = R"({"role": "assistant", "content": "yes"})",
                    no = R"({"role": "assistant", "content": "no"})", expected = "uq|aa|ur|ayes / uq|aa|ur|ano";
  const auto row = [&](const std::string& chosen, const std::string& rejected) {
    return pair_of(R"({"prompt": [)" + prompt + R"(], "chosen": [)" + chosen + R"(], "rejected": [)" + rejected + "]}");
  };
  EXPECT_EQ(row(yes, no), expected);
  EXPECT_EQ(row(prompt + ", " + yes, prompt + ", " + no), expected);
  EXPECT_EQ(row(prompt + ", " + yes, no), expected);
}

TEST(PairPrompt, BothAnswersAreToOnePrompt) {
  const auto turn = [](const std::string& role, const std::string& rest) {
    return R"({"role": ")" + role + R"(", "content": ")" + rest + "}";
  };
  const auto pair = [&](const std::string& before, const std::string& other, const std::string& more = "") {
    return pair_of(R"({"chosen": [)" + before + turn("assistant", R"(yes")") + R"(], "rejected": [)" + other +
                   turn("assistant", R"(no")") + "]" + more + "}");
  };
  const std::string differ = "refused: the messages before the two answers differ: message ", comma = ", ",
                    hi = turn("user", R"(Hi")") + comma, ho = turn("user", R"(Ho")") + comma,
                    named = turn("user", R"(Hi", "name": "Ada")") + comma, system = turn("system", R"(s")") + comma,
                    said = turn("assistant", R"(a")") + comma,
                    silent = turn("assistant", R"(a", "loss": false)") + comma;
  EXPECT_EQ(pair(hi, ho), differ + "1");
  EXPECT_EQ(pair(hi, named), differ + "1");
  EXPECT_EQ(pair(hi + said + hi, hi + said + ho), differ + "3");
  EXPECT_EQ(pair(hi + said + hi, hi + silent + hi), differ + "2");
  EXPECT_EQ(pair(hi, hi + said + hi), differ + "2");
  EXPECT_EQ(pair(system + hi, hi), differ + "1");
  EXPECT_EQ(pair(hi, system + hi), differ + "1");
  EXPECT_EQ(pair(hi, hi, R"(, "system": "s")"), "ss|uHi|ayes / ss|uHi|ano");
  EXPECT_EQ(pair(system + hi, hi, R"(, "system": "s")"), "ss|uHi|ayes / ss|uHi|ano");
  EXPECT_EQ(pair(hi, turn("user", R"(Hi", "name": null)") + comma), "uHi|ayes / uHi|ano");
  EXPECT_EQ(pair_of(R"({"messages": [)" + hi + turn("assistant", R"(yes")") + R"(], "rejected_messages": [)" + ho +
                    turn("assistant", R"(no")") + "]}"),
            differ + "1");
  std::int64_t repaired = 0;
  EXPECT_THROW(
      (void)io::read_labelled(io::parse_row(R"({"chosen": [)" + hi + turn("assistant", R"(yes")") +
                                                R"(], "rejected": [)" + ho + turn("assistant", R"(no")") + "]}",
                                            repaired)),
      io::RowError);
}

}  // namespace
}  // namespace tessera::pair_prompt
