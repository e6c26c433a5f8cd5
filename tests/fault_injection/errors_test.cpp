// SPDX-License-Identifier: Apache-2.0
// Every file-system call of a save fails once: all ranks throw the same error with the file and the system's message;
// the previous checkpoint loads; the new one is complete or not listed; nothing is left behind, and the next save
// succeeds. Ranks are threads of one process with the shim linked in; sweep.sh tests processes that die.

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <set>

#include "io/checkpoint/directory.hpp"
#include "io/model/model_directory.hpp"
#include "io/model/model_io.hpp"
#include "tests/fault_injection/shim.hpp"
#include "tests/fault_injection/test_state.hpp"
#include "tests/io/files.hpp"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;

struct Case {
  Mesh mesh;
  bool async = false;
  std::uint64_t file_bytes = io::SaveRequest::default_file_bytes;
};

/// Saves step 2; what each rank threw, "" where it did not.
std::vector<std::string> try_to_save(const TestTensors& tensors, const Case& c, const std::string& directory) {
  std::vector<std::string> said(static_cast<std::size_t>(c.mesh.world()));
  run_local(c.mesh.world(), [&](World& world) {
    TestState state(tensors, c.mesh, world.rank());
    state.fill(2);
    auto request = save_request(state, directory, 2);
    request.file_bytes = c.file_bytes;
    std::vector<std::byte> snapshot(c.async ? tensors.bytes() + 4096 : 0);
    request.snapshot = snapshot;
    try {
      io::CheckpointSave pending(world, request);
      if (c.async) {
        for (int unit = 0; unit < state.layout().num_units(); ++unit) pending.before_update(unit);
        state.spoil();  // the next step's update
      }
      (void)pending.commit();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data) << error.line();
      said[static_cast<std::size_t>(world.rank())] = error.line();
    }
  });
  return said;
}

int open_descriptors() {
  int count = 0;
  DIR* directory = ::opendir("/proc/self/fd");
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

std::string loaded(const TestTensors& tensors, const std::string& directory, std::int64_t step) {
  std::string wrong;
  run_local(1, [&](World& world) {
    TestState state(tensors, Mesh(1, 1), 0);
    try {
      wrong = load(world, state, directory, step);
    } catch (const Error& error) { wrong = error.line(); }
  });
  return wrong;
}

/// A load opens a file at most twice a rank (each time with and without O_DIRECT), however many blocks it reads, and
/// however many of them several ranks share; one file at a time.
TEST(Errors, ALoadOpensAFileAtMostTwiceARank) {
  const TestTensors tensors = large_tensors();
  const TempDir folder(TempDir::Storage::memory);
  run_local(1, [&](World& world) {
    TestState state(tensors, Mesh(1, 1), 0);
    state.fill(1);
    auto request = save_request(state, folder / "checkpoint-1", 1);
    request.file_bytes = 16 << 20;
    (void)io::CheckpointSave(world, request).commit();
  });
  const auto files = static_cast<long>(io::read_manifest(folder / "checkpoint-1").files.size());
  EXPECT_GT(files, 1);
  fault_arm(fs::canonical(folder.path()).c_str(), ".h5", 0, "EIO");
  constexpr int ranks = 64;
  std::vector<long> opened(ranks), most(ranks);
  run_local(ranks, [&](World& world) {
    TestState state(tensors, Mesh(1, ranks), world.rank());
    const io::CheckpointReader reader(world, folder / "checkpoint-1");
    (void)fault_opened_to_read();
    (void)fault_most_open();
    (void)reader.load(tensors.params, state.layout(), state.views(), 1);
    opened[static_cast<std::size_t>(world.rank())] = fault_opened_to_read();
    most[static_cast<std::size_t>(world.rank())] = fault_most_open();
    EXPECT_EQ(state.difference(1), "");
  });
  (void)fault_disarm();
  for (const long count : opened) {
    EXPECT_GT(count, 0);
    EXPECT_LE(count, 4 * files);
  }
  for (const long count : most) {
    EXPECT_GT(count, 0);
    EXPECT_LE(count, 2);
  }
}

/// Calls that may fail without the save failing: removing what is not needed any more, and closing what is durable.
bool may_be_ignored(const std::string& call) {
  return call.starts_with("unlink ") || call.starts_with("rmdir ") || call.starts_with("close ");
}

void check_after(const TestTensors& tensors, const TempDir& folder, const std::vector<std::string>& said,
                 const char* words, const std::string& call) {
  const bool refused = !said[0].empty();
  for (const auto& line : said) EXPECT_EQ(line, said[0]);
  EXPECT_EQ(loaded(tensors, folder / "checkpoint-1", 1), "");
  if (refused) {
    EXPECT_THAT(said[0], testing::HasSubstr(words));
    EXPECT_THAT(said[0], testing::HasSubstr(folder.path()));
  }
  bool listed = false;
  for (const auto& found : io::list_checkpoints(folder.path()))
    if (found.step == 2 && found.problem.empty()) listed = true;
  EXPECT_TRUE(refused || listed) << "nothing was thrown, and there is no checkpoint";
  EXPECT_EQ(listed ? loaded(tensors, folder / "checkpoint-2", 2) : "", "");
  if (refused && !may_be_ignored(call)) {
    for (const auto& name : folder.names())
      EXPECT_TRUE(name == "checkpoint-1" || (listed && name == "checkpoint-2")) << name << " is left";
  }
}

void save_alone(const TestTensors& tensors, const std::string& directory, std::int64_t step, std::int64_t values) {
  run_local(1, [&](World& world) {
    TestState state(tensors, Mesh(1, 1), 0);
    state.fill(values);
    (void)save(world, state, directory, step);
  });
}

/// Repeats the attempt with each call failing in turn; `check` gets the ranks' errors and the failed call.
void each_call(const TempDir& folder, const char* kind, const std::function<std::vector<std::string>()>& attempt,
               const std::function<void(const std::vector<std::string>& said, const std::string& call)>& check) {
  const std::string root = fs::canonical(folder.path()).string();
  for (long at = 1; at < 1000 && !testing::Test::HasFailure(); ++at) {
    const int before = open_descriptors();
    fault_arm(root.c_str(), "", at, kind);
    const auto said = attempt();
    (void)fault_disarm();
    const std::string call = fault_happened();
    if (call.empty()) break;
    SCOPED_TRACE(strfmt("%s at call %ld: %s; said \"%s\"", kind, at, call.c_str(), said[0].c_str()));
    check(said, call);
    EXPECT_EQ(open_descriptors(), before) << "descriptors are left open";
  }
}

/// Checks all of this with one kind of fault; returns the number of calls.
long sweep(const Case& c, const char* kind, const char* words) {
  const TestTensors tensors = small_tensors();
  const std::string_view name = kind;
  const bool one_call_fails = name == "ENOSPC" || name == "EIO";
  const TempDir folder(TempDir::Storage::memory);
  save_alone(tensors, folder / "checkpoint-1", 1, 1);
  std::set<std::string> calls;
  long count = 0;
  each_call(
      folder, kind, [&] { return try_to_save(tensors, c, folder / "checkpoint-2"); },
      [&](const auto& said, const std::string& call) {
        SCOPED_TRACE(c.mesh.str());
        ++count;
        calls.insert(call.substr(0, call.find(' ')));
        check_after(tensors, folder, said, words, one_call_fails ? call : "");
        EXPECT_TRUE(!one_call_fails || !said[0].empty() || may_be_ignored(call)) << "nothing was thrown";
        EXPECT_TRUE(name != "short" || said[0].empty());
        fs::remove_all(folder / "checkpoint-2");
        fs::remove_all(folder / "checkpoint-2.tmp");
      });
  for (const char* expected : {"mkdir", "open", "pwrite", "fsync", "rename", "close"})
    EXPECT_TRUE(calls.contains(expected)) << expected;
  return count;
}

TEST(Errors, NoSpaceAtAnyCallOfASave) { EXPECT_GT(sweep({Mesh(1, 3)}, "ENOSPC", "No space left on device"), 20); }
TEST(ErrorsFull, AnInputOutputErrorAtAnyCall) { EXPECT_GT(sweep({Mesh(2, 2)}, "EIO", "Input/output error"), 20); }
TEST(Errors, AShortWriteIsContinued) { sweep({Mesh(1, 2)}, "short", ""); }
TEST(ErrorsFull, OneRankAlone) { sweep({Mesh(1, 1)}, "EIO", "Input/output error"); }
TEST(ErrorsFull, SeveralFiles) { sweep({Mesh(1, 2), false, 6000}, "ENOSPC", "No space left on device"); }
TEST(Errors, InTheBackground) {
  sweep({Mesh(1, 3), true}, "ENOSPC", "No space left on device");
  sweep({Mesh(2, 1), true}, "EIO", "Input/output error");
}

// No space from the n-th call on, with or without a short write before it.
TEST(ErrorsFull, ADiskThatRemainsFull) {
  sweep({Mesh(1, 3)}, "full", "No space left on device");
  sweep({Mesh(1, 2)}, "short_full", "No space left on device");
}

// The new checkpoint has the name of an existing one, which stays until the rename.
void save_over_a_checkpoint() {
  const TestTensors tensors = small_tensors();
  const TempDir folder(TempDir::Storage::memory);
  const std::string directory = folder / "checkpoint-2";
  save_alone(tensors, directory, 2, 1);  // the values of another run's step 2
  each_call(
      folder, "EIO", [&] { return try_to_save(tensors, {Mesh(1, 2)}, directory); },
      [&](const auto& said, const std::string&) {
        run_local(1, [&](World& world) {
          TestState state(tensors, Mesh(1, 1), 0);
          (void)load(world, state, directory, 2);
          EXPECT_TRUE(state.difference(1).empty() || state.difference(2).empty()) << state.difference(1);
          EXPECT_TRUE(!said[0].empty() || state.difference(2).empty());
        });
        save_alone(tensors, directory, 2, 1);
      });
}
TEST(Errors, SavingOverACheckpointKeepsTheOldOneUntilTheNewOneIsComplete) { save_over_a_checkpoint(); }
TEST(Errors, SoItDoesWhereNamesCannotBeExchanged) {
  fault_exchange(0);
  save_over_a_checkpoint();
  fault_exchange(1);
}

std::vector<io::ShardView> model_views(TestState& state) {
  std::vector<io::ShardView> views;
  for (const io::StateView& view : state.views().shards) views.push_back({view.unit, view.shard, view.data[0]});
  return views;
}

/// Exports the model of a step on two ranks, config.json naming the step; what each rank threw, "" where it did not.
std::vector<std::string> try_to_export(const TestTensors& tensors, const std::string& directory, int step) {
  std::vector<std::string> said(2);
  run_local(2, [&](World& world) {
    TestState state(tensors, Mesh(1, 2), world.rank());
    state.fill(step);
    try {
      io::write_model(world, directory, std::to_string(step), tensors.params, state.layout(), model_views(state),
                      {.max_shard_bytes = 2000});
    } catch (const Error& error) { said[static_cast<std::size_t>(world.rank())] = error.line(); }
  });
  return said;
}

/// The step whose model the directory holds, every value of it; 0: there is no config.json.
int exported_step(const TestTensors& tensors, const std::string& directory) {
  if (!fs::exists(directory + "/config.json")) return 0;
  const int step = std::stoi(bytes_of(directory + "/config.json"));
  run_local(1, [&](World& world) {
    TestState state(tensors, Mesh(1, 1), 0);
    state.fill(step);
    const auto views = model_views(state);
    for (const io::ShardView& view : views) view.data.as<float>()[0] = -1;
    (void)io::read_model(world, directory, tensors.params, state.layout(), views,
                         [](const std::string& name) { return name; });
    EXPECT_EQ(state.difference(step), "");
  });
  return step;
}

// The directory holds the model of step 1. It keeps it, or holds all of that of step 2; or that is beside it, in
// model.new, and the directory has no config.json.
TEST(Errors, AnExportLeavesTheOldModelOrTheNewOne) {
  const TestTensors tensors = small_tensors();
  const TempDir folder(TempDir::Storage::memory);
  const std::string directory = folder / "run";
  (void)try_to_export(tensors, directory, 1);
  int with_config = 0, without = 0;
  each_call(
      folder, "EIO", [&] { return try_to_export(tensors, directory, 2); },
      [&](const auto& said, const std::string& call) {
        EXPECT_EQ(said[0], said[1]);
        EXPECT_TRUE(!said[0].empty() || may_be_ignored(call)) << "nothing was thrown";
        EXPECT_TRUE(may_be_ignored(call) || !fs::exists(directory + "/model.tmp"));
        const int step = exported_step(tensors, directory);
        EXPECT_TRUE(step == 2 || !said[0].empty());
        if (step == 0) {
          ++without;
          EXPECT_EQ(io::directory_of_model(directory), directory + "/model.new");
          EXPECT_EQ(exported_step(tensors, directory + "/model.new"), 2);
          EXPECT_NE(said[0].find("all of the new model is in " + directory + "/model.new"), std::string::npos);
          io::put_model_in_place(directory);
          EXPECT_EQ(exported_step(tensors, directory), 2);
          EXPECT_FALSE(fs::exists(directory + "/model.new"));
        } else ++with_config;
        (void)try_to_export(tensors, directory, 1);
      });
  EXPECT_GT(with_config, 10);
  EXPECT_GT(without, 3);
}

// The same where the process is killed at each call that comes after the weights, and then again while it completes
// what it finds.
TEST(Errors, AnExportThatIsKilledLeavesTheOldModelOrTheNewOne) {
  const TestTensors tensors = small_tensors();
  const TempDir folder(TempDir::Storage::memory);
  const std::string directory = folder / "run", root = fs::canonical(folder.path()).string();
  const auto killed_at = [&](long call, const std::function<void()>& work) {
    const pid_t child = ::fork();
    if (child == 0) {
      fault_arm(root.c_str(), "", call, "kill");
      work();
      ::_exit(fault_happened()[0] == 0 ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFSIGNALED(status);
  };
  int old = 0, replaced = 0, beside = 0;
  (void)try_to_export(tensors, directory, 1);
  for (long call = 1;; ++call) {
    if (!killed_at(call, [&] { (void)try_to_export(tensors, directory, 2); })) break;
    SCOPED_TRACE(strfmt("killed at call %ld", call));
    const int step = exported_step(tensors, directory);
    ++(step == 1 ? old : step == 2 ? replaced : beside);
    if (step == 0) {
      EXPECT_EQ(exported_step(tensors, directory + "/model.new"), 2);
      (void)killed_at(call % 7 + 1, [&] { io::put_model_in_place(directory); });
      io::put_model_in_place(directory);
      EXPECT_EQ(exported_step(tensors, directory), 2);
    }
    (void)try_to_export(tensors, directory, 1);
    ASSERT_EQ(exported_step(tensors, directory), 1);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(old, 10);
  EXPECT_GT(replaced, 3);
  EXPECT_GT(beside, 10);
}

// Hard links are not there on every file system: then files are moved.
TEST(Errors, AnExportReplacesAModelWithoutHardLinks) {
  const TestTensors tensors = small_tensors();
  const TempDir folder(TempDir::Storage::memory);
  const std::string directory = folder / "run";
  (void)try_to_export(tensors, directory, 1);
  fault_links(0);
  (void)try_to_export(tensors, directory, 2);
  EXPECT_EQ(exported_step(tensors, directory), 2);
  EXPECT_FALSE(fs::exists(directory + "/model.new"));
  each_call(
      folder, "EIO", [&] { return try_to_export(tensors, directory, 1); },
      [&](const auto&, const std::string&) {
        io::put_model_in_place(directory);
        EXPECT_NE(exported_step(tensors, directory), 0);
        (void)try_to_export(tensors, directory, 2);
        EXPECT_EQ(exported_step(tensors, directory), 2);
      });
  fault_links(1);
}

}  // namespace
}  // namespace tessera::test
