// SPDX-License-Identifier: Apache-2.0
// A run that fails on purpose: comm_failure HOW TRANSPORT RANKS_PER_NODE TIMEOUT_S VICTIM. failure.sh checks how it
// ends.
//   kill       the victim's process dies               throw      it throws in the middle of a step
//   stop       it is stopped between two collectives   stop_in    it is stopped while it waits in one
//   skip       it skips a collective and continues     idle       it skips one and does nothing more
//   agree      it throws in work on whose outcome all ranks agree, as that of a save
//   work       it does local work for longer than the timeout, then continues
//   work_idle  it does local work for as long, then nothing more
//   split      it is stopped in MPI_Comm_split, while the others create a communicator
//   hang_split, hang_window  it does nothing more in MPI_Comm_split, or while shared memory is created
#include <mpi.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/local_work.hpp"
#include "runtime/base/log.hpp"
#include "runtime/comm/world.hpp"

namespace {

using namespace tessera;

void sleep_s(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

enum class Fault { none, stop_split, hang_split, hang_window };
Fault fault = Fault::none;  // of this rank, from now on

}  // namespace

/// In place of MPI's own, which its profiling interface has under other names.
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
  if (fault == Fault::stop_split) ::kill(::getpid(), SIGSTOP);
  if (fault == Fault::hang_split) sleep_s(30);
  return PMPI_Comm_split(comm, color, key, made);
}
int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  if (fault == Fault::hang_window) sleep_s(30);
  return PMPI_Bcast(buffer, count, type, root, comm);
}

namespace {

struct Run {
  std::string how;
  int victim = 0;
};

/// Ten seconds of local work.
void work(const Run& run) {
  for (int part = 0; part < 100; ++part) {
    sleep_s(0.1);
    note_local_work();
  }
  std::fprintf(stderr, "the work is done\n");
  if (run.how == "work_idle") sleep_s(30);
}

void steps(World& world, const Run& run) {
  const Mesh mesh(1, world.size());
  if (world.rank() == run.victim && run.how == "split") fault = Fault::stop_split;
  if (world.rank() == run.victim && run.how == "hang_split") fault = Fault::hang_split;
  if (world.rank() == run.victim && run.how == "hang_window") fault = Fault::hang_window;
  auto comm = world.communicator(mesh, Axis::shard);
  constexpr std::size_t chunk = 3000;
  const std::size_t count = chunk * static_cast<std::size_t>(world.size());
  std::vector<std::byte> staging(staging_bytes(world.topology(), mesh, Axis::shard, world.rank(), count * 4));
  comm->set_staging(staging);
  std::vector<float> params(count), grads(count, 1.0F);
  auto* bytes = reinterpret_cast<std::byte*>(params.data());
  const auto gather = [&](const char* unit) {
    comm->all_gather({"gather", unit, -1}, bytes + static_cast<std::size_t>(world.rank()) * chunk * 4, bytes,
                     chunk * 4);
  };
  const auto reduce = [&](const char* unit) {
    comm->reduce_scatter({"reduce", unit, 0}, grads.data(), grads.data(), chunk);
  };
  for (std::int64_t step = 1; step <= 4; ++step) {
    world.set_step(step);
    const bool now = step == 3 && world.rank() == run.victim;
    gather("h.0");
    gather("h.1");
    if (now && run.how == "kill") ::raise(SIGKILL);
    if (now && run.how == "throw") throw Error(ExitCode::diverged, "loss is not finite in step 3", "h.1");
    if (step == 3 && run.how == "agree")
      world.run_and_agree([&] {
        if (now) throw Error(ExitCode::data, strfmt("rank %d cannot write", run.victim), "out/checkpoint-3");
      });
    if (now && run.how == "stop") ::kill(::getpid(), SIGSTOP);
    if (now && run.how.starts_with("work")) work(run);
    std::thread stopper;
    if (step == 3 && run.how == "stop_in") {
      if (now)
        stopper = std::thread([] {
          sleep_s(0.3);
          ::kill(::getpid(), SIGSTOP);
        });
      else sleep_s(0.6);  // the victim waits for the others when it is stopped
    }
    if (!now || (run.how != "skip" && run.how != "idle")) reduce("h.1");
    if (now && run.how == "idle") sleep_s(30);
    if (stopper.joinable()) stopper.join();
    reduce("h.0");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  try {
    WorldOptions options;
    options.comm = std::string(argv[2]) == "mpi" ? WorldOptions::Comm::mpi : WorldOptions::Comm::node;
    options.ranks_per_node = std::atoi(argv[3]);
    options.comm_timeout_s = std::atof(argv[4]);
    auto world = bootstrap(options);
    try {
      steps(*world, {argv[1], std::atoi(argv[5])});
    } catch (const Error& error) { world->abort(error); }
  } catch (const Error& error) {
    log::error(error.line());
    return static_cast<int>(error.code());
  }
  return 0;
}
