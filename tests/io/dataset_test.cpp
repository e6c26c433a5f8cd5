// SPDX-License-Identifier: Apache-2.0
// Data sets: tokens, joining of files, refusals; samples and their order.

#include "io/data/dataset.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <thread>

#include "io/data/data_files.hpp"
#include "io/data/rows.hpp"
#include "io/data/selected_stream.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

using io::open_dataset;
using test::expect_error;
using test::TempDir;
using test::token_file_of;

std::vector<std::int32_t> all(const io::TokenStream& stream) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(stream.size()));
  stream.read(0, stream.size(), ids.data());
  return ids;
}

std::string text_of(const io::TokenStream& stream) {
  std::string text;
  for (const auto id : all(stream)) text += static_cast<char>(id);
  return text;
}

io::Dataset open(const std::vector<std::string>& paths) { return open_dataset(paths); }

TEST(Dataset, TextFilesAreJoinedByOneNewline) {
  TempDir folder;
  const auto data = open({folder.file("a.txt", "one\n"), folder.file("b.md", "two"), folder.file("c", "\xc3\xa9")});
  EXPECT_EQ(text_of(*data.tokens), "one\n\ntwo\n\xc3\xa9");
  ASSERT_EQ(data.files.size(), 3u);
  EXPECT_EQ(data.files[1].kind, "text");
  EXPECT_EQ(data.files[1].tokens, 3);
  EXPECT_EQ(data.files[1].bytes, 3u);
  EXPECT_EQ(data.files[2].tokens, 2);
}

TEST(Dataset, AnyRangeEqualsThatRangeOfTheStream) {
  TempDir folder;
  const auto data =
      open({folder.file("a.txt", "ab"), folder.file("b.jsonl", "{\"text\":\"\"}\n{\"text\":\"\"}\n{\"text\":\"c\"}"),
            folder.file("c.txt", "d")});
  EXPECT_EQ(text_of(*data.tokens), "ab\n\n\nc\nd");
  const auto full = all(*data.tokens);
  for (std::int64_t first = 0; first <= data.tokens->size(); ++first)
    for (std::int64_t count = 0; first + count <= data.tokens->size(); ++count) {
      std::vector<std::int32_t> part(static_cast<std::size_t>(count) + 1, -7);
      data.tokens->read(first, count, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end() - 1, full.begin() + first));
      EXPECT_EQ(part.back(), -7);
    }
  std::int32_t out[10];
  EXPECT_THROW(data.tokens->read(8, 2, out), std::logic_error);
  EXPECT_THROW(data.tokens->read(-1, 1, out), std::logic_error);
}

TEST(Dataset, AnEmptyDocumentAtTheEndKeepsItsNewline) {
  TempDir folder;
  const auto data = open({folder.file("a.txt", "ab"), folder.file("b.jsonl", "{\"text\":\"\"}")});
  EXPECT_EQ(text_of(*data.tokens), "ab\n");
  EXPECT_EQ(data.files[1].tokens, 0);
}

TEST(Dataset, JsonLinesAreDecoded) {
  TempDir folder;
  io::SkippedRows skipped;
  const auto data = io::open_dataset(
      {folder.file("a.jsonl", "{\"text\": \"one\\u00e9\\n\"}\r\n  \n{\"meta\": {\"text\": 3}, \"text\": \"two\"}\n")},
      &skipped);
  EXPECT_EQ(text_of(*data.tokens), "one\xc3\xa9\n\ntwo");
  EXPECT_EQ(data.files[0].kind, "jsonl");
  EXPECT_EQ(data.files[0].tokens, 10);
}

TEST(Dataset, JsonLinesErrorsNameTheLine) {
  TempDir folder;
  const std::string good = "{\"text\": \"x\"}\n";
  const std::pair<std::string, std::string> bad[] = {
      {"{\"text\": \"x\"", "not JSON"},
      {"[\"x\"]", "not a JSON object"},
      {"\"x\"", "not a JSON object"},
      {"3", "not a JSON object"},
      {"{\"txt\": \"x\"}", "no \"text\""},
      {"{\"more\": {\"text\": \"x\"}}", "no \"text\""},
      {"{\"text\": 3}", "\"text\" is not a string"},
      {"{\"text\": null}", "\"text\" is not a string"},
      {"{\"text\": [\"x\"]}", "\"text\" is not a string"},
      {"{\"text\": \"x\", \"text\": \"y\"}", "twice"},
      {"{\"text\": \"x\"} {}", "not JSON"},
      {std::string("{\"text\": \"x\"}\0 garbage", 22), "a zero byte"},
      {std::string(200000, '['), "nested deeper than 64 levels"},
  };
  for (const auto& [line, words] : bad) {
    SCOPED_TRACE(line.substr(0, 60));
    const std::string path = folder.file("a.jsonl", good + "\n" + line + "\n" + good);
    expect_error(ExitCode::data, words, [&] { (void)open({path}); });
    expect_error(ExitCode::data, path + ":3", [&] { (void)open({path}); });
  }
  expect_error(ExitCode::data, "has no document", [&] { (void)open({folder.file("a.jsonl", " \n\n")}); });
  expect_error(ExitCode::data, "has no token", [&] { (void)open({folder.file("a.jsonl", "{\"text\":\"\"}\n")}); });
}

TEST(Dataset, TokenFilesAreReadInBothWidths) {
  TempDir folder;
  const auto two = open({folder.file("a.bin", token_file_of(20240520, 1, 2, "\x01\x02\xff\xff")),
                         folder.file("b.BIN", token_file_of(20240520, 1, 1, std::string("\x07\x00", 2)))});
  EXPECT_EQ(all(*two.tokens), (std::vector<std::int32_t>{0x201, 0xffff, 7}));
  EXPECT_EQ(two.files[1].kind, "bin");
  const auto four =
      open({folder.file("c.bin", token_file_of(20240801, 7, 2, std::string("\x01\x00\x02\x00\xff\xff\xff\x7f", 8)))});
  EXPECT_EQ(all(*four.tokens), (std::vector<std::int32_t>{0x20001, 0x7fffffff}));
}

/// `count` ids of two or four bytes, all 7 but the one at `at`.
std::string ids_of(int width, std::int64_t count, std::int64_t at, std::uint32_t id) {
  std::string bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t value = i == at ? id : 7;
    bytes.append(reinterpret_cast<const char*>(&value), static_cast<std::size_t>(width));
  }
  return bytes;
}

TEST(Dataset, IdsAreCheckedAsTheyAreRead) {
  TempDir folder;
  constexpr std::int64_t n = 20000, at = 15000;
  const std::string good = folder.file("good.bin", token_file_of(20240520, 1, n, ids_of(2, n, 0, 99))),
                    bad = folder.file("bad.bin", token_file_of(20240520, 1, n, ids_of(2, n, at, 100)));
  const io::Dataset data = open_dataset({good, bad}, nullptr, {100});
  std::vector<std::int32_t> ids(static_cast<std::size_t>(2 * n));
  data.tokens->read(0, n + at, ids.data());
  data.tokens->read(n + at + 1, n - at - 1, ids.data());
  for (const auto& [first, count] : {std::pair{n + at, std::int64_t{1}}, {std::int64_t{0}, 2 * n}, {n + at - 5, 9}})
    expect_error(ExitCode::data,
                 "token 15000 (byte 31024 of the file) has id 100, but the last id of the model's vocabulary is 99 [" +
                     bad + "]",
                 [&, first = first, count = count] { data.tokens->read(first, count, ids.data()); });
  const std::string wide = folder.file("wide.bin", token_file_of(20240801, 7, n, ids_of(4, n, at, 0x80000000)));
  expect_error(ExitCode::data, "token 15000 (byte 61024 of the file) has id 2147483648, which is not one of 31 bits",
               [&] { open_dataset({wide}).tokens->read(0, n, ids.data()); });
}

TEST(Dataset, TheFirstIdsOfEachFileAreCheckedWhenItIsOpened) {
  TempDir folder;
  const std::string good = folder.file("good.bin", token_file_of(20240520, 1, 5000, ids_of(2, 5000, 0, 99))),
                    bad = folder.file("bad.bin", token_file_of(20240520, 1, 5000, ids_of(2, 5000, 4095, 100)));
  expect_error(ExitCode::data, "token 4095 (byte 9214 of the file) has id 100", [&] {
    (void)open_dataset({good, bad}, nullptr, {100});
  });
  expect_error(ExitCode::data, "has byte 120, but the last id of the model's vocabulary is 99",
               [&] { (void)open_dataset({folder.file("a.txt", "aax")}, nullptr, {100}); });
}

TEST(Dataset, TokenFilesHaveNoTokensOfImages) {
  TempDir folder;
  constexpr std::int64_t n = 9000, at = 8000;
  const std::string bad = folder.file("bad.bin", token_file_of(20240520, 1, n, ids_of(2, n, at, 98)));
  const io::Dataset data = open_dataset({bad}, nullptr, {100, {40, 98}});
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
  data.tokens->read(0, at, ids.data());
  expect_error(ExitCode::data, "token 8000 is 98, which stands for an image, and text alone is read [" + bad + "]",
               [&] { data.tokens->read(at - 5, 9, ids.data()); });
}

/// Pages of this process that were read from files until now.
std::int64_t page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

TEST(Dataset, OpeningTokensDoesNotReadThem) {
  TempDir folder(TempDir::Storage::memory);
  const std::string path = folder.file("large.bin", token_file_of(20240801, 7, 1 << 24, ""));
  std::filesystem::resize_file(path, 1024 + (std::uint64_t{1} << 26));  // 16384 pages
  const std::int64_t before = page_faults();
  const io::Dataset data = open_dataset({path});
  EXPECT_LT(page_faults() - before, 1000);
  EXPECT_EQ(data.tokens->size(), 1 << 24);
}

TEST(Dataset, WrongTokenFileHeadersAreRefused) {
  TempDir folder;
  const auto refused = [&](const std::string& bytes, const std::string& words) {
    const std::string path = folder.file("x.bin", bytes);
    expect_error(ExitCode::data, words, [&] { (void)open({path}); });
    expect_error(ExitCode::data, path, [&] { (void)open({path}); });
  };
  refused("abc", "its header alone 1024");
  refused(token_file_of(20240520, 1, 3, "abcd"), "truncated");
  refused(token_file_of(20240520, 1, 1, "abcd"), "too long");
  refused(token_file_of(20240520, 1, 2147483647, "abcd"), "truncated");
  refused(token_file_of(20240520, 1, 0, ""), "0 tokens");
  refused(token_file_of(20240520, 1, -1, "abcd"), "-1 tokens");
  refused(token_file_of(20240520, 2, 2, "abcd"), "version 2");
  refused(token_file_of(20240801, 1, 1, "abcd"), "version 1");
  refused(token_file_of(20240522, 1, 2, "abcd"), "evaluation file");
  refused(token_file_of(20240326, 3, 2, "abcd"), "model file");
  refused(token_file_of(123, 1, 2, "abcd"), "without a header");
  refused("BIN.TOK\n" + std::string(1024, '\1'), "LLMQ");
  refused(token_file_of(20240801, 7, 1, "\xff\xff\xff\xff"), "not one of 31 bits");
  expect_error(ExitCode::data, "another width", [&] {
    (void)open({folder.file("a.bin", token_file_of(20240520, 1, 1, "ab")),
                folder.file("b.bin", token_file_of(20240801, 7, 1, std::string("a\0\0\0", 4)))});
  });
}

TEST(Dataset, UnsupportedFilesAreRefusedByName) {
  TempDir folder;
  expect_error(ExitCode::data, "a Parquet file", [&] { (void)open({folder.file("a.parquet", "anything")}); });
  expect_error(ExitCode::data, "a Parquet file", [&] { (void)open({folder.file("a.parquet", "")}); });
  expect_error(ExitCode::data, "a Parquet file", [&] { (void)open({folder.file("a.txt", "PAR1xxxx")}); });
  expect_error(ExitCode::data, "a Parquet file", [&] { (void)open({folder.file("a.jsonl", "PAR1xxxx")}); });
  expect_error(ExitCode::data, "an Arrow file", [&] { (void)open({folder.file("a.Arrow", "anything")}); });
  expect_error(ExitCode::data, "an Arrow file", [&] { (void)open({folder.file("a", "ARROW1xx")}); });
  expect_error(ExitCode::data, "gzip", [&] { (void)open({folder.file("a.txt", "\x1f\x8b\x08")}); });
  expect_error(ExitCode::data, ".jsonl", [&] { (void)open({folder.file("a.parquet", "anything")}); });  // what to do
}

TEST(Dataset, WhatIsNoDataIsRefused) {
  TempDir folder;
  const std::string good = folder.file("good.txt", "x");
  expect_error(ExitCode::data, "names no file", [&] { (void)open({}); });
  expect_error(ExitCode::data, "empty.txt is empty", [&] { (void)open({good, folder.file("empty.txt", "")}); });
  expect_error(ExitCode::data, "not-there", [&] { (void)open({good, folder / "not-there"}); });
  expect_error(ExitCode::data, "a directory", [&] { (void)open({folder.path()}); });
  expect_error(ExitCode::data, "text and .bin", [&] {
    (void)open({good, folder.file("a.bin", token_file_of(20240520, 1, 1, "ab"))});
  });
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error(ExitCode::data, "a pipe", [&] { (void)open({pipe}); });
  expect_error(ExitCode::data, "a device", [&] { (void)open({"/dev/zero"}); });
  if (::geteuid() != 0) {
    ::chmod(good.c_str(), 0);
    expect_error(ExitCode::data, "cannot read", [&] { (void)open({good}); });
  }
}

TEST(Dataset, AZeroByteNamesFileAndOffset) {
  TempDir folder;
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{5}, std::size_t{65535}, std::size_t{65536}, std::size_t{200000}}) {
    std::string bytes(200001, 'x');
    bytes[at] = '\0';
    expect_error(ExitCode::data, "b.txt is not text: byte " + std::to_string(at),
                 [&] { (void)open({folder.file("b.txt", bytes)}); });
  }
}

TEST(Dataset, ReadsFromManyThreadsWithoutAllocating) {
  TempDir folder;
  std::string bytes;
  for (int i = 0; i < 20000; ++i) bytes += static_cast<char>('a' + i % 23);
  const auto data = open({folder.file("a.txt", bytes), folder.file("b.txt", bytes)});
  const auto full = all(*data.tokens);
  std::vector<std::thread> threads;
  std::vector<std::size_t> taken(4);
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<std::int32_t> out(100);
      (void)test::allocated_bytes();
      for (std::int64_t first = static_cast<std::int64_t>(t); first + 100 <= data.tokens->size(); first += 61) {
        data.tokens->read(first, 100, out.data());
        if (!std::equal(out.begin(), out.end(), full.begin() + first)) ++wrong[t];
      }
      taken[t] = test::allocated_bytes();
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(taken, std::vector<std::size_t>(4));
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(Dataset, SliceIsAWindow) {
  TempDir folder;
  const std::shared_ptr<const io::TokenStream> full = open({folder.file("a.txt", "abcdef")}).tokens;
  const auto part = io::slice(full, 2, 3);
  EXPECT_EQ(text_of(*part), "cde");
  std::int32_t out[4];
  EXPECT_THROW(part->read(1, 3, out), std::logic_error);
  EXPECT_THROW((void)io::slice(full, 4, 3), std::logic_error);
  EXPECT_EQ(io::slice(full, 6, 0)->size(), 0);
}

TEST(Samples, AreCountedWithWhatIsDropped) {
  const auto check = [](std::int64_t tokens, std::int64_t T, std::int64_t samples, std::int64_t dropped) {
    const auto c = io::count_samples(tokens, T);
    EXPECT_EQ(c.samples, samples) << tokens << " " << T;
    EXPECT_EQ(c.dropped_tokens, dropped) << tokens << " " << T;
  };
  check(0, 4, 0, 0);
  check(4, 4, 0, 4);  // no target for the last one
  check(5, 4, 1, 0);
  check(8, 4, 1, 3);
  check(9, 4, 2, 0);
  check(10, 4, 2, 1);
  check(std::int64_t{1} << 40, 1, (std::int64_t{1} << 40) - 1, 0);
}

TEST(Samples, AreSelectedByFileAndSeed) {
  TempDir folder;
  const std::string a = folder.file("a.bin", token_file_of(20240520, 1, 101, ids_of(2, 101, 0, 7))),
                    b = folder.file("b.bin", token_file_of(20240520, 1, 45, ids_of(2, 45, 0, 7)));
  const std::shared_ptr<const io::TokenStream> joined = open({a, b}).tokens;  // 10 samples of 10, and 4
  const auto begins = [&](const std::string& share_a, const std::string& share_b, std::uint64_t seed) {
    const io::SelectedStream stream(joined, io::data_files({a + share_a, b + share_b}), {101, 45}, 10, seed);
    std::vector<std::int64_t> all;
    for (std::int64_t k = 0; k < io::count_samples(stream, 10).samples; ++k) all.push_back(stream.sample_begin(k, 10));
    return all;
  };
  std::vector<std::int64_t> each = {0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 101, 111, 121, 131};
  EXPECT_EQ(begins(":1", "", 3), each);
  const auto some = begins(":0.3", "#2", 3);
  ASSERT_EQ(some.size(), 5U);
  EXPECT_EQ(std::set<std::int64_t>(some.begin(), some.end()).size(), 5U);
  for (std::size_t k = 0; k < some.size(); ++k) {
    EXPECT_TRUE(std::count(each.begin(), each.end(), some[k]) == 1) << some[k];
    EXPECT_EQ(some[k] < 101, k < 3);
  }
  EXPECT_EQ(begins(":0.3", "#2", 3), some);
  EXPECT_NE(begins(":0.3", "#2", 4), some);
  const auto more = begins("#23", ":0.25", 3);  // twice each, three a third time; one
  ASSERT_EQ(more.size(), 24U);
  for (std::int64_t begin = 0; begin < 100; begin += 10) {
    const auto times = std::count(more.begin(), more.end(), begin);
    EXPECT_TRUE(times == 2 || times == 3) << begin;
  }
  const io::SelectedStream one(joined, io::data_files({a + ":0.3", b}), {101, 45}, 10, 3),
      other(joined, io::data_files({a + ":0.4", b}), {101, 45}, 10, 3);
  EXPECT_NE(one.selection(), other.selection());
  expect_error(ExitCode::data, "45 tokens; one sample takes max_length + 1 = 51 [" + b + "]", [&] {
    const io::SelectedStream stream(joined, io::data_files({a, b + "#1"}), {101, 45}, 50, 3);
  });
}

TEST(Samples, InFileOrderWithoutShuffle) {
  const io::Sampler sampler(5, false, 3);
  for (std::int64_t i = 0; i < 12; ++i) EXPECT_EQ(sampler.sample(i), i % 5);
  expect_error(ExitCode::data, "too short for one sample", [] { io::Sampler none(0, true, 3); });
}

TEST(Samples, EachEpochIsAnOrderOfItsOwn) {
  for (const std::int64_t n : {1, 2, 3, 7, 64, 1000}) {
    const io::Sampler sampler(n, true, 42), again(n, true, 42), other(n, true, 43);
    std::vector<std::vector<std::int64_t>> epochs(3), others(3);
    for (std::int64_t e = 0; e < 3; ++e) {
      std::set<std::int64_t> seen;
      for (std::int64_t i = 0; i < n; ++i) {
        const auto s = sampler.sample(e * n + i);
        EXPECT_EQ(s, again.sample(e * n + i));
        EXPECT_TRUE(s >= 0 && s < n && seen.insert(s).second) << s;
        epochs[static_cast<std::size_t>(e)].push_back(s);
        others[static_cast<std::size_t>(e)].push_back(other.sample(e * n + i));
      }
    }
    if (n < 64) continue;
    EXPECT_NE(epochs[0], epochs[1]);
    EXPECT_NE(epochs[1], epochs[2]);
    EXPECT_NE(epochs[0], others[0]);
    EXPECT_FALSE(std::is_sorted(epochs[0].begin(), epochs[0].end()));
  }
}

TEST(Samples, TheOrderOfASeedNeverChanges) {
  const io::Sampler sampler(1000, true, 42);
  std::vector<std::int64_t> first;
  for (std::int64_t i = 0; i < 5; ++i) first.push_back(sampler.sample(i));
  EXPECT_EQ(first, (std::vector<std::int64_t>{249, 251, 184, 188, 118}));
}

}  // namespace
}  // namespace tessera
