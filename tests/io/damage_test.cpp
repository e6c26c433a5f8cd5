// SPDX-License-Identifier: Apache-2.0
// Damaged files of every kind: truncated at every byte, and with random bit flips. Never a crash, never much memory,
// and truncated files are refused.

#include <filesystem>

#include "io/config/yaml.hpp"
#include "io/data/dataset.hpp"
#include "io/model/safetensors.hpp"
#include "runtime/base/rng.hpp"
#include "tests/io/files.hpp"

namespace tessera::damage {
namespace {

using test::TempDir;

/// Opens the file and reads everything in it; true if it was accepted.
using Use = bool (*)(const std::string& path);

bool accepted(const std::function<void()>& action) {
  try {
    action();
    return true;
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ExitCode::data || error.code() == ExitCode::usage) << error.line();
    return false;
  }
}

bool use_safetensors(const std::string& path) {
  return accepted([&] {
    const io::SafetensorsFile file(path);
    for (const auto& entry : file.entries()) {
      std::vector<float> out(static_cast<std::size_t>(entry.numel()));
      if (entry.known_dtype && entry.dtype == DType::f32) file.read(entry, 0, entry.numel(), out.data());
    }
  });
}
bool use_dataset(const std::string& path) {
  return accepted([&] {
    const auto data = io::open_dataset({path});
    std::vector<std::int32_t> ids(static_cast<std::size_t>(data.tokens->size()));
    data.tokens->read(0, data.tokens->size(), ids.data());
    for (const auto id : ids) EXPECT_GE(id, 0);
  });
}
bool use_config(const std::string& path) {
  return accepted([&] { (void)io::read_config(path); });
}

/// Flips one to four bits of `bytes`, `rounds` times; returns how many of the results were accepted.
int flip(const std::string& name, const std::string& bytes, Use use, int rounds) {
  TempDir folder;
  int count = 0;
  for (int round = 0; round < rounds; ++round) {
    std::string damaged = bytes;
    const auto key = static_cast<std::uint64_t>(round);
    for (std::uint64_t k = 0; k <= philox(key, 0)[0] % 4; ++k) {
      const auto word = philox(key, 1 + k);
      damaged[word[0] % damaged.size()] ^= static_cast<char>(1u << (word[1] % 8));
    }
    const std::string path = folder.file(name, damaged);
    (void)test::allocated_bytes();
    if (use(path)) ++count;
    EXPECT_LT(test::allocated_bytes(), 64 * bytes.size() + (64u << 10)) << "round " << round;
  }
  return count;
}

/// Every proper prefix; returns how many were accepted.
int cut(const std::string& name, const std::string& bytes, Use use) {
  TempDir folder;
  int count = 0;
  for (std::size_t length = 0; length < bytes.size(); ++length)
    if (use(folder.file(name, bytes.substr(0, length)))) ++count;
  return count;
}

const std::string safetensors =
    test::safetensors_of(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                         R"("b":{"dtype":"F32","shape":[],"data_offsets":[24,28]}}   )",
                         28);
const std::string tokens16 = test::token_file_of(20240520, 1, 5, "abcdefghij");
const std::string tokens32 = test::token_file_of(20240801, 7, 2, std::string("ab\0\0cd\0\0", 8));
const std::string lines =
    "{\"text\": \"one\\n\\u00e9\"}\n{\"id\": {}, \"text\": \"two\", \"more\": [], \"none\": null}\n";

TEST(Damage, NoPrefixOfASafetensorsFileIsAccepted) {
  TempDir folder;
  ASSERT_TRUE(use_safetensors(folder.file("x", safetensors)));
  EXPECT_EQ(cut("x", safetensors, use_safetensors), 0);
}

TEST(Damage, NoPrefixOfATokenFileIsAccepted) {
  TempDir folder;
  for (const auto& bytes : {tokens16, tokens32}) {
    ASSERT_TRUE(use_dataset(folder.file("x.bin", bytes)));
    EXPECT_EQ(cut("x.bin", bytes, use_dataset), 0);
    EXPECT_FALSE(use_dataset(folder.file("x.bin", bytes + "x")));
  }
}

TEST(Damage, APrefixOfJsonLinesIsAcceptedOnlyAtTheEndOfALine) {
  TempDir folder;
  ASSERT_TRUE(use_dataset(folder.file("x.jsonl", lines)));
  // "...}" and "...}\n" of the first line, and the file without the last newline.
  EXPECT_EQ(cut("x.jsonl", lines, use_dataset), 3);
}

TEST(Damage, BitFlips) {
  // Rules determine most bits of a safetensors file, but not the data (28 of 186 bytes), names and metadata.
  EXPECT_LT(flip("x", safetensors, use_safetensors, 3000), 1500);
  flip("x.bin", tokens16, use_dataset, 500);
  flip("x.bin", tokens32, use_dataset, 500);
  flip("x.jsonl", lines, use_dataset, 2000);
  flip("x.txt", lines, use_dataset, 500);
  flip("x.yaml", "model: ./m\nlist: [1, 2.5, 'x']\nblock: {a: b, c: \"d\\n\"}\ntext: |\n  two\n  lines\n", use_config,
       2000);
  flip("x.json", "{\"a\": [1, 2.5e3, \"x\"],\n \"b\": {\"c\": null, \"d\": true}}\n", use_config, 2000);
}

}  // namespace
}  // namespace tessera::damage
