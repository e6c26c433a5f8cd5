// SPDX-License-Identifier: Apache-2.0
// Commands as data: what they print is read as rows, once, and what goes wrong is an error that names it.
#include "io/corpus/command_output.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "io/corpus/corpus.hpp"
#include "io/data/data_kind.hpp"
#include "io/file/text_file.hpp"
#include "tests/io/files.hpp"

namespace tessera::command_output {
namespace {

using test::expect_error;
using test::TempDir;

class Commands : public testing::Test {
 protected:
  /// What a command's file holds after a start of `ranks`.
  std::string output(const std::string& command, int ranks = 1) {
    std::string text;
    std::mutex guard;
    run_local(ranks, [&](World& world) {
      std::vector<io::DataFile> files = io::data_files({"cmd:" + command});
      io::run_commands(world, files,
                       {.directory = [&] { return folder_ / "cache"; },
                        .depends = depends_,
                        .starts = {},
                        .made = [](const io::DataFile&, bool) {},
                        .check = check_,
                        .reserve = reserve_});
      const std::lock_guard lock(guard);
      text = io::read_text(files.front().content());
    });
    return text;
  }
  /// Prints `rows`, and adds a line to a file each time it runs.
  std::string counted(const std::string& rows) const { return "echo run >> " + (folder_ / "runs") + "; " + rows; }
  std::int64_t runs() const {
    const std::string text = io::read_text(folder_ / "runs");
    return std::count(text.begin(), text.end(), '\n');
  }
  void refused(const std::string& command, const std::string& why) {
    expect_error(ExitCode::data, why, [&] { (void)output(command, 2); });
    std::error_code none;
    EXPECT_EQ(std::filesystem::directory_iterator(folder_ / "cache", none), std::filesystem::directory_iterator())
        << command;
  }

  TempDir folder_;
  std::vector<std::string> depends_;
  std::function<void()> check_;
  std::uint64_t reserve_ = 0;
};

constexpr const char* row = R"(echo '{"text": "a, b"}')";

TEST_F(Commands, RunOnceForAllRanksAndRuns) {
  for (const int ranks : {3, 1}) EXPECT_EQ(output(counted(row), ranks), "{\"text\": \"a, b\"}\n");
  EXPECT_EQ(runs(), 1);
  (void)output(counted(row) + " ");
  EXPECT_EQ(runs(), 2) << "another command";
}

TEST_F(Commands, RunAgainWhereAFileHasChanged) {
  depends_ = {folder_.file("source", "1")};
  for (int i = 0; i < 2; ++i) (void)output(counted(row));
  EXPECT_EQ(runs(), 1);
  (void)folder_.file("source", "12");
  (void)output(counted(row));
  EXPECT_EQ(runs(), 2);
  depends_ = {folder_.path()};  // its files
  (void)folder_.file("source", "123");
  (void)output(counted(row));  // which changes a file
  (void)output(counted(row));
  EXPECT_EQ(runs(), 4);
  depends_ = {folder_ / "absent"};
  expect_error(ExitCode::data, "absent", [&] { (void)output(row, 2); });
}

TEST_F(Commands, RefusedByExitCodeAndOutput) {
  refused(std::string(row) + "; echo first >&2; echo '  no module datasets' >&2; exit 3",
          "ended with exit code 3: " + std::string("  no module datasets"));
  refused(std::string(row) + "; kill -9 $$", "was ended by signal 9");
  refused("no_such_program_anywhere", "exit code 127");
  refused("true", "printed nothing");
  refused(std::string(row) + " | gzip", "its output is compressed");
  refused("echo 'Loading…'; echo '{}'", "the first line is \"Loading…\"");
  reserve_ = ~std::uint64_t{0};
  refused(row, "too little space is left");
  expect_error(ExitCode::data, "cmd: has no command", [] { (void)io::data_files({"cmd: "}); });
}

TEST_F(Commands, StartAsIfTheyWereByThemselves) {
  ::setenv("OMPI_COMM_WORLD_RANK", "7", 1);
  ::setenv("PMIX_RANK", "7", 1);
  EXPECT_EQ(output(R"(read line; printf '{"a": "%s%s%s"}\n' "$OMPI_COMM_WORLD_RANK" "$PMIX_RANK" "$line")"),
            "{\"a\": \"\"}\n");
  ::unsetenv("OMPI_COMM_WORLD_RANK");
  ::unsetenv("PMIX_RANK");
}

TEST_F(Commands, DoNotWaitForWhatTheyLeaveInTheBackground) {
  const auto started = std::chrono::steady_clock::now();
  EXPECT_EQ(output(std::string("sleep 600 & ") + row + "; exec 1>&- 2>&-"), "{\"text\": \"a, b\"}\n");
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(60));
  EXPECT_EQ(output(std::string("printf '\\357\\273\\277\\n\\n'; ") + row), "\xef\xbb\xbf\n\n{\"text\": \"a, b\"}\n");
}

TEST_F(Commands, EndWithTheRun) {
  check_ = [] { throw Error(ExitCode::preempted, "stopped"); };
  const auto started = std::chrono::steady_clock::now();
  expect_error(ExitCode::preempted, "stopped", [&] { (void)output("sleep 600 | sleep 600", 2); });
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(60));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "cache"));
}

TEST(CommandNames, GoToTheEndOfAList) {
  using testing::ElementsAre;
  EXPECT_THAT(io::split_names("a.jsonl,cmd:f(1, 2), 3"), ElementsAre("a.jsonl", "cmd:f(1, 2), 3"));
  EXPECT_THAT(io::split_names("a,b.jsonl, cmd:f, x"), ElementsAre("a", "b.jsonl", "cmd:f, x"));
  EXPECT_THAT(io::split_names("cmd:a,cmd:b"), ElementsAre("cmd:a,cmd:b"));
  for (const char* name : {"cmd:cat x.bin", "cmd:cat x.idx", "cmd:head -n 5 x#5", "cmd:cat *.txt", "cmd:a:0.5"}) {
    const std::vector<io::DataFile> files = io::data_files({name});
    ASSERT_EQ(files.size(), 1U);
    EXPECT_EQ(files.front().path, name);
    EXPECT_FALSE(files.front().selects());
    EXPECT_EQ(io::data_kind(name), "jsonl");
  }
}

}  // namespace
}  // namespace tessera::command_output
