// SPDX-License-Identifier: Apache-2.0
// A training state on disk: any bytes of it are copied, and checkpoints of it are those of the same state in memory.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>

#include "io/scratch/scratch_memory.hpp"
#include "runtime/base/arena.hpp"
#include "runtime/base/transfer.hpp"
#include "tests/fault_injection/shim.hpp"
#include "tests/fault_injection/test_state.hpp"
#include "tests/io/files.hpp"

namespace tessera::test::disk_state {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t block = io::ScratchStore::block_bytes;

TEST(DiskMemory, AnyBytesAreCopied) {
  const TempDir folder;
  const std::vector<std::size_t> sizes{3 * block + 5000, 17, 12 * block};
  std::vector<io::ScratchRegion> regions;
  std::vector<std::vector<std::byte>> mirror;
  for (const std::size_t size : sizes) {
    regions.push_back({"h.0", "exp_avg", size});
    mirror.emplace_back(size);
  }
  io::ScratchMemory memory({.directory = folder.path(), .rank = 0, .regions = regions});
  std::mt19937 random(1);
  const io::DirectBuffer buffer(12 * block);
  for (int i = 0; i < 60; ++i) {
    const std::size_t region = random() % 3, size = sizes[region];
    std::size_t first = random() % size, count = 1 + random() % std::min<std::size_t>(size - first, 3 * block);
    if (i % 5 == 0) first = 0, count = size;
    const auto bytes = buffer.span()
                           .subspan(i % 2 == 0 || count == buffer.span().size() ? 0 : 8)
                           .first(std::min(count, buffer.span().size() - 8 * (count < buffer.span().size())));
    if (i % 7 == 3) {
      fill_now(disk_device, memory.data(region) + first, 0x5A, bytes.size());
      std::memset(mirror[region].data() + first, 0x5A, bytes.size());
    } else {
      for (std::byte& b : bytes) b = static_cast<std::byte>(random());
      copy_now(disk_device, memory.data(region) + first, bytes.data(), bytes.size());
      std::memcpy(mirror[region].data() + first, bytes.data(), bytes.size());
    }
    const std::size_t from = random() % size, n = 1 + random() % (size - from);
    std::vector<std::byte> read(n);
    copy_now(disk_device, read.data(), memory.data(region) + from, n);
    ASSERT_EQ(std::memcmp(read.data(), mirror[region].data() + from, n), 0) << i;
  }
  EXPECT_EQ(DiskMemory::of(memory.data(1)), &memory);
  EXPECT_EQ(DiskMemory::of(&memory), nullptr);
}

// Several regions at once, in place and by way of a buffer; where one fails, the others have been moved on return.
TEST(DiskMemory, CopiesOfSeveralRegions) {
  const TempDir folder;
  const std::string directory = fs::canonical(folder.path()).string();
  const std::vector<std::size_t> sizes{3 * block + 5000, 17, 5 * block};
  std::vector<io::ScratchRegion> regions;
  for (const std::size_t size : sizes) regions.push_back({"h.1", "exp_avg", size});
  io::ScratchMemory memory({.directory = directory, .rank = 0, .regions = regions});
  const io::DirectBuffer written(16 * block), read(16 * block);
  for (std::size_t i = 0; i < written.span().size(); ++i) written.span()[i] = static_cast<std::byte>(i * 7 >> 3);
  std::vector<DiskMemory::Copy> out, in;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    const std::size_t at = r * 5 * block + (r == 1 ? 8 : 0);
    out.push_back({memory.data(r), written.span().data() + at, sizes[r]});
    in.push_back({memory.data(r), read.span().data() + at, sizes[r]});
  }
  const auto equal = [&](const DiskMemory::Copy& a, const DiskMemory::Copy& b) {
    return std::memcmp(a.memory, b.memory, a.bytes) == 0;
  };
  memory.write(out);
  memory.read(in);
  for (std::size_t r = 0; r < sizes.size(); ++r) EXPECT_TRUE(equal(out[r], in[r])) << r;
  std::ranges::fill(read.span(), std::byte{0});
  fault_reads(1);
  fault_arm(directory.c_str(), "tessera-scratch", 1, "EIO");
  expect_error(ExitCode::data, "Input/output error [state exp_avg of unit h.1", [&] { memory.read(in); });
  (void)fault_disarm();
  fault_reads(0);
  int different = 0;
  for (std::size_t r = 0; r < sizes.size(); ++r) different += static_cast<int>(!equal(out[r], in[r]));
  EXPECT_EQ(different, 1);
}

// A process that ends without destructors.
TEST(DiskMemory, OwnFilesAreRemovedOnRequest) {
  const TempDir folder;
  const io::ScratchStore store({.directory = folder.path(), .rank = 0, .regions = {{"h.0", "exp_avg", 100}}});
  EXPECT_EQ(folder.names().size(), 1u);
  {
    const io::ScratchStore other({.directory = folder.path(), .rank = 1, .regions = {{"h.0", "exp_avg", 100}}});
    EXPECT_EQ(folder.names().size(), 2u);
  }
  io::remove_own_scratch_files();
  EXPECT_TRUE(folder.names().empty());
}

TEST(DiskMemory, SlotsOfAnArenaAreOnDisk) {
  const TempDir folder;
  const auto slot = [](const char* name, std::size_t bytes, Memory memory) {
    return ArenaSlot{{}, name, Category::optimizer, Placement::own, bytes, memory};
  };
  const std::vector<ArenaSlot> slots{slot("master.h.0", 5000, Memory::disk), slot("gather.s0", 100, Memory::host),
                                     slot("exp_avg.h.0", 300, Memory::disk)};
  std::vector<std::string> kept;
  const Arena arena(slots, {}, host_device, [&](const std::vector<ArenaSlot>& on_disk) {
    io::ScratchStore::Spec spec{.directory = folder.path()};
    for (const ArenaSlot& s : on_disk) {
      kept.push_back(s.name);
      spec.regions.push_back({"h.0", s.name, s.bytes});
    }
    return std::make_unique<io::ScratchMemory>(spec);
  });
  EXPECT_EQ(kept, (std::vector<std::string>{"master.h.0", "exp_avg.h.0"}));
  const float value = 3;
  copy_now(disk_device, arena.data("exp_avg.h.0") + 4, &value, sizeof value);
  float read[2] = {7, 7};
  copy_now(disk_device, read, arena.data("exp_avg.h.0"), sizeof read);
  EXPECT_EQ(read[0], 0);
  EXPECT_EQ(read[1], 3);
  EXPECT_EQ(arena.broken_canary(), "");
  const MemoryTable planned = planned_memory(slots), measured = arena.measure();
  EXPECT_EQ(planned.by_memory[static_cast<int>(Memory::disk)], 3 * page_bytes);
  EXPECT_EQ(measured.by_memory[static_cast<int>(Memory::disk)], 3 * page_bytes);
  EXPECT_EQ(planned.total(), page_bytes);  // of memory
}

/// The shards of a rank, in a scratch file.
class StateOnDisk {
 public:
  StateOnDisk(TestState& state, const std::string& directory, int rank) : in_memory_(state.views()) {
    io::ScratchStore::Spec spec{.directory = directory, .rank = rank};
    for (const io::StateView& view : in_memory_.shards)
      for (std::size_t v = 0; v < view.data.size(); ++v)
        spec.regions.push_back({strfmt("unit %d", view.unit), strfmt("vector %zu", v), view.data[v].nbytes()});
    memory_ = std::make_unique<io::ScratchMemory>(spec);
    views_ = in_memory_;
    std::size_t region = 0;
    for (io::StateView& view : views_.shards)
      for (TensorView& tensor : view.data) {
        tensor.data = memory_->data(region++);
        tensor.device = disk_device;
      }
  }
  [[nodiscard]] const io::TrainingState& views() const { return views_; }
  void write() const {
    each([](const TensorView& disk, const TensorView& host) {
      copy_now(disk_device, disk.data, host.data, host.nbytes());
    });
  }
  void read() const {
    each([](const TensorView& disk, const TensorView& host) {
      copy_now(disk_device, host.data, disk.data, host.nbytes());
    });
  }
  void spoil() const {
    each([](const TensorView& disk, const TensorView&) { fill_now(disk_device, disk.data, 0xFF, disk.nbytes()); });
  }

 private:
  void each(const auto& action) const {
    for (std::size_t s = 0; s < views_.shards.size(); ++s)
      for (std::size_t v = 0; v < views_.shards[s].data.size(); ++v)
        action(views_.shards[s].data[v], in_memory_.shards[s].data[v]);
  }
  io::TrainingState in_memory_, views_;
  std::unique_ptr<io::ScratchMemory> memory_;
};

void expect_equal_files(const std::string& a, const std::string& b) {
  int count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(a)) {
    if (entry.path().extension() != ".h5") continue;
    ++count;
    EXPECT_EQ(bytes_of(entry.path().string()), bytes_of(b + "/" + entry.path().filename().string())) << entry.path();
  }
  EXPECT_GT(count, 0);
}

// With a snapshot too, where a unit is updated before it was written.
TEST(DiskState, CheckpointsAreThoseOfAStateInMemory) {
  const TestTensors tensors = large_tensors();
  for (const bool snapshot : {false, true}) {
    const Mesh mesh = snapshot ? Mesh(1, 2) : Mesh(2, 1);
    const TempDir in_memory, on_disk;
    run_local(mesh.world(), [&](World& world) {
      TestState state(tensors, mesh, world.rank());
      state.fill(2);
      (void)save(world, state, in_memory / "checkpoint-2", 2);
      const StateOnDisk disk(state, on_disk / "scratch", world.rank());
      disk.write();
      auto request = save_request(state, on_disk / "checkpoint-2", 2);
      request.state = disk.views();
      std::vector<std::byte> copies(snapshot ? tensors.bytes() + 4096 : 0);
      request.snapshot = copies;
      io::CheckpointSave pending(world, request);
      for (int unit = 0; unit < state.layout().num_units(); ++unit) pending.before_update(unit);
      disk.spoil();
      (void)pending.commit();
      if (world.rank() == 0) expect_equal_files(in_memory / "checkpoint-2", on_disk / "checkpoint-2");
      const io::CheckpointReader reader(world, on_disk / "checkpoint-2");
      (void)reader.load(tensors.params, state.layout(), disk.views());
      state.spoil();
      disk.read();
      EXPECT_EQ(state.difference(2), "") << mesh.str();
    });
  }
}

TEST(DiskState, AFailingDiskIsNamedByTheSave) {
  const TestTensors tensors = small_tensors();
  const TempDir folder;
  run_local(1, [&](World& world) {
    TestState state(tensors, Mesh(1, 1), 0);
    state.fill(1);
    const StateOnDisk disk(state, folder / "scratch", 0);
    disk.write();
    auto request = save_request(state, folder / "checkpoint-1", 1);
    request.state = disk.views();
    request.compare_replicas = false;
    fault_reads(1);
    fault_arm(fs::canonical(folder.path()).c_str(), "tessera-scratch", 2, "EIO");
    expect_error(ExitCode::data, "Input/output error [state vector", [&] {
      io::CheckpointSave pending(world, request);
      (void)pending.commit();
    });
    (void)fault_disarm();
    fault_reads(0);
    EXPECT_FALSE(fs::exists(folder / "checkpoint-1"));
  });
}

}  // namespace
}  // namespace tessera::test::disk_state
