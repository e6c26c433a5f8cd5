// SPDX-License-Identifier: Apache-2.0
// Ends of the documents of a data set: by position, by lines of text, by what a token file's own file says.
#include "io/data/documents.hpp"

#include <utility>

#include "io/data/dataset.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

using test::expect_error;
using test::TempDir;
using Ends = std::vector<std::int64_t>;

TEST(Documents, EndsAreFoundByPosition) {
  TempDir folder;
  const std::string text = folder.file("a.txt", "one"), other = folder.file("b", "three"), last = folder.file("c", "x");
  const io::Dataset data = io::open_dataset({text, other, last});  // 4, 10, 11
  const io::DocumentEnds ends(data, [] { return 0; });
  ASSERT_EQ(ends.size(), 3);
  EXPECT_EQ(ends[1], 10);
  for (const auto& [position, document] : {std::pair{0, 0}, {4, 0}, {5, 1}, {10, 1}, {11, 2}, {12, 3}})
    EXPECT_EQ(ends.find(position), document) << position;
  std::vector<std::pair<std::int64_t, std::int64_t>> seen;
  ends.for_each(1, 3, [&](std::int64_t begin, std::int64_t end) { seen.emplace_back(begin, end); });
  EXPECT_EQ(seen, (std::vector<std::pair<std::int64_t, std::int64_t>>{{4, 10}, {10, 11}}));
}

TEST(Documents, OfTextAndJsonLinesEndWithTheirNewline) {
  TempDir folder;
  const std::string text = folder.file("a.txt", "one"),
                    lines = folder.file("b.jsonl", "{\"text\": \"two\"}\n{\"text\": \"\"}\n\n{\"text\": \"six\"}\n"),
                    last = folder.file("c", "end");
  const io::Dataset data = io::open_dataset({text, lines, last});  // one| two| | six| end
  EXPECT_EQ(io::DocumentEnds(data, [] { return 0; }).all(), (Ends{4, 8, 9, 13, 16}));
  EXPECT_EQ(data.tokens->size(), 16);
}

TEST(Documents, OfTokenFilesAreWhatTheirFileSaysOrEndInAToken) {
  TempDir folder;
  const auto tokens = [&](const std::string& name) {
    return folder.file(name, test::token_file_of(20240520, 1, 4, std::string("\7\0\1\0\7\0\2\0", 8)));
  };
  const auto data = [&] { return io::open_dataset({folder / "a.bin", folder / "b.bin"}); };
  (void)tokens("a.bin"), (void)tokens("b.bin");
  EXPECT_EQ(io::DocumentEnds(data(), [] { return 7; }).all(), (Ends{1, 3, 4, 5, 7, 8}));
  expect_error(ExitCode::data, "holds no token 9", [&] { (void)io::DocumentEnds(data(), [] { return 9; }).all(); });
  const auto file = [&](std::int64_t of, const Ends& ends) {
    std::string bytes = io::document_file_header(of, static_cast<std::int64_t>(ends.size()));
    for (const std::int64_t end : ends) bytes.append(reinterpret_cast<const char*>(&end), sizeof end);
    return bytes;
  };
  (void)folder.file("a.bin.documents", file(4, {0, 3, 3, 4}));
  EXPECT_EQ(io::DocumentEnds(data(), [] { return 7; }).all(), (Ends{0, 3, 3, 4, 5, 7, 8}));
  for (const auto& [bytes, words] :
       {std::pair{file(4, {3, 2, 4}), "document 1 ends at token 2, before the previous document's end"},
        {file(4, {3}), "not of 4"},
        {file(5, {3, 5}), "not of 4"},
        {file(4, {-1, 4}), "document 0 ends at token -1, before"},
        {file(4, {2, 4}) + "x", "its count"},
        {file(4, {}), "its count"},
        {std::string("TSRDOCS2"), "wrong magic number"},
        {std::string(), "wrong magic number"},
        {file(4, {2, 4}).substr(0, 32), "its count"}}) {
    (void)folder.file("a.bin.documents", bytes);
    expect_error(ExitCode::data, words, [&] { (void)io::DocumentEnds(data(), [] { return 7; }).all(); });
  }
}

}  // namespace
}  // namespace tessera
