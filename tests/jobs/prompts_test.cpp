// SPDX-License-Identifier: Apache-2.0
// Prompt files: what becomes of their rows on every rank, and what is said of keys that nothing reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs/cli/session/prompts.hpp"
#include "tests/io/files.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// The last rank's prompts.
std::vector<Prompt> read(const std::string& path, PromptForm form) {
  const Options options = parsed({"generate", "--model", "m", "--prompt_file", path}).options;
  std::vector<Prompt> prompts;
  run_local(2, [&](World& world) {
    std::vector<Prompt> mine = read_prompts(options, world, form);
    if (world.rank() == 1) prompts = std::move(mine);
  });
  return prompts;
}

TEST(Prompts, OfRowsKeepAllThatTheTemplateReads) {
  const test::TempDir folder;
  const std::string path = folder.file(
      "rows.jsonl",
      "\xEF\xBB\xBF"
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [{"name": "f",)"
      R"( "arguments": "{\"n\":1}"}]}, {"role": "tool", "content": "r"}], "chat_template_kwargs": {"voice": "low"}, "id": 1})"
      "\n"
      R"({"prompt": "p", "text": "t", "system": "s", "chat_template_kwargs": {"voice": "low"}})"
      "\n"
      R"({"text": "t", "functions": [{"name": "g"}]})"
      "\n");
  const std::vector<Prompt> prompts = read(path, PromptForm::chat);
  ASSERT_EQ(prompts.size(), 3u);
  const std::string form =
      "{{ voice }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
      "{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}{% for t in tools or [] %}"
      "{{ t.function.name }}{% endfor %}";
  const io::ChatTemplate chat = io::ChatTemplate::parse(form, "test");
  EXPECT_EQ(prompts[0].rendered(chat, "").text, "low<user>q<assistant>f{\"n\":1}<tool>r");
  EXPECT_EQ(prompts[1].rendered(chat, "other").text, "low<system>s<user>p");
  EXPECT_EQ(prompts[2].rendered(chat, "other").text, "<system>other<user>tg");
  EXPECT_THAT(prompts[0].unread, ElementsAre("id"));
  EXPECT_THAT(prompts[1].unread, ElementsAre("text"));
  testing::internal::CaptureStderr();
  warn_of_unread_keys(prompts, &chat, "");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("W080"), HasSubstr("\"id\" (1 rows)"), HasSubstr("\"text\" (1 rows)")));
  const io::ChatTemplate silent = io::ChatTemplate::parse("{{ messages[0].content }}", "test");
  testing::internal::CaptureStderr();
  warn_of_unread_keys(prompts, &silent, "");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("\"chat_template_kwargs.voice\" (2 rows)"));
}

TEST(Prompts, ThatAreContinuedHaveATextAlone) {
  const test::TempDir folder;
  const std::vector<Prompt> rows =
      read(folder.file("a.jsonl", "{\"prompt\": \"p\", \"id\": 1, \"x\": null}\n"), PromptForm::text);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_THAT(rows[0].unread, ElementsAre("id"));
  const std::vector<Prompt> lines = read(folder.file("a.txt", "\xEF\xBB\xBFone\r\n\ntwo\xFF\n"), PromptForm::text);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].text, "one");
  EXPECT_EQ(lines[1].text, "two\uFFFD");
  test::expect_error(ExitCode::data, "occurs twice in an object", [&] {
    (void)read(folder.file("b.jsonl", "{\"prompt\": \"p\", \"prompt\": \"q\"}\n"), PromptForm::text);
  });
  test::expect_error(ExitCode::data, "images", [&] {
    (void)read(folder.file("c.jsonl", "{\"prompt\": \"p\", \"images\": [\"a.png\"]}\n"), PromptForm::chat);
  });
}

}  // namespace
}  // namespace tessera::jobs
