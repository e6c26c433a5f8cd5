// SPDX-License-Identifier: Apache-2.0
// Damage to a checkpoint directory: flipped bits, truncated, swapped and missing files are found by a load and named.

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "io/checkpoint/blocks.hpp"
#include "io/checkpoint/directory.hpp"
#include "runtime/base/rng.hpp"
#include "tests/fault_injection/saved_state.hpp"
#include "tests/io/files.hpp"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;
using io::Manifest;

/// The error of reading every block of every file, as verification does without a model.
std::string blocks_say(const std::string& directory) {
  try {
    const Manifest manifest = io::read_manifest(directory);
    io::check_headers(directory, manifest);
    for (const auto& file : manifest.files) {
      io::BlockReader reader(directory + "/" + file.name, file);
      for (std::uint64_t block = 0; block * io::block_bytes < file.bytes; ++block) (void)reader.block(block);
    }
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data) << error.line();
    return error.line();
  }
}

void flip(const std::string& path, std::uint64_t byte, int bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(byte));
  const int value = file.get();
  file.seekp(static_cast<std::streamoff>(byte));
  file.put(static_cast<char>(value ^ (1 << bit)));
  ASSERT_TRUE(file.good()) << path << " byte " << byte;
}

/// The bytes of a checkpoint directory by kind.
struct ByteClass {
  const char* name;
  std::vector<std::tuple<std::string, std::uint64_t, std::uint64_t>> ranges;  // file, first, past the last
};
std::vector<ByteClass> byte_classes(const std::string& directory, const Manifest& manifest) {
  ByteClass data{"data", {}}, headers{"headers", {}}, gaps{"gaps", {}}, text{"manifest", {}},
      attached{"attachments", {}};
  for (const auto& file : manifest.files) {
    std::uint64_t at = 0;
    for (const auto& set : file.datasets) {
      if (set.offset > at) (at == 0 ? headers : gaps).ranges.emplace_back(file.name, at, set.offset);
      data.ranges.emplace_back(file.name, set.offset, set.offset + set.bytes);
      at = set.offset + set.bytes;
    }
    if (at < file.bytes) gaps.ranges.emplace_back(file.name, at, file.bytes);
  }
  text.ranges.emplace_back(io::manifest_name, 0, fs::file_size(directory + "/" + io::manifest_name));
  for (const auto& a : manifest.auxiliary_files) attached.ranges.emplace_back(a.name, 0, a.bytes);
  return {data, headers, gaps, text, attached};
}

struct Flip {
  std::string file;
  std::uint64_t byte = 0;
  int bit = 0;
};
Flip draw(const ByteClass& from, std::uint64_t round) {
  std::uint64_t total = 0;
  for (const auto& [file, first, last] : from.ranges) total += last - first;
  const auto word = philox(2026, round);
  std::uint64_t pick = ((std::uint64_t{word[0]} << 32) | word[1]) % total;
  for (const auto& [file, first, last] : from.ranges) {
    if (pick < last - first) return {file, first + pick, static_cast<int>(word[2] % 8)};
    pick -= last - first;
  }
  return {};
}

/// The line names the file, and of a state file the block and the one tensor that was hit, or none.
void expect_named(const std::string& line, const Flip& flip, const Manifest& manifest) {
  ASSERT_NE(line, "") << "not found";
  EXPECT_THAT(line, testing::HasSubstr(flip.file));
  for (const auto& file : manifest.files) {
    if (file.name != flip.file) continue;
    EXPECT_THAT(line,
                testing::HasSubstr(strfmt("block %llu", static_cast<unsigned long long>(flip.byte / io::block_bytes))));
    std::string hit = "the file's headers or the gaps between data sets";
    for (const auto& set : file.datasets)
      if (flip.byte >= set.offset && flip.byte < set.offset + set.bytes) hit = set.path;
    EXPECT_TRUE(line.ends_with("damaged: " + hit)) << line << " instead of " << hit;
  }
}

void flip_bits(const TestTensors& tensors, std::uint64_t file_bytes, int rounds, int ranks,
               TempDir::Storage storage = TempDir::Storage::memory) {
  const TempDir folder(storage);
  const std::string directory = folder / "checkpoint-3";
  make_checkpoint(tensors, directory, 3, file_bytes);
  const Manifest manifest = io::read_manifest(directory);
  const auto classes = byte_classes(directory, manifest);
  for (const auto& c : classes) ASSERT_FALSE(c.ranges.empty()) << "no bytes of class " << c.name;
  ASSERT_EQ(load_says(tensors, directory, ranks), "");
  ASSERT_EQ(blocks_say(directory), "");
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    const ByteClass& from = classes[static_cast<std::size_t>(round) % classes.size()];
    const Flip one = draw(from, static_cast<std::uint64_t>(round));
    SCOPED_TRACE(strfmt("round %d: bit %d of byte %llu of %s (%s)", round, one.bit,
                        static_cast<unsigned long long>(one.byte), one.file.c_str(), from.name));
    flip(directory + "/" + one.file, one.byte, one.bit);
    expect_named(load_says(tensors, directory, ranks), one, manifest);
    if (std::string(from.name) != "attachments") expect_named(blocks_say(directory), one, manifest);
    flip(directory + "/" + one.file, one.byte, one.bit);
  }
  EXPECT_EQ(load_says(tensors, directory, ranks), "");
}

TEST(Damage, AnyFlippedBitIsFoundAndNamed) { flip_bits(small_tensors(), io::SaveRequest::default_file_bytes, 1000, 1); }
TEST(Damage, AlsoInOneOfSeveralFilesAndOnSeveralRanks) { flip_bits(small_tensors(), 4000, 200, 3); }
TEST(Damage, OfSeveralBlocksTheBlockAndItsTensorsAreNamed) {
  flip_bits(large_tensors(), io::SaveRequest::default_file_bytes, 15, 2, TempDir::Storage::disk);
}

TEST(Damage, ATruncatedFileIsRefused) {
  const TempDir folder(TempDir::Storage::memory);
  const TestTensors tensors = small_tensors();
  const std::string directory = folder / "checkpoint-3";
  make_checkpoint(tensors, directory, 3, 6000);
  for (const auto& name :
       {std::string(io::manifest_name), io::read_manifest(directory).files.at(0).name, std::string("config.json")}) {
    const std::string path = directory + "/" + name, bytes = bytes_of(path);
    for (int i = 0; i < 20; ++i) {
      fs::resize_file(path, bytes.size() * static_cast<std::size_t>(i) / 20);
      const std::string line = load_says(tensors, directory);
      EXPECT_THAT(line, testing::HasSubstr(name)) << i << "/20 of " << name;
      if (name != "config.json") { EXPECT_NE(io::list_checkpoints(folder.path()).at(0).problem, "") << name; }
      std::ofstream(path, std::ios::binary) << bytes;
    }
    std::ofstream(path, std::ios::binary) << bytes << 'x';
    EXPECT_THAT(load_says(tensors, directory), testing::HasSubstr(name)) << "a byte more";
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_EQ(load_says(tensors, directory), "");
  }
}

TEST(Damage, AMissingFileIsNamed) {
  const TempDir folder(TempDir::Storage::memory);
  const TestTensors tensors = small_tensors();
  const std::string directory = folder / "checkpoint-3";
  make_checkpoint(tensors, directory, 3, 6000);
  const Manifest manifest = io::read_manifest(directory);
  std::vector<std::string> names = {io::manifest_name, "config.json"};
  for (const auto& file : manifest.files) names.push_back(file.name);
  for (const auto& name : names) {
    fs::rename(directory + "/" + name, folder / "aside");
    EXPECT_THAT(load_says(tensors, directory, 2), testing::HasSubstr(name));
    // Something else of that name, which must not block the reader or be followed.
    fs::create_directory(directory + "/" + name);
    EXPECT_THAT(load_says(tensors, directory), testing::HasSubstr(name)) << "a directory";
    fs::remove(directory + "/" + name);
    ASSERT_EQ(::mkfifo((directory + "/" + name).c_str(), 0644), 0);
    EXPECT_THAT(load_says(tensors, directory), testing::HasSubstr(name)) << "a pipe";
    fs::remove(directory + "/" + name);
    std::ofstream(directory + "/" + name) << "";
    EXPECT_THAT(load_says(tensors, directory), testing::HasSubstr(name)) << "nothing";
    fs::rename(folder / "aside", directory + "/" + name);
  }
  EXPECT_EQ(load_says(tensors, directory), "");
}

TEST(Damage, FilesOfAnotherSaveOrOfEachOtherAreFound) {
  const TempDir folder(TempDir::Storage::memory);
  const TestTensors tensors = small_tensors();
  make_checkpoint(tensors, folder / "checkpoint-3", 3, 6000);
  make_checkpoint(tensors, folder / "checkpoint-4", 4, 6000);
  const Manifest manifest = io::read_manifest(folder / "checkpoint-3");
  ASSERT_GT(manifest.files.size(), 2u);
  for (const auto& file : manifest.files) {  // of the same name and size, one step on
    const std::string mine = folder / "checkpoint-3" + "/" + file.name, bytes = bytes_of(mine);
    std::ofstream(mine, std::ios::binary) << bytes_of(folder / "checkpoint-4" + "/" + file.name);
    EXPECT_THAT(load_says(tensors, folder / "checkpoint-3", 2), testing::HasSubstr(file.name));
    std::ofstream(mine, std::ios::binary) << bytes;
  }
  const std::string a = folder / "checkpoint-3" + "/" + manifest.files[0].name,
                    b = folder / "checkpoint-3" + "/" + manifest.files[1].name;
  fs::rename(a, folder / "aside");
  fs::rename(b, a);
  fs::rename(folder / "aside", b);
  EXPECT_THAT(load_says(tensors, folder / "checkpoint-3"), testing::HasSubstr(manifest.files[0].name));
  fs::rename(a, folder / "aside");
  fs::rename(b, a);
  fs::rename(folder / "aside", b);
  // The manifest of another step: its sizes are right, its checksums are not.
  fs::rename(folder / "checkpoint-3/manifest.json", folder / "aside");
  fs::copy_file(folder / "checkpoint-4/manifest.json", folder / "checkpoint-3/manifest.json");
  EXPECT_NE(load_says(tensors, folder / "checkpoint-3"), "");
}

TEST(Damage, UnknownFilesAreIgnored) {
  const TempDir folder(TempDir::Storage::memory);
  const TestTensors tensors = small_tensors();
  make_checkpoint(tensors, folder / "checkpoint-3");
  std::ofstream(folder / "checkpoint-3/notes.txt") << "mine";
  std::ofstream(folder / "checkpoint-3/state-00009-of-00009.h5") << "not of this one";
  for (const char* name : {"checkpoint-", "checkpoint-07", "checkpoint-9x", "checkpoint-9.tmp", "checkpoint--1",
                           "checkpoint-99999999999999999999", "xcheckpoint-9"})
    fs::create_directory(folder / name);
  std::ofstream(folder / "checkpoint-12") << "a file";
  fs::create_directory_symlink(folder / "checkpoint-3", folder / "checkpoint-11");
  const auto found = io::list_checkpoints(folder.path());
  ASSERT_FALSE(found.empty());
  std::vector<std::int64_t> intact;
  for (const auto& one : found)
    if (one.problem.empty()) intact.push_back(one.step);
  EXPECT_EQ(intact, std::vector<std::int64_t>{3});
  EXPECT_EQ(load_says(tensors, folder / "checkpoint-3"), "");
}

TEST(Damage, OtherModelsAreRefused) {
  const TempDir folder(TempDir::Storage::memory);
  const std::string directory = folder / "checkpoint-3";
  make_checkpoint(small_tensors(), directory);
  TestTensors more = small_tensors();
  more.params.push_back({.name = "h.2.extra", .shape = {3}, .init = {}});
  more.units.back().params.push_back(11);
  EXPECT_THAT(load_says(more, directory), testing::HasSubstr("h.2.extra"));
  TestTensors shape = small_tensors();
  shape.params[3].shape = {30, 10};
  EXPECT_THAT(load_says(shape, directory, 2), testing::HasSubstr("h.0.attn.c_attn.weight"));
  TestTensors fewer = small_tensors();
  fewer.params.pop_back();
  fewer.units.back().params.pop_back();
  EXPECT_THAT(load_says(fewer, directory), testing::HasSubstr("ln_f.bias"));
}

}  // namespace
}  // namespace tessera::test
