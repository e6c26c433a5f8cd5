// SPDX-License-Identifier: Apache-2.0
// Tokenizers of every family against Hugging Face's `tokenizers` (golden files of tokenizer/make_golden.py), and
// properties.

#include "io/tokenizer/tokenizer.hpp"

#include <nlohmann/json.hpp>
#include <set>

#include "io/file/text_file.hpp"
#include "io/tokenizer/encoder.hpp"
#include "io/tokenizer/split_point.hpp"
#include "io/tokenizer/tables.hpp"
#include "io/tokenizer/unicode.hpp"
#include "io/tokenizer/utf8.hpp"
#include "tests/io/files.hpp"

namespace tessera::tokenizer_files {
namespace {

using io::Special;
using io::TextTokenizer;
using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

std::string data(const std::string& name) { return std::string(TESSERA_TEST_DATA) + "/tokenizer/" + name; }
Json golden(const std::string& name) { return Json::parse(io::read_text(data(name))); }

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::vector<std::string> texts() {
  std::vector<std::string> all;
  const Json file = golden("texts.json");
  for (const auto& text : file["texts"]) all.push_back(from_hex(text));
  return all;
}

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

TEST(Tokenizer, ReadsWhatEndsADocument) {
  test::TempDir folder;
  folder.file("tokenizer.json", io::read_text(data("qwen2.tokenizer.json")));
  EXPECT_TRUE(TextTokenizer::exists(folder.path()));
  EXPECT_EQ(TextTokenizer::load(folder.path()).eos_ids(), Ids{});
  folder.file("tokenizer_config.json", R"({"eos_token": {"content": "<|im_end|>"}, "bos_token": null})");
  const TextTokenizer by_name = TextTokenizer::load(folder.path());
  EXPECT_EQ(by_name.eos_id(), by_name.id_of("<|im_end|>"));
  EXPECT_EQ(by_name.bos_id(), std::nullopt);
  folder.file("config.json", R"({"text_config": {"eos_token_id": 8}})");  // of a model of text and images
  EXPECT_EQ(TextTokenizer::load(folder.path()).eos_ids(), Ids{8});
  folder.file("config.json", R"({"eos_token_id": 7, "bos_token_id": 5, "text_config": {"eos_token_id": 8}})");
  EXPECT_EQ(TextTokenizer::load(folder.path()).eos_ids(), Ids{7});
  folder.file("generation_config.json", R"({"eos_token_id": [9, 7]})");
  const TextTokenizer by_list = TextTokenizer::load(folder / "tokenizer.json");
  EXPECT_EQ(by_list.eos_ids(), (Ids{9, 7}));
  EXPECT_EQ(by_list.bos_id(), 5);
  folder.file("generation_config.json", R"({"eos_token_id": "9"})");
  test::expect_error(ExitCode::data, "eos_token_id is not a token id",
                     [&] { (void)TextTokenizer::load(folder.path()); });
  test::expect_error(ExitCode::data, "tokenizer.json",
                     [&] { (void)TextTokenizer::load(folder / "nowhere.tokenizer.json"); });
  EXPECT_FALSE(TextTokenizer::exists(folder / "nowhere"));
}

/// As transformers 5.24 does; "<|extra|>" gets the id behind all others.
TEST(Tokenizer, FilesBesideItAddTokens) {
  test::TempDir folder;
  folder.file("tokenizer.json", io::read_text(data("qwen2.tokenizer.json")));
  const TextTokenizer plain = TextTokenizer::load(folder.path());
  const std::int32_t id = plain.vocab_size();
  const std::string listed =
      strfmt(R"({"added_tokens_decoder": {"%d": {"content": "<|extra|>", "special": true}}})", id);
  const auto joined = [&](const TextTokenizer& of) {
    Ids ids = of.encode("a", Special::without);
    ids.push_back(id);
    const Ids behind = of.encode("b", Special::without);
    ids.insert(ids.end(), behind.begin(), behind.end());
    return ids;
  };
  for (const std::string& config : std::vector<std::string>{listed, R"({"additional_special_tokens": ["<|extra|>"]})",
                                                            R"({"extra_special_tokens": {"x": "<|extra|>"}})",
                                                            R"({"pad_token": "<|extra|>", "eos_token": "<|im_end|>"})",
                                                            R"({"image_token": {"content": "<|extra|>"}})"}) {
    folder.file("tokenizer_config.json", config);
    const TextTokenizer more = TextTokenizer::load(folder.path());
    EXPECT_EQ(more.encode("a<|extra|>b", Special::without), joined(more)) << config;
    EXPECT_EQ(more.encode("<|im_start|>c", Special::without), plain.encode("<|im_start|>c", Special::without));
    EXPECT_TRUE(more.is_special(id)) << config;
    EXPECT_EQ(more.vocab_size(), id + 1);
    EXPECT_NE(more.hash(), plain.hash());
  }
  folder.file("tokenizer_config.json", "{}");
  EXPECT_EQ(TextTokenizer::load(folder.path()).hash(), plain.hash());
  folder.file("added_tokens.json", strfmt(R"({"<|extra|>": %d})", id));
  EXPECT_EQ(TextTokenizer::load(folder.path()).encode("a<|extra|>b", Special::without), joined(plain));
  folder.file("tokenizer_config.json", R"({"added_tokens_decoder": {}})");  // which the others are read without
  EXPECT_EQ(TextTokenizer::load(folder.path()).hash(), plain.hash());
  for (const char* other : {"5", "4000"}) {
    folder.file("tokenizer_config.json",
                strfmt(R"({"added_tokens_decoder": {"%s": {"content": "<|extra|>"}}})", other));
    test::expect_error(ExitCode::data, strfmt("gives \"<|extra|>\" the id %s", other),
                       [&] { (void)TextTokenizer::load(folder.path()); });
  }
}

TEST(Tokenizer, DifferencesOfTransformersClasses) {
  test::TempDir folder;
  const auto load = [&](const char* family, const char* config) {
    folder.file("tokenizer.json", io::read_text(data(std::string(family) + ".tokenizer.json")));
    folder.file("tokenizer_config.json", config);
    return TextTokenizer::load(folder.path());
  };
  constexpr const char *llama = R"({"tokenizer_class": "LlamaTokenizerFast"})",
                       *legacy = R"({"tokenizer_class": "LlamaTokenizer", "legacy": true})";
  EXPECT_NE(load("llama2", llama).difference(), "");
  EXPECT_NE(load("metaspace", legacy).difference(), "");
  EXPECT_EQ(load("metaspace", llama).difference(), "");
  EXPECT_EQ(load("llama2", R"({"tokenizer_class": "PreTrainedTokenizerFast"})").difference(), "");
  EXPECT_EQ(load("llama3", llama).difference(), "");  // byte-level: read as it is
  folder.file("config.json", R"({"model_type": "mixtral"})");
  EXPECT_EQ(load("llama2", llama).difference(), "");
  EXPECT_NO_THROW(load("gpt2", R"({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": false})"));
  EXPECT_NO_THROW(load("gpt2", R"({"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": true})"));
  test::expect_error(ExitCode::data, "add_prefix_space is false, and true in tokenizer_config.json",
                     [&] { (void)load("gpt2", R"({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true})"); });
}

/// Writes vocab.json, merges.txt and what tokenizer_config.json says about added tokens, from a tokenizer.json.
void write_parts(const test::TempDir& folder, const std::string& family, const std::string& name_of_class) {
  const Json whole = Json::parse(io::read_text(data(family + ".tokenizer.json")));
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : whole["model"]["merges"])
    merges += (merge.is_array() ? merge[0].get<std::string>() + " " + merge[1].get<std::string>()
                                : merge.get<std::string>()) +
              "\n";
  Json settings = {{"tokenizer_class", name_of_class}, {"added_tokens_decoder", Json::object()}};
  for (Json token : whole["added_tokens"]) {
    const std::string id = std::to_string(token["id"].get<int>());
    token.erase("id");
    settings["added_tokens_decoder"][id] = token;
  }
  folder.file("vocab.json", whole["model"]["vocab"].dump());
  folder.file("merges.txt", merges);
  folder.file("tokenizer_config.json", settings.dump());
}

TEST(Tokenizer, IsReadFromVocabAndMerges) {
  for (const auto& [family, name] : {std::pair("gpt2", "GPT2TokenizerFast"), std::pair("qwen2", "Qwen2Tokenizer")}) {
    const test::TempDir folder;
    write_parts(folder, family, name);
    EXPECT_EQ(TextTokenizer::file_at(folder.path()), folder / "vocab.json");
    const TextTokenizer whole = TextTokenizer::load(data(std::string(family) + ".tokenizer.json")),
                        parts = TextTokenizer::load(folder.path());
    EXPECT_EQ(parts.vocab_size(), whole.vocab_size());
    for (const std::string& text : texts()) {
      EXPECT_EQ(parts.encode(text, Special::with), whole.encode(text, Special::with)) << family << ": " << text;
      EXPECT_EQ(parts.decode(whole.encode(text, Special::with), Special::without),
                whole.decode(whole.encode(text, Special::with), Special::without));
    }
  }
}

TEST(Tokenizer, OfVocabAndMergesIsRefusedWhereItIsNotKnown) {
  const test::TempDir folder;
  const auto refused = [&](const std::string& words) {
    test::expect_error(ExitCode::data, words, [&] { (void)TextTokenizer::load(folder.path()); });
  };
  write_parts(folder, "gpt2", "RobertaTokenizer");
  refused("are of a \"Roberta\" tokenizer, which is not known");
  folder.file("tokenizer_config.json", "{}");
  refused("neither tokenizer_config.json nor config.json says which kind");
  folder.file("config.json", R"({"model_type": "gpt2"})");
  Json vocab = Json::parse(io::read_text(folder / "vocab.json"));
  vocab["<|endoftext|>"] = vocab.size();  // where GPT-2 has it
  folder.file("vocab.json", vocab.dump());
  const TextTokenizer by_model = TextTokenizer::load(folder.path());
  EXPECT_TRUE(by_model.is_special(by_model.id_of("<|endoftext|>").value())) << "GPT-2's own special token";
  folder.file("special_tokens_map.json", R"({"pad_token": "<pad>"})");
  for (const bool listed : {false, true}) {  // behind the others, as in transformers
    if (listed) folder.file("added_tokens.json", strfmt(R"({"<pad>": %d})", by_model.vocab_size()));
    const TextTokenizer padded = TextTokenizer::load(folder.path());
    EXPECT_EQ(padded.encode("a<pad>", Special::without).back(), by_model.vocab_size());
    EXPECT_TRUE(padded.is_special(by_model.vocab_size()));
  }
  folder.file("tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<|endoftext|>"})");
  EXPECT_EQ(TextTokenizer::load(folder.path()).encode("a", Special::with).front(), by_model.id_of("<|endoftext|>"));
  std::filesystem::remove(folder / "merges.txt");
  EXPECT_FALSE(TextTokenizer::exists(folder.path()));
}

}  // namespace
}  // namespace tessera::tokenizer_files
