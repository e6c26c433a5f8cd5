// SPDX-License-Identifier: Apache-2.0
// `tessera bench scratch`: the scratch files of --nvme_path against the bare disk, in one run and in turns.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "io/file/thread_tasks.hpp"
#include "io/scratch/scratch_store.hpp"
#include "jobs/bench/bench.hpp"
#include "jobs/bench/tools.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/versions.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

constexpr std::uint64_t bench_region_bytes = 16u << 20, bench_file_step = bench_region_bytes;
constexpr int raw_scratch_threads = io::ScratchStore::default_threads;

enum class ScratchMoves : unsigned char { write, read, both };  // both: every other request reads, the others write
constexpr ScratchMoves all_moves[] = {ScratchMoves::write, ScratchMoves::read, ScratchMoves::both};
const char* word_of(ScratchMoves moves) {
  return moves == ScratchMoves::write ? "write" : moves == ScratchMoves::read ? "read" : "read and write";
}
bool is_read(ScratchMoves moves, std::uint64_t number) {
  return moves == ScratchMoves::read || (moves == ScratchMoves::both && number % 2 == 0);
}

void fill_buffer(const io::DirectBuffer& buffer) {
  for (std::size_t i = 0; i < buffer.span().size(); ++i)
    buffer.span()[i] = static_cast<std::byte>(i * 2654435761u >> 13);
}

/// This rank's file, by plain pread and pwrite with O_DIRECT.
class PlainScratch {
 public:
  PlainScratch(const std::string& directory, int rank, std::uint64_t bytes) : bytes_(bytes) {
    const std::string path = strfmt("%s/tessera-bench-raw.%d.rank%d", directory.c_str(), ::getpid(), rank);
    io::File::create(path).allocate(bytes);
    reader_ = io::File::open_to_read(path, io::Cache::direct);
    writer_ = io::File::open_to_write(path, io::Cache::direct);
    if (reader_.descriptor() < 0 || writer_.descriptor() < 0) {
      io::remove_quietly(path);
      throw Error(ExitCode::data, "this file system has no O_DIRECT, so the disk cannot be measured", path,
                  "Choose another --dir");
    }
  }
  ~PlainScratch() { io::remove_quietly(writer_.path()); }
  PlainScratch(const PlainScratch&) = delete;
  /// `threads` at once, each with requests of `request` bytes.
  void move(ScratchMoves moves, int threads, std::uint64_t request) const {
    std::vector<io::DirectBuffer> buffers;
    for (int t = 0; t < threads; ++t) fill_buffer(buffers.emplace_back(static_cast<std::size_t>(request)));
    io::run_tasks(static_cast<std::size_t>(bytes_ / request), buffers, [&](io::DirectBuffer& buffer, std::size_t i) {
      const auto at = static_cast<std::uint64_t>(i) * request;
      if (is_read(moves, i)) reader_.read_at(at, buffer.span());
      else writer_.write_at(at, buffer.span());
    });
  }

 private:
  std::uint64_t bytes_;
  io::File reader_, writer_;
};

/// A store of as many bytes; two regions are in flight, as when a step fetches one unit ahead.
class StoredScratch {
 public:
  StoredScratch(const std::string& directory, int rank, std::uint64_t bytes)
      : store_({.directory = directory, .rank = rank, .regions = regions(bytes), .option = "--dir"}) {
    for (const io::DirectBuffer& buffer : buffers_) fill_buffer(buffer);
  }
  void move(ScratchMoves moves) {
    io::ScratchTransfer transfers[in_flight];
    for (std::size_t r = 0; r < store_.regions().size(); ++r) {
      const std::size_t slot = r % in_flight;
      transfers[slot].wait();
      const auto bytes = buffers_[slot].span();
      transfers[slot] = is_read(moves, r) ? store_.read(r, bytes) : store_.write(r, bytes);
    }
    for (const io::ScratchTransfer& transfer : transfers) transfer.wait();
  }

 private:
  static constexpr std::size_t in_flight = 2;
  static std::vector<io::ScratchRegion> regions(std::uint64_t bytes) {
    std::vector<io::ScratchRegion> all;
    for (std::uint64_t i = 0; i < bytes / bench_region_bytes; ++i)
      all.push_back({strfmt("h.%lu", i), "bench", bench_region_bytes});
    return all;
  }
  io::ScratchStore store_;
  io::DirectBuffer buffers_[in_flight] = {io::DirectBuffer(bench_region_bytes), io::DirectBuffer(bench_region_bytes)};
};

struct ScratchRates {
  std::vector<double> raw, store, ratio;  // bytes per second; store / raw of a turn
};

}  // namespace

void bench_scratch_command(const Call& call, World& world) {
  const Options& options = call.options();
  const std::string directory = options.has("dir") ? options.text("dir") : ".";
  const auto ranks = static_cast<std::uint64_t>(world.size());
  const std::uint64_t part =
      std::max<std::uint64_t>(options.bytes("size") / ranks / bench_file_step, 2) * bench_file_step;
  std::optional<PlainScratch> plain;
  std::optional<StoredScratch> stored;
  world.run_and_agree([&] {
    io::make_directories(directory);
    plain.emplace(directory, world.rank(), part);
    stored.emplace(directory, world.rank(), part);
    plain->move(ScratchMoves::write, 1, bench_file_step);  // a first write to allocated space is slower
    stored->move(ScratchMoves::write);
  });
  ScratchRates rates[std::size(all_moves)];
  const auto total = static_cast<double>(part * ranks);
  for (long turn = 0; turn < options.integer("bench_repeats"); ++turn) {
    for (const ScratchMoves moves : all_moves) {
      // The faster of one thread with large requests and several threads with the store's.
      const double one = timed(world, [&] { plain->move(moves, 1, 8u << 20); }),
                   several =
                       timed(world, [&] { plain->move(moves, raw_scratch_threads, io::ScratchStore::block_bytes); }),
                   here = timed(world, [&] { stored->move(moves); });
      ScratchRates& r = rates[static_cast<int>(moves)];
      r.raw.push_back(total / std::min(one, several));
      r.store.push_back(total / here);
      r.ratio.push_back(std::min(one, several) / here);
    }
  }
  nlohmann::ordered_json json = {{"ranks", world.size()}, {"bytes", part * ranks}, {"directory", directory}};
  const bool lines = !options.flag("json");
  if (lines) {
    log::info(version_line());
    log::info(
        strfmt("%s in %s, %d ranks with %d threads each, %ld turns; medians of rates, and of ratios within a turn",
               human_bytes(total).c_str(), directory.c_str(), world.size(), raw_scratch_threads,
               options.integer("bench_repeats")));
  }
  for (const ScratchMoves moves : all_moves) {
    const ScratchRates& r = rates[static_cast<int>(moves)];
    const double raw = median(r.raw), store = median(r.store), ratio = median(r.ratio);
    json["moves"].push_back({{"name", word_of(moves)}, {"raw", raw}, {"scratch", store}, {"scratch_over_raw", ratio}});
    if (!lines) continue;
    log::info(strfmt("%-16s raw (O_DIRECT) %6.2f GiB/s   scratch (CRC32C of each block) %6.2f GiB/s %6.1f%% of raw",
                     word_of(moves), raw / 1073741824.0, store / 1073741824.0, 100 * ratio));
  }
  if (!lines) log::info(json.dump(2));
}

}  // namespace tessera::jobs
