// SPDX-License-Identifier: Apache-2.0
// Megatron's token files: golden files made with numpy, and damaged ones, which are refused by name.

#include "io/data/megatron.hpp"

#include <cstring>
#include <filesystem>

#include "io/data/data_files.hpp"
#include "io/data/documents.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

using test::expect_error;
using test::TempDir;
using Ids = std::vector<std::int32_t>;
using Ends = std::vector<std::int64_t>;

const std::string folder_of_golden = std::string(TESSERA_TEST_DATA) + "/golden/megatron/";

Ids all(const std::string& path) {
  const io::Dataset data = io::open_dataset({path});
  Ids ids(static_cast<std::size_t>(data.tokens->size()));
  data.tokens->read(0, data.tokens->size(), ids.data());
  return ids;
}

std::int32_t no_separator() {
  ADD_FAILURE() << "the index says where documents end";
  return 0;
}

TEST(Megatron, GoldenFilesOfEveryWidthAreRead) {
  const Ids shared = {5, 6, 7, 1, 2, 3, 100, 101, 102, 103, 9, 4, 9};
  const auto with = [&](std::int32_t id) {
    Ids ids = shared;
    ids.insert(ids.end(), {id, 0});
    return ids;
  };
  EXPECT_EQ(all(folder_of_golden + "u8.bin"), shared);
  EXPECT_EQ(all(folder_of_golden + "u16.bin"), with(65535));
  EXPECT_EQ(all(folder_of_golden + "i32.bin"), with(2147483647));
  EXPECT_EQ(all(folder_of_golden + "i64.bin"), shared);
  const io::Dataset data = io::open_dataset({folder_of_golden + "u16.bin", folder_of_golden + "u16.bin"});
  EXPECT_FALSE(io::needs_separator(data));
  const io::DocumentEnds ends(data, no_separator);
  EXPECT_EQ(ends.all(), (Ends{3, 6, 6, 11, 13, 15, 18, 21, 21, 26, 28, 30}));
  EXPECT_EQ(ends[7], 21);
  EXPECT_EQ(ends.find(22), 9);
  EXPECT_EQ(ends.documents_of(1), 6);
}

TEST(Megatron, IdsThatAreNoneAreRefused) {
  expect_error(ExitCode::data, "f32.idx is not a Megatron index that can be read: its ids are floating-point numbers",
               [] { (void)all(folder_of_golden + "f32.bin"); });
  expect_error(ExitCode::data, "token 14 (byte 56 of the file) has id -1",
               [] { (void)all(folder_of_golden + "negative.bin"); });
  expect_error(ExitCode::data, "token 13 (byte 26 of the file) has id 65535",
               [] { (void)io::open_dataset({folder_of_golden + "u16.bin"}, nullptr, {1024}); });
}

TEST(Megatron, APrefixAnIndexAndAPatternNameTheTokens) {
  const std::string bin = folder_of_golden + "u16.bin";
  for (const std::string& name : {folder_of_golden + "u16", folder_of_golden + "u16.idx", folder_of_golden + "u16.i*",
                                  folder_of_golden + "u16:0.5"}) {
    const auto files = io::data_files({name});
    ASSERT_EQ(files.size(), 1U) << name;
    EXPECT_EQ(files[0].path, bin);
  }
}

TEST(Megatron, APairThatAPatternMatchesIsOneFile) {
  TempDir folder;
  for (const char* name : {"a.bin", "a.idx", "b.bin", "b.idx"}) (void)folder.file(name, "");
  const std::string a = folder / "a.bin", b = folder / "b.bin";
  const auto paths = [](const std::vector<std::string>& names) {
    std::vector<std::string> all;
    for (const io::DataFile& file : io::data_files(names)) all.push_back(file.path);
    return all;
  };
  const std::vector<std::string> both = {a, b};
  EXPECT_EQ(paths({folder / "*"}), both);
  EXPECT_EQ(paths({folder / "*:0.5"}), both);
  EXPECT_EQ(paths({folder / "*.idx"}), both);
  EXPECT_EQ(paths({folder.path()}), both);
  EXPECT_EQ(paths({a, folder / "a.idx", b, folder / "b.idx"}), both);
  EXPECT_EQ(paths({folder / "./a.idx", folder / "a", b}), both);
  EXPECT_EQ(paths({a, a}), (std::vector<std::string>{a, a}));
  expect_error(ExitCode::data, "a.idx are given with different numbers of rows", [&] {
    (void)io::data_files({a + ":0.5", folder / "a.idx"});
  });
}

/// Opens the pair, reads all of it and asks for all ends.
void use(const std::string& bin) {
  const io::Dataset data = io::open_dataset({bin});
  Ids ids(static_cast<std::size_t>(data.tokens->size()));
  data.tokens->read(0, data.tokens->size(), ids.data());
  (void)io::DocumentEnds(data, no_separator).all();
}

class Damaged : public ::testing::Test {
 protected:
  /// A pair with this index, whose number at `at` is replaced, refused with these words.
  template <class T>
  void refuse(std::size_t at, T number, const std::string& words) {
    std::string bytes = index;
    std::memcpy(bytes.data() + at, &number, sizeof number);
    refuse(bytes, words);
  }
  void refuse(const std::string& bytes, const std::string& words) {
    SCOPED_TRACE(words);
    (void)folder.file("x.idx", bytes);
    expect_error(ExitCode::data, words, [&] { use(folder / "x.bin"); });
    expect_error(ExitCode::data, "x.idx is not a Megatron index that can be read", [&] { use(folder / "x.bin"); });
  }
  TempDir folder;
  const std::string index = test::bytes_of(folder_of_golden + "u16.idx");
  const std::string bin = folder.file("x.bin", test::bytes_of(folder_of_golden + "u16.bin"));
  // Six sequences, seven numbers of documents.
  static constexpr std::size_t sizes = 34, pointers = sizes + 6 * 4, documents = pointers + 6 * 8;
};

TEST_F(Damaged, EveryPrefixOfAnIndexIsRefused) {
  for (std::size_t length = 0; length < index.size(); ++length)
    refuse(index.substr(0, length), length < 34 ? "its header alone 34" : "make another number");
  refuse(index + "x", "make another number");
}

TEST_F(Damaged, HeadersThatAreWrongAreRefused) {
  refuse<char>(0, 'X', "does not begin with MMIDIDX");
  refuse<std::uint64_t>(9, 2, "version 2, where 1 is known");
  refuse<char>(17, 9, "type 9 of ids is unknown");
  refuse<char>(17, 6, "floating-point");
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{5}, ~std::uint64_t{0}, std::uint64_t{1} << 62}) {
    refuse<std::uint64_t>(18, count, "make another number");
    refuse<std::uint64_t>(26, count, "make another number");
  }
}

TEST_F(Damaged, NumbersThatContradictOneAnotherAreRefused) {
  refuse<std::int32_t>(sizes + 5 * 4, 1, "and the .bin file has 30");
  refuse<std::int32_t>(sizes + 5 * 4, -1, "and the .bin file has 30");
  refuse<std::int64_t>(pointers, 2, "and the .bin file has 30");
  refuse<std::int64_t>(pointers + 5 * 8, INT64_MAX, "and the .bin file has 30");
  refuse<std::int64_t>(pointers + 5 * 8, -4, "and the .bin file has 30");
  refuse<std::int64_t>(documents, 1, "do not hold all sequences");
  refuse<std::int64_t>(documents + 6 * 8, 5, "do not hold all sequences");
  refuse<std::int64_t>(documents + 2 * 8, 7, "of 6");
  refuse<std::int64_t>(documents + 2 * 8, -1, "of 6");
  refuse<std::int64_t>(documents + 2 * 8, INT64_MIN, "of 6");
  refuse<std::int32_t>(sizes, 2, "sequence 1 does not begin where");
  refuse<std::int32_t>(sizes, INT32_MIN, "sequence 1 does not begin where");
  refuse<std::int64_t>(pointers + 8, 7, "sequence 1 does not begin where");
  refuse<std::int64_t>(pointers + 16, INT64_MIN, "sequence 2 does not begin where");
}

TEST_F(Damaged, TokensOfAnotherLengthAreRefused) {
  const std::string bytes = test::bytes_of(bin);
  (void)folder.file("x.bin", bytes.substr(0, 28));
  refuse(index, "and the .bin file has 28");
  (void)folder.file("x.bin", bytes + "x");
  refuse(index, "and the .bin file has 31");
}

TEST(MegatronFiles, TokensWithoutTheirIndexAreRefused) {
  TempDir folder;
  const std::string path = folder.file("x.bin", test::bytes_of(folder_of_golden + "u16.bin"));
  expect_error(ExitCode::data, "or Megatron's .bin with its .idx beside it", [&] { use(path); });
  (void)folder.file("y.idx", test::bytes_of(folder_of_golden + "u16.idx"));
  expect_error(ExitCode::data, "y.bin", [&] { use(io::data_files({folder / "y"})[0].path); });
}

}  // namespace
}  // namespace tessera
