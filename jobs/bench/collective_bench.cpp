// SPDX-License-Identifier: Apache-2.0
// Times both sides alternately, so that disturbances of the machine hit both.
#include "jobs/bench/collective_bench.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <limits>
#include <thread>
#include <vector>

#include "jobs/bench/tools.hpp"
#include "runtime/comm/message_count.hpp"
#include "runtime/comm/mpi/mpi.hpp"

namespace tessera::jobs {

namespace {

/// Reads every byte once, at memory speed.
std::uint64_t read(const void* data, std::size_t bytes) {
  const auto* words = static_cast<const std::uint64_t*>(data);
  std::uint64_t sums[8] = {};
  const std::size_t count = bytes / sizeof(std::uint64_t);
  for (std::size_t k = 0; k + 8 <= count; k += 8)
    for (std::size_t i = 0; i < 8; ++i) sums[i] ^= words[k + i];
  std::uint64_t all = 0;
  for (const auto sum : sums) all ^= sum;
  return all;
}
volatile std::uint64_t sink;

/// Seconds of the slowest rank, from a common start. Unlike timed(), without what ranks agree on at the end.
double slowest_seconds(World& world, const auto& work) {
  world.barrier();
  const auto begin = std::chrono::steady_clock::now();
  work();
  return static_cast<double>(world.max((std::chrono::steady_clock::now() - begin) / std::chrono::nanoseconds(1))) *
         1e-9;
}

/// CPU time over wall time of a process that waits for rank 0; the largest of the other ranks.
double waiting_share(World& world, Communicator& comm) {
  const auto clock = [](clockid_t which) {
    timespec now{};
    clock_gettime(which, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  world.barrier();
  const double wall = clock(CLOCK_MONOTONIC), cpu = clock(CLOCK_PROCESS_CPUTIME_ID);
  if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  comm.barrier({"barrier", "bench", -1});
  const double share = (clock(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (clock(CLOCK_MONOTONIC) - wall);
  return 1e-9 * static_cast<double>(world.max(world.rank() == 0 ? 0 : static_cast<std::int64_t>(1e9 * share)));
}

/// Runs `call` once, and notes the messages and rounds that `of` counts; the largest of all ranks.
void note_messages(World& world, const auto& of, CollectiveBench::Times& times, const auto& call) {
  const comm::MessageCount before = comm::message_count(of);
  call();
  const comm::MessageCount sent = comm::message_count(of) - before;
  times.messages = static_cast<std::uint64_t>(world.max(static_cast<std::int64_t>(sent.messages)));
  times.rounds = static_cast<std::uint64_t>(world.max(static_cast<std::int64_t>(sent.rounds)));
}

/// What a run's ranks do several times at its start.
CollectiveBench::Times agreement(World& world, int rounds) {
  const std::string text(4096, '.');
  const auto agree = [&] { world.require_equal("the text of a benchmark", text); };
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) seconds.push_back(slowest_seconds(world, agree));
  CollectiveBench::Times times{.ours_s = median(seconds)};
  note_messages(world, world, times, agree);
  return times;
}

/// The rest is measured also where hosts reach each other by MPI alone.
void note_socket_rate(World& world, CollectiveBench& bench, std::vector<double>* rates) {
  try {
    const double rate = socket_rate(world, bench.bytes / 2);
    if (rates != nullptr) rates->push_back(rate);
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) throw;
    bench.socket_error = error.line();
  }
}

}  // namespace

CollectiveBench bench_collectives(World& world, std::size_t bytes, int rounds) {
  if (world.topology().transport == Transport::local || !comm::mpi_usable())
    throw Error(ExitCode::usage, "collectives are measured between processes", "bench collectives");
  const auto n = static_cast<std::size_t>(world.size()), r = static_cast<std::size_t>(world.rank());
  const Mesh mesh(1, world.size());
  auto comm = world.communicator(mesh, Axis::shard);
  const std::size_t chunk = std::max<std::size_t>(1, bytes / sizeof(float) / n / 128) * 128, count = chunk * n,
                    part = chunk * sizeof(float);
  if (count > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw Error(ExitCode::usage, "MPI counts elements in an int, and these buffers have more", "--bench_bytes",
                "Give less than 8GiB");
  CollectiveBench bench;
  bench.bytes = count * sizeof(float);
  std::vector<std::byte> staging(staging_bytes(world.topology(), mesh, Axis::shard, world.rank(), bench.bytes));
  comm->set_staging(staging);

  // Tessera's buffers lie in shared memory if the transport has it; MPI's are ordinary ones.
  std::vector<float> mine(chunk, 1.0F), full(count, 2.0F), result(count);
  const auto gathered = comm->share(part), grads = comm->share(bench.bytes);
  auto* own_full = gathered ? gathered.base : reinterpret_cast<std::byte*>(full.data());
  auto* own_mine = gathered ? own_full + r * part : reinterpret_cast<std::byte*>(mine.data());
  auto* own_grads = grads ? reinterpret_cast<float*>(grads.base + r * bench.bytes) : full.data();
  std::fill_n(reinterpret_cast<float*>(own_mine), chunk, 1.0F);
  std::fill_n(own_grads, count, 2.0F);

  const auto in_mpi = [](const auto& call) {
    std::lock_guard lock(comm::mpi_mutex());
    TESSERA_MPI(call());
  };
  const auto all_gather = [&] { comm->all_gather({"gather", "bench", -1}, own_mine, own_full, part); };
  const auto reduce_scatter = [&] { comm->reduce_scatter({"reduce", "bench", -1}, own_grads, result.data(), chunk); };
  const auto sum_all = [&] {
    comm->all_reduce({"reduce", "bench", -1}, SourceBuffer(own_grads), result.data(), count);
  };
  const int mpi_chunk = static_cast<int>(chunk), mpi_count = static_cast<int>(count);
  std::vector<double> gather, mpi_gather, reduce, mpi_reduce, all_reduce, mpi_all_reduce, copy, socket;
  for (int round = 0; round < rounds + 1; ++round) {
    const auto note = [&](std::vector<double>& to, std::size_t read_bytes, const void* data, const auto& work) {
      const double seconds = slowest_seconds(world, [&] {
        work();
        sink = read(data, read_bytes);
      });
      if (round > 0) to.push_back(seconds);  // the first round touches pages and opens connections
    };
    if (bench.socket_error.empty()) note_socket_rate(world, bench, round > 0 ? &socket : nullptr);
    note(gather, bench.bytes, own_full, all_gather);
    note(mpi_gather, bench.bytes, full.data(), [&] {
      in_mpi([&] {
        return MPI_Allgather(mine.data(), mpi_chunk, MPI_FLOAT, full.data(), mpi_chunk, MPI_FLOAT, MPI_COMM_WORLD);
      });
    });
    note(reduce, part, result.data(), reduce_scatter);
    note(mpi_reduce, part, result.data(), [&] {
      in_mpi([&] {
        return MPI_Reduce_scatter_block(full.data(), result.data(), mpi_chunk, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      });
    });
    note(all_reduce, bench.bytes, result.data(), sum_all);
    note(mpi_all_reduce, bench.bytes, result.data(), [&] {
      in_mpi([&] { return MPI_Allreduce(full.data(), result.data(), mpi_count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
    });
    note(copy, 0, result.data(), [&] { std::memcpy(result.data(), own_grads, bench.bytes / 2); });
  }
  bench.waiting_share = waiting_share(world, *comm);
  // An all-gather brings a host what the others have, a reduce-scatter takes as much from it.
  const double local = static_cast<double>(world.topology().ranks_per_node),
               least = world.node_count() > 1
                           ? static_cast<double>(bench.bytes) * (1 - local / static_cast<double>(world.size()))
                           : 0;
  bench.gather = {median(gather), median(mpi_gather), least};
  bench.reduce = {median(reduce), median(mpi_reduce), least};
  bench.all_reduce = {median(all_reduce), median(mpi_all_reduce), 2 * least};
  note_messages(world, *comm, bench.gather, all_gather);
  note_messages(world, *comm, bench.reduce, reduce_scatter);
  note_messages(world, *comm, bench.all_reduce, sum_all);
  bench.agreement = agreement(world, rounds);
  bench.socket_bytes_per_s = bench.socket_error.empty() ? median(socket) : 0;
  bench.memcpy_bytes_per_s = static_cast<double>(bench.bytes) / 2 / median(copy);
  return bench;
}

}  // namespace tessera::jobs
