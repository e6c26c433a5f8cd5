// SPDX-License-Identifier: Apache-2.0
// Inspection: statistics, comparisons, verification, recognition, and HDF5 files that crash the library.

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>
#include <thread>

#include "io/checkpoint/checkpoint.hpp"
#include "io/inspect/recognize.hpp"
#include "io/inspect/sandbox.hpp"
#include "io/inspect/tensor_stats.hpp"
#include "io/inspect/verify.hpp"
#include "tests/io/convert/model.hpp"

namespace tessera::io {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using test::expect_error;
using test::TempDir;

TensorCatalog one_tensor(const TempDir& folder, const std::string& name, const std::vector<float>& values) {
  const SafetensorsPlan plan = plan_safetensors({{"x", DType::f32, {static_cast<std::int64_t>(values.size())}}}, {});
  std::string bytes = plan.header;
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return catalog_safetensors(folder.file(name, bytes));
}

TEST(TensorStats, CountsWhatIsNotFinite) {
  const TempDir folder;
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values(100000, 0.5F);
  values[3] = -7, values[4] = 9, values[70000] = NAN, values[70001] = infinity, values[70002] = -infinity;
  const TensorCatalog stored = one_tensor(folder, "x.safetensors", values);
  BlockCache cache(stored.files, 2);
  const TensorStats all = compute_stats(stored.tensors[0], cache, 0, 100000);
  EXPECT_EQ(all.nans, 1);
  EXPECT_EQ(all.infinities, 2);
  EXPECT_EQ(all.min, -7);
  EXPECT_EQ(all.max, 9);
  EXPECT_DOUBLE_EQ(all.mean(), (0.5 * 99995 + 2) / 99997);
  TensorStats parts = compute_stats(stored.tensors[0], cache, 0, 5);
  parts.join(compute_stats(stored.tensors[0], cache, 5, 99995));
  EXPECT_EQ(parts.min, all.min);
  EXPECT_EQ(parts.nans, all.nans);
  EXPECT_DOUBLE_EQ(parts.mean(), all.mean());
  EXPECT_EQ(compute_stats(stored.tensors[0], cache, 70000, 3).finite(), 0);
}

TEST(TensorStats, ComparesEveryElement) {
  const TempDir folder;
  std::vector<float> a(50000, 2.0F), b = a;
  a[10] = b[10] = NAN;  // the same bits: equal
  b[20000] = 2.5F, b[20001] = -2.0F, a[30000] = NAN;
  const TensorCatalog x = one_tensor(folder, "a.safetensors", a), y = one_tensor(folder, "b.safetensors", b);
  BlockCache cache_x(x.files, 2), cache_y(y.files, 2);
  const TensorDifference d = compare(x.tensors[0], cache_x, y.tensors[0], cache_y, 0, 50000);
  EXPECT_EQ(d.elements, 3);
  EXPECT_EQ(d.one_not_finite, 1);
  EXPECT_EQ(d.max_absolute, 4);
  EXPECT_EQ(d.max_relative, 2);
  EXPECT_EQ(compare(x.tensors[0], cache_x, y.tensors[0], cache_y, 0, 20000).elements, 0);
}

/// A checkpoint of default_tensors() in DIRECTORY.
void make_checkpoint(const TempDir& folder, const std::string& name) {
  fs::create_directories(fs::path(folder / name).parent_path());
  test::write_model(folder / "hf", test::default_tensors(), DType::f16);
  run_local(2, [&](World& world) {
    const TensorCatalog stored = catalog_safetensors(folder / "hf");
    (void)convert_to_checkpoint(world, stored, test::identity_tensors(stored, DType::f32),
                                {.directory = folder / name,
                                 .auxiliary_files = read_model_auxiliary_files(folder / "hf").files,
                                 .max_file_bytes = 5'000'000},
                                {});
  });
}

std::vector<std::string> damage_of(const std::string& directory, int ranks) {
  std::vector<std::string> damage;
  run_local(ranks, [&](World& world) {
    const VerifyReport report = verify_checkpoint(world, directory, 2);
    if (world.rank() == 0) damage = report.damage;
    EXPECT_EQ(world.sum(world.rank() == 0 ? static_cast<std::int64_t>(report.damage.size()) : 0), report.num_damaged);
  });
  return damage;
}

TEST(Verify, NamesAllDamage) {
  const TempDir folder;
  make_checkpoint(folder, "good");
  EXPECT_TRUE(damage_of(folder / "good", 3).empty());
  const Manifest manifest = read_manifest(folder / "good");
  fs::copy(folder / "good", folder / "bad");
  const auto flip = [&](const std::string& file, std::uint64_t offset) {
    std::string bytes = bytes_of(folder / ("bad/" + file));
    bytes[offset] = static_cast<char>(bytes[offset] ^ 16);
    folder.file("bad/" + file, bytes);
  };
  std::size_t expected = 0;
  for (const StateFile& file : manifest.files)
    for (const Hdf5Dataset& d : file.datasets)
      if (d.path == "/model/wte.weight") {
        flip(file.name, d.offset + 17);
        flip(file.name, d.offset + 2 * block_bytes);
        expected += 2;
      }
  flip(manifest.files.front().name, 60);  // a header
  flip("tokenizer.json", 1);
  expected += 2;
  folder.file("bad/state-00009-of-00009.h5", "foreign");
  ++expected;
  for (const int ranks : {1, 3}) {
    const auto damage = damage_of(folder / "bad", ranks);
    EXPECT_EQ(damage.size(), expected) << testing::PrintToString(damage);
    EXPECT_THAT(damage, testing::Contains(
                            testing::AllOf(testing::HasSubstr("block 2"), testing::HasSubstr("/model/wte.weight"))));
    EXPECT_THAT(damage,
                testing::Contains(testing::AllOf(testing::HasSubstr("tokenizer.json"), testing::HasSubstr("E123"))));
    EXPECT_THAT(damage, testing::Contains(testing::HasSubstr("of another checkpoint")));
  }
  fs::resize_file(folder / ("bad/" + manifest.files.back().name), 70000);
  fs::remove(folder / ("bad/" + manifest.files.front().name));
  EXPECT_THAT(damage_of(folder / "bad", 2),
              testing::IsSupersetOf({testing::HasSubstr("is missing"), testing::HasSubstr("cut off is")}));
  folder.file("bad/manifest.json", bytes_of(folder / "good/manifest.json") + " ");
  expect_error(ExitCode::data, "E131", [&] { (void)damage_of(folder / "bad", 2); });
  fs::remove(folder / "bad/manifest.json");
  expect_error(ExitCode::data, "E130", [&] { (void)damage_of(folder / "bad", 2); });
}

TEST(Sandbox, NoHdf5FileEndsTheProgram) {
  const TempDir folder;
  make_checkpoint(folder, "good");
  const StateFile file = read_manifest(folder / "good").files.front();
  EXPECT_EQ(read_hdf5_sandboxed(folder / ("good/" + file.name)).datasets, file.datasets);
  const std::string good = bytes_of(folder / ("good/" + file.name));
  std::mt19937 random(5);
  int accepted = 0;
  for (int i = 0; i < 25; ++i) {
    std::string bytes = good;
    for (int k = 0; k < 3; ++k) bytes[random() % 4096] = static_cast<char>(random());
    const std::string path = folder.file("bad.h5", bytes);
    try {
      (void)catalog_hdf5(path, read_hdf5_sandboxed(path).datasets);
      ++accepted;
    } catch (const Error& error) { EXPECT_EQ(error.code(), ExitCode::data) << error.line(); }
  }
  EXPECT_LT(accepted, 12);  // headers are checksummed; gaps between them are not
  expect_error(ExitCode::data, "E120",
               [&] { (void)read_hdf5_sandboxed(folder.file("short.h5", good.substr(0, 3000))); });
  expect_error(ExitCode::data, "E120", [&] { (void)read_hdf5_sandboxed(folder.file("text.h5", "no HDF5 at all")); });
  expect_error(ExitCode::data, "cannot read", [&] { (void)read_hdf5_sandboxed(folder / "nowhere.h5"); });
}

/// Superblock 0: headers without checksums, where damage may crash the library.
TEST(Sandbox, NorDoesOneOfSuperblock0) {
  const TempDir folder(TempDir::Storage::memory);
  const std::string good = bytes_of(TESSERA_TEST_DATA "/golden/superblock0.h5");
  EXPECT_EQ(read_hdf5_sandboxed(folder.file("good.h5", good)).datasets.size(), 4u);
  const char* rounds = std::getenv("TESSERA_ROUNDS");
  std::mt19937 random(6);
  int refused = 0;
  for (int i = 0; i < (rounds == nullptr ? 150 : std::atoi(rounds)); ++i) {
    std::string bytes = good;
    for (int k = 0; k <= i % 3; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    const std::string path = folder.file("bad.h5", bytes);
    try {
      const TensorCatalog stored = catalog_hdf5(path, read_hdf5_sandboxed(path).datasets);
      BlockCache cache(stored.files, 2);
      for (const TensorEntry& t : stored.tensors)
        if (is_numeric(t)) (void)compute_stats(t, cache, 0, t.numel());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data) << error.line();
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(BlockCache, ThreadsWaitForASlot) {
  const TempDir folder;
  constexpr std::int64_t blocks = 12;
  std::vector<float> values(static_cast<std::size_t>(blocks) * block_bytes / sizeof(float));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 8191);
  const TensorCatalog stored = one_tensor(folder, "x.safetensors", values);
  BlockCache cache(stored.files, 2);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::int64_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      std::vector<float> read(1000);
      for (std::int64_t i = 0; i < 60; ++i) {
        const std::int64_t first =
            (i * 7 + t * 5) % blocks * static_cast<std::int64_t>(block_bytes / sizeof(float)) + i;
        cache.read(0, stored.tensors[0].offset + static_cast<std::uint64_t>(first) * sizeof(float),
                   std::as_writable_bytes(std::span(read)));
        const bool same = std::equal(read.begin(), read.end(), values.begin() + first);
        wrong += same ? 0 : 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Recognize, ByNamesAndFirstBytes) {
  const TempDir folder;
  make_checkpoint(folder, "run/v2-20260101-000000/checkpoint-9");
  fs::create_directories(folder / "run/v10-20260101-000000");
  fs::copy(folder / "run/v2-20260101-000000/checkpoint-9", folder / "run/v10-20260101-000000/checkpoint-7");
  fs::create_directories(folder / "run/v10-20260101-000000/checkpoint-8");  // an unfinished save
  const auto is = [&](const std::string& path, PathKind kind) {
    EXPECT_EQ(static_cast<int>(recognize(folder / path).kind), static_cast<int>(kind)) << path;
  };
  testing::internal::CaptureStderr();
  const LocatedPath run = recognize(folder / "run");
  const std::string warned = testing::internal::GetCapturedStderr();
  EXPECT_EQ(run.path, folder / "run/v10-20260101-000000/checkpoint-7");
  EXPECT_EQ(run.skipped, folder / "run/v10-20260101-000000/checkpoint-8");
  EXPECT_NE(warned.find("warning W026: " + run.skipped + " is incomplete and is skipped: E130"), std::string::npos)
      << warned;
  EXPECT_EQ(recognize(folder / "run/v2-20260101-000000").skipped, "");
  is("run/v2-20260101-000000", PathKind::checkpoint);
  is("hf", PathKind::model);
  is("hf/model.safetensors", PathKind::safetensors);
  is("run/v10-20260101-000000/checkpoint-7/manifest.json", PathKind::checkpoint);
  is("run/v10-20260101-000000/checkpoint-7/" +
         read_manifest(folder / "run/v10-20260101-000000/checkpoint-7").files[0].name,
     PathKind::hdf5);
  folder.file("tokens.bin", test::token_file_of(20240520, 1, 2, "abcd"));
  is("tokens.bin", PathKind::tokens);
  folder.file("other", bytes_of(folder / "hf/model.safetensors"));
  is("other", PathKind::safetensors);
  folder.file("text.txt", "words");
  expect_error(ExitCode::data, "is neither", [&] { (void)recognize(folder / "text.txt"); });
  fs::create_directories(folder / "empty");
  expect_error(ExitCode::data, "neither a checkpoint nor a model", [&] { (void)recognize(folder / "empty"); });
  expect_error(ExitCode::data, "No such file", [&] { (void)recognize(folder / "nowhere"); });
}

}  // namespace
}  // namespace tessera::io
