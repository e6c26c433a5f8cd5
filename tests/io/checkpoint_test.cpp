// SPDX-License-Identifier: Apache-2.0
// Checkpoints, with ranks as threads: equal states make equal files on any mesh, and any mesh loads them.

#include "io/checkpoint/checkpoint.hpp"

#include <atomic>
#include <cmath>
#include <limits>

#include "io/checkpoint/directory.hpp"
#include "io/checkpoint/transaction.hpp"
#include "runtime/shard/replica_segments.hpp"
#include "tests/comm/start_cost.hpp"
#include "tests/io/files.hpp"

namespace tessera::io::checkpoint {
namespace {

using test::expect_error;
using test::TempDir;

const std::vector<ParamSpec> params = {
    {.name = "wte.weight", .shape = {3001, 83}}, {.name = "h.0.ln.weight", .shape = {11}},
    {.name = "h.0.w", .shape = {64, 2000}},      {.name = "h.0.bias", .shape = {1}},
    {.name = "h.1.w", .shape = {700, 301}},      {.name = "head.weight", .shape = {5, 5}},
};
const std::vector<shard::UnitSpec> units = {{"embed", {0}}, {"h.0", {1, 2, 3}}, {"h.1", {4}}, {"head", {5}}};

const std::vector<StateSpec> states = {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};

float value(std::size_t kind, int param, std::int64_t element) {
  return static_cast<float>((static_cast<int>(kind) + 1) * 100 + param) + static_cast<float>(element % 1021) / 64;
}

/// The state of one rank; its padding is NaN, which must not reach a file.
struct Rank {
  Rank(const Mesh& mesh_, int rank) : mesh(mesh_), layout(params, units, mesh_) {
    const int s = mesh.coordinate(rank, Axis::shard);
    for (int u = 0; u < layout.num_units(); ++u) {
      StateView& view = state.shards.emplace_back(StateView{.unit = u, .shard = s});
      for (std::size_t k = 0; k <= states.size(); ++k) {
        memory.push_back(std::make_unique<std::vector<float>>(static_cast<std::size_t>(layout.shard_numel(u)) + 1,
                                                              std::numeric_limits<float>::quiet_NaN()));
        view.data.emplace_back(memory.back()->data(), Shape{layout.shard_numel(u)});
      }
    }
  }
  void fill() {
    each([](float& x, float v) { x = v; });
  }
  void expect_filled() {
    each([](const float& x, float v) { ASSERT_EQ(x, v); });
  }
  void each(const auto& action) {
    for (const StateView& view : state.shards)
      for (std::size_t k = 0; k <= states.size(); ++k)
        for (const auto& segment : layout.segments(view.unit, view.shard))
          for (std::int64_t i = 0; i < segment.length; ++i)
            action(view.data[k].as<float>()[segment.unit_offset - view.shard * layout.shard_numel(view.unit) + i],
                   value(k, segment.param, segment.param_offset + i));
  }
  [[nodiscard]] SaveRequest request(const std::string& directory) const {
    return {.directory = directory,
            .step = 7,
            .params = params,
            .layout = &layout,
            .state = state,
            .auxiliary_files = {{"config.json", "{\"model_type\": \"gpt2\"}\n"}},
            .training = R"({"samples": 12})",
            .run_metadata = strfmt(R"({"world": %d})", mesh.world())};
  }
  Mesh mesh;
  shard::ShardLayout layout;
  std::vector<std::unique_ptr<std::vector<float>>> memory;
  TrainingState state{states, {}};
};

void save_from(const Mesh& mesh, const std::string& directory,
               std::uint64_t file_bytes = SaveRequest::default_file_bytes, std::int64_t step = 7,
               std::uint64_t alignment = hdf5_alignment) {
  run_local(mesh.world(), [&](World& world) {
    Rank rank(mesh, world.rank());
    rank.fill();
    SaveRequest request = rank.request(directory);
    request.file_bytes = file_bytes;
    request.step = step;
    request.alignment = alignment;
    CheckpointSave save(world, request);
    const SaveReport report = save.commit();
    std::uint64_t all = 0;
    for (const auto& p : params) all += static_cast<std::uint64_t>(p.numel()) * 12;
    EXPECT_EQ(report.bytes, all);
  });
}

// What 1,024 ranks agree on when they open a checkpoint and lay out the next.
TEST(Checkpoint, AThousandRanksAgreeOnItsLayout) {
  constexpr int ranks = 1024;
  const TempDir folder(TempDir::Storage::memory);
  save_from({1, 1}, folder / "checkpoint-7", 1 << 20);
  test::StartCost opening, agreement, own;
  std::atomic<std::uint64_t> bytes{0};
  run_local(ranks, [&](World& world) {
    opening.measure(world, [&] { const CheckpointReader reader(world, folder / "checkpoint-7"); });
    std::vector<StateFile> files = plan_state_files(params, states, 1 << 20);
    agreement.measure(world, [&] {
      const CheckpointTransaction next(world, {.directory = folder / "checkpoint-8", .step = 8, .files = files});
      files = next.files();
    });
    std::string offsets;
    for (const StateFile& file : files)
      for (const auto& data : file.datasets) offsets += strfmt("%lu ", data.offset);
    world.require_equal("the layout", offsets);
    const Rank rank({1, ranks}, world.rank());
    own.measure(world, [&] {
      for (const StateRange& range : state_ranges(params, rank.layout, rank.state, files, {}, world.rank()))
        bytes += range.bytes;
    });
  });
  opening.expect_small("opening", ranks, 4);
  agreement.expect_small("layout", ranks, 4);
  own.expect_small("a rank's ranges", ranks, 0);
  EXPECT_EQ(bytes.load(), state_bytes(params, states));
  EXPECT_EQ(folder.names(), std::vector<std::string>{"checkpoint-7"});
}

TEST(Checkpoint, EqualStatesMakeEqualFilesAndAnyWorldReadsThem) {
  const TempDir folder;
  const std::vector<Mesh> meshes = {{1, 1}, {1, 2}, {2, 1}, {1, 3}, {2, 2}, {4, 1}, {1, 5}, {2, 4}, {1, 8}};
  save_from(meshes[0], folder / "checkpoint-0");
  const std::string first = test::bytes_of(folder / "checkpoint-0/state-00001-of-00001.h5");
  for (std::size_t i = 1; i < meshes.size(); ++i) {
    const std::string directory = folder / ("checkpoint-" + std::to_string(i));
    save_from(meshes[i], directory);
    EXPECT_TRUE(test::bytes_of(directory + "/state-00001-of-00001.h5") == first) << "world " << meshes[i].world();
  }
  for (const Mesh& mesh : meshes)
    run_local(mesh.world(), [&](World& world) {
      Rank rank(mesh, world.rank());
      const CheckpointReader reader(world, folder / "checkpoint-4");
      EXPECT_EQ(reader.manifest().step, 7);
      EXPECT_EQ(reader.auxiliary_file("config.json"), "{\"model_type\": \"gpt2\"}\n");
      (void)reader.load(params, rank.layout, rank.state);
      rank.expect_filled();
    });
}

TEST(Checkpoint, SeveralFilesHoldCompleteTensors) {
  const TempDir folder;
  save_from({1, 3}, folder / "checkpoint-7", 1'500'000);
  save_from({2, 2}, folder / "checkpoint-8", 1'500'000);
  const Manifest manifest = read_manifest(folder / "checkpoint-7");
  ASSERT_GT(manifest.files.size(), 2u);
  for (const auto& file : manifest.files)
    EXPECT_TRUE(test::bytes_of(folder / ("checkpoint-7/" + file.name)) ==
                test::bytes_of(folder / ("checkpoint-8/" + file.name)));
  run_local(2, [&](World& world) {
    Rank rank({1, 2}, world.rank());
    (void)CheckpointReader(world, folder / "checkpoint-7").load(params, rank.layout, rank.state);
    rank.expect_filled();
  });
}

TEST(Checkpoint, LargeTensorsAreAlignedAsAsked) {
  const TempDir folder;
  constexpr std::uint64_t alignment = 64 << 10;
  save_from({1, 3}, folder / "checkpoint-7", SaveRequest::default_file_bytes, 7, alignment);
  save_from({2, 2}, folder / "checkpoint-8", SaveRequest::default_file_bytes, 7, alignment);
  save_from({1, 1}, folder / "checkpoint-9");
  const Manifest manifest = read_manifest(folder / "checkpoint-7"), plain = read_manifest(folder / "checkpoint-9");
  int large = 0, moved = 0;
  for (std::size_t i = 0; i < manifest.files[0].datasets.size(); ++i) {
    const Hdf5Dataset &d = manifest.files[0].datasets[i], &p = plain.files[0].datasets[i];
    if (d.bytes < alignment) continue;
    ++large;
    moved += d.offset != p.offset;
    EXPECT_EQ(d.offset % alignment, 0u) << d.path;
  }
  EXPECT_GT(large, 1);
  EXPECT_GT(moved, 0);
  const std::string name = manifest.files[0].name;
  EXPECT_TRUE(test::bytes_of(folder / ("checkpoint-7/" + name)) == test::bytes_of(folder / ("checkpoint-8/" + name)));
  run_local(2, [&](World& world) {
    Rank rank({1, 2}, world.rank());
    (void)CheckpointReader(world, folder / "checkpoint-7").load(params, rank.layout, rank.state);
    rank.expect_filled();
  });
}

TEST(Checkpoint, TrainingMayOvertakeASaveThatHasASnapshot) {
  const TempDir folder;
  save_from({1, 2}, folder / "checkpoint-1");
  run_local(2, [&](World& world) {
    Rank rank({1, 2}, world.rank());
    rank.fill();
    SaveRequest request = rank.request(folder / "checkpoint-2");
    std::vector<std::byte> snapshot(shard::replica_bytes(rank.layout, states, world.rank()));
    request.snapshot = snapshot;
    CheckpointSave save(world, request);
    for (const StateView& view : rank.state.shards) {
      save.before_update(view.unit);
      for (const TensorView& data : view.data) std::fill_n(data.as<float>(), rank.layout.shard_numel(view.unit), -1.0f);
    }
    (void)save.commit();
  });
  EXPECT_TRUE(test::bytes_of(folder / "checkpoint-1/state-00001-of-00001.h5") ==
              test::bytes_of(folder / "checkpoint-2/state-00001-of-00001.h5"));
}

TEST(Checkpoint, AnotherModelIsRefusedWithAList) {
  const TempDir folder;
  save_from({1, 1}, folder / "checkpoint-7");
  auto others = params;
  others[2].shape = {64, 2001};
  others[3].name = "h.0.bias2";
  run_local(1, [&](World& world) {
    const shard::ShardLayout layout(others, units, {1, 1});
    std::vector<float> memory(static_cast<std::size_t>(layout.padded_numel(1)));
    const CheckpointReader reader(world, folder / "checkpoint-7");
    const TrainingState model{{}, {{1, 0, {{memory.data(), Shape{layout.padded_numel(1)}}}}}};
    expect_error(ExitCode::data,
                 "E113 /model/h.0.w is [64, 2000], the model's is [64, 2001]; E112 /model/h.0.bias2 is missing; "
                 "/model/h.0.bias is unexpected",
                 [&] { (void)reader.load(others, layout, model); });
  });
}

TEST(Checkpoint, ReplicasThatDifferAreNotSaved) {
  const TempDir folder;
  EXPECT_THROW(run_local(4,
                         [&](World& world) {
                           Rank rank({2, 2}, world.rank());
                           rank.fill();
                           if (world.rank() == 3) rank.state.shards[1].data[2].as<float>()[5] += 1;
                           CheckpointSave save(world, rank.request(folder / "checkpoint-7"));
                           (void)save.commit();
                         }),
               Error);
  EXPECT_TRUE(folder.names().empty());
}

TEST(CheckpointDirectory, NamesHaveOneForm) {
  EXPECT_EQ(checkpoint_step("checkpoint-200"), 200);
  for (const char* name : {"checkpoint-", "checkpoint-0200", "checkpoint-+2", "checkpoint-2.tmp", "checkpoint--2",
                           "xcheckpoint-2", "checkpoint-99999999999999999999"})
    EXPECT_FALSE(checkpoint_step(name)) << name;
}

TEST(CheckpointDirectory, RetentionCountsWhatIsVerified) {
  const TempDir folder;
  for (const int step : {1, 2, 3, 4})
    save_from({1, 2}, folder / checkpoint_name(step), SaveRequest::default_file_bytes, step);
  std::string bytes = test::bytes_of(folder / "checkpoint-3/state-00001-of-00001.h5");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  (void)folder.file("checkpoint-3/state-00001-of-00001.h5", bytes);
  Retention(2).apply(folder.path());
  EXPECT_EQ(folder.names(), (std::vector<std::string>{".verified", "checkpoint-2", "checkpoint-3", "checkpoint-4"}));
}

TEST(CheckpointDirectory, OneRunAtATime) {
  const TempDir folder;
  const DirectoryLock lock(folder.path());
  ASSERT_TRUE(lock.held());
  expect_error(ExitCode::data, "E150 another run writes there: process",
               [&] { const DirectoryLock second(folder.path()); });
}

}  // namespace
}  // namespace tessera::io::checkpoint
