// SPDX-License-Identifier: Apache-2.0
// Retention keeps verified checkpoints and never removes the newest valid one; one run at a time holds the lock.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "io/checkpoint/directory.hpp"
#include "io/file/file.hpp"
#include "tests/fault_injection/test_state.hpp"
#include "tests/io/files.hpp"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;

struct Kept : testing::Test {
  TempDir folder{TempDir::Storage::memory};
  const TestTensors tensors = small_tensors();

  void make(std::int64_t step) {
    run_local(1, [&](World& world) {
      TestState state(tensors, Mesh(1, 1), 0);
      state.fill(step);
      (void)save(world, state, folder / io::checkpoint_name(step), step);
    });
  }
  /// One bit of the middle of its first state file.
  void damage(std::int64_t step) {
    const std::string directory = folder / io::checkpoint_name(step);
    const std::string path = directory + "/" + io::read_manifest(directory).files.at(0).name;
    std::string bytes = bytes_of(path);
    bytes[bytes.size() / 2] ^= 4;
    std::ofstream(path, std::ios::binary) << bytes;
  }
  [[nodiscard]] std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> all;
    for (const auto& one : io::list_checkpoints(folder.path())) all.push_back(one.step);
    return all;
  }
  using Steps = std::vector<std::int64_t>;
};

TEST_F(Kept, TheNewestByStepAreKept) {
  for (const std::int64_t step : {100, 20, 3}) make(step);  // not in order of time
  io::Retention retention(2);
  retention.apply(folder.path());
  EXPECT_EQ(steps(), (Steps{100, 20}));
  EXPECT_EQ(folder.names(), (std::vector<std::string>{".verified", "checkpoint-100", "checkpoint-20"}));
}

TEST_F(Kept, WhatIsDamagedDoesNotCount) {
  for (const std::int64_t step : {1, 2, 3, 4}) make(step);
  damage(4);
  damage(2);
  fs::remove(folder / "checkpoint-3/manifest.json");
  io::Retention retention(1);
  retention.apply(folder.path());
  EXPECT_EQ(steps(), (Steps{4, 3, 2, 1}));  // 1 is the newest valid one
  make(5);
  retention.written(folder / "checkpoint-5");
  retention.apply(folder.path());
  EXPECT_EQ(steps(), (Steps{5, 3})) << "the rest is older than what counts; 3 is no checkpoint at all";
}

TEST_F(Kept, WhatWasVerifiedAndThenChangedIsReadAgain) {
  for (const std::int64_t step : {1, 2}) make(step);
  io::Retention retention(2);
  retention.apply(folder.path());
  EXPECT_EQ(steps(), (Steps{2, 1}));
  damage(2);
  io::Retention fresh(1);
  fresh.apply(folder.path());
  EXPECT_EQ(steps(), (Steps{2, 1}));
  fresh.written(folder / "checkpoint-2");  // as its writer left it
  fs::last_write_time(folder / "checkpoint-2/manifest.json", fs::file_time_type::clock::now());
  fresh.apply(folder.path());
  EXPECT_EQ(steps(), (Steps{2, 1})) << "touched since, so it is read, and it is damaged";
  damage(2);  // repairs it
  fresh.apply(folder.path());
  EXPECT_EQ(steps(), (Steps{2}));
}

TEST_F(Kept, VerifiedIsRememberedOnDisk) {
  for (const std::int64_t step : {1, 2, 3}) make(step);
  const auto path = [&](int step) { return folder.path() + "/checkpoint-" + std::to_string(step); };
  io::Retention retention(2);
  EXPECT_EQ(retention.unknown(folder.path()), path(3));
  retention.verified(path(3), true);
  EXPECT_EQ(retention.unknown(folder.path()), path(2));
  retention.verified(path(2), true);
  EXPECT_EQ(retention.unknown(folder.path()), "");
  io::Retention later(2);
  EXPECT_EQ(later.unknown(folder.path()), "") << "another process knows them from disk";
  damage(2);
  EXPECT_EQ(later.unknown(folder.path()), path(2)) << "it has changed since";
  later.verified(path(2), false);
  EXPECT_EQ(later.unknown(folder.path()), path(1));
  later.verified(path(1), true);
  EXPECT_EQ(later.unknown(folder.path()), "");
  later.apply(folder.path());
  EXPECT_EQ(steps(), (Steps{3, 2, 1})) << "the damaged one is newer than the second good one";
  io::Retention best(2);
  make(4);
  EXPECT_EQ(best.unknown(folder.path(), path(1)), path(4));
}

TEST_F(Kept, ACompleteCheckpointThatWasToReplaceAnotherIsPutInPlace) {
  for (const std::int64_t step : {1, 2}) make(step);
  fs::rename(folder / "checkpoint-1", folder / "checkpoint-1.tmp");
  fs::create_directory(folder / "checkpoint-1.trash");
  fs::rename(folder / "checkpoint-2", folder / "checkpoint-2.tmp");
  fs::create_directory(folder / "checkpoint-2.trash");
  fs::remove(folder / "checkpoint-2.tmp/manifest.json");
  make(3);
  fs::rename(folder / "checkpoint-3", folder / "checkpoint-3.tmp");  // replaces nothing: its save was interrupted
  io::remove_leftovers(folder.path());
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"checkpoint-1"}));
  EXPECT_EQ(steps(), (Steps{1}));
}

// A run that was cut off finds that another one has taken the directory: it commits, replaces and removes nothing.
TEST_F(Kept, ARunWhoseDirectoryWasTakenChangesNothing) {
  for (const std::int64_t step : {1, 2}) make(step);
  const std::string directory = folder.path();
  std::string first, second;
  {
    const io::DirectoryLock lock(directory);
    first = lock.owner();
    EXPECT_NO_THROW(io::check_owner(directory, first));
  }
  run_local(2, [&](World& world) {
    TestState state(tensors, Mesh(1, 2), world.rank());
    state.fill(3);
    auto request = save_request(state, folder / "checkpoint-2", 2);  // over another one
    request.check_owner = [&] { io::check_owner(directory, first); };
    io::CheckpointSave save(world, request);
    world.run_on_rank_0([&] { second = io::DirectoryLock(directory).owner(); });
    try {
      (void)save.commit();
      ADD_FAILURE() << "it was committed";
    } catch (const Error& error) {
      EXPECT_THAT(error.line(), testing::HasSubstr("E150 another run has taken the directory"));
      EXPECT_TRUE(io::is_taken(error));  // so that no --on_save_error goes on
    }
  });
  EXPECT_NE(first, second);
  EXPECT_NO_THROW(io::check_owner(directory, second));
  EXPECT_NO_THROW(io::check_owner(directory, ""));
  run_local(1, [&](World& world) {
    TestState state(tensors, Mesh(1, 1), 0);
    EXPECT_EQ(load(world, state, folder / "checkpoint-2", 2), "");
  });
  EXPECT_TRUE(fs::exists(folder / "checkpoint-2.tmp")) << "it may be the other run's";
  io::Retention retention(1, io::Retention::Removes::any, [&] { io::check_owner(directory, first); });
  EXPECT_THROW(retention.apply(directory), Error);
  EXPECT_EQ(steps(), (Steps{2, 1}));
}

TEST(IsDamage, NotWhatTheFileSystemOrALaterProgramSays) {
  EXPECT_TRUE(io::is_damage("E123 x is damaged: its checksum is wrong"));
  EXPECT_TRUE(io::is_damage("E130 x has no manifest.json"));
  EXPECT_FALSE(io::is_damage(io::system_error("read", "x", EIO).line()));
  EXPECT_FALSE(io::is_damage(io::system_error("read", "x", EACCES).line()));
  EXPECT_FALSE(io::is_damage("out/checkpoint-4 has no optimizer state, only the model"));
  EXPECT_FALSE(io::is_damage("out/checkpoint-4: E113 /model/wte.weight is 8 x 4, the model's is 8 x 2"));
  EXPECT_FALSE(io::is_damage("E145 x was saved without the frozen parameters"));
  EXPECT_FALSE(io::is_damage("E132 x: format version 2; this program reads version 1"));
}

TEST_F(Kept, TheBestStaysAndCounts) {
  const auto left = [&](int limit, std::int64_t best) {
    for (const std::int64_t step : {1, 2, 3, 4}) make(step);
    io::Retention retention(limit);
    retention.apply(folder.path(), best > 0 ? folder.path() + "/./checkpoint-" + std::to_string(best) : "");
    const Steps kept = steps();
    for (const std::int64_t step : kept) fs::remove_all(folder / ("checkpoint-" + std::to_string(step)));
    return kept;
  };
  EXPECT_EQ(left(2, 1), (Steps{4, 1}));
  EXPECT_EQ(left(3, 1), (Steps{4, 3, 1}));
  EXPECT_EQ(left(3, 3), (Steps{4, 3, 2}));
  EXPECT_EQ(left(2, 4), (Steps{4, 3}));
  EXPECT_EQ(left(1, 4), (Steps{4}));
  EXPECT_EQ(left(1, 2), (Steps{4, 2})) << "the newest stays, to resume from";
  EXPECT_EQ(left(2, 0), (Steps{4, 3}));
  EXPECT_EQ(left(2, 9), (Steps{4, 3})) << "it is elsewhere";
  for (const std::int64_t step : {1, 2, 3}) make(step);
  damage(1);
  io::Retention(1).apply(folder.path(), folder / "checkpoint-1");
  EXPECT_EQ(steps(), (Steps{3})) << "what is damaged is not the best";
}

TEST_F(Kept, NothingOutsideTheDirectoryIsTouched) {
  const TempDir other(TempDir::Storage::memory);
  make(2);
  make(1);
  fs::rename(folder / "checkpoint-1", other / "checkpoint-1");
  fs::create_directory_symlink(other / "checkpoint-1", folder / "checkpoint-1");
  other.file("precious", "x");
  make(3);
  fs::create_directory_symlink(other.path(), folder / "checkpoint-2/link");
  io::Retention retention(1);
  retention.apply(folder.path());
  EXPECT_EQ(steps(), (Steps{3}));
  EXPECT_TRUE(fs::exists(other / "precious"));
  EXPECT_TRUE(fs::exists(other / "checkpoint-1/manifest.json"));
  EXPECT_TRUE(fs::is_symlink(folder / "checkpoint-1"));
}

TEST_F(Kept, LeftoversOfADeadRunGoAndNothingElse) {
  make(1);
  fs::create_directories(folder / "checkpoint-2.tmp/deep");
  folder.file("checkpoint-2.tmp/state.h5", "half");
  fs::create_directories(folder / "checkpoint-1.trash");
  fs::create_directories(folder / "checkpoint-x.tmp");
  folder.file("mine.tmp", "");
  io::remove_leftovers(folder.path());
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"checkpoint-1", "checkpoint-x.tmp", "mine.tmp"}));
}

TEST(Lock, TheSecondIsRefusedByNameAndTheFirstMayLeave) {
  const TempDir folder(TempDir::Storage::memory);
  {
    const io::DirectoryLock first(folder.path());
    ASSERT_TRUE(first.held());
    expect_error(ExitCode::data, strfmt("%d", ::getpid()), [&] { const io::DirectoryLock second(folder.path()); });
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        const io::DirectoryLock second(folder.path());
        ::_exit(0);
      } catch (const Error& error) {
        ::_exit(error.line().find(folder.path()) != std::string::npos && error.line().find("E150") != std::string::npos
                    ? 3
                    : 4);
      }
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 3);
  }
  EXPECT_TRUE(io::DirectoryLock(folder.path()).held());
}

TEST(Lock, AKilledHolderDoesNotBlock) {
  const TempDir folder(TempDir::Storage::memory);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const io::DirectoryLock lock(folder.path());
    (void)!::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  expect_error(ExitCode::data, strfmt("%d", child), [&] { const io::DirectoryLock second(folder.path()); });
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(io::DirectoryLock(folder.path()).held());
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace tessera::test
