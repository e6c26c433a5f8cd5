// SPDX-License-Identifier: Apache-2.0
// Checkpoints with frozen parameters: their types, the states they lack, and checkpoints that leave them out.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <set>

#include "io/checkpoint/checkpoint.hpp"
#include "runtime/base/half.hpp"
#include "tests/io/files.hpp"

namespace tessera::io {
namespace {

using test::expect_error;
using test::TempDir;
using testing::ElementsAre;

using Names = std::set<std::string>;

std::vector<shard::UnitSpec> units_of(const std::vector<ParamSpec>& params) {
  std::vector<shard::UnitSpec> units;
  const auto add = [&](const char* name, const std::vector<int>& members) {
    const ParamSpec& first = params[static_cast<std::size_t>(members[0])];
    units.push_back(
        {.name = name, .params = members, .trainable = first.trainable, .storage_dtype = first.storage_dtype});
  };
  add("embed", {0});
  add("h.0", {1, 2});
  add("h.1", {3});
  add("head", {4});
  return units;
}
const std::vector<StateSpec> moments = {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};
const Names no_names;

/// Frozen: these names, kept in `type`.
std::vector<ParamSpec> params_of(const Names& frozen, DType type = DType::bf16) {
  std::vector<ParamSpec> params = {{.name = "wte.weight", .shape = {3001, 83}},
                                   {.name = "h.0.b", .shape = {3}},
                                   {.name = "h.0.w", .shape = {64, 2000}},
                                   {.name = "h.1.w", .shape = {700, 301}},
                                   {.name = "head.weight", .shape = {5, 5}}};
  for (ParamSpec& p : params) {
    p.trainable = !frozen.contains(p.name);
    if (!p.trainable) p.storage_dtype = type;
  }
  return params;
}

/// Not a number of 16 bits for most elements.
float value_at(std::size_t vector, int param, std::int64_t element) {
  return static_cast<float>((static_cast<int>(vector) + 1) * 100 + param) + static_cast<float>(element % 1021) / 64;
}

float load(const TensorView& view, std::int64_t i) {
  if (view.dtype == DType::bf16) return static_cast<const bf16*>(view.data)[i];
  if (view.dtype == DType::f16) return static_cast<const f16*>(view.data)[i];
  return static_cast<const float*>(view.data)[i];
}

void store(const TensorView& view, std::int64_t i, float x) {
  if (view.dtype == DType::bf16) static_cast<bf16*>(view.data)[i] = bf16(x);
  else if (view.dtype == DType::f16) static_cast<f16*>(view.data)[i] = f16(x);
  else static_cast<float*>(view.data)[i] = x;
}

float rounded(float x, DType type) {
  return type == DType::bf16 ? float{bf16(x)} : type == DType::f16 ? float{f16(x)} : x;
}

/// The state of one rank. A unit is frozen if its parameters are.
struct FrozenRank {
  FrozenRank(const Mesh& mesh_, int rank, std::vector<ParamSpec> params_)
      : mesh(mesh_), params(std::move(params_)), layout(params, units_of(params), mesh_) {
    for (int u = 0; u < layout.num_units(); ++u) {
      StateView& view =
          state.shards.emplace_back(StateView{.unit = u, .shard = mesh.coordinate(rank, Axis::shard), .data = {}});
      const ParamSpec& first = params[static_cast<std::size_t>(layout.all_segments(u)[0].param)];
      for (std::size_t v = 0; v < (first.trainable ? 3U : 1U); ++v) {
        memory.push_back(std::make_unique<std::vector<float>>(static_cast<std::size_t>(layout.shard_numel(u))));
        view.data.emplace_back(memory.back()->data(), v == 0 ? first.storage_dtype : DType::f32,
                               Shape{layout.shard_numel(u)});
        for (std::int64_t i = 0; i < layout.shard_numel(u); ++i)
          store(view.data.back(), i, std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
  void each(const auto& action) {
    for (const StateView& view : state.shards)
      for (std::size_t v = 0; v < view.data.size(); ++v)
        for (const auto& segment : layout.segments(view.unit, view.shard))
          for (std::int64_t i = 0; i < segment.length; ++i)
            action(view.data[v], segment.unit_offset - view.shard * layout.shard_numel(view.unit) + i, v, segment.param,
                   segment.param_offset + i);
  }
  /// Of these parameters; {}: of all.
  void fill(const Names& names = {}) {
    each([&](const TensorView& view, std::int64_t at, std::size_t v, int param, std::int64_t element) {
      if (names.empty() || names.contains(params[static_cast<std::size_t>(param)].name))
        store(view, at, value_at(v, param, element));
    });
  }
  /// After a load of a state that was saved with other parameters frozen.
  void expect(const Names& frozen_then, DType type_then = DType::bf16) {
    each([&](const TensorView& view, std::int64_t at, std::size_t v, int param, std::int64_t element) {
      const bool then = frozen_then.contains(params[static_cast<std::size_t>(param)].name);
      const float saved = value_at(v, param, element);
      const float want = v > 0 ? (then ? 0 : saved) : rounded(then ? rounded(saved, type_then) : saved, view.dtype);
      if (load(view, at) != want)
        throw std::runtime_error(strfmt("%s vector %zu element %ld: %g, not %g",
                                        params[static_cast<std::size_t>(param)].name.c_str(), v, element,
                                        load(view, at), want));
    });
  }
  [[nodiscard]] SaveRequest request(const std::string& directory) const {
    return {.directory = directory,
            .step = 7,
            .params = params,
            .layout = &layout,
            .state = state,
            .base = {},
            .auxiliary_files = {}};
  }
  Mesh mesh;
  std::vector<ParamSpec> params;
  shard::ShardLayout layout;
  std::vector<std::unique_ptr<std::vector<float>>> memory;
  TrainingState state{moments, {}};
};

enum class Base : unsigned char { saved, left_out };

void save_frozen(const Mesh& mesh, const std::string& directory, const Names& frozen, DType type = DType::bf16,
                 Base base = Base::saved) {
  run_local(mesh.world(), [&](World& world) {
    FrozenRank rank(mesh, world.rank(), params_of(frozen, type));
    rank.fill();
    SaveRequest request = rank.request(directory);
    if (base == Base::left_out)
      request.base = base_model(world, rank.params, rank.layout, rank.state, frozen_names(rank.params), type);
    CheckpointSave save(world, request);
    (void)save.commit();
  });
}

const std::vector<Mesh> frozen_meshes = {{1, 1}, {1, 2}, {2, 1}, {1, 3}, {2, 2}, {1, 5}};

TEST(Frozen, IsSavedInItsTypeWithoutStates) {
  const TempDir folder;
  save_frozen({1, 2}, folder / "checkpoint-7", {"wte.weight", "h.1.w"});
  const Manifest manifest = read_manifest(folder / "checkpoint-7");
  EXPECT_THAT(manifest.frozen, ElementsAre("wte.weight", "h.1.w"));
  EXPECT_FALSE(manifest.base.has_value());
  std::map<std::string, DType> types;
  std::uint64_t bytes = 0;
  for (const Hdf5Dataset& d : manifest.files.at(0).datasets) types[d.path] = d.dtype, bytes += d.bytes;
  EXPECT_EQ(types.size(), 5U + 2 * 3U);
  EXPECT_EQ(types.at("/model/wte.weight"), DType::bf16);
  EXPECT_EQ(types.at("/model/h.0.w"), DType::f32);
  EXPECT_FALSE(types.contains("/optimizer/exp_avg/wte.weight"));
  EXPECT_TRUE(types.contains("/optimizer/exp_avg_sq/head.weight"));
  EXPECT_EQ(bytes, 2 * (3001 * 83 + 700 * 301) + 12 * (3 + 64 * 2000 + 25));
  EXPECT_EQ(bytes, state_bytes(params_of({"wte.weight", "h.1.w"}), moments));
  const std::string text = manifest_text(manifest);
  EXPECT_NE(text.find("\"frozen_parameters\""), std::string::npos);
  EXPECT_EQ(manifest_text(parse_manifest(text, "again")), text);
}

TEST(Frozen, WithoutFrozenParametersTheManifestIsAsBefore) {
  const TempDir folder;
  save_frozen({1, 1}, folder / "checkpoint-7", {});
  const std::string text = test::bytes_of(folder / "checkpoint-7/manifest.json");
  EXPECT_NE(text.find("\"features_required\": []"), std::string::npos);
  EXPECT_EQ(text.find("frozen"), std::string::npos);
  EXPECT_EQ(text.find("base_model"), std::string::npos);
}

TEST(Frozen, AnyWorldWritesAndReadsIt) {
  const TempDir folder;
  const Names frozen = {"wte.weight", "h.0.b", "h.0.w"};
  std::string first;
  for (const Mesh& mesh : frozen_meshes) {
    const std::string directory = folder / strfmt("%dx%d", mesh.size(Axis::replicate), mesh.size(Axis::shard));
    save_frozen(mesh, directory, frozen);
    const std::string bytes = test::bytes_of(directory + "/state-00001-of-00001.h5");
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << directory;
    run_local(mesh.world(), [&](World& world) {
      FrozenRank rank(mesh, world.rank(), params_of(frozen));
      (void)CheckpointReader(world, folder / "1x1").load(rank.params, rank.layout, rank.state);
      rank.expect(frozen);
    });
  }
}

// What is newly trained starts from the stored value with zero states; what is newly frozen is rounded.
TEST(Frozen, AnotherSetOfParametersLoadsIt) {
  const TempDir folder;
  const std::vector<Names> sets = {{}, {"wte.weight"}, {"h.0.b", "h.0.w", "h.1.w"}, {"head.weight", "h.1.w"}};
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    for (std::size_t i = 0; i < sets.size(); ++i) {
      const std::string directory = folder / strfmt("%s-%zu", name_of(type), i);
      save_frozen({1, 2}, directory, sets[i], type);
      for (const Names& now : sets)
        for (const DType type_now : {DType::bf16, DType::f16})
          run_local(3, [&](World& world) {
            FrozenRank rank({1, 3}, world.rank(), params_of(now, type_now));
            (void)CheckpointReader(world, directory).load(rank.params, rank.layout, rank.state);
            rank.expect(sets[i], type);
          });
    }
}

TEST(Frozen, AStateOfATrainedParameterMustBeThere) {
  const TempDir folder;
  save_frozen({1, 1}, folder / "checkpoint-7", {"wte.weight"});
  Manifest manifest = read_manifest(folder / "checkpoint-7");
  manifest.frozen = {"head.weight"};  // which has states; wte.weight, which has none, is not in the list
  const std::string path = folder / "checkpoint-7/manifest.json";
  folder.file("checkpoint-7/manifest.json", manifest_text(manifest));
  run_local(1, [&](World& world) {
    FrozenRank rank({1, 1}, 0, params_of({}));
    const CheckpointReader reader(world, folder / "checkpoint-7");
    expect_error(ExitCode::data, "E112 /optimizer/exp_avg/wte.weight is missing",
                 [&] { (void)reader.load(rank.params, rank.layout, rank.state); });
  });
}

TEST(Frozen, ValuesThatTheTypeCannotHoldAreRefused) {
  const TempDir folder;
  run_local(1, [&](World& world) {
    FrozenRank rank({1, 1}, 0, params_of({}));
    rank.fill();
    rank.state.shards[0].data[0].as<float>()[5] = 1e6F;
    CheckpointSave save(world, rank.request(folder / "checkpoint-7"));
    (void)save.commit();
    FrozenRank half({1, 1}, 0, params_of({"wte.weight"}, DType::f16));
    const CheckpointReader reader(world, folder / "checkpoint-7");
    expect_error(ExitCode::data, "E143", [&] { (void)reader.load(half.params, half.layout, half.state); });
  });
}

TEST(Frozen, TheBaseModelIsDemandedAndChecked) {
  const TempDir folder;
  const Names frozen = {"wte.weight", "h.1.w"};
  std::string first;
  for (const Mesh& mesh : frozen_meshes) {
    const std::string directory = folder / strfmt("%dx%d", mesh.size(Axis::replicate), mesh.size(Axis::shard));
    save_frozen(mesh, directory, frozen, DType::bf16, Base::left_out);
    const std::string bytes = test::bytes_of(directory + "/state-00001-of-00001.h5");
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << directory;
    const Manifest manifest = read_manifest(directory);
    EXPECT_EQ(manifest.base, read_manifest(folder / "1x1").base);
    EXPECT_EQ(manifest.base->dtype, DType::bf16);
    std::uint64_t all = 0;
    for (const Hdf5Dataset& d : manifest.files.at(0).datasets) all += d.bytes;
    EXPECT_EQ(all, 12 * (3 + 64 * 2000 + 25));
  }
  for (const Mesh& mesh : frozen_meshes)
    for (const Names& now : {frozen, Names{"wte.weight", "head.weight"}, no_names})
      run_local(mesh.world(), [&](World& world) {
        FrozenRank rank(mesh, world.rank(), params_of(now));
        rank.fill(frozen);
        const CheckpointReader reader(world, folder / "2x2");
        EXPECT_NE(manifest_text(reader.manifest()).find("\"base_model\""), std::string::npos);
        (void)reader.load(rank.params, rank.layout, rank.state);
        // A master is the base's own value: it was rounded in the run that froze it.
        if (now == frozen) rank.expect(frozen);
        FrozenRank other(mesh, world.rank(), params_of(now));
        other.fill(frozen);
        other.each([&](const TensorView& view, std::int64_t at, std::size_t v, int param, std::int64_t element) {
          if (v == 0 && param == 3 && element == 200'000) store(view, at, 1);
        });
        expect_error(ExitCode::data, "E145", [&] { (void)reader.load(other.params, other.layout, other.state); });
      });
}

}  // namespace
}  // namespace tessera::io
