// SPDX-License-Identifier: Apache-2.0
// safetensors: values, the official writer's bytes, and a broken file for each rule of the header.

#include "io/model/safetensors.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/io/files.hpp"

namespace tessera {
namespace {

using io::SafetensorsFile;
using test::expect_error;
using test::safetensors_of;
using test::TempDir;

const std::string golden = std::string(TESSERA_TEST_DATA) + "/golden/official.safetensors";

std::vector<float> values(const SafetensorsFile& file, const std::string& name) {
  const auto* entry = file.find(name);
  if (entry == nullptr) return {};
  std::vector<float> out(static_cast<std::size_t>(entry->numel()));
  file.read(*entry, 0, entry->numel(), out.data());
  return out;
}

TEST(Safetensors, ReadsWhatTheOfficialWriterWrote) {
  const SafetensorsFile file(golden);
  EXPECT_EQ(file.entries().size(), 10u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(values(file, "h.0.ln_1.weight"), (std::vector<float>{0, 1.0F / 3, 2.0F / 3, 1, 4.0F / 3}));
  EXPECT_EQ(values(file, "wte.weight"), (std::vector<float>{-6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5}));
  const float inf = std::numeric_limits<float>::infinity();
  const auto half = values(file, "a.half");
  EXPECT_EQ(half, (std::vector<float>{1, -2.5F, 65504, 0x1p-24F, inf, 0}));
  EXPECT_TRUE(std::signbit(half[5]));
  EXPECT_EQ(values(file, "z.double"), (std::vector<float>{0.1F, 0}));
  EXPECT_EQ(values(file, "scalar"), std::vector<float>{2.5F});
  EXPECT_TRUE(values(file, "empty").empty());
  EXPECT_EQ(file.find("empty")->shape, (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(values(file, "odd \"name\" é\\"), std::vector<float>{1});
  EXPECT_EQ(file.find("not there"), nullptr);
  expect_error(ExitCode::data, "\"counts\" is I64", [&] { (void)values(file, "counts"); });
}

TEST(Safetensors, ReadsSlicesAndCountsTheirBytes) {
  const SafetensorsFile file(golden);
  const std::uint64_t before = file.bytes_read();
  float out[2] = {};
  file.read(*file.find("wte.weight"), 7, 2, out);
  EXPECT_EQ(out[0], 1);
  EXPECT_EQ(out[1], 2);
  EXPECT_EQ(file.bytes_read() - before, 4u);
  EXPECT_THROW(file.read(*file.find("wte.weight"), 11, 2, out), std::logic_error);
}

TEST(Safetensors, PlansTheOfficialWritersHeader) {
  using io::SafetensorsTensor;
  const std::vector<SafetensorsTensor> tensors = {{"h.0.ln_1.weight", DType::f32, {5}},
                                                  {"wte.weight", DType::bf16, {4, 3}},
                                                  {"a.half", DType::f16, {6}},
                                                  {"z.double", DType::f64, {2, 1}},
                                                  {"counts", DType::i64, {2}},
                                                  {"counts.32", DType::i32, {1}},
                                                  {"mask", DType::u8, {3}},
                                                  {"empty", DType::f32, {0, 4}},
                                                  {"scalar", DType::f32, {}},
                                                  {"odd \"name\" é\\", DType::f32, {1}}};
  const auto plan = io::plan_safetensors(tensors, {{"format", "pt"}});
  const std::string official = test::bytes_of(golden);
  EXPECT_EQ(plan.file_bytes, official.size());
  EXPECT_EQ(plan.header, official.substr(0, plan.header.size()));
}

TEST(Safetensors, PlanRefusesNamesThatAreTaken) {
  expect_error(ExitCode::data, "taken", [] {
    (void)io::plan_safetensors({{"a", DType::f32, {1}}, {"a", DType::f32, {2}}}, {});
  });
  expect_error(ExitCode::data, "taken", [] { (void)io::plan_safetensors({{"__metadata__", DType::f32, {1}}}, {}); });
  expect_error(ExitCode::data, "UTF-8", [] { (void)io::plan_safetensors({{"\xff", DType::f32, {1}}}, {}); });
}

TEST(Safetensors, SixteenBitFloatsAreConvertedExactly) {
  TempDir folder;
  std::string bytes = safetensors_of(
      R"({"bf16":{"dtype":"BF16","shape":[65536],"data_offsets":[0,131072]},"f16":{"dtype":"F16","shape":[65536],)"
      R"("data_offsets":[131072,262144]}})",
      0);
  for (std::uint32_t i = 0; i < 2 * 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    bytes.append(reinterpret_cast<const char*>(&bits), sizeof bits);
  }
  const SafetensorsFile file(folder.file("x.safetensors", bytes));
  const std::vector<float> bf16 = values(file, "bf16"), f16 = values(file, "f16");
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const int sign = (bits & 0x8000) != 0 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const float got = f16[bits];
    if (exponent == 31 && fraction != 0) {
      EXPECT_TRUE(std::isnan(got));
    } else if (exponent == 31) {
      EXPECT_EQ(got, sign * std::numeric_limits<float>::infinity());
    } else {
      const double want =
          sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
      ASSERT_EQ(static_cast<double>(got), want) << bits;
      ASSERT_EQ(std::signbit(got), sign < 0) << bits;
    }
    std::uint32_t back = 0;
    std::memcpy(&back, &bf16[bits], 4);
    ASSERT_EQ(back, bits << 16);
  }
}

TEST(Safetensors, RefusesAnFp64BeyondFp32) {
  TempDir folder;
  const double numbers[] = {1.0, 1e300, std::numeric_limits<double>::infinity()};
  std::string bytes = safetensors_of(R"({"x":{"dtype":"F64","shape":[3],"data_offsets":[0,24]}})", 0);
  bytes.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
  const SafetensorsFile file(folder.file("x.safetensors", bytes));
  expect_error(ExitCode::data, "element 1 of tensor \"x\" is too large", [&] { (void)values(file, "x"); });
  float out = 0;
  file.read(*file.find("x"), 2, 1, &out);
  EXPECT_TRUE(std::isinf(out));
}

TEST(Safetensors, LargeTensorsAreReadInParts) {
  TempDir folder;
  const std::int64_t n = (1 << 20) + 7;  // more than is read at a time
  std::string bytes = safetensors_of(strfmt(R"({"x":{"dtype":"BF16","shape":[%lld],"data_offsets":[0,%lld]}})",
                                            static_cast<long long>(n), static_cast<long long>(2 * n)),
                                     0);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    bytes.append(reinterpret_cast<const char*>(&bits), 2);
  }
  const SafetensorsFile file(folder.file("x.safetensors", bytes));
  std::vector<float> out(static_cast<std::size_t>(n));
  file.read(*file.find("x"), 0, n, out.data());
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &out[static_cast<std::size_t>(i)], 4);
    ASSERT_EQ(bits, static_cast<std::uint32_t>(static_cast<std::uint16_t>(i)) << 16);
  }
}

struct Broken {
  const char* words;  // of the message
  const char* code;
  std::string json;
  std::size_t data = 4;
};

TEST(Safetensors, EveryRuleIsRefusedByName) {
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::vector<Broken> all = {
      {"does not begin with", "E103", "", 4},
      {"does not begin with", "E103", "[1]", 4},
      {"does not begin with", "E103", " {}", 0},
      {"not JSON", "E103", "{" + a, 4},
      {"not JSON", "E103", "{" + a + "} x", 4},
      {"not JSON", "E103", R"({"a":nan})", 0},
      {"not JSON", "E103", "{\"\xff\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1},
      {"a zero byte", "E103", "{" + a + "}" + std::string(1, '\0') + "garbage", 4},
      {"\"a\" occurs twice", "E104", "{" + a + "," + a + "}", 4},
      {"\"__metadata__\" occurs twice", "E104", R"({"__metadata__":{},"__metadata__":{}})", 0},
      {"metadata has \"x\" twice", "E104", R"({"__metadata__":{"x":"1","x":"2"}})", 0},
      {"metadata \"x\" is a number", "E103", R"({"__metadata__":{"x":1}})", 0},
      {"metadata \"x\" is an object", "E103", R"({"__metadata__":{"x":{}}})", 0},
      {"\"__metadata__\" is a string", "E103", R"({"__metadata__":"pt"})", 0},
      {"\"a\" is null", "E103", R"({"a":null})", 0},
      {"\"a\" is a list", "E103", R"({"a":[]})", 0},
      {"unknown dtype \"F33\"", "E105", R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})"},
      {"has an unknown key \"extra\"", "E103", R"({"a":{"dtype":"F32","extra":1,"shape":[1],"data_offsets":[0,4]}})"},
      {"has \"shape\" twice", "E104", R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})"},
      {"has no dtype", "E103", R"({"a":{"shape":[1],"data_offsets":[0,4]}})"},
      {"has no shape", "E103", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})"},
      {"has no data_offsets", "E103", R"({"a":{"dtype":"F32","shape":[1]}})"},
      {"a list in \"dtype\"", "E103", R"({"a":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})"},
      {"a string in \"shape\"", "E103", R"({"a":{"dtype":"F32","shape":"1","data_offsets":[0,4]}})"},
      {"a negative number", "E103", R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})"},
      {"not an integer of 64 bits", "E103", R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})"},
      {"not an integer of 64 bits", "E103",
       R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})"},
      {"absurd shape", "E106", R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})"},
      {"overflows", "E106", R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})"},
      {"overflows", "E106", R"({"a":{"dtype":"F64","shape":[576460752303423488],"data_offsets":[0,4]}})"},
      {"not two numbers", "E103", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})"},
      {"a number in \"data_offsets\"", "E103", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})"},
      {"ends before", "E108", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})"},
      {"beyond the end", "E109", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"},
      {"beyond the end", "E109",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551615]}})"},
      {"dtype and shape make 8", "E107", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})"},
      {"whole bytes", "E107", R"({"a":{"dtype":"F4","shape":[7],"data_offsets":[0,4]}})"},
      {"a hole before tensor \"a\"", "E108", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8},
      {"an overlap before tensor \"b\"", "E108",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       8},
      {"the last tensor ends at byte 4", "E109", "{" + a + "}", 5},
      {"the last tensor ends at byte 0", "E109", "{}", 1},
      {"an object", "E103", R"({"a":{"dtype":{"x":{}},"shape":[1],"data_offsets":[0,4]}})"},
      {"a list in \"shape\"", "E103", R"({"a":{"dtype":"F32","shape":[)" + std::string(100000, '[') + "]}}"},
  };
  TempDir folder;
  for (const auto& broken : all) {
    const std::string path = folder.file("x.safetensors", safetensors_of(broken.json, broken.data));
    SCOPED_TRACE(broken.json.substr(0, 200));
    expect_error(ExitCode::data, broken.words, [&] { SafetensorsFile file(path); });
    expect_error(ExitCode::data, broken.code + std::string(" "), [&] { SafetensorsFile file(path); });
    expect_error(ExitCode::data, path, [&] { SafetensorsFile file(path); });
  }
}

TEST(Safetensors, LegalOdditiesAreRead) {
  TempDir folder;
  const auto open = [&](const std::string& json, std::size_t data) {
    return SafetensorsFile(folder.file("x.safetensors", safetensors_of(json, data)));
  };
  EXPECT_TRUE(open("{}", 0).entries().empty());
  EXPECT_EQ(open(R"({"b":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}}   )", 3).find("b")->known_dtype, false);
  EXPECT_EQ(open(R"({"":{"dtype":"F4","shape":[8],"data_offsets":[0,4]}})", 4).entries().size(), 1u);
  // Empty tensors at one offset, in any order, beside one that has bytes.
  EXPECT_EQ(
      open(
          R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
          R"("f":{"dtype":"F32","shape":[0,9],"data_offsets":[2,2]}})",
          2)
          .entries()
          .size(),
      3u);
}

TEST(Safetensors, LengthsOfTheHeader) {
  TempDir folder;
  const auto with_length = [&](std::uint64_t length) {
    return folder.file("x.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + "{}");
  };
  expect_error(ExitCode::data, "E101 ", [&] { SafetensorsFile f(folder.file("x", std::string(7, '\0'))); });
  expect_error(ExitCode::data, "only 7 bytes", [&] { SafetensorsFile f(folder.file("x", std::string(7, '\0'))); });
  expect_error(ExitCode::data, "only 0 bytes", [&] { SafetensorsFile f(folder.file("x", "")); });
  expect_error(ExitCode::data, "a header of 3 bytes in a file of 10", [&] { SafetensorsFile f(with_length(3)); });
  expect_error(ExitCode::data, "E102 ", [&] { SafetensorsFile f(with_length(~std::uint64_t{0})); });
  expect_error(ExitCode::data, "more than 100000000", [&] { SafetensorsFile f(with_length(~std::uint64_t{0})); });
  (void)test::allocated_bytes();
  expect_error(ExitCode::data, "a header of 100000000 bytes", [&] { SafetensorsFile f(with_length(100'000'000)); });
  EXPECT_LT(test::allocated_bytes(), 64u << 10);
}

}  // namespace
}  // namespace tessera
