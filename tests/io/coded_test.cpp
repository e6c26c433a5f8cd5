// SPDX-License-Identifier: Apache-2.0
// Weights in MXFP4 and in FP8 with scales of blocks: every element is what transformers reads, from any range; files
// that are not what they seem.
#include <gmock/gmock.h>

#include <algorithm>

#include "io/file/text_file.hpp"
#include "io/model/coded_tensors.hpp"
#include "io/model/model_part.hpp"
#include "io/model/safetensors.hpp"
#include "runtime/base/half.hpp"
#include "tests/io/files.hpp"

namespace tessera::io {
namespace {

const std::string coded_golden = TESSERA_TEST_DATA "/../models/golden/coded/";

std::vector<StoredTensor> stored_in(const SafetensorsFile& file) {
  std::vector<StoredTensor> tensors;
  for (const SafetensorsEntry& entry : file.entries()) tensors.push_back({&file, &entry});
  return tensors;
}

TEST(CodedTensors, AreWhatTransformersReads) {
  for (const auto& [folder, expected] : {std::pair{"mxfp4", 2}, {"fp8", 7}, {"fp8-vl", 7}}) {
    const std::string directory = coded_golden + folder;
    const SafetensorsFile file(directory + "/model.safetensors"), floats(directory + "/floats.safetensors");
    const CodedTensors coded(stored_in(file), fp8_block_of(read_text(directory + "/config.json")));
    int found = 0;
    for (const SafetensorsEntry& entry : file.entries()) {
      const CodedTensor* tensor = coded.find(entry.name);
      if (tensor == nullptr) continue;
      ++found;
      const SafetensorsEntry* theirs = floats.find(tensor->name());
      ASSERT_NE(theirs, nullptr) << tensor->name();
      EXPECT_EQ(tensor->shape(), theirs->shape) << tensor->name();
      std::vector<float> want(static_cast<std::size_t>(theirs->numel())), got(want.size());
      floats.read(*theirs, 0, theirs->numel(), want.data());
      tensor->read_elements(0, theirs->numel(), got.data());
      for (float& value : got) value = static_cast<float>(bf16(value));
      EXPECT_EQ(got, want) << tensor->name();
      for (std::int64_t at = 0; at < theirs->numel(); at += 1237) {
        std::vector<float> part(static_cast<std::size_t>(std::min<std::int64_t>(1237, theirs->numel() - at)));
        tensor->read_elements(at, static_cast<std::int64_t>(part.size()), part.data());
        for (std::size_t i = 0; i < part.size(); ++i)
          ASSERT_EQ(static_cast<float>(bf16(part[i])), want[static_cast<std::size_t>(at) + i]) << tensor->name();
      }
    }
    EXPECT_EQ(found, expected);
    EXPECT_FALSE(coded.is_part("model.norm.weight"));
  }
}

/// The error of a file with these tensors of bytes.
std::string error_with(const std::vector<SafetensorsTensor>& tensors, std::array<std::int64_t, 2> block) {
  const test::TempDir dir;
  const SafetensorsPlan plan = plan_safetensors(tensors, {});
  const SafetensorsFile file(
      dir.file("model.safetensors", plan.header + std::string(plan.file_bytes - plan.header.size(), '\0')));
  try {
    const CodedTensors coded(stored_in(file), block);
  } catch (const Error& error) { return error.line(); }
  return "accepted";
}

SafetensorsTensor of_type(const char* name, const char* type, const std::vector<std::int64_t>& shape) {
  SafetensorsTensor tensor{.name = name, .dtype = DType::u8, .shape = {}};
  tensor.stored = StoredForm{find_safetensors_type(type), shape};
  return tensor;
}

TEST(CodedTensors, OfOtherPartsAreNotCopied) {
  const test::TempDir dir;
  const auto check = [&](const char* type) {
    const SafetensorsPlan plan = plan_safetensors({of_type("visual.w", type, {2, 2})}, {});
    (void)dir.file("model.safetensors", plan.header + std::string(plan.file_bytes - plan.header.size(), '\0'));
    check_copied_tensors({dir.path(), [](const std::string&) { return TensorUse{}; }});
  };
  check("BF16");
  test::expect_error(ExitCode::usage, "\"visual.w\" is F8_E4M3", [&] { check("F8_E4M3"); });
}

TEST(CodedTensors, ScalesThatAreNoNumbersAreRefused) {
  const test::TempDir dir;
  const SafetensorsPlan plan =
      plan_safetensors({of_type("w_blocks", "U8", {1, 1, 1, 16}), of_type("w_scales", "U8", {1, 1, 1})}, {});
  const std::string codes(plan.file_bytes - plan.header.size(), '\xff');
  const SafetensorsFile file(dir.file("model.safetensors", plan.header + codes));
  std::array<float, 32> values{};
  test::expect_error(ExitCode::data, "\"w_scales\" has a scale that is no finite number",
                     [&] { CodedTensors(stored_in(file), {}).find("w_blocks")->read_elements(0, 32, values.data()); });
}

TEST(CodedTensors, OtherFormsAreRefusedByName) {
  using testing::HasSubstr;
  const auto blocks = of_type("w_blocks", "U8", {2, 6, 1, 16});
  EXPECT_EQ(error_with({blocks, of_type("w_scales", "U8", {2, 6, 1})}, {}), "accepted");
  EXPECT_THAT(error_with({blocks}, {}), HasSubstr("\"w_blocks\" has no \"w_scales\" beside it"));
  EXPECT_THAT(error_with({blocks, of_type("w_scales", "U8", {2, 6, 2})}, {}),
              HasSubstr("\"w_scales\" has not one U8 for each block of \"w_blocks\""));
  EXPECT_THAT(error_with({of_type("w_blocks", "U8", {6, 1, 16}), of_type("w_scales", "U8", {6, 1})}, {}),
              HasSubstr("\"w_blocks\" is not (experts, columns, groups, 16)"));
  const auto codes = of_type("w", "F8_E4M3", {10, 33});
  EXPECT_EQ(error_with({codes, of_type("w_scale_inv", "F32", {2, 3})}, {8, 16}), "accepted");
  EXPECT_EQ(error_with({codes, of_type("w_scale_inv", "F32", {1, 1})}, {INT64_MAX, INT64_MAX}), "accepted");
  EXPECT_EQ(error_with({codes}, {0, 0}), "accepted");  // and refused by its type
  EXPECT_THAT(error_with({codes}, {8, 16}), HasSubstr("\"w\" has no \"w_scale_inv\" beside it"));
  EXPECT_THAT(error_with({codes, of_type("w_scale_inv", "F32", {2, 2})}, {8, 16}),
              HasSubstr("\"w_scale_inv\" is not one scale for each block of 8 by 16 of \"w\""));
}

}  // namespace
}  // namespace tessera::io
