// SPDX-License-Identifier: Apache-2.0
// Assignment of tensors to files: in order, one file if all fit, and an index that agrees with the headers.

#include "io/model/model_files.hpp"

#include <nlohmann/json.hpp>

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

TEST(ModelFiles, ANameTwiceIsRefusedAcrossFilesToo) {
  test::expect_error(ExitCode::data, "\"b\"", [] {
    auto tensors = some();
    tensors.push_back({"b", DType::f32, {1000}});
    (void)plan_model_files(tensors, 400);
  });
}

}  // namespace
}  // namespace tessera
