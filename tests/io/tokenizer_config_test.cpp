// SPDX-License-Identifier: Apache-2.0
// What the files beside a tokenizer.json add to it, or beside vocab.json and merges.txt.

#include "io/tokenizer/tokenizer_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "io/tokenizer/tokenizer.hpp"
#include "tests/io/files.hpp"
#include "tests/io/tokenizer_files.hpp"

namespace tessera::tokenizer_files {
namespace {

TEST(TokenizerConfig, ReadsWhatEndsADocument) {
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
TEST(TokenizerConfig, FilesBesideItAddTokens) {
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

TEST(TokenizerConfig, DifferencesOfTransformersClasses) {
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
  for (const char* code : {R"({"AutoTokenizer": "tokenization_x.XTokenizer"})",
                           R"({"AutoTokenizer": ["tokenization_x.XTokenizer", null]})",
                           R"(["tokenization_x.X", "tokenization_x.XTokenizer"])"})
    EXPECT_THAT(load("qwen2", strfmt(R"({"auto_map": %s})", code).c_str()).difference(),
                testing::HasSubstr("names \"tokenization_x.XTokenizer\", of code beside the tokenizer"));
  for (const char* none : {"null", "{}", "[null, null]", R"({"AutoProcessor": "processing_x.XProcessor"})"})
    EXPECT_EQ(load("qwen2", strfmt(R"({"auto_map": %s})", none).c_str()).difference(), "") << none;
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

TEST(TokenizerConfig, IsReadFromVocabAndMerges) {
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

TEST(TokenizerConfig, OfVocabAndMergesIsRefusedWhereItIsNotKnown) {
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
  const std::string id = std::to_string(by_model.vocab_size() - 1);
  folder.file("tokenizer_config.json", R"({"added_tokens_decoder": {")" + id + R"(": "<eos>"}})");
  refused("\"<eos>\" and \"<|endoftext|>\" have the id " + id);
  std::filesystem::remove(folder / "merges.txt");
  EXPECT_FALSE(TextTokenizer::exists(folder.path()));
}

TEST(TokenizerConfig, WhatTransformersRefusesIsRefused) {
  const test::TempDir folder;
  folder.file("tokenizer.json", io::read_text(data("qwen2.tokenizer.json")));
  const auto refused = [&](const char* config, const char* words) {
    folder.file("tokenizer_config.json", config);
    test::expect_error(ExitCode::data, words, [&] { (void)TextTokenizer::load(folder.path()); });
  };
  refused("[]", "this is not a JSON object");
  refused(R"({"pad_token": 5})", "pad_token is neither a string nor an object with its content");
  refused(R"({"eos_token": {"lstrip": true}})", "eos_token is neither");
  refused(R"({"extra_special_tokens": "<x>"})", "extra_special_tokens is no list of tokens");
  refused(R"({"additional_special_tokens": [7]})", "additional_special_tokens is neither");
  refused(R"({"added_tokens_decoder": []})", "added_tokens_decoder is no object");
  refused(R"({"added_tokens_decoder": {"-1": "<x>"}})", "an id that is none: \"-1\"");
  refused(R"({"added_tokens_decoder": {"5": {"special": true}}})", "has no token for the id \"5\"");
  refused(R"({"added_tokens_decoder": {"5": "<x>", "05": "<y>"}})", "\"<y>\" and \"<x>\" have the id 5");
  folder.file("added_tokens.json", R"({"<x>": 4000, "<y>": 4000})");
  refused("{}", "\"<x>\" and \"<y>\" have the id 4000");
  folder.file("added_tokens.json", R"({"<x>": "4"})");
  refused("{}", "an id that is none");
  folder.file("added_tokens.json", "{}");
  folder.file("tokenizer_config.json", R"({"add_bos_token": true, "pad_token": null, "extra_special_tokens": {}})");
  EXPECT_NO_THROW((void)TextTokenizer::load(folder.path()));
}

}  // namespace
}  // namespace tessera::tokenizer_files
