// SPDX-License-Identifier: Apache-2.0
// The token that pads a reward model's sequences.
#include "jobs/cli/session/reward_model.hpp"

#include <nlohmann/json.hpp>

#include "io/file/text_file.hpp"
#include "runtime/base/log.hpp"
#include "tests/io/files.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using test::expect_error;
using test::TempDir;

class PadTokenOf : public testing::Test {
 public:
  /// pad_token_id of the reward model's config, with this tokenizer_config.json.
  std::int64_t operator()(const std::string& tokenizer_config) const {
    (void)folder_.file("tokenizer_config.json", tokenizer_config);
    ModelConfig config{.text = strfmt(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
                                          "pad_token_id": 5, "vocab_size": %d})",
                                      vocab_),
                       .path = folder_ / "config.json",
                       .directory = folder_.path(),
                       .adapter = {}};
    make_reward_config(parsed({"rm", "--dataset", "a"}).options, config, PadToken::of_tokenizer);
    return nlohmann::json::parse(config.text).at("pad_token_id").get<std::int64_t>();
  }
  /// Warnings of eval, of a reward model with this pad_token_id and tokenizer_config.json.
  [[nodiscard]] std::int64_t warnings(int pad, const std::string& tokenizer_config) const {
    (void)folder_.file("tokenizer_config.json", tokenizer_config);
    ModelConfig config{.text = strfmt(R"({"model_type": "llama", "architectures": ["LlamaForSequenceClassification"],
                                          "num_labels": 1, "pad_token_id": %d})",
                                      pad),
                       .path = folder_ / "config.json",
                       .directory = folder_.path(),
                       .adapter = {}};
    const std::int64_t before = log::warnings();
    make_reward_config(parsed({"eval", "--dataset", "a"}).options, config, PadToken::of_tokenizer);
    return log::warnings() - before;
  }
  void refused(const std::string& tokenizer_config, const std::string& why) const {
    expect_error(ExitCode::data, why, [&] { (void)(*this)(tokenizer_config); });
  }
  TempDir folder_;
  int vocab_ = 1024;
};

TEST_F(PadTokenOf, TheTokenizerElseTheModel) {
  const PadTokenOf& pad_token = *this;
  EXPECT_EQ(pad_token(R"({"pad_token": "<|im_end|>"})"), 5) << "without a tokenizer";
  const std::string source = TESSERA_SOURCE_DIR "/jobs/examples/chat/tokenizer.json";
  (void)folder_.file("tokenizer.json", io::read_text(source));
  EXPECT_EQ(pad_token("{}"), 5);
  EXPECT_EQ(pad_token(R"({"pad_token": null, "eos_token": null})"), 5);
  const std::int64_t end = pad_token(R"({"pad_token": "<|im_end|>"})");
  EXPECT_NE(end, 5);
  EXPECT_EQ(pad_token(R"({"pad_token": null, "eos_token": {"content": "<|im_end|>"}})"), end);
  refused(R"({"pad_token": "<pad>", "eos_token": "<|im_end|>"})", "pad_token \"<pad>\" is not a token of the model");
  refused(R"({"eos_token": {"content": "</s>"}})", "eos_token \"</s>\" is not a token of the model");
  vocab_ = 1025;
  EXPECT_EQ(pad_token(R"({"pad_token": "<pad>", "eos_token": "<|im_end|>"})"), 1024) << "added";
  refused(R"({"pad_token": 3})", "pad_token is neither a string nor an object with its content");
  refused("{", "this is not a JSON object");
}

TEST_F(PadTokenOf, ARewardModelThatIsAnotherThanTheTokenizersIsNamed) {
  (void)folder_.file("tokenizer.json", io::read_text(TESSERA_SOURCE_DIR "/jobs/examples/chat/tokenizer.json"));
  const auto end = static_cast<int>((*this)(R"({"pad_token": "<|im_end|>"})"));
  EXPECT_EQ(warnings(end, R"({"pad_token": "<|im_end|>"})"), 0);
  EXPECT_EQ(warnings(end, R"({"eos_token": "<|im_end|>"})"), 0);
  EXPECT_EQ(warnings(end + 1, R"({"pad_token": "<|im_end|>"})"), 1) << "W096";
  EXPECT_EQ(warnings(end, R"({"pad_token": "<pad>"})"), 1) << "W096 of a token that is added";
}

}  // namespace
}  // namespace tessera::jobs
