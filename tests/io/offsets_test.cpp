// SPDX-License-Identifier: Apache-2.0
// Offsets of a text among its token ids.

#include "io/tokenizer/tokenizer.hpp"
#include "io/tokenizer/utf8.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

using Ids = std::vector<std::int32_t>;

io::TextTokenizer tokenizer(const std::string& family) {
  std::string path = TESSERA_TEST_DATA "/tokenizer/";
  path += family;
  path += ".tokenizer.json";
  return io::TextTokenizer::load(path);
}

/// Every character's offset.
std::vector<std::size_t> offsets_in(const std::string& text) {
  std::vector<std::size_t> offsets;
  for (std::size_t at = 0; at < text.size();) {
    offsets.push_back(at);
    at += static_cast<std::size_t>(io::utf8::read(text.data() + at).length);
  }
  offsets.push_back(text.size());
  return offsets;
}

TEST(Offsets, OfEveryCharacterAreConsistentWithTheIds) {
  const std::string text =
      "<|im_start|>user\nThe  cafe\u0301 \u2581 says: 漢字 and 😀😀!\n\n<|endoftext|> Don't <s>12345 \u00dcbung "
      "a\u0301\u0323 end ";
  for (const char* family : {"gpt2", "llama3", "qwen2", "llama2", "metaspace", "unknowns", "added"}) {
    SCOPED_TRACE(family);
    const io::TextTokenizer with = tokenizer(family);
    io::TextEncoder encoder(with);
    Ids ids;
    std::vector<std::size_t> before;
    const std::vector<std::size_t> offsets = offsets_in(text);
    encoder.encode(text, offsets, ids, before);
    EXPECT_EQ(ids, with.encode(text, io::Special::without));
    ASSERT_EQ(before.size(), offsets.size());
    EXPECT_EQ(before.front(), 0u);
    EXPECT_EQ(before.back(), ids.size());
    EXPECT_TRUE(std::is_sorted(before.begin(), before.end()));
    // Any choice of offsets gives the same counts.
    for (std::size_t step : {2u, 5u, 31u}) {
      std::vector<std::size_t> some, expected, got;
      for (std::size_t i = 0; i < offsets.size(); i += step) some.push_back(offsets[i]), expected.push_back(before[i]);
      Ids again;
      encoder.encode(text, some, again, got);
      EXPECT_EQ(again, ids);
      EXPECT_EQ(got, expected) << step;
    }
  }
}

/// Decoded ids [0, before) are the text up to the offset, where no token crosses it.
TEST(Offsets, DivideTheIdsAsTheyDivideTheText) {
  for (const char* family : {"gpt2", "llama3", "qwen2"}) {
    const io::TextTokenizer with = tokenizer(family);
    io::TextEncoder encoder(with);
    const std::string text = "<|im_start|>assistant\nHello there, world!<|im_end|>\n<|im_start|>user\nwhy? 12 34\n";
    const std::vector<std::size_t> offsets = offsets_in(text);
    Ids ids;
    std::vector<std::size_t> before;
    encoder.encode(text, offsets, ids, before);
    std::size_t exact = 0;
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      const std::string head = with.decode(std::span(ids).first(before[i]), io::Special::with);
      EXPECT_TRUE(text.starts_with(head) && head.size() <= offsets[i]) << family << " " << offsets[i];
      exact += head.size() == offsets[i];
      if (before[i] < ids.size()) {
        EXPECT_GT(with.decode(std::span(ids).first(before[i] + 1), io::Special::with).size(), offsets[i]) << offsets[i];
      }
    }
    EXPECT_GE(exact, ids.size());
  }
}

TEST(Offsets, InsideATokenCountAsBeforeIt) {
  const io::TextTokenizer with = tokenizer("qwen2");
  io::TextEncoder encoder(with);
  Ids ids;
  std::vector<std::size_t> before;
  const std::string composed = "e\u0301x";  // NFC makes one character of the first two
  encoder.encode(composed, std::vector<std::size_t>{0, 1, 3, 4}, ids, before);
  EXPECT_EQ(before[1], 0u);
  EXPECT_LE(before[2], ids.size());
  EXPECT_EQ(before[3], ids.size());
}

}  // namespace
}  // namespace tessera
