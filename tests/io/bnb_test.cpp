// SPDX-License-Identifier: Apache-2.0
// Matrices that bitsandbytes has quantized and transformers has saved: the bytes that are made here of the same
// weights; elements of any range; files that are not what they seem.
#include <algorithm>

#include "io/model/bnb_tensors.hpp"
#include "io/model/model_io.hpp"
#include "io/model/safetensors.hpp"
#include "kernels/quantize.hpp"
#include "tests/io/files.hpp"

namespace tessera::io {
namespace {

const std::string bnb_golden = TESSERA_TEST_DATA "/../models/golden/qwen3";
constexpr const char* bnb_name = "model.layers.1.mlp.down_proj.weight";

std::vector<StoredTensor> tensors_of(const SafetensorsFile& file) {
  std::vector<StoredTensor> tensors;
  for (const SafetensorsEntry& entry : file.entries()) tensors.push_back({&file, &entry});
  return tensors;
}

TEST(BnbTensors, HaveTheBytesThatAreMadeHere) {
  const SafetensorsFile plain(bnb_golden + "/model.safetensors");
  int found = 0;
  for (const auto& [folder, format] : {std::pair{"/bnb-nf4", QuantFormat::nf4},
                                       {"/bnb-nf4-single", QuantFormat::nf4_single},
                                       {"/bnb-fp4", QuantFormat::fp4_single},
                                       {"/bnb-int8", QuantFormat::int8}}) {
    const SafetensorsFile file(bnb_golden + folder + "/model.safetensors");
    const BnbTensors tensors(tensors_of(file));
    for (const SafetensorsEntry& entry : plain.entries()) {
      const BnbMatrix* stored = tensors.find(entry.name);
      if (stored == nullptr) continue;
      ++found;
      EXPECT_EQ(stored->shape(), entry.shape);
      EXPECT_EQ(stored->matrix().format, format);
      std::vector<std::byte> made(static_cast<std::size_t>(stored->matrix().bytes())), read(made.size());
      kernels::Quantizer(stored->matrix(), [&](std::int64_t first, std::int64_t count, float* to) {
        plain.read(entry, first, count, to);
      }).read(0, made);
      for (std::size_t at = 0; at < read.size(); at += 37)
        stored->read_bytes(static_cast<std::int64_t>(at),
                           std::span(read).subspan(at, std::min<std::size_t>(37, read.size() - at)));
      const auto apart = std::ranges::mismatch(read, made).in1 - read.begin();
      EXPECT_TRUE(read == made) << entry.name << " differs at byte " << apart << " of " << read.size()
                                << ", codes end at " << stored->matrix().code_bytes();
    }
    EXPECT_FALSE(tensors.is_part("model.norm.weight"));
    EXPECT_EQ(tensors.find("model.norm.weight"), nullptr);
  }
  EXPECT_EQ(found, 4 * 2 * 7);  // formats, layers, projections
}

TEST(BnbTensors, ReadElementsOfAnyRange) {
  for (const char* folder : {"/bnb-nf4", "/bnb-nf4-single", "/bnb-fp4", "/bnb-int8"}) {
    const SafetensorsFile file(bnb_golden + folder + "/model.safetensors");
    const BnbTensors tensors(tensors_of(file));
    const BnbMatrix* matrix = tensors.find(bnb_name);
    ASSERT_NE(matrix, nullptr);
    std::vector<float> whole(static_cast<std::size_t>(matrix->matrix().numel())), parts(whole.size());
    matrix->read_elements(0, matrix->matrix().numel(), whole.data());
    for (std::size_t at = 0; at < parts.size(); at += 101)
      matrix->read_elements(static_cast<std::int64_t>(at),
                            static_cast<std::int64_t>(std::min<std::size_t>(101, parts.size() - at)),
                            parts.data() + at);
    EXPECT_EQ(parts, whole);
    EXPECT_GT(*std::ranges::max_element(whole), 0.0F);
  }
}

/// The error of a copy in which one text is another of the same length.
std::string error_with(const char* folder, const std::string& text, const std::string& other) {
  const test::TempDir dir;
  std::string bytes = test::bytes_of(bnb_golden + folder + "/model.safetensors");
  const std::size_t at = bytes.find(text);
  EXPECT_NE(at, std::string::npos) << text;
  EXPECT_EQ(text.size(), other.size());
  bytes.replace(at, text.size(), other);
  const SafetensorsFile file(dir.file("model.safetensors", bytes));
  try {
    const BnbTensors tensors(tensors_of(file));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return error.line();
  }
  return "read";
}

TEST(BnbTensors, OtherFormsAreRefusedByName) {
  using testing::HasSubstr;
  EXPECT_THAT(error_with("/bnb-nf4", "bitsandbytes__nf4", "bitsandbytes__fp4"), HasSubstr("has another code than fp4"));
  EXPECT_THAT(error_with("/bnb-nf4", "weight.absmax\"", "weight.absmin\""), HasSubstr("absmax"));
  EXPECT_THAT(error_with("/bnb-nf4", "\"blocksize\": 64", "\"blocksize\": 32"), HasSubstr("only 64 is supported"));
  EXPECT_THAT(error_with("/bnb-nf4", "\"nested_offset\"", "\"nested_offseT\""),
              HasSubstr("weight.absmax\" is U8 of"));  // without double quantization they are in fp32
  EXPECT_THAT(error_with("/bnb-nf4", "0.25782012939453125", "\"xxxxxxxxxxxxxxxxx\""),
              HasSubstr("has a nested_offset that is no number"));
  EXPECT_THAT(error_with("/bnb-nf4-single", "bitsandbytes__nf4", "bitsandbytes__fp4"),
              HasSubstr("has another code than fp4"));
  EXPECT_THAT(error_with("/bnb-fp4", "\"blocksize\": 64", "\"blocksize\": 32"), HasSubstr("only 64 is supported"));
  EXPECT_THAT(error_with("/bnb-nf4", "\"nested_blocksize\": 256", "\"nested_blocksize\": 512"),
              HasSubstr("nested blocks"));
  EXPECT_THAT(error_with("/bnb-nf4", "\"shape\": [", "\"shapE\": ["), HasSubstr("is no matrix"));
  EXPECT_EQ(error_with("/bnb-nf4", "{", "{"), "read");
}

/// Reads a tensor of a model directory, of these matrices one after another, as quantized parameters.
std::vector<std::byte> read_as(const std::string& directory, const std::string& tensor, const QuantizedMatrix& matrix,
                               int matrices = 1) {
  std::vector<ParamSpec> params;
  std::vector<shard::UnitSpec> units(1);
  units[0] = {.name = "all", .params = {}, .trainable = false, .storage_dtype = DType::u8};
  TensorUse use{.parts = {}, .shape = {matrices * matrix.rows, matrix.columns}, .same_as = ""};
  for (int i = 0; i < matrices; ++i) {
    params.push_back({.name = "matrix." + std::to_string(i),
                      .shape = {matrix.bytes()},
                      .trainable = false,
                      .storage_dtype = DType::u8,
                      .quantized = matrix});
    units[0].params.push_back(i);
    use.parts.push_back(params.back().name);
  }
  const shard::ShardLayout layout(params, units, Mesh(1, 1));
  std::vector<std::byte> bytes(static_cast<std::size_t>(layout.shard_numel(0)));
  run_local(1, [&](World& world) {
    const std::vector<ShardView> views = {
        {.unit = 0, .shard = 0, .data = {bytes.data(), DType::u8, Shape{layout.shard_numel(0)}}}};
    (void)read_model(world, directory, params, layout, views,
                     [&](const std::string& name) { return name == tensor ? use : TensorUse{}; });
  });
  bytes.resize(static_cast<std::size_t>(matrices * matrix.bytes()));
  return bytes;
}

TEST(BnbTensors, NothingIsQuantizedInAModelThatCameQuantized) {
  using test::expect_error;
  const std::string embedding = "model.embed_tokens.weight";
  const QuantizedMatrix whole{QuantFormat::nf4, 26, 38}, half{QuantFormat::nf4, 13, 38},
      floats{QuantFormat::nf4, 67, 26};
  EXPECT_TRUE(read_as(bnb_golden, bnb_name, whole) == read_as(bnb_golden + "/bnb-nf4", bnb_name, whole));
  (void)read_as(bnb_golden, embedding, floats);  // quantized here
  (void)read_as(bnb_golden, bnb_name, half, 2);
  const auto refused = [&](const std::string& directory, const std::string& name, const QuantizedMatrix& matrix,
                           const std::string& text, int matrices = 1) {
    expect_error(ExitCode::data, "tensor \"" + name + "\" is " + text,
                 [&] { (void)read_as(directory, name, matrix, matrices); });
  };
  refused(bnb_golden + "/bnb-nf4", embedding, floats, "in floats, and the run needs nf4 [67, 26]");
  refused(bnb_golden + "/bnb-nf4", bnb_name, half, "nf4 [26, 38], and the run needs nf4 [13, 38]", 2);
  refused(bnb_golden + "/bnb-nf4-single", bnb_name, whole, "nf4_single [26, 38], and the run needs nf4 [26, 38]");
  refused(bnb_golden + "/bnb-int8", bnb_name, whole, "int8 [26, 38], and the run needs nf4 [26, 38]");
  const test::TempDir dir;  // the config says that they are quantized, and none is
  dir.file("model.safetensors", test::bytes_of(bnb_golden + "/model.safetensors"));
  dir.file("config.json", test::bytes_of(bnb_golden + "/bnb-nf4/config.json"));
  refused(dir.path(), bnb_name, whole, "in floats");
}

}  // namespace
}  // namespace tessera::io
