// SPDX-License-Identifier: Apache-2.0
// Unsupported tokenizer.json files: each change to a valid file is refused with an error that names it.

#include <nlohmann/json.hpp>

#include "io/file/text_file.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json file(const std::string& family) {
  return Json::parse(io::read_text(std::string(TESSERA_TEST_DATA) + "/tokenizer/" + family + ".tokenizer.json"));
}
void expect_refusal(const Json& json, const std::string& words) {
  test::expect_error(ExitCode::data, words, [&] { (void)io::TextTokenizer::parse(json.dump(), "t.json"); });
}
/// The file of a family with one value changed is refused.
void expect_refusal(const std::string& family, const std::string& pointer, const Json& value,
                    const std::string& words) {
  Json json = file(family);
  json[Json::json_pointer(pointer)] = value;
  expect_refusal(json, words);
}

TEST(TokenizerRefusals, NameComponentsThatAreNotBuilt) {
  expect_refusal("qwen2", "/version", "2.0", "the tokenizer's version is \"2.0\", where 1.0 is known");
  expect_refusal("qwen2", "/more", 1, "the tokenizer has the key \"more\", which is not known");
  expect_refusal("qwen2", "/normalizer", {{"type", "NFKD"}},
                 "the tokenizer's normalizer is \"NFKD\", which is not supported [t.json]");
  expect_refusal("qwen2", "/normalizer/extra", 1, "\"extra\"");
  expect_refusal("llama2", "/normalizer/normalizers/1/pattern", {{"Regex", " "}}, "\"Regex\"");
  expect_refusal("qwen2", "/pre_tokenizer", {{"type", "Whitespace"}}, "pre_tokenizer is \"Whitespace\"");
  for (const auto& [regex, words] : {std::pair(R"(\p{Greek}+)", R"((the property \p{Greek}): \p{Greek}+)"),
                                     {R"(\p{Cs})", R"(the property \p{Cs})"},
                                     {R"(x\b)", R"(the escape \b)"},
                                     {R"((x)\1)", R"(the escape \1)"},
                                     {"[[:alpha:]]", "a POSIX bracket"},
                                     {R"((?i:\p{Lu}))", "whose case is ignored"},
                                     {"(?i)x(?:\u00E9)", "beyond ASCII whose case is ignored"},
                                     {"(?x: a)", "extended syntax"},
                                     {"(?~x)", "a group that begins with (?~"},
                                     {R"((?D:\d))", "a group that begins with (?D"},
                                     {"(?Wi:x)", "a group that begins with (?W"},
                                     {R"([\s-x])", "a class as the beginning of a range"},
                                     {R"([a-\s])", "a class as the end of a range"},
                                     {"a(b", "end pattern"},
                                     {"a)b", "closes nothing"},
                                     {"[a", "premature end of char-class"},
                                     {"x\\", "a backslash at its end"}})
    expect_refusal("qwen2", "/pre_tokenizer/pretokenizers/0/pattern/Regex", regex, words);
  expect_refusal("qwen2", "/pre_tokenizer/pretokenizers/0/behavior", "Removed", "Removed, which would lose text");
  expect_refusal("qwen2", "/pre_tokenizer/pretokenizers/0/behavior", "Dropped", "behavior Dropped");
  expect_refusal("qwen2", "/pre_tokenizer/pretokenizers/0/pattern", {{"Text", "x"}}, "\"Text\"");
  expect_refusal("gemma", "/pre_tokenizer/behavior", "Removed", "Removed, which would lose text");
  expect_refusal("gemma", "/pre_tokenizer/pattern/String", "", "by an empty string");
  expect_refusal("gemma", "/pre_tokenizer", {{"type", "Punctuation"}, {"behavior", "Removed"}}, "would lose text");
  expect_refusal("smollm2", "/pre_tokenizer/pretokenizers/1/add_prefix_space", true, "behind a Split");
  expect_refusal("qwen2", "/post_processor", {{"type", "RobertaProcessing"}},
                 "post_processor is \"RobertaProcessing\"");
  expect_refusal("gpt2", "/decoder", {{"type", "CTC"}}, "decoder is \"CTC\"");
  expect_refusal("gpt2", "/decoder", nullptr, "decoder is missing");
  expect_refusal("gpt2", "/decoder", file("llama2")["decoder"], "decoder does not undo");
  expect_refusal("llama2", "/decoder/decoders/3/stop", 1, "at the beginning");
  expect_refusal("llama2", "/decoder/decoders/2/type", "CTC", "decoders[2] is \"CTC\"");
  for (const std::string type : {"Unigram", "WordPiece", "WordLevel"})
    expect_refusal("gpt2", "/model/type", type, "of type \"" + type + "\"; only BPE is built");
  expect_refusal("gpt2", "/model/dropout", 0.1, "model.dropout is not supported");
  expect_refusal("gpt2", "/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix is not supported");
  expect_refusal("gpt2", "/model/continuing_subword_prefix", "##", "continuing_subword_prefix is not supported");
  expect_refusal("gpt2", "/model/novelty", true, "\"novelty\"");
  expect_refusal("gpt2", "/novelty", true, "\"novelty\"");
}

TEST(TokenizerRefusals, GiveTheCommandThatConverts) {
  const test::TempDir folder;
  const auto refused = [&](const char* name, const std::string& content, const std::string& words) {
    folder.file(name, content);
    try {
      (void)io::TextTokenizer::load(folder / name);
      ADD_FAILURE() << name << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_THAT(error.line(), testing::HasSubstr(words));
    }
  };
  const std::string convert = "AutoTokenizer.from_pretrained(\"" + folder.path() + "\").save_pretrained(";
  refused("tokenizer.model", std::string("\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02\n\x0c", 18),
          "this is a SentencePiece model");
  refused("tokenizer.model", std::string("\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02\n\x0c", 18), convert);
  refused("tokenizer.json", "\n{\n  \"version\": \"1.0\"}", "model is missing");
  refused("qwen.tiktoken", "IQ== 0\nIg== 1\n", "this is a tiktoken vocabulary");
  refused("qwen.tiktoken", "IQ== 0\nIg== 1\n", convert);
  Json json = file("gpt2");
  json["model"]["type"] = "Unigram";
  refused("tokenizer.json", json.dump(), "open(\"tokens.bin\", \"wb\")");
}

TEST(TokenizerRefusals, NameWhatContradictsItself) {
  expect_refusal("gpt2", "/model/vocab/zz", 3, "has the token \"zz\" or its id 3 twice");
  expect_refusal("gpt2", "/model/vocab/zz", 2000000000, "gives \"zz\" the id 2000000000");
  expect_refusal("gpt2", "/model/vocab/zz", 5000000000, "beyond 31 bits");
  expect_refusal("gpt2", "/model/vocab/zz", -1, "the id -1");
  expect_refusal("gpt2", "/model/vocab/zz", "x", "the token \"zz\" has no integer id");
  expect_refusal("gpt2", "/model/merges/0", "a b c", "is not two tokens");
  expect_refusal("gpt2", "/model/merges/0", "qqq qqq", "merges \"qqq\" and \"qqq\"");
  expect_refusal("llama3", "/model/merges/0", {"a"}, "a merge of 1 tokens");
  expect_refusal("llama3", "/model/merges/0", 5, "a merge that is not text");
  expect_refusal("gpt2", "/added_tokens/0/id", 5, "where Hugging Face's tokenizers count");
  expect_refusal("qwen2", "/added_tokens/1/content", "<|endoftext|>", "twice");
  expect_refusal("gpt2", "/added_tokens/0/content", "", "is empty");
  expect_refusal("llama2", "/post_processor/special_tokens/<s>/ids", {99999}, "99999, which is not a token");
  expect_refusal("llama2", "/post_processor/single", {{{"SpecialToken", {{"id", "<s>"}}}}}, "no place for the text");
  expect_refusal("llama2", "/model/unk_token", "<none>", "\"<none>\", its unk_token");
  Json json = file("gpt2");
  json["model"]["vocab"].erase("a");
  json["model"]["merges"] = Json::array();
  expect_refusal(json, "no token for the byte 0x61");
  json = file("llama2");
  json["model"]["vocab"].erase("<0x0A>");
  expect_refusal(json, "no token <0x0A>");
  json = file("llama2");
  json["model"]["byte_fallback"] = false;
  json["model"]["unk_token"] = nullptr;
  expect_refusal(json, "text would be lost");
}

TEST(TokenizerRefusals, NameWhatIsNoTokenizer) {
  const auto refuse = [](const std::string& text, const std::string& words) {
    test::expect_error(ExitCode::data, words, [&] { (void)io::TextTokenizer::parse(text, "t.json"); });
  };
  refuse("", "not JSON");
  refuse("[]", "not an object");
  refuse("{}", "model is missing");
  refuse(R"({"model": {}, "model": {}})", "\"model\" occurs twice");
  refuse(std::string(100, '['), "deeper than 64 levels");
  refuse(std::string("{\"a\": \"\0\"}", 10), "zero byte");
  refuse("{\"a\": \"\xff\"}", "not JSON");
  const auto refuse_model = [&](const std::string& inside, const std::string& words) {
    refuse("{\"model\": {" + inside + "}}", words);
  };
  refuse_model(R"("vocab": {"a": 1,})", "not JSON at byte 29");
  refuse_model(R"("vocab": {"a": 01})", "not JSON");
  refuse_model(R"("vocab": {"a" 1})", "not JSON");
  refuse_model(R"("vocab": {"a": 1)", "not JSON");
  refuse_model(R"("vocab": {"a": 1.5})", "the token \"a\" has no integer id");
  refuse_model(R"("vocab": {"a": [1]})", "a list inside the vocabulary");
  refuse_model(R"("vocab": {"a": {}})", "a table inside the vocabulary");
  refuse_model(R"("vocab": {"a": 1}, "vocab": {"b": 2})", "\"vocab\" occurs twice");
  refuse_model(R"("merges": ["a b" "c d"])", "not JSON");
  refuse_model(R"("merges": [["a", ["b"]]])", "a merge is a list of lists");
  refuse_model(R"("merges": [["a", "b", "c"]])", "a merge of 3 tokens");
  refuse_model(R"("merges": [{"a": "b"}])", "a table inside the merges");
  for (const char* wrong :
       {R"("\x b")", R"("\u12 b")", R"("\ud800 b")", R"("\ud800\u0041 b")", R"("\udc00 b")", R"("a)"})
    refuse_model(std::string("\"merges\": [") + wrong, "not JSON");
  refuse_model("\"merges\": [\"a\tb\"]", "not JSON");
  refuse(R"({"model": {"vocab": {"aaaa": 1}, "merges": ["a b", "c d"]}, })", "not JSON at byte 61");
}

TEST(TokenizerTables, StringsMayHaveEscapes) {
  const Json json = file("gpt2");
  const io::TextTokenizer plain = io::TextTokenizer::parse(json.dump(), "t.json"),
                          escaped = io::TextTokenizer::parse(json.dump(1, ' ', /*ensure_ascii=*/true), "t.json");
  ASSERT_EQ(escaped.vocab_size(), plain.vocab_size());
  for (std::int32_t id = 0; id < plain.vocab_size(); ++id) EXPECT_EQ(escaped.token(id), plain.token(id)) << id;
  const std::string text = "A \"text\" \\ with\ttabs,\nna\u00EFve \u2581 \U0001F600 123";
  EXPECT_EQ(escaped.encode(text, io::Special::with), plain.encode(text, io::Special::with));
  Json other = file("llama2");
  const std::string named = "/\b\f\n\r\t\"\\\U0001F600";
  const auto id = static_cast<std::int32_t>(other["model"]["vocab"].size());
  other["model"]["vocab"][named] = id;
  EXPECT_EQ(io::TextTokenizer::parse(other.dump(-1, ' ', true), "t.json").id_of(named), id);
}

}  // namespace
}  // namespace tessera
