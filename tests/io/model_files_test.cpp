// SPDX-License-Identifier: Apache-2.0
// Assignment of tensors to files: in order, one file if all fit, and an index that agrees with the headers.

#include "io/model/model_files.hpp"

#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "io/model/model_part.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

using io::plan_model_files;

std::vector<io::SafetensorsTensor> some() {
  return {{"e", DType::f32, {10, 5}},  // 200 bytes
          {"b", DType::f32, {25}},     // 100
          {"a", DType::bf16, {50}},    // 100
          {"z", DType::f32, {125}},    // 500: larger than a file
          {"c", DType::f32, {1}}};     // 4
}

TEST(ModelFiles, OneFileWhereAllFitAndNoIndex) {
  for (const std::uint64_t most : {std::uint64_t{904}, io::default_max_shard_bytes}) {
    const auto files = plan_model_files(some(), most);
    ASSERT_EQ(files.files.size(), 1U);
    EXPECT_EQ(files.files[0].name, "model.safetensors");
    EXPECT_EQ(files.index, "");
    for (std::size_t i = 0; i < some().size(); ++i)
      for (const auto& entry : files.files[0].plan.entries)
        if (entry.name == some()[i].name) { EXPECT_EQ(files.locations[i].begin, entry.begin); }
  }
  EXPECT_EQ(plan_model_files({}).files.size(), 1U);
  EXPECT_EQ(plan_model_files(some(), 903).files.size(), 2U);
}

TEST(ModelFiles, HeadersHaveTheMetadata) {
  const auto header = [](const io::PlannedFile& file) { return file.plan.header; };
  for (const auto& file : plan_model_files(some(), 400).files)
    EXPECT_THAT(header(file), testing::HasSubstr(R"("__metadata__":{"format":"pt"})"));
  for (const auto& file : plan_model_files(some(), 400, {{"a", "b"}, {"format", "mlx"}}).files)
    EXPECT_THAT(header(file), testing::HasSubstr(R"("__metadata__":{"a":"b","format":"mlx"})"));
}

TEST(ModelFiles, ShardsAreGreedyInOrderAndTheIndexAgrees) {
  const auto files = plan_model_files(some(), 400);
  std::vector<std::vector<std::string>> names;
  for (const auto& file : files.files) {
    names.emplace_back();
    for (const auto& entry : file.plan.entries) names.back().push_back(entry.name);
  }
  EXPECT_EQ(names, (std::vector<std::vector<std::string>>{{"b", "e", "a"}, {"z"}, {"c"}}));
  EXPECT_EQ(files.files[1].name, "model-00002-of-00003.safetensors");
  const auto index = nlohmann::json::parse(files.index);
  EXPECT_EQ(index["metadata"]["total_size"], 904);
  EXPECT_EQ(index["weight_map"].size(), 5U);
  for (std::size_t i = 0; i < some().size(); ++i) {
    const auto& file = files.files[static_cast<std::size_t>(files.locations[i].file)];
    EXPECT_EQ(index["weight_map"][some()[i].name], file.name);
    const auto at = std::find_if(file.plan.entries.begin(), file.plan.entries.end(),
                                 [&](const auto& e) { return e.name == some()[i].name; });
    ASSERT_NE(at, file.plan.entries.end());
    EXPECT_EQ(files.locations[i].begin, at->begin);
  }
}

TEST(ModelFiles, AConfigKeepsWhatItIsAndSaysTheTypeOfItsWeights) {
  const std::string plain = "{\"b\":1,\n \"a\": {\"unknown\": [1, null]}}";
  EXPECT_EQ(io::config_for_dtype(plain, DType::f32), plain);
  const std::string right = "{\"z\": 1, \"torch_dtype\": \"float32\"}";
  EXPECT_EQ(io::config_for_dtype(right, DType::f32), right);
  const auto json = nlohmann::ordered_json::parse(io::config_for_dtype(
      R"({"z": 1, "torch_dtype": "bfloat16", "a": {"unknown": [1, null]}, "dtype": "bfloat16"})", DType::f32));
  EXPECT_EQ(json.dump(), R"({"z":1,"torch_dtype":"float32","a":{"unknown":[1,null]},"dtype":"float32"})");
  test::expect_error(ExitCode::data, "not a JSON object", [] { (void)io::config_for_dtype("[]", DType::f32); });
}

/// A file of one tensor for each pair of a name and the letter that its bytes are.
std::string file_of(const std::vector<std::pair<std::string, char>>& tensors, const std::vector<int>& shape = {2}) {
  nlohmann::ordered_json header;
  std::string data;
  for (const auto& [name, letter] : tensors) {
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + 8}}};
    data += std::string(8, letter);
  }
  const std::string text = header.dump();
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(text.size() >> (8 * i) & 0xFF);
  return bytes + text + data;
}

/// On these ranks, which must agree, of the tensors whose names begin with "tower".
std::uint32_t copied(const std::string& directory, int ranks) {
  std::set<std::uint32_t> found;
  std::mutex guard;
  run_local(ranks, [&](World& world) {
    const std::uint32_t mine =
        io::checksum_of_copied(world, {directory, [](const std::string& name) {
                                         return name.starts_with("tower") ? TensorUse{} : TensorUse{.parts = {name}};
                                       }});
    const std::lock_guard lock(guard);
    found.insert(mine);
  });
  EXPECT_EQ(found.size(), 1u);
  return *found.begin();
}

TEST(ModelFiles, ChecksumOfCopiedTensorsIsThatOfTheirNamesShapesAndBytes) {
  const auto crc_of = [](const std::string& file, int ranks = 1) {
    const test::TempDir folder;
    (void)folder.file("model.safetensors", file);
    return copied(folder.path(), ranks);
  };
  const std::uint32_t crc = crc_of(file_of({{"text", 'a'}, {"tower.b", 'b'}, {"tower.c", 'c'}}));
  for (const int ranks : {2, 3, 4})
    EXPECT_EQ(crc_of(file_of({{"tower.c", 'c'}, {"text", 'x'}, {"tower.b", 'b'}}), ranks), crc);
  const test::TempDir shards;
  (void)shards.file("model-00001-of-00002.safetensors", file_of({{"tower.c", 'c'}}));
  (void)shards.file("model-00002-of-00002.safetensors", file_of({{"text", 'a'}, {"tower.b", 'b'}}));
  const nlohmann::json index = {{"weight_map",
                                 {{"tower.c", "model-00001-of-00002.safetensors"},
                                  {"text", "model-00002-of-00002.safetensors"},
                                  {"tower.b", "model-00002-of-00002.safetensors"}}}};
  (void)shards.file("model.safetensors.index.json", index.dump());
  EXPECT_EQ(copied(shards.path(), 2), crc);
  for (const std::string& other :
       {file_of({{"text", 'a'}, {"tower.b", 'b'}, {"tower.c", 'd'}}), file_of({{"text", 'a'}, {"tower.b", 'b'}}),
        file_of({{"text", 'a'}, {"tower.b", 'b'}, {"tower.d", 'c'}}),
        file_of({{"text", 'a'}, {"tower.b", 'c'}, {"tower.c", 'b'}}),
        file_of({{"text", 'a'}, {"tower.b", 'b'}, {"tower.c", 'c'}}, {2, 1})})
    EXPECT_NE(crc_of(other), crc);
}

TEST(ModelFiles, ANameTwiceIsRefusedAcrossFilesToo) {
  test::expect_error(ExitCode::data, "\"b\"", [] {
    auto tensors = some();
    tensors.push_back({"b", DType::f32, {1000}});
    (void)plan_model_files(tensors, 400);
  });
}

}  // namespace
}  // namespace tessera
