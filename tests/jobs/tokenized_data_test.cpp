// SPDX-License-Identifier: Apache-2.0
// The cache of token files: what is looked up before rows are read, and what was counted when the tokens were made.
#include "jobs/cli/session/tokenized_data.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "io/data/dataset.hpp"
#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "jobs/cli/session/data_source.hpp"
#include "jobs/cli/session/start_stop.hpp"
#include "tests/io/files.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A model directory with a tokenizer and a chat template, beside data files and a cache.
class TokenCache : public testing::Test {
 protected:
  TokenCache() {
    (void)folder.file("tokenizer.json",
                      test::bytes_of(std::string(TESSERA_SOURCE_DIR) + "/tests/io/tokenizer/gpt2.tokenizer.json"));
    config(R"({"eos_token": "<|endoftext|>", "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"})");
  }
  void config(const std::string& json) const { (void)folder.file("tokenizer_config.json", json); }

  /// The token file of `data` on this many ranks, and whether it was there; stopped as soon as rows are read if
  /// `quick`.
  [[nodiscard]] std::string tokens_of(const std::string& data, int ranks, bool quick,
                                      std::string* line = nullptr) const {
    std::vector<std::string> arguments = {"train",   "--model", folder.path(), "--dataset",     data,
                                          "--stage", "pt",      "--cache_dir", folder / "cache"};
    if (quick) arguments.insert(arguments.end(), {"--time_limit", "0.001s"});
    const Options options = parsed(arguments).options;
    set_time_to_start(TimeLimit(options, TimeLimit::Clock::now()));
    std::string file;
    run_local(ranks, [&](World& world) {
      const auto tokenizer = load_tokenizer(options, world, folder.path());
      const TokenizedData made = tokenized(options, world, tokenizer.get(), io::data_files({data}), folder.path());
      if (world.rank() != 0) return;
      file = made.files.front().path;
      if (line != nullptr) *line = made.line;
    });
    return file;
  }
  /// The token file of data sets as a run prepares them, commands included.
  [[nodiscard]] std::string prepared(const std::string& data, int ranks) const {
    const Options options =
        parsed({"train", "--model", folder.path(), "--dataset", data, "--stage", "pt", "--cache_dir", folder / "cache"})
            .options;
    set_time_to_start(TimeLimit(options, TimeLimit::Clock::now()));
    std::string file;
    run_local(ranks, [&](World& world) {
      const auto tokenizer = load_tokenizer(options, world, folder.path());
      const TokenizedData made = prepared_tokens(options, world, tokenizer.get(), io::split_names(data), folder.path());
      if (world.rank() == 0) file = made.files.front().path;
    });
    return file;
  }
  test::TempDir folder;
};

TEST_F(TokenCache, IsLookedUpBeforeRowsAreSearchedForConversations) {
  const std::string text = "{\"text\": \"a plain text\", \"id\": 1}\n";
  const std::string late = R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})";
  for (const std::string& rows : {text + text, text + text + late + "\n", late + "\n"}) {
    const std::string data = folder.file("data.jsonl", rows);
    if (rows != late + "\n")
      test::expect_error(ExitCode::preempted, "while reading rows", [&] { (void)tokens_of(data, 2, true); });
    const std::string made = tokens_of(data, 2, false);
    std::string line;
    EXPECT_EQ(tokens_of(data, 3, true, &line), made);
    EXPECT_THAT(line, HasSubstr("(found)"));
    io::remove_quietly(made + ".report");  // as an older program leaves it
    EXPECT_EQ(tokens_of(data, 1, false, &line), made);
    EXPECT_THAT(line, HasSubstr("(made in "));
    EXPECT_TRUE(io::exists(made + ".report"));
  }
  config(R"({"eos_token": "<|endoftext|>"})");  // no template: texts do not need one
  const std::string texts = folder.file("texts.jsonl", text + text + text), made = tokens_of(texts, 2, false);
  EXPECT_EQ(tokens_of(texts, 2, true), made);
}

TEST_F(TokenCache, SaysAgainWhatWasCounted) {
  const std::string rows =
      R"({"id": 1, "tools": [{"name": "f"}], "messages": [{"role": "user", "content": "q", "mood": "x"},
{"role": "assistant", "content": "a", "reasoning_content": "well"}]})";
  std::string one = rows;
  std::ranges::replace(one, '\n', ' ');
  const std::string data = folder.file("data.jsonl", one + "\n{\"messages\": 3}\n" + one + "\n");
  const std::string made = tokens_of(data, 2, false);
  EXPECT_EQ(tokens_of(data, 1, true), made);
  const io::Dataset opened = io::open_dataset({made, made});
  EXPECT_EQ(opened.rows.skipped.count, 2);
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  report_skipped(opened.rows.skipped);
  warn_of_left_out(opened.rows);
  const std::string printed = testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
  EXPECT_THAT(printed, AllOf(HasSubstr("skipped   " + data + ":2: "), HasSubstr("W041: 2 rows"),
                             HasSubstr("W080: rows have keys that are not read: \"id\" (4 rows), \"messages[].mood\" "
                                       "(4 rows)"),
                             HasSubstr("W045: 4 conversations have \"tools\""),
                             HasSubstr("W045: 4 conversations have reasoning")));
  const std::string report = made + ".report";
  for (const char* damaged : {"{}", "\x01", "{\"tokens\": 5}"}) {
    (void)folder.file(report.substr(folder.path().size() + 1), damaged);
    test::expect_error(ExitCode::data, report + " does not say what became of the rows",
                       [&] { (void)io::open_dataset({made}); });
  }
}

/// What a command has printed is gone once its tokens are there, and they are found without it.
TEST_F(TokenCache, TextOfACommandIsRemovedOnceItsTokensAreThere) {
  const std::string runs = folder.file("runs", ""), cache = folder / "cache";
  const auto command_of = [&](const std::string& rows) {
    return "cmd:echo run >> " + runs + "; printf '" + rows + "'";
  };
  const auto count = [&] { return std::ranges::count(io::read_text(runs), 'r'); };
  const auto text_files = [&] {
    return std::ranges::count_if(std::filesystem::directory_iterator(cache),
                                 [](const auto& entry) { return entry.path().extension() == ".jsonl"; });
  };
  const std::string text = "{\"text\": \"plain\", \"query\": \"q\", \"response\": \"r\"}\\n";
  const std::string command = command_of(text);
  const std::string made = prepared(command, 3);
  EXPECT_EQ(count(), 1);
  EXPECT_EQ(text_files(), 0);
  const std::string tokens = test::bytes_of(made);
  EXPECT_EQ(prepared(command, 2), made);
  int records = 0;
  for (const auto& entry : std::filesystem::directory_iterator(cache)) {
    if (entry.path().extension() != ".json") continue;
    ++records;  // what W042 says of rows that are no longer there
    EXPECT_THAT(test::bytes_of(entry.path()), HasSubstr("\"ambiguous\": [\n    \"cmd:echo run"));
  }
  EXPECT_EQ(records, 1);
  EXPECT_EQ(count(), 1);
  config(R"({"eos_token": "<|endoftext|>", "chat_template": "another"})");  // other tokens may be wanted
  EXPECT_EQ(prepared(command, 1), made);
  EXPECT_EQ(count(), 2);
  io::remove_quietly(made);
  EXPECT_EQ(prepared(command, 1), made);
  EXPECT_EQ(count(), 3);
  EXPECT_EQ(test::bytes_of(made), tokens);
  const std::string file = folder.file("more.jsonl", "{\"text\": \"more\"}\n"), both = file + "," + command;
  const std::string mixed = prepared(both, 2);
  EXPECT_EQ(prepared(both, 1), mixed);
  EXPECT_EQ(count(), 4);
  (void)folder.file("more.jsonl", "{\"text\": \"other\"}\n");
  EXPECT_NE(prepared(both, 1), mixed);
  EXPECT_EQ(count(), 5);
  // Rows that cannot be tokenized stay, for the next start.
  const std::string chat = command_of(R"({"messages": [{"role": "user", "content": "q"}]}\n)");
  config(R"({"eos_token": "<|endoftext|>"})");
  for (int i = 0; i < 2; ++i) EXPECT_THROW((void)prepared(chat, 2), Error);
  EXPECT_EQ(count(), 6);
  EXPECT_EQ(text_files(), 1);
}

TEST_F(TokenCache, CodeBesideTheTokenizerIsNamedByEveryCommand) {
  for (const char* command : {"train", "eval", "generate"}) {
    config(strfmt(R"({"auto_map": {"AutoTokenizer": ["code.Of_%s", null]}})", command));
    const Options options = parsed({command, "--model", folder.path()}).options;
    testing::internal::CaptureStderr();
    (void)read_tokenizer(options, folder.path());
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr(strfmt("W077: \"auto_map\" of tokenizer_config.json names \"code.Of_%s\"", command)));
  }
}

TEST(BytesAsTokens, AreRefusedWhereOneStandsForAnImage) {
  const test::TempDir folder;
  const Options options = parsed({"train", "--model", folder.path(), "--tokenizer", "bytes", "--stage", "pt"}).options;
  const auto with = [&](const std::string& keys) {
    (void)folder.file("config.json", "{" + keys + "}");
    require_bytes(options, folder.path(), 131072);
  };
  for (const char* key : {"image_token_id", "image_token_index", "video_token_id"})
    for (const char* family : {"mistral3", "qwen2_vl"}) {
      const std::string start = strfmt(R"("model_type": "%s", "%s": )", family, key);
      test::expect_error(ExitCode::usage, "each byte is a token, and token 10 stands for an image",
                         [&] { with(start + "10"); });
      test::expect_error(ExitCode::usage, "token 255 stands for an image", [&] { with(start + "255"); });
      for (const char* other : {"256", "151655", "null"}) EXPECT_NO_THROW(with(start + other)) << other;
      for (const char* none : {"-1", "1.0", "\"10\"", "[10]", "4294967306"})
        test::expect_error(ExitCode::data, std::string(key) + " is not a token id", [&] { with(start + none); });
    }
  EXPECT_NO_THROW(with(R"("model_type": "mistral", "image_token_index": 10)"));  // of text alone
}

}  // namespace
}  // namespace tessera::jobs
