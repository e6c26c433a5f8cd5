// SPDX-License-Identifier: Apache-2.0
// Tokenizers of every family against Hugging Face's `tokenizers` (golden files of tokenizer/make_golden.py), and
// properties.

#include "io/tokenizer/tokenizer.hpp"

#include <set>

#include "io/tokenizer/encoder.hpp"
#include "io/tokenizer/split_point.hpp"
#include "io/tokenizer/tables.hpp"
#include "io/tokenizer/unicode.hpp"
#include "io/tokenizer/utf8.hpp"
#include "tests/io/files.hpp"
#include "tests/io/tokenizer_files.hpp"

namespace tessera::tokenizer_files {
namespace {

std::string summary(const Ids& ids) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const std::int32_t id : ids) hash = (hash ^ static_cast<std::uint64_t>(id)) * 1099511628211ull;
  return strfmt("[%zu,\"%016llx\"]", ids.size(), static_cast<unsigned long long>(hash));
}

void expect_ids(const Ids& ids, const Json& expected, const std::string& text) {
  const bool summed = expected.size() == 2 && expected[1].is_string();
  EXPECT_EQ(summed ? summary(ids) : Json(ids).dump(), expected.dump()) << text.substr(0, 200);
}

class Family : public testing::TestWithParam<const char*> {
 protected:
  const std::string name = GetParam();
  const TextTokenizer tokenizer = TextTokenizer::load(data(name + ".tokenizer.json"));
  const std::vector<std::string> corpus = texts();
};
INSTANTIATE_TEST_SUITE_P(Tokenizer, Family,
                         testing::Values("gpt2", "llama3", "qwen2", "qwen35", "added", "llama2", "unknowns",
                                         "metaspace", "neox", "smollm2", "gemma", "o200k", "tekken", "deepseek",
                                         "deepseek_coder", "falcon", "bloom", "starcoder2", "nfkc", "tiktoken",
                                         "merged"),
                         [](const auto& about) { return std::string(about.param); });

TEST_P(Family, GivesTheIdsOfHuggingFace) {
  const Json expected = golden(name + ".golden.json");
  ASSERT_EQ(expected["with"].size(), corpus.size());
  ASSERT_GT(corpus.size(), 200u);
  io::TextEncoder encoder(tokenizer);
  for (int pass = 0; pass < 2; ++pass) {  // in the second pass all words are cached
    for (std::size_t i = 0; i < corpus.size(); ++i) {
      Ids ids;
      encoder.encode(corpus[i], Special::with, ids);
      expect_ids(ids, expected["with"][i], corpus[i]);
      expect_ids(tokenizer.encode(corpus[i], Special::without), expected["without"][i], corpus[i]);
    }
  }
}

TEST_P(Family, GivesThemForAMegabyteOfAnything) {
  const Json expected = golden(name + ".golden.json")["long"], long_ones = golden("texts.json")["long"];
  ASSERT_EQ(expected.size(), long_ones.size());
  for (std::size_t i = 0; i < long_ones.size(); ++i) {
    const std::string unit = long_ones[i][0];
    std::string text;
    for (int n = long_ones[i][1]; n > 0; --n) text += unit;
    expect_ids(tokenizer.encode(text, Special::with), expected[i], text);
  }
}

TEST_P(Family, DecodesAsHuggingFace) {
  const Json expected = golden(name + ".golden.json")["decode"];
  ASSERT_EQ(expected.size(), 40u);
  for (const auto& entry : expected) {
    const Ids ids = entry[0];
    EXPECT_EQ(tokenizer.decode(ids, Special::with), from_hex(entry[1])) << entry[0];
    EXPECT_EQ(tokenizer.decode(ids, Special::without), from_hex(entry[2])) << entry[0];
  }
}

TEST_P(Family, GivesTextBackThatWasUtf8) {
  // The others normalize the text.
  const std::set<std::string> as_they_are = {"gpt2",   "llama3",     "smollm2",        "o200k",
                                             "tekken", "deepseek",   "deepseek_coder", "falcon",
                                             "bloom",  "starcoder2", "tiktoken",       "merged"};
  const bool exact = as_they_are.contains(name);
  int checked = 0;
  for (const std::string& text : corpus) {
    if (!exact || io::utf8::valid_prefix(text) != text.size()) continue;
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, Special::without), Special::with), text);
    ++checked;
  }
  EXPECT_TRUE(!exact || checked > 150);
}

TEST_P(Family, StreamsCompleteCharacters) {
  io::StreamDecoder stream(tokenizer, Special::with);
  for (const std::string& text : corpus) {
    const Ids ids = tokenizer.encode(text, Special::without);
    std::string joined;
    for (const std::int32_t id : ids) {
      const std::string part = stream.push(id);
      EXPECT_EQ(io::utf8::valid_prefix(part), part.size());
      joined += part;
    }
    joined += stream.finish();
    EXPECT_EQ(joined, tokenizer.decode(ids, Special::with));
  }
}

TEST_P(Family, GivesTheSameIdsForATextThatWasSplit) {
  const std::set<std::string> joined_lines = {"added", "unknowns", "deepseek_coder", "bloom",
                                              "nfkc",  "tiktoken", "merged"};
  EXPECT_EQ(tokenizer.tables().is_splittable, !joined_lines.contains(name));
  if (!tokenizer.tables().is_splittable) return;
  std::string text;
  for (int i = 0; i < 3; ++i)
    for (const std::string& part : corpus) text += part.substr(0, 300) + (i > 0 ? "\n" : "");
  const Ids at_once = tokenizer.encode(text, Special::without);
  io::Encoder encoder(tokenizer.tables(), io::Encoder::Memory::cache);
  Ids joined;
  int cuts = 0;
  for (std::size_t at = 0; at < text.size(); ++cuts) {
    const std::size_t end = at + io::find_split_point(std::string_view(text).substr(at), 5);
    const std::string_view part = std::string_view(text).substr(at, end - at);
    encoder.encode(part, at == 0 ? io::Normalizer::Position::beginning : io::Normalizer::Position::inside, joined);
    at = end;
  }
  EXPECT_GT(cuts, 100);
  EXPECT_EQ(at_once, joined);
}

TEST_P(Family, RefusesItsTruncatedFile) {
  const std::string json = io::read_text(data(name + ".tokenizer.json"));
  for (std::size_t length = 0; length + 2 < json.size(); length += 1 + json.size() / 300)
    test::expect_error(ExitCode::data, "tokenizer",
                       [&] { (void)TextTokenizer::parse(json.substr(0, length), "cut.json"); });
}

/// Marks after which one of a lower class comes: what an insertion sort would move.
std::size_t descents(std::u32string_view marks) {
  const auto lower = [](char32_t a, char32_t b) { return a == U'\u0301' && b == U'\u0323'; };  // 230 and 220
  std::size_t count = 0;
  for (std::size_t i = 1; i < marks.size(); ++i) count += lower(marks[i - 1], marks[i]) ? 1 : 0;
  return count;
}

TEST(Tokenizer, OrdersMarksBeforeTheyAreComposed) {
  std::string text = "a", expected = "\u1EA1", buffer, composed;  // a with dot below
  for (int i = 0; i < 100000; ++i) text += "\u0301\u0323";
  for (int i = 0; i < 99999; ++i) expected += "\u0323";
  for (int i = 0; i < 100000; ++i) expected += "\u0301";
  const std::string_view ordered = io::unicode::order_marks(io::unicode::Form::nfc, text, buffer);
  ASSERT_EQ(ordered.size(), text.size());
  std::u32string marks;
  for (std::size_t at = 1; at < ordered.size(); at += 2) marks += io::utf8::read(ordered.data() + at).code;
  EXPECT_EQ(marks.size(), 200000u);
  EXPECT_EQ(descents(marks), 0u);  // ICU, which inserts, has nothing to move
  EXPECT_EQ(io::unicode::normalize(io::unicode::Form::nfc, text, composed), expected);
  const std::string few = "a\u0301\u0323";
  EXPECT_EQ(io::unicode::order_marks(io::unicode::Form::nfc, few, buffer).data(), few.data());
}

TEST(Tokenizer, FindsSingleWordsByTheWordsOfHuggingFace) {
  EXPECT_TRUE(io::unicode::is_word(U'\U00010D4A'));  // Unicode 16.0: Garay, which Debian 12's ICU lacks
  EXPECT_TRUE(io::unicode::is_word(U'\u200D'));
  EXPECT_TRUE(io::unicode::is_word(U'_'));
  EXPECT_FALSE(io::unicode::is_word(U'-'));
  EXPECT_FALSE(io::unicode::is_word(U'\u00B2'));
  EXPECT_FALSE(io::unicode::is_word(U'\U0010FFFF'));
}

std::vector<std::string> pieces_of(const TextTokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> found;
  io::PieceReader reader(tokenizer.tables().pre_tokenizer);
  reader.start(text);
  for (const char *at = text.data(), *end = at + text.size(); at != end;) {
    const char* const stop = reader.next();
    found.emplace_back(at, stop);
    at = stop;
  }
  return found;
}

/// A pattern that has no matcher of its own, in a byte-level tokenizer.
TextTokenizer with_pattern(const std::string& regex, const std::string& behavior = "Isolated") {
  Json json = golden("qwen2.tokenizer.json");
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = regex;
  json["pre_tokenizer"]["pretokenizers"][0]["behavior"] = behavior;
  return TextTokenizer::parse(json.dump(), "t.json");
}

TEST(Tokenizer, SplitsByTheClassesOfHuggingFaceWhateverTheEngineKnows) {
  using Parts = std::vector<std::string>;
  // Unicode 16.0: Garay's small letter a and digit zero, which Debian 12's Oniguruma (14.0) lacks
  const std::string letter = "\U00010D70", digit = "\U00010D40";
  EXPECT_EQ(pieces_of(with_pattern(R"(\p{Ll}+)"), "1a" + letter + "b2"), (Parts{"1", "a" + letter + "b", "2"}));
  EXPECT_EQ(pieces_of(with_pattern(R"([^\p{L}]+)"), letter + "1" + letter), (Parts{letter, "1", letter}));
  EXPECT_EQ(pieces_of(with_pattern(R"([^\W1]+)"), letter + "1" + letter), (Parts{letter, "1", letter}));
  EXPECT_EQ(pieces_of(with_pattern(R"(\d)"), "a" + digit), (Parts{"a", digit}));
  // Superscripts and fractions are word characters outside of brackets only.
  EXPECT_EQ(pieces_of(with_pattern(R"(\w+)"), "x\u00B2 m"), (Parts{"x\u00B2", " ", "m"}));
  EXPECT_EQ(pieces_of(with_pattern(R"([\w]+)"), "x\u00B2 m"), (Parts{"x", "\u00B2 ", "m"}));
  EXPECT_EQ(pieces_of(with_pattern(R"([^\w]+)"), "x\u00BD-m"), (Parts{"x", "\u00BD-", "m"}));
  EXPECT_EQ(pieces_of(with_pattern(R"(\P{N}+)"), "a" + digit + "b"), (Parts{"a", digit, "b"}));
  EXPECT_EQ(pieces_of(with_pattern(R"(\p{^L}+)"), "ab12c"), (Parts{"ab", "12", "c"}));
}

TEST(Tokenizer, RefusesTextsThatTakeAPatternTooLong) {
  const TextTokenizer ends = with_pattern(R"(\s+$)"), nested = with_pattern("(?:x+x+)+y");
  EXPECT_EQ(pieces_of(ends, std::string(500, ' ') + "x"), (std::vector<std::string>{std::string(500, ' ') + "x"}));
  for (const auto& [tokenizer, text] :
       {std::pair(&ends, std::string(200000, ' ') + "x"), {&nested, std::string(64, 'x')}})
    test::expect_error(ExitCode::data,
                       "split pattern takes more than 4194304 steps, and 4096 for each byte, in a text with a part of",
                       [&, of = tokenizer, in = text] { (void)of->encode(in, Special::without); });
}

TEST(Tokenizer, OrdersMarksOfHalfWidthBeforeNfkcComposesThem) {
  std::string text = "\u304B", expected = "\u304C", composed;  // ka, ga
  for (int i = 0; i < 100000; ++i) text += "\u0301\uFF9E";
  for (int i = 0; i < 99999; ++i) expected += "\u3099";
  for (int i = 0; i < 100000; ++i) expected += "\u0301";
  EXPECT_EQ(io::unicode::normalize(io::unicode::Form::nfkc, text, composed), expected);
  EXPECT_EQ(io::unicode::normalize(io::unicode::Form::nfkc, "\uFF21\uFB01\u00A0", composed), "Afi ");
}

TEST(Tokenizer, SplitsAtAPlainString) {
  Json json = golden("gemma.tokenizer.json");
  json["normalizer"] = nullptr;
  json["model"]["ignore_merges"] = true;  // else pieces are also split between characters that no merge joins
  json["decoder"]["decoders"][0] = {{"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", "x"}};
  const auto parts = [&json](const char* behavior) {
    json["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"String", "ab"}}}, {"behavior", behavior}, {"invert", false}};
    const auto tokenizer = TextTokenizer::parse(json.dump(), "t.json");
    const std::string text = "ababxabyzabab";
    return pieces_of(tokenizer, text);
  };
  using Parts = std::vector<std::string>;
  EXPECT_EQ(parts("Isolated"), (Parts{"ab", "ab", "x", "ab", "yz", "ab", "ab"}));
  EXPECT_EQ(parts("MergedWithPrevious"), (Parts{"ab", "ab", "xab", "yzab", "ab"}));
  EXPECT_EQ(parts("MergedWithNext"), (Parts{"ab", "abx", "abyz", "ab", "ab"}));
  EXPECT_EQ(parts("Contiguous"), (Parts{"abab", "x", "ab", "yz", "abab"}));
}

TEST(Tokenizer, KnowsItsTokens) {
  const TextTokenizer llama = TextTokenizer::load(data("llama3.tokenizer.json"));
  const std::int32_t bos = llama.id_of("<|begin_of_text|>").value();
  EXPECT_EQ(llama.token(bos), "<|begin_of_text|>");
  EXPECT_TRUE(llama.is_special(bos));
  EXPECT_FALSE(llama.is_special(0));
  EXPECT_EQ(llama.encode("", Special::with), Ids{bos});
  EXPECT_EQ(llama.encode("", Special::without), Ids{});
  EXPECT_EQ(llama.vocab_size(), llama.id_of("<|eot_id|>").value() + 1);
  EXPECT_EQ(llama.id_of("no such token"), std::nullopt);
  EXPECT_EQ(llama.token(-1), "");
  EXPECT_EQ(llama.token(1 << 30), "");
  EXPECT_EQ(llama.decode(Ids{-5, bos, 1 << 30, 0}, Special::without), "!");
  EXPECT_EQ(llama.eos_id(), std::nullopt);
  EXPECT_THAT(llama.describe(), testing::HasSubstr("Llama 3 split"));
}

}  // namespace
}  // namespace tessera::tokenizer_files
