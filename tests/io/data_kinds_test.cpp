// SPDX-License-Identifier: Apache-2.0
// What a file of data is, by its content: lines, arrays, tables, compressed files; what directories stand for.

#include <gtest/gtest.h>

#include "io/corpus/corpus.hpp"
#include "io/data/data_files.hpp"
#include "io/data/data_kind.hpp"
#include "io/data/dataset.hpp"
#include "io/data/rows.hpp"
#include "io/file/compressed.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

using io::RowFormat;
using io::RowLayout;
using test::expect_error;
using test::TempDir;
using namespace std::string_literals;

// The two lines {"text": "one"} and {"text": "two"}.
const std::string gzip_file =
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x2a\x49\xad\x28\x51\xb2\x52\x50\xca\xcf\x4b\x55"
    "\xaa\xe5\xaa\x86\xf3\x4b\xca\xf3\x81\x7c\x00\xd1\x5b\x69\xd5\x20\x00\x00\x00"s;
const std::string zstd_file =
    "\x28\xb5\x2f\xfd\x04\x68\xe5\x00\x00\xb0\x7b\x22\x74\x65\x78\x74\x22\x3a\x20\x22\x6f\x6e\x65\x22"
    "\x7d\x0a\x74\x77\x6f\x22\x7d\x0a\x01\x00\x66\x9b\x4b\x6f\x2d\x2a\x9f"s;
const std::string two_lines = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";

RowFormat format_of(const std::string& path, std::string_view bytes) {
  return io::row_format(path, bytes, io::column_names({}));
}

/// The rows of a file as JSON, or why one cannot be used.
std::vector<std::string> rows_of(const std::string& path, std::string_view bytes) {
  const RowFormat format = format_of(path, bytes);
  std::vector<std::string> rows;
  std::int64_t repaired = 0;
  io::for_each_row(bytes.substr(io::rows_begin(bytes, format)), format, [&](const io::Row& row) {
    try {
      rows.push_back(io::read_row(row.text, format, repaired).dump());
    } catch (const io::RowError& error) { rows.push_back(error.why); }
  });
  return rows;
}

TEST(DataKinds, ComeFromTheContent) {
  for (const char* name : {"rows", "x.txt", "x.jsonl.bak", "x.csv", "x.ndjson"}) {
    EXPECT_EQ(format_of(name, two_lines).layout, RowLayout::lines) << name;
    EXPECT_EQ(format_of(name, "\xEF\xBB\xBF\n{"s + " \"a\": 1}\nbroken\n").layout, RowLayout::lines) << name;
    EXPECT_EQ(format_of(name, " [ {\"a\": 1}]").layout, RowLayout::array) << name;
    EXPECT_EQ(format_of(name, "query;response\nq;r\n").layout, RowLayout::table) << name;
  }
  for (const char* text : {"{ not json }\n", "plain, text\nof lines\n", "[1] a footnote", "{\n \"a\": 1\n}\n",
                           "query,response\nonly one\n", "{\"a\": 1} and more\n"}) {
    EXPECT_EQ(format_of("x.txt", text).layout, RowLayout::none) << text;
    EXPECT_EQ(format_of("x.jsonl", text).layout, RowLayout::lines) << text;
  }
  expect_error(ExitCode::data, "x.tsv is no table of a known form; its columns: \"a\" \"b\"",
               [] { (void)format_of("x.tsv", "a\tb\n1\t2\n"); });
}

TEST(DataKinds, AnArrayEndsTheFile) {
  expect_error(ExitCode::data, "x.json: the JSON array has no end: the file was cut short",
               [] { (void)format_of("x.json", "[{\"text\": \"a]\"},\n{\"text\": \"b\"}"); });
  expect_error(ExitCode::data, "the JSON array ends, and at column 16 other text follows: \"x y\" [x.json:2]",
               [] { (void)format_of("x.json", "[{\"text\": \"a]\"},\n{\"text\": \"b\"}] x y\nz\n"); });
  expect_error(ExitCode::data, "at column 5 other text follows: \"{}\" [x:1]", [] { (void)format_of("x", "[{}]{}"); });
}

TEST(DataKinds, ThatAreNotReadAreNamedWithACommand) {
  const auto refused = [](const std::string& path, const std::string& bytes, const std::string& words) {
    expect_error(ExitCode::data, words, [&] { io::reject_unsupported(path, bytes); });
  };
  refused("x", "PAR1...", "load_dataset(\"parquet\", data_files=\"x\"");
  refused("d/data-0.arrow", "\xff\xff\xff\xff", "Dataset.from_file(\"d/data-0.arrow\")");
  refused("x.jsonl", "version https://git-lfs.github.com/spec/v1\n", "git lfs pull");
  refused("x.txt", "\xff\xfeh\0i\0"s, "UTF-16");
  refused("x.txt", std::string(257, 'a') + "ustar", "a tar archive");
  refused("x.jsonl", gzip_file, "gzip-compressed");
  for (const char* text : {"", "text", "{\"text\": \"PAR1\"}"})
    EXPECT_EQ(io::unsupported_kind("x.jsonl", text), nullptr);
}

TEST(Tables, AreReadAsRFC4180Says) {
  const std::string csv =
      "\xEF\xBB\xBFquery, response ,system\r\n"
      "\"a, \"\"b\"\"\nc\",d,\r\n"
      "\n"
      "5\" pipe,\"\",s\n"
      "too,few\n"
      "last,\xE9,\"x\"";
  EXPECT_EQ(rows_of("x.csv", csv), (std::vector<std::string>{R"({"query":"a, \"b\"\nc","response":"d","system":null})",
                                                             R"({"query":"5\" pipe","response":"","system":"s"})",
                                                             "the record has 2 fields, the header 3",
                                                             R"({"query":"last","response":"�","system":"x"})"}));
  EXPECT_EQ(rows_of("x.tsv", "instruction\toutput\ni, j\to\n"),
            (std::vector<std::string>{R"({"instruction":"i, j","output":"o"})"}));
  EXPECT_EQ(rows_of("x.csv", "id;messages;tools\n1;\"[{\"\"role\"\": \"\"user\"\"}]\";\n2;[1],\"x\": 2;\n"),
            (std::vector<std::string>{R"({"id":"1","messages":[{"role":"user"}],"tools":null})",
                                      "\"messages\" is not JSON: write lists of messages by json.dumps"}));
  EXPECT_EQ(rows_of("x.csv", "id,messages\n1,\"[{'role': 'user', 'content': None}]\"\n").front(),
            "\"messages\" is a Python literal, not JSON: write it by json.dumps(...), not by str(...)");
  EXPECT_EQ(rows_of("x.csv", "text\none\ntwo\n").size(), 2u);
  // From a wrong quote on records cannot be told apart.
  expect_error(ExitCode::data, "has no end: from here on records cannot be told apart [x.csv:3]",
               [] { (void)rows_of("x.csv", "text,id\na,1\n\"b,2\nc,3\n"); });
  expect_error(ExitCode::data, "followed by other text",
               [] { (void)rows_of("x.csv", "text,id\na,1\n\"b\" c,2\nd,3\n"); });
  expect_error(ExitCode::data, "twice", [] { (void)rows_of("x.csv", "text,text\na,1\n"); });
}

TEST(Tables, HaveTheSameRowsHoweverTheyAreDivided) {
  std::string csv = "query,response\n";
  for (int i = 0; i < 60; ++i)
    csv += "\"line\n" + std::to_string(i) + ",\"\"\"," + std::string(static_cast<std::size_t>(i % 11), 'x') + "\n";
  const RowFormat format = format_of("x.csv", csv);
  const std::string_view bytes = std::string_view(csv).substr(io::rows_begin(csv, format));
  for (const std::size_t part : {1u, 7u, 100u, 100000u}) {
    std::size_t rows = 0;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t length = io::rows_end(bytes.substr(at), format, part);
      ASSERT_GT(length, 0u);
      io::for_each_row(bytes.substr(at, length), format, [&](const io::Row& row) {
        std::int64_t repaired = 0;
        EXPECT_EQ(io::read_row(row.text, format, repaired)["query"], "line\n" + std::to_string(rows++) + ",\"");
      });
      at += length;
    }
    EXPECT_EQ(rows, 60u) << part;
  }
}

TEST(Tables, HaveTheFormOfTheirHeader) {
  const auto form = [](std::string_view bytes, const io::Columns& columns) {
    const RowFormat format = io::row_format("x.csv", bytes, io::column_names(columns));
    return io::file_form("x.csv", bytes, format, columns).form;
  };
  EXPECT_EQ(form("instruction,input,output\na,b,c\n", {}), io::RowForm::alpaca);
  EXPECT_EQ(form("problem,solution\na,b\n", {}), io::RowForm::query);
  EXPECT_EQ(form("Frage,Antwort\na,b\n", {{"Frage", "query"}, {"Antwort", "response"}}), io::RowForm::query);
  EXPECT_EQ(form("chat\n[]\n", {{"chat", "messages"}}), io::RowForm::messages);
}

std::string decompressed(const TempDir& folder, const std::string& bytes) {
  const std::string path = folder.file("x.gz", bytes), to = folder / "out";
  io::decompress(path, to, [](std::uint64_t) {});
  return test::bytes_of(to);
}

TEST(Compressed, FilesAreDecompressedWhole) {
  const TempDir folder;
  for (const std::string& file : {gzip_file, zstd_file}) {
    EXPECT_EQ(decompressed(folder, file), two_lines);
    EXPECT_EQ(decompressed(folder, file + file), two_lines + two_lines) << "members that follow one another";
    EXPECT_EQ(io::decompressed_head(folder.file("y", file), 5), two_lines.substr(0, 5));
  }
}

TEST(Compressed, FilesThatAreDamagedLeaveNothing) {
  const TempDir folder;
  const auto refused = [&](const std::string& bytes, const std::string& words) {
    const std::string path = folder.file("x.gz", bytes);
    expect_error(ExitCode::data, words, [&] { io::decompress(path, folder / "out", [](std::uint64_t) {}); });
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  };
  for (const std::string& file : {gzip_file, zstd_file}) {
    for (const std::size_t size : {file.size() - 1, file.size() - 9, file.size() / 2, std::size_t{5}})
      refused(file.substr(0, size), "truncated");
    refused(file + "more", "before byte");
    std::string damaged = file;
    damaged[file.size() - 2] ^= 1;  // of the checksum, or of the length
    refused(damaged, "cannot be decompressed");
  }
  const std::string path = folder.file("x.gz", gzip_file);
  expect_error(ExitCode::data, "full", [&] {
    io::decompress(path, folder / "out", [](std::uint64_t) { throw Error(ExitCode::data, "full"); });
  });
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

/// "name ..." of the files that are read and of those that are left out, relative to a folder.
std::string reading(const TempDir& folder, const std::string& name) {
  std::vector<io::LeftOut> left_out;
  std::string text;
  const std::size_t prefix = (folder / "").size();
  for (const io::DataFile& file : io::data_files({folder / name}, &left_out)) text += file.path.substr(prefix) + " ";
  for (const io::LeftOut& one : left_out) text += (one.may_be_data ? "-" : "~") + one.path.substr(prefix) + " ";
  return text;
}

TEST(Directories, AreReadWholeOrNameWhatIsLeftOut) {
  const TempDir folder;
  for (const char* path : {"d/sub/deep", "d/.git", "elsewhere", "texts"})
    std::filesystem::create_directories(folder / path);
  for (const char* name : {"d/a.jsonl", "d/part-0", "d/sub/c.ndjson", "d/sub/deep/t.txt", "elsewhere/q.jsonl"})
    folder.file(name, two_lines);
  folder.file("d/b.jsonl.gz", gzip_file);
  folder.file("d/part-1.zst", zstd_file);
  for (const char* name : {"d/words.txt", "d/LICENSE.txt", "d/notes.md", "d/old.bak", "d/.hidden", "texts/a.txt",
                           "texts/b.txt", "texts/README.txt"})
    folder.file(name, "some words\n");
  folder.file("d/p.parquet", "PAR1");
  std::filesystem::create_symlink(folder / "elsewhere", folder / "d/linked");
  std::filesystem::create_symlink(folder / "d", folder / "d/sub/up");
  std::filesystem::create_symlink(folder / "elsewhere/q.jsonl", folder / "d/again.jsonl");
  std::filesystem::create_symlink(folder / "nothing", folder / "d/gone.jsonl");
  EXPECT_EQ(reading(folder, "d"),
            "d/a.jsonl d/again.jsonl d/b.jsonl.gz d/part-0 d/part-1.zst d/sub/c.ndjson d/sub/deep/t.txt "
            "~d/.git ~d/.hidden ~d/LICENSE.txt -d/gone.jsonl -d/linked/q.jsonl -d/notes.md -d/old.bak -d/p.parquet "
            "-d/sub/up -d/words.txt ");
  EXPECT_EQ(reading(folder, "texts"), "texts/a.txt texts/b.txt ~texts/README.txt ");
  EXPECT_EQ(reading(folder, "d/*.gz"), "d/b.jsonl.gz ");
  EXPECT_EQ(reading(folder, "d/[sw]*"), "d/words.txt -d/sub ") << "a pattern that matches a directory, too";
}

TEST(Directories, OfSeveralSplitsOrOfDatasetsAreRefused) {
  const TempDir folder;
  for (const char* path : {"split", "saved", "dict/train", "hub/data", "val", "odd"})
    std::filesystem::create_directories(folder / path);
  for (const char* name : {"split/train.jsonl", "split/test-00000.jsonl", "val/validation_1.jsonl",
                           "odd/testament.jsonl", "odd/training.jsonl", "odd/values.jsonl"})
    folder.file(name, two_lines);
  for (const char* name :
       {"saved/state.json", "saved/dataset_info.json", "dict/dataset_dict.json", "hub/dataset_infos.json"})
    folder.file(name, "{}");
  folder.file("saved/data-00000-of-00001.arrow", "\xff\xff\xff\xff");
  folder.file("hub/data/train-00000.parquet", "PAR1");
  folder.file("hub/README.md", "words");
  folder.file("hub/notes.txt", "words");
  const auto refused = [&](const char* name, const std::string& words) {
    expect_error(ExitCode::data, words, [&] { (void)io::data_files({folder / name}); });
  };
  refused("split", "of several splits: test (" + (folder / "split/test-00000.jsonl") + "), train (");
  refused("saved", "load_from_disk(\"" + (folder / "saved") + "\").to_json");
  refused("dict", "[\"train\"].to_json");
  refused("hub", "load_dataset(\"" + (folder / "hub") + "\", split=\"train\").to_json");
  EXPECT_EQ(reading(folder, "val"), "val/validation_1.jsonl ");
  EXPECT_EQ(reading(folder, "odd"), "odd/testament.jsonl odd/training.jsonl odd/values.jsonl ");
}

TEST(DataFiles, NamesMayHaveCommas) {
  const TempDir folder;
  std::filesystem::create_directories(folder / "a,b");
  const std::string odd = folder.file("x,y,z.jsonl", two_lines), in_odd = folder.file("a,b/c.jsonl", two_lines),
                    plain = folder.file("p.jsonl", two_lines);
  EXPECT_EQ(io::split_names(plain + "," + odd + "#2," + in_odd), (std::vector<std::string>{plain, odd + "#2", in_odd}));
  EXPECT_EQ(io::split_names((folder / "a,b/*.jsonl") + "," + plain),
            (std::vector<std::string>{folder / "a,b/*.jsonl", plain}));
  EXPECT_EQ(io::split_names("none.txt,,other.txt"), (std::vector<std::string>{"none.txt", "other.txt"}));
}

TEST(Datasets, OfBytesReadEveryKind) {
  const TempDir folder;
  const std::string table = folder.file("t.csv", "text,id\n\"one\ntwo\",\n"),
                    marked = folder.file("m.txt", "\xEF\xBB\xBFthree");
  const io::Dataset data = io::open_dataset({table, marked});
  EXPECT_EQ(data.files[0].kind, "csv");
  std::vector<std::int32_t> ids(static_cast<std::size_t>(data.tokens->size()));
  data.tokens->read(0, data.tokens->size(), ids.data());
  EXPECT_EQ(std::string(ids.begin(), ids.end()), "one\ntwo\nthree") << "without the byte-order mark";
}

TEST(Datasets, OfRowsAreUtf8) {
  const TempDir folder;
  std::string good;
  for (int i = 0; i < 50; ++i) good += "{\"text\": \"a line of words\"}\n";
  const std::string one = folder.file("one.jsonl", good + "{\"text\": \"caf\xE9\"}\n"),
                    gbk = folder.file("gbk.jsonl", "{\"text\": \"\xC4\xE3\xBA\xC3\xCA\xC0\xBD\xE7\"}\n");
  io::SkippedRows skipped;
  EXPECT_EQ(io::open_dataset({one}, &skipped).repairs.invalid, 1);
  expect_error(ExitCode::data, "not UTF-8 [" + one + ":51]", [&] { (void)io::open_dataset({one}); });
  expect_error(ExitCode::data, "gbk.jsonl is not UTF-8: of its", [&] { (void)io::open_dataset({gbk}, &skipped); });
}

}  // namespace
}  // namespace tessera
