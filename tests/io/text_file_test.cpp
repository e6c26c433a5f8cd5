// SPDX-License-Identifier: Apache-2.0
// Small files: read with a size limit; written so that a reader sees the old text or the new one.

#include "io/file/text_file.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

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
