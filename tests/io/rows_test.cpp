// SPDX-License-Identifier: Apache-2.0
// Files of rows: lines and arrays, repair, rows that cannot be used, names of files.

#include "io/data/rows.hpp"

#include <chrono>
#include <filesystem>

#include "io/data/data_files.hpp"
#include "io/data/dataset.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

using io::RowLayout;
using test::expect_error;
using test::TempDir;

RowLayout layout_of(const std::string& path, std::string_view bytes) {
  const io::ColumnNames none{[](const auto&) { return false; }, [](const auto&) { return false; }};
  return io::row_format(path, bytes, none).layout;
}

std::vector<std::string> rows_in(std::string_view bytes, RowLayout layout) {
  std::vector<std::string> rows;
  io::for_each_row(bytes, layout, [&](const io::Row& row) {
    EXPECT_EQ(bytes.substr(row.offset, row.text.size()), row.text);
    rows.emplace_back(row.text);
  });
  return rows;
}

std::string text_of(const std::string& row, std::int64_t repairs) {
  std::int64_t repaired = 0;
  std::string text;
  try {
    text = io::text_of_row(io::parse_row(row, repaired));
  } catch (const io::RowError& error) { return error.why; }
  EXPECT_EQ(repaired, repairs) << row;
  return text;
}

TEST(Rows, AreLinesOrElementsOfAnArray) {
  EXPECT_EQ(rows_in("{\"a\": 1}\r\n\n  \n[2]\n3", RowLayout::lines),
            (std::vector<std::string>{"{\"a\": 1}\r", "[2]", "3"}));
  const std::string array = " \n[ {\"a\": \"],[{\\\"\"} ,\n[1, [2, 3]],4 , {\"b\": {}}\n]\n";
  const std::size_t begin = io::rows_begin(array, RowLayout::array);
  const auto elements = rows_in(std::string_view(array).substr(begin), RowLayout::array);
  EXPECT_EQ(elements, (std::vector<std::string>{"{\"a\": \"],[{\\\"\"} ", "[1, [2, 3]]", "4 ", "{\"b\": {}}\n"}));
  EXPECT_EQ(layout_of("x.json", " \n[]"), RowLayout::array);
  EXPECT_EQ(layout_of("x.json", "\xEF\xBB\xBF[{}]\n"), RowLayout::array);
  for (const char* cut : {"[", "[{\"a\": 1},\n", "[{\"a\": 1}\n{"})
    EXPECT_THROW((void)layout_of("x.json", cut), Error) << cut;
  EXPECT_EQ(layout_of("x.json", "{}"), RowLayout::lines);
  EXPECT_EQ(layout_of("x.jsonl", "["), RowLayout::lines);
  EXPECT_EQ(layout_of("x.txt", "["), RowLayout::none);
}

TEST(Rows, AreTheSameHoweverTheFileIsDivided) {
  std::string lines, array = "[";
  for (int i = 0; i < 50; ++i) {
    const std::string row = "{\"text\": \"" + std::string(static_cast<std::size_t>(i % 9), ',') + "\\\"]\", \"n\": [" +
                            std::to_string(i) + ", {}]}";
    lines += row + (i % 7 == 0 ? "\n\n" : "\n");
    array += (i > 0 ? ",\n " : "") + row;
  }
  array += "]\n";
  for (const RowLayout layout : {RowLayout::lines, RowLayout::array}) {
    std::string_view bytes = layout == RowLayout::lines ? lines : array;
    bytes.remove_prefix(io::rows_begin(bytes, layout));
    const auto all = rows_in(bytes, layout);
    EXPECT_EQ(all.size(), 50u);
    for (const std::size_t part : {1u, 2u, 40u, 100u, 100000u}) {
      std::vector<std::string> joined;
      for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t length = io::rows_end(bytes.substr(at), layout, part);
        ASSERT_GT(length, 0u);
        for (auto& row : rows_in(bytes.substr(at, length), layout)) joined.push_back(row);
        at += length;
      }
      EXPECT_EQ(joined, all) << part;
    }
  }
}

TEST(Rows, OfAnArrayAreSeparatedByOneComma) {
  for (const char* text : {"[]", "[ ]", "[{\"text\": \"a,\"}]", "[{\"text\": \"a\"},\n{\"text\": \"b\"}\n]\n"})
    EXPECT_EQ(layout_of("x.json", text), RowLayout::array) << text;
  for (const char* text : {"[{\"text\": \"a\"},]", "[{\"text\": \"a\"} , \n]\n"})
    expect_error(ExitCode::data, "the JSON array ends with a comma", [&] { (void)layout_of("x.json", text); });
  const auto rows = rows_in("{\"a\": 1},,{\"a\": 2}, ,{\"a\": 3}]", RowLayout::array);
  EXPECT_EQ(rows.size(), 5u) << "an element that is nothing is a row that cannot be read";
}

TEST(Rows, AreRepaired) {
  EXPECT_EQ(text_of("{\"text\": \"a\xff\xc3(b\"}", 2), "a\uFFFD\uFFFD(b");
  EXPECT_EQ(text_of(R"({"text": "\ud800x\udc00\ud83d\ude00\ud83d\\ud83d"})", 3), "\uFFFDx\uFFFD😀\uFFFD\\ud83d");
  EXPECT_EQ(text_of(R"({"text": "NaN \" NaN", "a": NaN, "b": [-Infinity, Infinity]})", 3), "NaN \" NaN");
  EXPECT_EQ(io::lost_numbers(R"({"text": "NaN", "a": NaN, "b": [Infinity], "c": null, "d": -Infinity})").dump(),
            R"({"a":null,"d":null})");
  EXPECT_EQ(text_of(R"({"text": "whole", "a": 1e3})", 0), "whole");
  EXPECT_EQ(text_of("{\"text\": \"a\"", 0), "the row is not JSON at column 13");
  EXPECT_EQ(text_of("{\"text\": \"a\\ud8", 0), "the row is not JSON at column 16");
  EXPECT_EQ(text_of("{\"text\": 1e999}", 0), "the row has a number beyond the range of doubles");
  EXPECT_EQ(text_of("{\"text\": \"a\", \"x\": " + std::string(70, '[') + std::string(70, ']') + "}", 0),
            "the row is nested deeper than 64 levels");
}

TEST(Rows, WithManyKeysTakeLinearTime) {
  const auto object = [](int keys) {
    std::string text;
    for (int i = 0; i < keys; ++i) text += (i > 0 ? ",\"number " : "\"number ") + std::to_string(i) + "\":1";
    return "{" + text + "}";
  };
  std::string objects;
  for (int i = 0; i < 40; ++i) objects += (i > 0 ? "," : "") + object(10000);
  const auto started = std::chrono::steady_clock::now();
  EXPECT_EQ(text_of("{\"text\":\"t\",\"x\":[" + objects + "]}", 0), "t");
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(10)) << "quadratic: a minute";
  EXPECT_EQ(text_of(object(10001), 0), "an object of the row has more than 10000 keys");
  EXPECT_EQ(text_of("{\"text\":\"t\",\"x\":{\"b\":1," + object(40).substr(1, object(40).size() - 2) + ",\"b\":2}}", 0),
            "\"b\" occurs twice in an object");
}

TEST(Rows, NameKeysThatNothingReads) {
  TempDir folder;
  std::string lines;
  for (int i = 0; i < 5; ++i) lines += "{\"text\": \"t\", \"id\": " + std::to_string(i) + ", \"none\": null}\n";
  const std::string path = folder.file("a.jsonl", lines + "{\"text\": \"t\", \"source\": [1]}\n");
  io::SkippedRows skipped;
  (void)io::open_dataset({path}, &skipped);
  EXPECT_EQ(skipped.count, 0);
  EXPECT_EQ(skipped.unread.counts, (std::map<std::string, std::int64_t>{{"id", 5}, {"source", 1}}));
  expect_error(ExitCode::data, "the row has keys that are not read: \"id\" [" + path + ":1",
               [&] { (void)io::open_dataset({path}); });
  io::UnreadKeys many;
  for (int i = 0; i < 100; ++i) many.add("key " + std::to_string(i), 2);
  EXPECT_EQ(many.counts.size(), io::UnreadKeys::most);
  EXPECT_EQ(many.others, 2 * (100 - static_cast<std::int64_t>(io::UnreadKeys::most)));
}

TEST(Rows, ThatCannotBeUsedAreCountedAndNamed) {
  TempDir folder;
  std::string lines;
  for (int i = 0; i < 15; ++i) lines += "{\"text\": \"" + std::to_string(i) + "\"}\nno json\n";
  const std::string path = folder.file("a.jsonl", lines);
  io::SkippedRows skipped;
  const io::Dataset data = io::open_dataset({path}, &skipped);
  EXPECT_EQ(skipped.count, 15);
  ASSERT_EQ(skipped.named.size(), io::SkippedRows::most_named);
  EXPECT_EQ(skipped.named[1], path + ":4: the row is not JSON at column 2");
  EXPECT_EQ(data.tokens->size(), 10 + 5 * 2 + 14);
  EXPECT_EQ(data.document_ends.size(), 15u);
  expect_error(ExitCode::data, path + ":2", [&] { (void)io::open_dataset({path}); });
  const std::string none = folder.file("b.jsonl", "\n{\"txt\": 1}\n3\n");
  expect_error(ExitCode::data, "no document that can be used", [&] { (void)io::open_dataset({none}, &skipped); });
  expect_error(ExitCode::data, none + ":2", [&] { (void)io::open_dataset({none}, &skipped); });
}

TEST(Rows, ThatArePythonLiteralsAreToldFromBrokenJson) {
  for (const char* text : {"{'text': 'a'}", " [{'role': \"user\"}]", R"([{"a": True}])",
                           R"({"a": "x", "b": None , "c": 1})", R"([{"it's": 1, 'b': 2}])", "[None]"})
    EXPECT_TRUE(io::is_python_literal(text)) << text;
  for (const char* text : {R"({"text": "it's True, None"})", R"({"text": "He said "it's" fine"})", "'a'", "", "[1, 2",
                           R"({"text": "said "No, None of it" "})", R"({"a": Nonesuch})", "it's [None]"})
    EXPECT_FALSE(io::is_python_literal(text)) << text;
  EXPECT_EQ(text_of("{'text': 'a'}", 0),
            "the row is a Python literal, not JSON: write it by json.dumps(...), not by str(...)");
  TempDir folder;
  std::string lines;
  for (int i = 0; i < 30; ++i) lines += "{\"text\": \"a\"}\n{'text': 'a'}\nno json\n";
  const std::string path = folder.file("a.jsonl", lines);
  io::SkippedRows skipped;
  (void)io::open_dataset({path}, &skipped);
  EXPECT_EQ(skipped.count, 60);
  EXPECT_EQ(skipped.named.front(), path + ":3: the row is not JSON at column 2");
  ASSERT_EQ(skipped.literals.size(), 1U);
  EXPECT_EQ(skipped.literals.at("the row").rows, 30);
  EXPECT_EQ(skipped.literals.at("the row").first, path + ":2");
}

TEST(Rows, OfAnArrayAreDocuments) {
  TempDir folder;
  const std::string path = folder.file("a.json", "[{\"text\": \"one\"},\n {\"text\": \"two\"}]");
  const io::Dataset data = io::open_dataset({path});
  EXPECT_EQ(data.tokens->size(), 7);
  EXPECT_EQ(data.document_ends, (std::vector<std::int64_t>{4, 7}));
  EXPECT_EQ(data.files[0].kind, "json");
}

TEST(DataFiles, NamesHaveNoSelection) {
  EXPECT_EQ(io::without_selection("d/a.jsonl:0.3"), "d/a.jsonl");
  EXPECT_EQ(io::without_selection("a.jsonl#5"), "a.jsonl");
  EXPECT_EQ(io::without_selection("d/a.jsonl"), "d/a.jsonl");
}

TEST(DataFiles, AreNamedByDirectoriesPatternsAndSelections) {
  TempDir folder;
  std::filesystem::create_directories(folder / "d/sub");
  std::filesystem::create_directories(folder / "d/.hidden");
  for (const char* name : {"d/b.jsonl", "d/a.json", "d/sub/c.txt", "d/notes.md", "d/.hidden/x.jsonl", "d/odd#3"})
    folder.file(name, "x");
  const auto paths = [&](const std::vector<std::string>& names) {
    std::string all;
    for (const io::DataFile& file : io::data_files(names))
      all += file.path.substr((folder / "").size()) + (file.rows ? "#" + std::to_string(*file.rows) : "") +
             (file.share ? strfmt(":%g", *file.share) : "") + " ";
    return all;
  };
  EXPECT_EQ(paths({folder / "d"}), "d/a.json d/b.jsonl ");
  EXPECT_EQ(paths({folder / "d/*.js*"}), "d/a.json d/b.jsonl ");
  EXPECT_EQ(paths({folder / "d/b.jsonl#500", folder / "d/a.json:0.3", folder / "d/odd#3", folder / "none:x"}),
            "d/b.jsonl#500 d/a.json:0.3 d/odd#3 none:x ");
  EXPECT_EQ(paths({(folder / "d") + "#2"}), "d/a.json#2 d/b.jsonl#2 ");
  for (const char* bad : {"#0", "#-3", "#x", "#", ":0", ":-1"})
    expect_error(ExitCode::data, "positive number", [&] { (void)io::data_files({(folder / "d/b.jsonl") + bad}); });
  expect_error(ExitCode::data, "matches", [&] { (void)io::data_files({folder / "d/*.parquet"}); });
  expect_error(ExitCode::data, "Give the directory", [&] { (void)io::data_files({folder / "d/**/*.txt"}); });
  std::filesystem::create_directories(folder / "empty");
  expect_error(ExitCode::data, "no .jsonl", [&] { (void)io::data_files({folder / "empty"}); });
  EXPECT_EQ((io::DataFile{"x", 7, {}}.wanted(3)), 7);
  EXPECT_EQ((io::DataFile{"x", {}, 0.3}.wanted(10)), 3);
  EXPECT_EQ((io::DataFile{"x", 3000, {}}.wanted(3)), 3000);
  EXPECT_EQ((io::DataFile{"x", {}, 1000}.wanted(0)), 0);
  for (const io::DataFile& far :
       {io::DataFile{"x", 3001, {}}, io::DataFile{"x", {}, 1e18}, io::DataFile{"x", {}, 1001}})
    expect_error(ExitCode::data, "of its 3 rows would be there", [&] { (void)far.wanted(3); });
}

}  // namespace
}  // namespace tessera
