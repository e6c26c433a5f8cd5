// SPDX-License-Identifier: Apache-2.0
// Small files: read with a size limit; written so that a reader sees the old text or the new one.

#include "io/file/text_file.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>

#include "io/data/rows.hpp"
#include "io/file/direct_file.hpp"
#include "io/file/thread_tasks.hpp"
#include "io/file/work_progress.hpp"
#include "runtime/base/local_work.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

using test::expect_error;
using test::TempDir;

TEST(TextFile, ReadsFilesUpToALimit) {
  TempDir folder;
  EXPECT_EQ(io::read_text(folder.file("a", "abc")), "abc");
  EXPECT_EQ(io::read_text(folder.file("a", "")), "");
  EXPECT_EQ(io::read_text(folder.file("a", "abc"), 3), "abc");
  expect_error(ExitCode::data, "longer than 2 bytes", [&] { (void)io::read_text(folder.file("a", "abc"), 2); });
  expect_error(ExitCode::data, "a directory", [&] { (void)io::read_text(folder.path()); });
  expect_error(ExitCode::data, "not-there", [&] { (void)io::read_text(folder / "not-there"); });
  EXPECT_FALSE(io::read_text("/proc/self/status").empty());  // says a size of 0
  expect_error(ExitCode::data, "longer than 10 bytes", [&] { (void)io::read_text("/proc/self/status", 10); });
}

TEST(TextFile, WritesReplaceAndLeaveNothingBehind) {
  TempDir folder;
  const std::string path = folder / "a.json";
  const mode_t mask = ::umask(027);
  io::write_text(path, "one");
  ::umask(mask);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
  folder.file("a.json.tmp", "left by a run that was killed");
  io::write_text(path, "two");
  EXPECT_EQ(test::bytes_of(path), "two");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a.json"});
}

/// Whether `work` shows the watchdog that this rank is at work (runtime/base/local_work.hpp).
bool shows(const std::function<void()>& work) {
  const std::int64_t before = last_local_work_ns();
  std::this_thread::sleep_for(std::chrono::microseconds(10));
  work();
  return last_local_work_ns() > before;
}

TEST(LocalWork, ReadingWritingTokenizingAndRemovingShowIt) {
  TempDir folder;
  EXPECT_FALSE(shows([] {}));
  EXPECT_TRUE(shows([&] { io::write_text(folder / "text", "x\n"); }));
  EXPECT_TRUE(shows([&] { (void)io::read_text(folder / "text"); }));
  EXPECT_TRUE(shows([&] {
    io::DirectBuffer buffer(4096);
    (void)io::DirectFile(folder / "text", io::DirectFile::Access::read).read(0, 2, buffer);
  }));
  EXPECT_TRUE(shows([&] { io::File::open_to_write(folder / "text").sync(); }));
  EXPECT_TRUE(shows([&] { io::MappedFile(folder / "text").release(0, 2); }));
  EXPECT_TRUE(shows([&] {
    std::vector<int> states(1);
    io::run_tasks(1, states, [](int, std::size_t) {});
  }));
  EXPECT_TRUE(shows([&] { io::for_each_row("{}\n", io::RowLayout::lines, [](const io::Row&) {}); }));
  EXPECT_TRUE(shows([&] { io::WorkCounter("verify", 2).add(1); }));
  std::filesystem::create_directory(folder / "tree");
  folder.file("tree/file", "x");
  EXPECT_TRUE(shows([&] { io::remove_tree_quietly(folder / "tree"); }));
}

TEST(TextFile, AFailedWriteLeavesTheOldText) {
  TempDir folder;
  const std::string path = folder.file("a.json", "old");
  expect_error(ExitCode::data, "cannot write", [&] { io::write_text(folder / "no/such/folder/a", "x"); });
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // a disk that is full after 4096 bytes
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      io::write_text(path, std::string(10000, 'x'));
    } catch (const Error& error) { ::_exit(error.code() == ExitCode::data ? 33 : 1); }
    ::_exit(2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 33);
  EXPECT_EQ(test::bytes_of(path), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a.json"});
}

}  // namespace
}  // namespace tessera
