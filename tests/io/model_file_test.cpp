// SPDX-License-Identifier: Apache-2.0
// Model directories, with ranks as threads: any mesh writes the same bytes, any mesh reads them, and a failure on one
// rank is an error on every rank that leaves the directory unchanged.

#include "io/model/model_io.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <mutex>

#include "io/model/safetensors_index.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

using shard::ShardLayout;
using test::expect_error;
using test::TempDir;

const std::vector<ParamSpec> params = {
    {.name = "wte.weight", .shape = {37, 11}}, {.name = "h.0.ln.weight", .shape = {11}},
    {.name = "h.0.w", .shape = {11, 65}},      {.name = "h.0.bias", .shape = {1}},
    {.name = "h.1.w", .shape = {200, 3}},      {.name = "head.weight", .shape = {5, 5}},
};
const std::vector<shard::UnitSpec> units = {{"embed", {0}}, {"h.0", {1, 2, 3}}, {"h.1", {4}}, {"head", {5}}};
constexpr std::uint64_t param_bytes = 4 * (37 * 11 + 11 + 11 * 65 + 1 + 200 * 3 + 25);
const std::string config = "{\n  \"model_type\": \"gpt2\"\n}\n";

float value(int param, std::int64_t element) {
  return static_cast<float>(param * 1000) + static_cast<float>(element) / 8;
}

/// The shards of one rank, filled with `value`; their padding is NaN, which must not reach a file.
struct Rank {
  Rank(const Mesh& mesh, int rank) : layout(params, units, mesh) {
    for (int u = 0; u < layout.num_units(); ++u) {
      const int s = mesh.coordinate(rank, Axis::shard);
      memory.emplace_back(static_cast<std::size_t>(layout.shard_numel(u)), std::numeric_limits<float>::quiet_NaN());
      for (const auto& segment : layout.segments(u, s))
        for (std::int64_t i = 0; i < segment.length; ++i)
          memory.back()[static_cast<std::size_t>(segment.unit_offset - s * layout.shard_numel(u) + i)] =
              value(segment.param, segment.param_offset + i);
      views.push_back({.unit = u, .shard = s, .data = {memory.back().data(), Shape{layout.shard_numel(u)}}});
    }
  }
  ShardLayout layout;
  std::vector<std::vector<float>> memory;
  std::vector<io::ShardView> views;
};

struct MeshShape {
  int replicate, shard;
};
const std::vector<MeshShape> meshes = {{1, 1}, {1, 2}, {2, 1}, {1, 3}, {2, 2}, {4, 1}, {1, 5}, {3, 2}};

void write(const std::string& directory, MeshShape shape) {
  const Mesh mesh(shape.replicate, shape.shard);
  run_local(mesh.world(), [&](World& world) {
    const Rank rank(mesh, world.rank());
    io::write_model(world, directory, config, params, rank.layout, rank.views);
  });
}

std::string same(const std::string& name) { return name; }

/// Reads on a mesh and compares every element and the padding with `value`; returns the bytes read by all ranks.
std::uint64_t read_and_check(const std::string& directory, MeshShape shape,
                             const std::function<std::string(const std::string&)>& canonical) {
  const Mesh mesh(shape.replicate, shape.shard);
  std::atomic<std::uint64_t> bytes = 0;
  std::mutex mutex;  // EXPECT on many threads
  run_local(mesh.world(), [&](World& world) {
    const Rank want(mesh, world.rank());
    Rank got(mesh, world.rank());
    for (auto& unit : got.memory) std::fill(unit.begin(), unit.end(), -1.0F);
    bytes += io::read_model(world, directory, params, got.layout, got.views, canonical);
    const std::lock_guard lock(mutex);
    for (std::size_t u = 0; u < want.memory.size(); ++u)
      for (std::size_t i = 0; i < want.memory[u].size(); ++i) {
        const float expected = std::isnan(want.memory[u][i]) ? 0 : want.memory[u][i];
        ASSERT_EQ(got.memory[u][i], expected) << "unit " << u << " element " << i;
      }
  });
  return bytes;
}

TEST(ModelFile, AnyWorldAndMeshWritesTheSameBytes) {
  TempDir folder;
  write(folder / "one", meshes[0]);
  const std::string expected = test::bytes_of(folder / "one/model.safetensors");
  const io::SafetensorsFile file(folder / "one/model.safetensors");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  for (std::size_t p = 0; p < params.size(); ++p) {
    const auto* entry = file.find(params[p].name);
    ASSERT_NE(entry, nullptr);
    std::vector<float> data(static_cast<std::size_t>(entry->numel()));
    file.read(*entry, 0, entry->numel(), data.data());
    for (std::size_t i = 0; i < data.size(); ++i)
      ASSERT_EQ(data[i], value(static_cast<int>(p), static_cast<std::int64_t>(i)));
  }
  for (const auto& shape : meshes) {
    const std::string directory = folder / strfmt("%dx%d/deep", shape.replicate, shape.shard);
    write(directory, shape);
    EXPECT_TRUE(test::bytes_of(directory + "/model.safetensors") == expected) << directory;
    EXPECT_EQ(test::bytes_of(directory + "/config.json"), config);
  }
}

TEST(ModelFile, AnyWorldAndMeshReadsOnlyItsIntervals) {
  TempDir folder;
  write(folder.path(), {1, 3});
  const std::uint64_t header = test::bytes_of(folder / "model.safetensors").size() - param_bytes;
  for (const auto& shape : meshes) {
    const auto bytes = read_and_check(folder.path(), shape, same);
    const auto world = static_cast<std::uint64_t>(shape.replicate * shape.shard);
    EXPECT_EQ(bytes, world * header + static_cast<std::uint64_t>(shape.replicate) * param_bytes);
  }
}

// Frozen units are kept in 16 bits: read rounded, written as fp32.
TEST(ModelFile, UnitsOfOtherTypes) {
  TempDir folder;
  write(folder / "in", {1, 1});
  for (const auto& shape : meshes) {
    const Mesh mesh(shape.replicate, shape.shard);
    const std::string directory = folder / strfmt("%dx%d", shape.replicate, shape.shard);
    run_local(mesh.world(), [&](World& world) {
      Rank rank(mesh, world.rank());
      std::vector<std::vector<bf16>> bf16_memory;
      for (const std::size_t u : {std::size_t{0}, std::size_t{2}}) {
        bf16_memory.emplace_back(rank.memory[u].size(), bf16(-1.0F));
        rank.views[u].data = {bf16_memory.back().data(), rank.views[u].data.shape};
      }
      (void)io::read_model(world, folder / "in", params, rank.layout, rank.views, same);
      for (const auto& shard : bf16_memory)
        for (const bf16& element : shard)
          if (element.bits == bf16(-1.0F).bits) throw std::runtime_error("not filled");
      io::write_model(world, directory, config, params, rank.layout, rank.views);
    });
    const io::SafetensorsFile file(directory + "/model.safetensors");
    for (std::size_t p = 0; p < params.size(); ++p) {
      const auto* entry = file.find(params[p].name);
      ASSERT_NE(entry, nullptr);
      std::vector<float> data(static_cast<std::size_t>(entry->numel()));
      file.read(*entry, 0, entry->numel(), data.data());
      const bool half = p == 0 || p == 4;
      for (std::size_t i = 0; i < data.size(); ++i) {
        const float v = value(static_cast<int>(p), static_cast<std::int64_t>(i));
        ASSERT_EQ(data[i], half ? float{bf16(v)} : v) << params[p].name << " " << i;
      }
    }
  }
}

TEST(ModelFile, NamesAreMadeCanonicalAndSomeIgnored) {
  TempDir folder;
  std::vector<io::SafetensorsTensor> tensors;
  for (const auto& p : params)
    tensors.push_back({.name = "transformer." + p.name, .dtype = DType::f32, .shape = p.shape});
  tensors.push_back({.name = "h.0.attn.bias", .dtype = DType::u8, .shape = {3}});
  const auto plan = io::plan_safetensors(tensors, {});
  std::string bytes = plan.header;
  bytes.resize(plan.file_bytes);
  for (const auto& entry : plan.entries)
    for (std::size_t p = 0; p < params.size(); ++p)
      for (std::int64_t i = 0; entry.name == "transformer." + params[p].name && i < entry.numel(); ++i) {
        const float x = value(static_cast<int>(p), i);
        std::memcpy(bytes.data() + entry.begin + 4 * i, &x, 4);
      }
  folder.file("model.safetensors", bytes);
  read_and_check(folder.path(), {1, 2}, [](const std::string& name) {
    if (name == "h.0.attn.bias") return std::string();
    return name.starts_with("transformer.") ? name.substr(12) : name;
  });
}

TEST(ModelFile, ShardsAreWrittenAndReadByAnyWorldAndReplaceOneFile) {
  TempDir folder;
  write(folder.path(), {1, 2});  // one file first
  std::filesystem::create_directory(folder / "in");
  folder.file("in/tokenizer.json", "{}");
  for (const auto& shape : meshes) {
    const Mesh mesh(shape.replicate, shape.shard);
    run_local(mesh.world(), [&](World& world) {
      const Rank rank(mesh, world.rank());
      io::write_model(world, folder.path(), config, params, rank.layout, rank.views,
                      {.max_shard_bytes = 2600, .auxiliary_source = folder / "in"});
    });
    EXPECT_EQ(folder.names(),
              (std::vector<std::string>{"config.json", "in", "model-00001-of-00003.safetensors",
                                        "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors",
                                        "model.safetensors.index.json", "tokenizer.json"}));
    std::uint64_t headers = 0;
    for (const auto& file : io::open_safetensors_model(folder.path())) headers += file.bytes_read();
    const auto bytes = read_and_check(folder.path(), shape, same);
    EXPECT_EQ(bytes, static_cast<std::uint64_t>(mesh.world()) * headers +
                         static_cast<std::uint64_t>(shape.replicate) * param_bytes);
  }
  write(folder.path(), {1, 2});  // and one file again: the old index must be gone
  EXPECT_FALSE(std::filesystem::exists(folder / "model.safetensors.index.json"));
  read_and_check(folder.path(), {1, 3}, same);
}

/// params as a file of transformers 5 might hold them: h.0.w and h.1.w and head.weight in one tensor,
/// and a second copy of the table.
std::string fused_file(float difference) {
  constexpr std::int64_t numel = 11 * 65 + 200 * 3 + 25;
  std::vector<io::SafetensorsTensor> tensors = {{"fused", DType::f32, {2, numel / 2}}, {"copy", DType::f32, {37, 11}}};
  for (const int p : {0, 1, 3})
    tensors.push_back(
        {params[static_cast<std::size_t>(p)].name, DType::f32, params[static_cast<std::size_t>(p)].shape});
  const auto plan = io::plan_safetensors(tensors, {});
  std::string bytes = plan.header;
  bytes.resize(plan.file_bytes);
  for (const auto& entry : plan.entries) {
    std::vector<std::pair<int, std::int64_t>> content;  // (parameter, elements)
    if (entry.name == "fused") content = {{2, 11 * 65}, {4, 600}, {5, 25}};
    else if (entry.name == "copy") content = {{0, 37 * 11}};
    else
      for (int p = 0; p < 6; ++p)
        if (params[static_cast<std::size_t>(p)].name == entry.name) content = {{p, entry.numel()}};
    std::uint64_t at = entry.begin;
    for (const auto& [p, count] : content)
      for (std::int64_t i = 0; i < count; ++i, at += 4) {
        const float x = value(p, i) + (entry.name == "copy" && i == 400 ? difference : 0.0F);
        std::memcpy(bytes.data() + at, &x, 4);
      }
  }
  return bytes;
}

TensorUse fused_use(const std::string& name) {
  if (name == "fused") return {.parts = {"h.0.w", "h.1.w", "head.weight"}, .shape = {2, 670}, .same_as = ""};
  if (name == "copy") return {.parts = {}, .shape = {}, .same_as = "wte.weight"};
  return {.parts = {name}, .shape = {}, .same_as = ""};
}

TEST(ModelFile, FusedTensorsAreSplitAndCopiesMustBeEqual) {
  TempDir folder;
  folder.file("model.safetensors", fused_file(0));
  const std::uint64_t header = test::bytes_of(folder / "model.safetensors").size() - param_bytes - 37 * 11 * 4;
  for (const auto& shape : meshes) {
    const Mesh mesh(shape.replicate, shape.shard);
    std::atomic<std::uint64_t> bytes = 0;
    const auto read = [&] {
      run_local(mesh.world(), [&](World& world) {
        Rank got(mesh, world.rank());
        const Rank want(mesh, world.rank());
        for (auto& unit : got.memory) std::fill(unit.begin(), unit.end(), -1.0F);
        bytes += io::read_model(world, folder.path(), params, got.layout, got.views, fused_use);
        for (std::size_t u = 0; u < want.memory.size(); ++u)
          for (std::size_t i = 0; i < want.memory[u].size(); ++i)
            if (!std::isnan(want.memory[u][i]) && got.memory[u][i] != want.memory[u][i])
              throw std::runtime_error("another value");
      });
    };
    read();
    const auto world = static_cast<std::uint64_t>(mesh.world()), replicas = static_cast<std::uint64_t>(shape.replicate);
    EXPECT_EQ(bytes, world * header + replicas * (param_bytes + 37 * 11 * 4));
    folder.file("model.safetensors", fused_file(1));
    expect_error(ExitCode::data, "E114", read);
    folder.file("model.safetensors", fused_file(0));
  }
}

TEST(ModelFile, MismatchesAreListedInOneError) {
  TempDir folder;
  const auto tensor = [](const char* name, DType dtype, Shape shape) {
    return io::SafetensorsTensor{name, dtype, shape};
  };
  const auto plan =
      io::plan_safetensors({tensor("wte.weight", DType::f32, {11, 37}), tensor("h.0.w", DType::i32, {11, 65}),
                            tensor("h.0.bias", DType::f32, {1}), tensor("old.h.0.bias", DType::f32, {1}),
                            tensor("new.one", DType::f32, {2}), tensor("head.weight", DType::bf16, {5, 5})},
                           {});
  std::string bytes = plan.header;
  bytes.resize(plan.file_bytes);
  folder.file("model.safetensors", bytes);
  const auto canonical = [](const std::string& name) { return name.starts_with("old.") ? name.substr(4) : name; };
  std::atomic<int> errors = 0;
  std::mutex mutex;
  run_local(3, [&](World& world) {
    Rank rank(Mesh(1, 3), world.rank());
    try {
      io::read_model(world, folder.path(), params, rank.layout, rank.views, canonical);
    } catch (const Error& error) {
      ++errors;
      const std::lock_guard lock(mutex);
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_THAT(error.line(), testing::HasSubstr("missing: \"h.0.ln.weight\", \"h.1.w\";"));
      EXPECT_THAT(error.line(), testing::HasSubstr("unexpected: \"new.one\";"));
      EXPECT_THAT(error.line(), testing::HasSubstr("\"wte.weight\" is [11, 37], not [37, 11]"));
      EXPECT_THAT(error.line(), testing::HasSubstr("\"h.0.w\" is I32, not a float type"));
      EXPECT_THAT(error.line(), testing::HasSubstr("\"old.h.0.bias\" is \"h.0.bias\" again"));
    }
  });
  EXPECT_EQ(errors, 3);
}

TEST(ModelFile, WhereThereIsNoModelFileTheErrorSaysWhatThereIs) {
  TempDir folder;
  const auto read = [&](const std::string& directory) {
    run_local(2, [&](World& world) {
      Rank rank(Mesh(1, 2), world.rank());
      io::read_model(world, directory, params, rank.layout, rank.views, same);
    });
  };
  expect_error(ExitCode::data, "no directory", [&] { read(folder / "none"); });
  expect_error(ExitCode::data, "--from_scratch", [&] { read(folder.path()); });
  folder.file("pytorch_model.bin", "x");
  expect_error(ExitCode::data, "pytorch_model.bin", [&] { read(folder.path()); });
  folder.file("model.safetensors.index.json", "{}");
  expect_error(ExitCode::data, "weight_map", [&] { read(folder.path()); });
  folder.file("model.safetensors", "x");
  expect_error(ExitCode::data, "only 1 bytes", [&] { read(folder.path()); });
}

TEST(ModelFile, ReplacesOldFilesAndLeavesNoTemporaryOnes) {
  TempDir folder;
  std::filesystem::create_directory(folder / "model.tmp");  // of a run that was killed
  folder.file("model.tmp/model.safetensors", std::string(1 << 20, 'x'));
  folder.file("model.safetensors", "old");
  folder.file("config.json", "old");
  const mode_t mask = ::umask(022);
  write(folder.path(), {1, 2});
  ::umask(mask);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"config.json", "model.safetensors"}));
  EXPECT_EQ(test::bytes_of(folder / "config.json"), config);
  struct stat status {};
  ASSERT_EQ(::stat((folder / "model.safetensors").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644u);
  read_and_check(folder.path(), {1, 1}, same);
}

/// Runs write_model on three ranks, `broken` (-1: none) with memory that cannot be read; returns
/// how many ranks threw Error (data).
int failing_write(const std::string& directory, int broken) {
  std::atomic<int> errors = 0;
  void* nothing = ::mmap(nullptr, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  run_local(3, [&](World& world) {
    Rank rank(Mesh(1, 3), world.rank());
    if (world.rank() == broken) rank.views[1].data.data = nothing;
    try {
      io::write_model(world, directory, config, params, rank.layout, rank.views);
    } catch (const Error& error) {
      if (error.code() == ExitCode::data) ++errors;
    }
  });
  ::munmap(nothing, 1 << 20);
  return errors;
}

TEST(ModelFile, AFailureOfOneRankIsAnErrorOnEveryRank) {
  TempDir folder;
  folder.file("model.safetensors", "old");
  for (int broken = 0; broken < 3; ++broken) EXPECT_EQ(failing_write(folder.path(), broken), 3) << broken;
  EXPECT_EQ(folder.names(), std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(test::bytes_of(folder / "model.safetensors"), "old");
  EXPECT_EQ(failing_write(folder.file("a_file", "x"), -1), 3);  // not a directory
  EXPECT_EQ(failing_write("/proc/no/such/folder", -1), 3);
  std::filesystem::create_directory(folder / "busy");
  std::filesystem::create_directory(folder / "busy/config.json");  // cannot be replaced by a file
  EXPECT_EQ(failing_write(folder / "busy", -1), 3);
  EXPECT_FALSE(std::filesystem::exists(folder / "busy/model.tmp"));
  EXPECT_FALSE(std::filesystem::exists(folder / "busy/model.safetensors"));
  EXPECT_EQ(failing_write(folder.path(), -1), 0);
}

TEST(ModelFile, AFullDiskIsAnErrorOnEveryRankAndKeepsTheOldModel) {
  TempDir folder;
  folder.file("model.safetensors", "old");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{2000, 2000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::_exit(40 + failing_write(folder.path(), -1));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 43);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(test::bytes_of(folder / "model.safetensors"), "old");
}

}  // namespace
}  // namespace tessera
