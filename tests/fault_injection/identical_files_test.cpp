// SPDX-License-Identifier: Apache-2.0
// The files of equal states are identical on any mesh; each byte is written by one rank, and the work is spread evenly.

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <numeric>

#include "io/checkpoint/blocks.hpp"
#include "tests/fault_injection/test_state.hpp"
#include "tests/io/files.hpp"

namespace tessera::test {
namespace {

/// Stage 0 is {w, 1}; stages 1 to 3 are {1, w}; HYBRID_SHARD the rest.
std::vector<Mesh> meshes() {
  std::vector<Mesh> all;
  for (const int w : {1, 2, 3, 4, 8}) {
    all.emplace_back(1, w);
    if (w > 1) all.emplace_back(w, 1);
  }
  for (const auto& [r, s] : {std::pair{2, 2}, {2, 4}, {4, 2}, {3, 2}, {2, 3}}) all.emplace_back(r, s);
  return all;
}

struct Saved {
  std::vector<std::pair<std::string, std::string>> files;  // state files: name and content
  std::vector<std::uint32_t> crcs;
  std::string training;
  friend bool operator==(const Saved&, const Saved&) = default;
};
Saved read_back(const std::string& directory) {
  const io::Manifest manifest = io::read_manifest(directory);
  Saved saved{.training = manifest.training};
  for (const auto& file : manifest.files) {
    saved.files.emplace_back(file.name, bytes_of(directory + "/" + file.name));
    saved.crcs.insert(saved.crcs.end(), file.crcs.begin(), file.crcs.end());
  }
  for (const auto& a : manifest.auxiliary_files) saved.files.emplace_back(a.name, bytes_of(directory + "/" + a.name));
  return saved;
}

/// Saves the state of step 7 in a world of this mesh.
Saved save_in(const TestTensors& tensors, const Mesh& mesh, const std::string& directory, std::uint64_t file_bytes) {
  run_local(mesh.world(), [&](World& world) {
    TestState state(tensors, mesh, world.rank());
    state.fill(7);
    auto request = save_request(state, directory, 7);
    request.file_bytes = file_bytes;
    request.run_metadata = strfmt("{\"world\": %d}", mesh.world());
    io::CheckpointSave pending(world, request);
    (void)pending.commit();
  });
  return read_back(directory);
}

void expect_identical_files(const TestTensors& tensors, std::uint64_t file_bytes, std::size_t files,
                            const std::vector<Mesh>& all, const TempDir& folder) {
  const Saved first = save_in(tensors, Mesh(1, 1), folder / "checkpoint-1", file_bytes);
  EXPECT_EQ(first.files.size(), files + 1);  // and config.json
  int number = 1;
  for (const Mesh& mesh : all) {
    const std::string directory = folder / strfmt("checkpoint-%d", ++number);
    const Saved saved = save_in(tensors, mesh, directory, file_bytes);
    ASSERT_EQ(saved.files.size(), first.files.size()) << mesh.str();
    for (std::size_t i = 0; i < saved.files.size(); ++i) {
      EXPECT_EQ(saved.files[i].first, first.files[i].first);
      EXPECT_TRUE(saved.files[i].second == first.files[i].second)
          << saved.files[i].first << " saved by " << mesh.str();  // MiBs: not printed
    }
    EXPECT_EQ(saved.crcs, first.crcs) << mesh.str();
    EXPECT_EQ(saved.training, first.training) << mesh.str();
    std::filesystem::remove_all(directory);
  }
}

TEST(IdenticalFiles, FilesOfAStateAreTheSameBytesAtAnyMesh) {
  expect_identical_files(small_tensors(), io::SaveRequest::default_file_bytes, 1, meshes(),
                         TempDir(TempDir::Storage::memory));
}
TEST(IdenticalFiles, AlsoWhereThereAreSeveralFiles) {
  const TempDir folder(TempDir::Storage::memory);
  const auto several = save_in(small_tensors(), Mesh(1, 1), folder / "checkpoint-0", 3000).files.size();
  EXPECT_GT(several, 4u);
  expect_identical_files(small_tensors(), 3000, several - 1, meshes(), folder);
}
TEST(IdenticalFiles, AlsoWhereTensorsSpanBlocksAndBlocksSpanTensors) {
  expect_identical_files(large_tensors(), io::SaveRequest::default_file_bytes, 1,
                         {Mesh(1, 3), Mesh(2, 2), Mesh(1, 8), Mesh(4, 1)}, TempDir());
}

// Loaded on each mesh and saved there again: nothing depends on the first mesh.
TEST(IdenticalFiles, LoadingAnywhereAndSavingAgainGivesTheSameFiles) {
  const TempDir folder(TempDir::Storage::memory);
  const TestTensors tensors = small_tensors();
  const Saved first = save_in(tensors, Mesh(2, 2), folder / "checkpoint-7", 5000);
  for (const Mesh& mesh : meshes()) {
    const std::string again = folder / "again";
    run_local(mesh.world(), [&](World& world) {
      TestState state(tensors, mesh, world.rank());
      EXPECT_EQ(load(world, state, folder / "checkpoint-7", 7), "") << mesh.str();
      auto request = save_request(state, again, 7);
      request.file_bytes = 5000;
      io::CheckpointSave pending(world, request);
      (void)pending.commit();
    });
    EXPECT_TRUE(read_back(again) == first) << mesh.str();
  }
}

/// Bytes that each rank writes: the steps of CheckpointSave, with access to the writer.
std::vector<std::uint64_t> bytes_by_rank(const TestTensors& tensors, const Mesh& mesh, const std::string& directory) {
  std::vector<std::uint64_t> bytes(static_cast<std::size_t>(mesh.world()));
  run_local(mesh.world(), [&](World& world) {
    TestState state(tensors, mesh, world.rank());
    state.fill(7);
    io::CheckpointTransaction::Spec spec;
    spec.directory = directory;
    spec.step = 7;
    spec.optimizer = true;
    spec.files = io::plan_state_files(tensors.params, test_states(), io::SaveRequest::default_file_bytes);
    io::CheckpointTransaction transaction(world, std::move(spec));
    const auto ranges =
        io::state_ranges(tensors.params, state.layout(), state.views(), transaction.files(), {}, world.rank());
    io::BlockWriter writer(transaction.paths(), ranges, {}, 2);
    writer.wait();
    bytes[static_cast<std::size_t>(world.rank())] = writer.bytes();
    transaction.commit(writer.checksums(), "{}", "{}");  // throws at a byte written not at all or twice
  });
  return bytes;
}

TEST(EveryByteOnce, AllRanksWriteTheLogicalBytesAndNoMore) {
  const TempDir folder(TempDir::Storage::memory);
  const TestTensors tensors = small_tensors();
  for (const Mesh& mesh : meshes()) {
    const auto bytes = bytes_by_rank(tensors, mesh, folder / "checkpoint-7");
    EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}), tensors.bytes()) << mesh.str();
    for (int rank = 0; rank < mesh.world(); ++rank) {
      // What the shard holds without padding, over its replicas; both ends of a rank's share of each unit and kind are
      // multiples of 4 KiB.
      const shard::ShardLayout layout(tensors.params, tensors.units, mesh);
      std::int64_t held = 0;
      for (int unit = 0; unit < layout.num_units(); ++unit)
        for (const auto& segment : layout.segments(unit, mesh.coordinate(rank, Axis::shard))) held += segment.length;
      const double share = static_cast<double>(held) * sizeof(float) * num_vectors / mesh.size(Axis::replicate);
      const double rounding = mesh.size(Axis::replicate) == 1 ? 0 : layout.num_units() * num_vectors * 2 * 4096;
      EXPECT_NEAR(static_cast<double>(bytes[static_cast<std::size_t>(rank)]), share, rounding)
          << mesh.str() << " rank " << rank;
    }
  }
}

TEST(EveryByteOnce, ReplicasShareALargeStateEvenly) {
  const TempDir folder;
  const TestTensors tensors = large_tensors();
  for (const Mesh& mesh : {Mesh(3, 1), Mesh(2, 2)}) {
    const auto bytes = bytes_by_rank(tensors, mesh, folder / "checkpoint-7");
    EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}), tensors.bytes()) << mesh.str();
    const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
    EXPECT_LT(static_cast<double>(*most - *least), 0.01 * static_cast<double>(tensors.bytes())) << mesh.str();
  }
}

// One replica has a flipped bit: nothing is saved, and the error names the ranks.
TEST(Replicas, ThatDifferAreNamedAndNothingIsSaved) {
  const TempDir folder(TempDir::Storage::memory);
  const TestTensors tensors = small_tensors();
  for (const std::size_t vector : {0, 2}) {
    std::vector<std::string> said(4);
    run_local(4, [&](World& world) {
      TestState state(tensors, Mesh(2, 2), world.rank());
      state.fill(7);
      if (world.rank() == 3) {
        auto* bits = static_cast<unsigned char*>(state.views().shards[1].data[vector].data);
        bits[41] ^= 16;
      }
      try {
        (void)save(world, state, folder / "checkpoint-7", 7);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::internal);
        said[static_cast<std::size_t>(world.rank())] = error.line();
      }
    });
    for (const auto& line : said)
      EXPECT_THAT(line, testing::HasSubstr("ranks 1 and 3 hold the same shard and their bits differ"));
    EXPECT_TRUE(folder.names().empty());
  }
}

}  // namespace
}  // namespace tessera::test
