// SPDX-License-Identifier: Apache-2.0
// Conversions, with ranks as threads: the same bytes for any number of ranks, round trips, and nothing left after a
// failure.

#include "io/convert/convert.hpp"

#include <filesystem>

#include "io/checkpoint/checkpoint.hpp"
#include "io/model/model_directory.hpp"
#include "tests/io/convert/model.hpp"

namespace tessera::io {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using test::contents;
using test::default_tensors;
using test::expect_error;
using test::identity_tensors;
using test::TempDir;

constexpr std::uint64_t shard_bytes = 6'000'000, state_bytes = 5'000'000;

void to_native(int ranks, const std::string& in, const std::string& out, bool replace = false) {
  run_local(ranks, [&](World& world) {
    const TensorCatalog stored = catalog_safetensors(in);
    (void)convert_to_checkpoint(world, stored, identity_tensors(stored, DType::f32),
                                {.directory = out,
                                 .auxiliary_files = read_model_auxiliary_files(in).files,
                                 .replace = replace,
                                 .verify = true,
                                 .max_file_bytes = state_bytes},
                                {});
  });
}

void to_hf(int ranks, const std::string& in, const std::string& out, DType dtype, std::uint64_t max_bytes) {
  run_local(ranks, [&](World& world) {
    const CheckpointReader checkpoint(world, in);
    const TensorCatalog stored = catalog_checkpoint(in, checkpoint.manifest());
    std::vector<AuxiliaryFile> auxiliary_files;
    for (const auto& a : checkpoint.manifest().auxiliary_files)
      auxiliary_files.push_back({a.name, checkpoint.auxiliary_file(a.name)});
    (void)convert_to_safetensors(
        world, stored, identity_tensors(stored, dtype, "/model/"),
        {.directory = out, .auxiliary_files = auxiliary_files, .verify = true, .max_file_bytes = max_bytes}, {});
  });
}

TEST(Convert, AnyNumberOfRanksMakesTheSameBytes) {
  const TempDir folder;
  test::write_model(folder / "hf", default_tensors(), DType::bf16);
  for (const int ranks : {1, 2, 3, 5}) {
    const std::string native = folder / ("native" + std::to_string(ranks)),
                      back = folder / ("back" + std::to_string(ranks));
    to_native(ranks, folder / "hf", native);
    to_hf(ranks, native, back, DType::f16, shard_bytes);
    EXPECT_EQ(contents(native), contents(folder / "native1")) << ranks;
    EXPECT_EQ(contents(back), contents(folder / "back1")) << ranks;
  }
  EXPECT_GT(contents(folder / "native1").size(), 5u);  // several state files, a manifest, auxiliary files
  EXPECT_TRUE(fs::exists(folder / "back1/model.safetensors.index.json"));
}

TEST(Convert, RoundTripsGiveTheSameBytes) {
  const TempDir folder;
  constexpr std::uint64_t unlimited = ~std::uint64_t{0} >> 1;
  for (const auto& [dtype, most] :
       {std::pair{DType::bf16, shard_bytes}, {DType::f16, unlimited}, {DType::f32, shard_bytes}}) {
    const std::string hf = folder / name_of(dtype);
    test::write_model(hf, default_tensors(), dtype, most);
    to_native(2, hf, hf + "-native");
    to_hf(3, hf + "-native", hf + "-back", dtype, most);
    EXPECT_EQ(contents(hf + "-back"), contents(hf)) << name_of(dtype);
    to_native(3, hf + "-back", hf + "-again");
    EXPECT_EQ(contents(hf + "-again"), contents(hf + "-native")) << name_of(dtype);
  }
}

TEST(Convert, SlicesOfATensorBecomeTensorsAndBack) {
  const TempDir folder;
  test::write_model(folder / "hf", {{"fused", {3, 700, 1000}}, {"x", {7}}}, DType::bf16);
  run_local(2, [&](World& world) {
    const TensorCatalog fused = catalog_safetensors(folder / "hf");
    const int from = static_cast<int>(fused.find("fused") - fused.tensors.data());
    std::vector<ConvertTensor> tensors;
    for (int i = 0; i < 3; ++i)
      tensors.push_back({"part" + std::to_string(i), DType::f32, {700, 1000}, {{from, 700000 * i, 700000}}});
    (void)convert_to_safetensors(world, fused, tensors,
                                 {.directory = folder / "parts", .verify = true, .max_file_bytes = 3'000'000}, {});
    const TensorCatalog parts = catalog_safetensors(folder / "parts");
    ConvertTensor joined{"fused", DType::bf16, {3, 700, 1000}, {}};
    for (int i = 0; i < 3; ++i)
      joined.slices.push_back(
          {static_cast<int>(parts.find("part" + std::to_string(i)) - parts.tensors.data()), 0, 700000});
    (void)convert_to_safetensors(
        world, parts, {joined},
        {.directory = folder / "joined", .verify = true, .max_file_bytes = ~std::uint64_t{0} >> 1}, {});
  });
  const SafetensorsFile a(folder / "hf/model.safetensors"), b(folder / "joined/model.safetensors");
  const auto bytes = [](const SafetensorsFile& f) {
    return bytes_of(f.path()).substr(f.find("fused")->begin, 4'200'000);
  };
  EXPECT_EQ(bytes(a), bytes(b));
}

TEST(Convert, AnOverflowIsNamedAndNothingIsLeft) {
  const TempDir folder;
  std::string bytes = test::safetensors_of(R"({"a.b":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", 0);
  const float values[] = {1, 2, -70000, 3};
  bytes.append(reinterpret_cast<const char*>(values), sizeof values);
  fs::create_directories(folder / "hf");
  folder.file("hf/model.safetensors", bytes);
  const auto convert = [&](DType dtype) {
    run_local(2, [&](World& world) {
      const TensorCatalog stored = catalog_safetensors(folder / "hf");
      (void)convert_to_safetensors(world, stored, identity_tensors(stored, dtype),
                                   {.directory = folder / "out", .max_file_bytes = 1'000'000}, {});
    });
  };
  expect_error(ExitCode::data, "E143 element 2 of tensor \"a.b\" is -70000, too large for fp16",
               [&] { convert(DType::f16); });
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"hf"}));
  convert(DType::bf16);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"hf", "out"}));
}

TEST(Convert, DamageInTheSourceIsFoundAndNothingIsLeft) {
  const TempDir folder;
  test::write_model(folder / "hf", default_tensors(), DType::f32);
  to_native(1, folder / "hf", folder / "native");
  const Manifest manifest = read_manifest(folder / "native");
  for (const auto& file : manifest.files)
    for (const auto& d : file.datasets)
      if (d.path == "/model/h.1.w") {
        const std::string path = folder / ("native/" + file.name);
        std::string bytes = bytes_of(path);
        bytes[d.offset + 12345] = static_cast<char>(bytes[d.offset + 12345] ^ 4);
        folder.file("native/" + file.name, bytes);
      }
  expect_error(ExitCode::data, "E123", [&] { to_hf(3, folder / "native", folder / "out", DType::f32, shard_bytes); });
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"hf", "native"}));
}

TEST(Convert, VerifyFindsWhatTheDiskChanged) {
  const TempDir folder;
  test::write_model(folder / "hf", default_tensors(), DType::f32);
  run_local(3, [&](World& world) {
    const TensorCatalog stored = catalog_safetensors(folder / "hf");
    const ModelFiles files = plan_model_files({{"x", DType::bf16, {2503, 1027}}});
    ModelDirectory directory(world, folder / "out", files, ModelDirectory::Holds::model_alone);
    const int from = static_cast<int>(stored.find("wte.weight") - stored.tensors.data());
    ConversionPlan plan{{{directory.paths()[0], files.files[0].plan.file_bytes, files.files[0].plan.header}},
                        {{"x", DType::bf16, 0, files.locations[0].begin, 2503 * 1027, {{from, 0, 2503 * 1027}}}}};
    Conversion conversion(stored, plan, {});
    conversion.write(world);
    conversion.verify(world);
    world.barrier();
    if (world.rank() == 0) {
      const char wrong = 1;
      File::open_to_write(directory.paths()[0]).write_at(4'500'000, std::as_bytes(std::span(&wrong, 1)));
    }
    world.barrier();
    expect_error(ExitCode::data, "E144 the output differs from the source in \"x\"", [&] { conversion.verify(world); });
  });
}

TEST(Convert, OutputsAreRefusedBeforehand) {
  const TempDir folder;
  fs::create_directories(folder / "in/deep");
  fs::create_directories(folder / "there");
  folder.file("file", "x");
  const auto take = [](const std::string& in, const std::string& out, bool replace) {
    const OutputLock lock(in, out, replace);
  };
  EXPECT_NO_THROW(take(folder / "in", folder / "new/deeper", false));
  expect_error(ExitCode::data, "E141", [&] { take(folder / "in", folder / "there", false); });
  EXPECT_NO_THROW(take(folder / "in", folder / "there", true));
  expect_error(ExitCode::data, "E141", [&] { take(folder / "in", folder / "file", true); });
  expect_error(ExitCode::data, "is the input itself", [&] { take(folder / "in", folder / "there/../in", true); });
  expect_error(ExitCode::data, "E142", [&] { take(folder / "in", folder / "in/out", false); });
  expect_error(ExitCode::data, "holds the input", [&] { take(folder / "in/deep", folder / "in", true); });
  fs::create_directories(folder / "out.tmp/precious");
  expect_error(ExitCode::data, "is not an interrupted conversion's",
               [&] { take(folder / "in", folder / "out", false); });
  fs::remove(folder / "out.tmp/precious");
  folder.file("out.tmp/model.safetensors", "left by a dead run");
  EXPECT_NO_THROW(take(folder / "in", folder / "out", false));
  expect_error(ExitCode::data, "E140 no space: need 9000000000.0 GB",
               [&] { check_space(folder / "out", 9'000'000'000'000'000'000u); });
  EXPECT_NO_THROW(check_space(folder / "out", 1));
}

// Types and shapes that are only copied: from several files into one, in the official order.
TEST(Convert, WhatIsNotComputedWithIsCopiedAsBytes) {
  const TempDir folder;
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"mask":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]},)"
      R"("four":{"dtype":"F4","shape":[3,2],"data_offsets":[3,6]},"eight":{"dtype":"F8_E4M3","shape":[2,3],"data_offsets":[6,12]},)"
      R"("conv":{"dtype":"BF16","shape":[2,1,2,1,3],"data_offsets":[12,36]},"ids":{"dtype":"U32","shape":[2],"data_offsets":[36,44]},)"
      R"("wide":{"dtype":"U64","shape":[],"data_offsets":[44,52]}})";
  std::string bytes = test::safetensors_of(header, 0);
  for (int i = 0; i < 52; ++i) bytes += static_cast<char>(i * 37 + 11);
  fs::create_directories(folder / "hf");
  folder.file("hf/model.safetensors", bytes);
  const auto convert_all = [&](const std::string& out) {
    run_local(2, [&](World& world) {
      const TensorCatalog stored = catalog_safetensors(folder / "hf");
      std::vector<ConvertTensor> tensors;
      for (std::size_t i = 0; i < stored.tensors.size(); ++i) {
        const TensorEntry& t = stored.tensors[i];
        const std::int64_t count = t.known ? t.numel() : static_cast<std::int64_t>(t.bytes);
        tensors.push_back({t.name,
                           t.dtype,
                           {count},
                           {{static_cast<int>(i), 0, count}},
                           StoredForm{find_safetensors_type(t.type), t.shape}});
      }
      (void)convert_to_safetensors(world, stored, tensors,
                                   {.directory = out, .verify = true, .max_file_bytes = 1'000'000}, {});
    });
  };
  convert_all(folder / "out");
  const SafetensorsFile a(folder / "hf/model.safetensors"), b(folder / "out/model.safetensors");
  ASSERT_EQ(a.entries().size(), b.entries().size());
  for (const SafetensorsEntry& x : a.entries()) {
    const SafetensorsEntry* const y = b.find(x.name);
    ASSERT_NE(y, nullptr) << x.name;
    EXPECT_STREQ(x.type, y->type);
    EXPECT_EQ(x.shape, y->shape);
    EXPECT_EQ(bytes.substr(x.begin, x.end - x.begin), bytes_of(b.path()).substr(y->begin, y->end - y->begin)) << x.name;
  }
}

TEST(Convert, AReplacedDirectoryIsRenamed) {
  const TempDir folder;
  test::write_model(folder / "hf", {{"x", {70}}}, DType::f32);
  to_native(1, folder / "hf", folder / "out");
  const auto before = contents(folder / "out");
  test::write_model(folder / "hf2", {{"y", {70}}}, DType::f32);
  to_native(2, folder / "hf2", folder / "out", true);
  EXPECT_EQ(contents(folder / "out.old"), before);
  EXPECT_EQ(read_manifest(folder / "out").files[0].datasets[0].path, "/model/y");
  to_native(2, folder / "hf", folder / "out", true);
  EXPECT_EQ(contents(folder / "out"), before);
  EXPECT_EQ(read_manifest(folder / "out.old.2").files[0].datasets[0].path, "/model/y");
}

}  // namespace
}  // namespace tessera::io
