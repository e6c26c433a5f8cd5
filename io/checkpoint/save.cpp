// SPDX-License-Identifier: Apache-2.0
// CheckpointSave: rank 0 lays out the files, all ranks write, rank 0 commits.
#include <algorithm>
#include <chrono>
#include <unordered_map>

#include "io/checkpoint/blocks.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/file/crc32c.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::io {

namespace {

using Clock = std::chrono::steady_clock;

/// Of memory on any device; a GPU's is copied through a host buffer.
std::uint32_t crc_of(std::uint32_t crc, Device device, std::span<const std::byte> data) {
  if (device == host_device) return crc32c(crc, data);
  std::vector<std::byte> window(std::min(data.size(), host_staging_bytes));
  for (std::size_t done = 0; done < data.size(); done += window.size()) {
    const std::span slice(window.data(), std::min(window.size(), data.size() - done));
    copy_now(device, slice.data(), data.data() + done, slice.size());
    crc = crc32c(crc, slice);
  }
  return crc;
}

/// A CRC over this rank's shards of the units that are sharded and replicated along the same axes.
struct ShardsCrc {
  AxisSet axes, replicas;
  int shard = 0, part = 0;
  std::uint32_t crc = 0;
};

/// Only of units with replicas.
std::vector<ShardsCrc> crcs_of(const SaveRequest& request) {
  const shard::ShardLayout& layout = *request.layout;
  const TrainingState& state = request.state;
  std::vector<ShardsCrc> crcs;
  for (const StateView& view : state.shards) {
    if (layout.num_replicas(view.unit) == 1) continue;
    const AxisSet axes = layout.policy(view.unit).shard_axes, replicas = layout.policy(view.unit).replicate_axes;
    auto of =
        std::ranges::find_if(crcs, [&](const ShardsCrc& crc) { return crc.axes == axes && crc.replicas == replicas; });
    if (of == crcs.end()) of = crcs.insert(of, {axes, replicas, view.shard, view.part});
    const std::int64_t begin = view.shard * layout.shard_numel(view.unit);
    for (const auto& s : layout.segments(view.unit, view.shard))
      for (std::size_t v = 0; v <= state.states.size() && v < view.data.size(); ++v) {
        const StateSpec values = values_of(state, view, v);
        of->crc = crc_of(of->crc, view.data[v].device,
                         {static_cast<const std::byte*>(view.data[v].data) + values.bytes(s.unit_offset - begin),
                          values.bytes(s.length)});
      }
  }
  return crcs;
}

/// Throws if replicas hold different bits, which a memory or computation error has caused. Gathers one CRC per rank and
/// set of shard axes.
void compare_replicas(World& world, const SaveRequest& request) {
  for (const ShardsCrc& mine : crcs_of(request)) {
    const std::vector<std::string> all = world.gather(strfmt("%d.%d %08x", mine.part, mine.shard, mine.crc));
    world.run_and_agree([&] {
      std::unordered_map<std::string, std::size_t> first;  // of a shard's replicas
      for (std::size_t r = 0; r < all.size(); ++r) {
        const std::size_t q = first.try_emplace(all[r].substr(0, all[r].find(' ')), r).first->second;
        if (all[q] != all[r])
          throw Error(ExitCode::internal, strfmt("ranks %zu and %zu hold the same shard and their bits differ", q, r),
                      strfmt("step %ld", request.step),
                      "A computation or a memory has failed: nothing was saved; check the nodes, and resume from the "
                      "checkpoint before");
      }
    });
  }
}

SavedParams saved_params(const SaveRequest& request) {
  return request.base ? SavedParams::trainable : SavedParams::all;
}

}  // namespace

struct CheckpointSave::Parts {
  Parts(World& world_, const SaveRequest& request)
      : world(world_),
        training(request.training),
        run_metadata(request.run_metadata),
        transaction(world_, {.directory = request.directory,
                             .step = request.step,
                             .optimizer = !request.state.states.empty(),
                             .files = plan_state_files(request.params, request.state.states, request.file_bytes,
                                                       saved_params(request)),
                             .auxiliary_files = request.auxiliary_files,
                             .frozen = frozen_names(request.params),
                             .base = request.base,
                             .alignment = request.alignment,
                             .check_owner = request.check_owner}) {
    for (const auto& file : transaction.files())
      for (const auto& d : file.datasets) all_bytes += d.bytes;
    const std::vector<std::string> frozen = frozen_names(request.params);
    auto ranges = state_ranges(request.params, *request.layout, request.state, transaction.files(),
                               {frozen, request.base.has_value()}, world.rank());
    for (const StateRange& e : ranges)
      TESSERA_ASSERT(e.stored == e.held, "unit %d is kept in another type than it is saved in", e.unit);
    if (request.io == CheckpointIo::mpio) {
      TESSERA_ASSERT(request.snapshot.empty(), "a snapshot is for threads that write");
      by_mpio = std::move(ranges);
      return;
    }
    const auto last = [this] { transaction.sync_layout(); };
    world.run_and_agree([&] {
      writer = std::make_unique<BlockWriter>(transaction.paths(), ranges, request.snapshot, request.threads, last);
    });
  }
  World& world;
  Clock::time_point begin = Clock::now();
  std::string training, run_metadata;
  CheckpointTransaction transaction;
  std::vector<StateRange> by_mpio;      // what commit() writes
  std::unique_ptr<BlockWriter> writer;  // null: mpio. Declared after the transaction: destroyed before it removes files
  std::uint64_t all_bytes = 0;
};

CheckpointSave::CheckpointSave(World& world, const SaveRequest& request) {
  if (request.compare_replicas) compare_replicas(world, request);
  parts_ = std::make_unique<Parts>(world, request);
}

CheckpointSave::~CheckpointSave() = default;

void CheckpointSave::before_update(int unit) {
  if (parts_->writer) parts_->writer->before_update(unit);
}
bool CheckpointSave::finished() const { return !parts_->writer || parts_->writer->finished(); }

SaveReport CheckpointSave::commit() {
  Parts& p = *parts_;
  SaveReport report{.bytes = p.all_bytes};
  if (!p.writer) {
    const auto checksums = write_by_mpio(p.world, p.transaction.paths(), p.transaction.files(), p.by_mpio);
    p.transaction.commit(checksums, p.training, p.run_metadata);
  } else {
    p.world.run_and_agree([&] { p.writer->wait(); });
    p.transaction.commit(p.writer->checksums(), p.training, p.run_metadata);
    report.copied = p.writer->copied();
    report.cpu_seconds = p.writer->cpu_seconds();
  }
  report.seconds = std::chrono::duration<double>(Clock::now() - p.begin).count();
  return report;
}

}  // namespace tessera::io
