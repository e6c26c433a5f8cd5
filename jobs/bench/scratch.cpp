// SPDX-License-Identifier: Apache-2.0
// `tessera bench scratch`: the scratch files of --nvme_path against the bare disk, alternately in one run.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "io/scratch/scratch_store.hpp"
#include "jobs/bench/bench.hpp"
#include "jobs/bench/plain_disk.hpp"
#include "jobs/bench/tools.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/versions.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

constexpr std::uint64_t bench_region_bytes = 16u << 20, bench_file_step = bench_region_bytes;

enum class ScratchMoves : unsigned char { write, read, both };  // both: every other request reads, the others write
constexpr ScratchMoves all_moves[] = {ScratchMoves::write, ScratchMoves::read, ScratchMoves::both};
const char* word_of(ScratchMoves moves) {
  return moves == ScratchMoves::write ? "write" : moves == ScratchMoves::read ? "read" : "read and write";
}
double read_share(ScratchMoves moves) {
  return moves == ScratchMoves::write ? 0 : moves == ScratchMoves::read ? 1 : 0.5;
}

/// A store of as many bytes; two regions are in flight, as when a step fetches one unit ahead.
class StoredScratch {
 public:
  static constexpr std::size_t in_flight = 2;
  static constexpr std::uint64_t memory_bytes = in_flight * bench_region_bytes;
  StoredScratch(const std::string& directory, int rank, std::uint64_t bytes)
      : store_({.directory = directory, .rank = rank, .regions = regions(bytes), .option = "--dir"}) {
    for (const io::DirectBuffer& buffer : buffers_) fill_bench_buffer(buffer);
  }
  void move(ScratchMoves moves) {
    io::ScratchTransfer transfers[in_flight];
    for (std::size_t r = 0; r < store_.regions().size(); ++r) {
      const std::size_t slot = r % in_flight;
      transfers[slot].wait();
      const auto bytes = buffers_[slot].span();
      transfers[slot] = is_bench_read(read_share(moves), r) ? store_.read(r, bytes) : store_.write(r, bytes);
    }
    for (const io::ScratchTransfer& transfer : transfers) transfer.wait();
  }

 private:
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
  if (options.has("model") || options.has("shape")) return bench_scratch_steps(call, world);
  const std::string directory = options.has("dir") ? options.text("dir") : ".";
  const auto ranks = static_cast<std::uint64_t>(world.size());
  const std::uint64_t part =
      std::max<std::uint64_t>(options.bytes("size") / ranks / bench_file_step, 2) * bench_file_step;
  std::optional<PlainDisk> plain;
  std::optional<StoredScratch> stored;
  world.run_and_agree([&] {
    io::make_directories(directory);
    plain.emplace(PlainDisk::Spec{directory, world.rank(), part, StoredScratch::memory_bytes, "--dir"});
    stored.emplace(directory, world.rank(), part);
    plain->move(0, 1, bench_file_step);  // a first write to allocated space is slower
    stored->move(ScratchMoves::write);
  });
  ScratchRates rates[std::size(all_moves)];
  const auto total = static_cast<double>(part * ranks);
  for (long turn = 0; turn < options.integer("bench_repeats"); ++turn) {
    for (const ScratchMoves moves : all_moves) {
      const double share = read_share(moves);
      // The faster of one thread with large requests and several threads with the store's.
      const double one = timed(world, [&] { plain->move(share, 1, 8u << 20); }),
                   several = timed(world, [&] { plain->move(share, raw_disk_threads, io::ScratchStore::block_bytes); }),
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
               human_bytes(total).c_str(), directory.c_str(), world.size(), raw_disk_threads,
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
