// SPDX-License-Identifier: Apache-2.0
// Tests of the shim: what it counts, and each kind of fault.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/fault_injection/shim.hpp"
#include "tests/io/files.hpp"

namespace tessera::test {
namespace {

struct Shim : testing::Test {
  TempDir folder{TempDir::Storage::memory};
  std::string root = std::filesystem::canonical(folder.path()).string(), path = root + "/x";
  const std::string text = std::string(10000, 'a');

  /// Writes a file durably by calls 1 to 8. Returns 0, or the errno of the failed call.
  int write_file() {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT, 0644);
    if (fd < 0) return errno;
    int why = ::fallocate(fd, 0, 0, 10) != 0 ? errno : 0;
    for (std::size_t done = 0; why == 0 && done < text.size();) {
      const ssize_t n = ::pwrite(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
      if (n < 0) why = errno;
      else done += static_cast<std::size_t>(n);
    }
    if (why == 0 && ::fsync(fd) != 0) why = errno;
    if (::close(fd) != 0 && why == 0) why = errno;
    if (why == 0 && ::rename(path.c_str(), (path + "2").c_str()) != 0) why = errno;
    if (why == 0 && ::mkdir((path + "3").c_str(), 0755) != 0) why = errno;
    if (why == 0 && ::rmdir((path + "3").c_str()) != 0) why = errno;
    return why;
  }
  int under(long at, const char* kind) {
    fault_arm(root.c_str(), "", at, kind);
    const int why = write_file();
    calls = fault_disarm();
    return why;
  }
  long calls = 0;
};

TEST_F(Shim, CountsWhatChangesFilesUnderItsDirectoryAlone) {
  EXPECT_EQ(under(0, "EIO"), 0);
  EXPECT_EQ(calls, 8);
  EXPECT_EQ(bytes_of(path + "2"), text);
  fault_arm((root + "/y").c_str(), "", 1, "EIO");
  EXPECT_EQ(write_file(), 0);
  EXPECT_EQ(fault_disarm(), 0);
  fault_arm(root.c_str(), "", 1, "EIO");
  (void)bytes_of(path + "2");  // reading does not count
  const int directory = ::open(root.c_str(), O_RDONLY | O_DIRECTORY);
  ::close(directory);
  EXPECT_EQ(fault_disarm(), 0);
}

TEST_F(Shim, EachCallFailsInItsTurn) {
  const char* names[] = {"open", "fallocate", "pwrite", "fsync", "close", "rename", "mkdir", "rmdir"};
  for (long at = 1; at <= 8; ++at) {
    EXPECT_EQ(under(at, "EIO"), EIO) << at;
    EXPECT_EQ(std::string(fault_happened()).substr(0, std::string(fault_happened()).find(' ')), names[at - 1]);
    std::filesystem::remove(path + "3");
  }
  EXPECT_EQ(under(2, "ENOSPC"), ENOSPC);
  EXPECT_EQ(under(9, "EIO"), 0);
  EXPECT_STREQ(fault_happened(), "");
}

TEST_F(Shim, HalfWritesAndFullDisks) {
  EXPECT_EQ(under(3, "short"), 0);
  EXPECT_EQ(calls, 9);  // one write more
  EXPECT_EQ(bytes_of(path + "2"), text);
  EXPECT_EQ(under(3, "short_full"), ENOSPC);
  EXPECT_EQ(bytes_of(path), text.substr(0, text.size() / 2));
  EXPECT_EQ(under(4, "full"), ENOSPC) << "mkdir takes space";
  EXPECT_TRUE(std::filesystem::exists(path + "2")) << "fsync, close and rename take none";
  EXPECT_EQ(under(8, "full"), 0);
}

TEST_F(Shim, KillsInTheMiddleOfAWrite) {
  const pid_t child = ::fork();
  if (child == 0) {
    (void)under(3, "kill");
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(bytes_of(path).size(), text.size() / 2);
}

TEST_F(Shim, SeesWhatOtherLibrariesCall) {
  fault_arm(root.c_str(), "", 1, "ENOSPC");
  std::error_code error;
  std::filesystem::create_directories(root + "/deep/er", error);  // in libstdc++
  EXPECT_EQ(error.value(), ENOSPC);
  EXPECT_EQ(fault_disarm(), 1);
  std::filesystem::create_directories(root + "/deep/er");
  fault_arm(root.c_str(), "", 2, "EIO");
  std::filesystem::remove_all(root + "/deep", error);
  EXPECT_EQ(error.value(), EIO);
  EXPECT_GE(fault_disarm(), 2);
}

}  // namespace
}  // namespace tessera::test
