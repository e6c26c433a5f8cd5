// SPDX-License-Identifier: Apache-2.0
// Only the save of `tessera train` at --save_steps, on MPI ranks, for sweeps that start it hundreds of times.
//   fault_save save DIRECTORY STEP SHARD_GROUP [direct|async|mpio]   under mpirun: lock, save checkpoint-STEP, keep
//   the newest one
//   fault_save check DIRECTORY   alone: every listed checkpoint loads whole, and there is one; prints the newest step
// Exits as tessera does.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "io/checkpoint/directory.hpp"
#include "runtime/base/log.hpp"
#include "tests/fault_injection/test_state.hpp"

namespace tessera::test {
namespace {

void save_command(World& world, const std::string& directory, std::int64_t step, int group, const std::string& how) {
  const bool async = how == "async";
  std::optional<io::DirectoryLock> lock;
  world.run_and_agree([&] {
    if (world.rank() != 0) return;
    lock.emplace(directory);
    io::remove_leftovers(directory);
  });
  const TestTensors tensors = small_tensors();
  TestState state(tensors, Mesh(world.size() / group, group), world.rank());
  state.fill(step);
  const std::string path = directory + "/" + io::checkpoint_name(step);
  io::SaveRequest request = save_request(state, path, step);
  request.file_bytes = 16000;  // several files
  if (how == "mpio") request.io = io::CheckpointIo::mpio;
  std::vector<std::byte> snapshot(async ? tensors.bytes() + 4096 : 0);
  request.snapshot = snapshot;
  io::CheckpointSave pending(world, request);
  if (async) {
    for (int unit = 0; unit < state.layout().num_units(); ++unit) pending.before_update(unit);
    state.spoil();
  }
  (void)pending.commit();
  world.run_and_agree([&] {
    if (world.rank() != 0) return;
    io::Retention retention(1);
    retention.written(path);
    retention.apply(directory);
  });
}

int check_command(World& world, const std::string& directory) {
  const TestTensors tensors = small_tensors();
  std::int64_t newest = 0;
  for (const auto& found : io::list_checkpoints(directory)) {
    if (!found.problem.empty()) continue;
    TestState state(tensors, Mesh(1, 1), 0);
    const std::string wrong = load(world, state, found.path, found.step);
    if (!wrong.empty()) {
      std::printf("%s: %s\n", found.path.c_str(), wrong.c_str());
      return 1;
    }
    newest = std::max(newest, found.step);
  }
  if (newest == 0) std::printf("%s holds no checkpoint\n", directory.c_str());
  else std::printf("%lld\n", static_cast<long long>(newest));
  return newest == 0 ? 1 : 0;
}

}  // namespace
}  // namespace tessera::test

int main(int argc, char** argv) {
  using namespace tessera;
  const bool save = argc >= 5 && std::strcmp(argv[1], "save") == 0;
  if (!save && (argc != 3 || std::strcmp(argv[1], "check") != 0)) return 2;
  try {
    if (!save) {
      int code = 1;
      run_local(1, [&](World& world) { code = test::check_command(world, argv[2]); });
      return code;
    }
    const auto world = bootstrap({.comm = WorldOptions::Comm::mpi, .comm_timeout_s = 20});
    log::set_rank(world->rank(), world->size(), world->host());
    try {
      test::save_command(*world, argv[2], std::atoll(argv[3]), std::atoi(argv[4]), argc > 5 ? argv[5] : "");
    } catch (const Error& error) {  // on every rank alike: rank 0 reports it
      if (error.code() == ExitCode::communication) world->abort(error);
      if (world->rank() == 0) log::error(error.line());
      world->barrier();
      return static_cast<int>(error.code());
    }
    return 0;
  } catch (const Error& error) {
    log::error(error.line());
    return static_cast<int>(error.code());
  }
}
