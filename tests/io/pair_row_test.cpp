// SPDX-License-Identifier: Apache-2.0
// Pairs of answers: forms of rows, what a row lacks, and samples whose two sequences never part.
#include "io/chat/pair_row.hpp"

#include "io/data/packing.hpp"
#include "io/data/rows.hpp"
#include "tests/io/files.hpp"
#include "tests/io/pairs.hpp"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

using test::pair_of;
using test::turns_of;

TEST(PairRow, Forms) {
  const std::string expected = "uq|ayes / uq|ano";
  EXPECT_EQ(pair_of(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}],
                     "rejected_response": "no"})"),
            expected);
  EXPECT_EQ(pair_of(R"({"query": "q", "response": "yes", "rejected_response": "no"})"), expected);
  EXPECT_EQ(pair_of(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}],
                     "rejected_messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "no"}]})"),
            expected);
  EXPECT_EQ(
      pair_of(R"({"prompt": [{"role": "user", "content": "q"}], "chosen": [{"role": "assistant", "content": "yes"}],
                     "rejected": [{"role": "assistant", "content": "no"}]})"),
      expected);
  EXPECT_EQ(pair_of(R"({"chosen": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "yes"}],
                     "rejected": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "no"}]})"),
            expected);
  EXPECT_EQ(pair_of(R"({"prompt": "q", "chosen": "yes", "rejected": "no"})"), expected + " text: q+yes/no");
  // A prompt beside conversations that have it is not read twice.
  EXPECT_EQ(
      pair_of(R"({"prompt": "q", "chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}],
                     "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "no"}]})"),
      expected);
  EXPECT_EQ(
      pair_of(R"({"system": "s", "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
                     {"role": "user", "content": "r"}, {"role": "assistant", "content": "yes"}], "rejected_response": "no"})"),
      "ss|uq|aa|ur|ayes / ss|uq|aa|ur|ano");
}

TEST(PairRow, NoPromptIsLeftOut) {
  const std::string answers = R"("chosen": [{"role": "assistant", "content": "yes"}],
                                 "rejected": [{"role": "assistant", "content": "no"}])",
                    refused = "refused: the row has ";
  EXPECT_EQ(pair_of(R"({"messages": [{"role": "user", "content": "q"}], )" + answers + "}"),
            refused + R"("messages" beside "chosen" and "rejected", whose prompt is "prompt")");
  EXPECT_EQ(pair_of(R"({"question": "q", "system": "s", "chosen": "yes", "rejected": "no"})"),
            refused + R"("question" beside "chosen" and "rejected", whose prompt is "prompt")");
  EXPECT_EQ(pair_of(R"({"prompt": "q", "instruction": "r", "input": "", "chosen": "yes", "rejected": "no"})"),
            refused + R"("instruction" beside "prompt", "chosen" and "rejected")");
  EXPECT_EQ(pair_of(R"({"history": [["q1", "a1"]], "prompt": "q", "chosen": "yes", "rejected": "no"})"),
            refused + R"("history" beside "chosen" and "rejected")");
  EXPECT_EQ(pair_of("{" + answers + "}"), "refused: the chosen conversation has no message before its answer");
  // Messages that are the chosen ones, and blanks around the prompt, are common.
  const std::string with_prompt = R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}])";
  EXPECT_EQ(pair_of(R"({"prompt": "q ", "messages": )" + with_prompt + R"(, "chosen": )" + with_prompt +
                    R"(, "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "no"}]})"),
            "uq|ayes / uq|ano");
  EXPECT_EQ(pair_of(R"({"prompt": "other", "chosen": )" + with_prompt + R"(, "rejected": )" + with_prompt + "}"),
            R"(refused: "prompt" is not the first message of the user in "chosen" and "rejected")");
  EXPECT_EQ(pair_of(R"({"prompt": "[1, 2]", "chosen": "[3]", "rejected": "no"})"),
            "u[1, 2]|a[3] / u[1, 2]|ano text: [1, 2]+[3]/no");
}

TEST(PairRow, ThePromptOfTextsIsWhatTheyBeginWith) {
  EXPECT_EQ(pair_of(R"({"chosen": "Q: 1+1 A: two", "rejected": "Q: 1+1 A: three"})"), "text: Q: 1+1 A: t+wo/hree");
  EXPECT_EQ(pair_of(R"({"chosen": "Q: 1+1 A: two", "rejected": "Q: 1+1 A: one"})"), "text: Q: 1+1 A:+ two/ one");
  EXPECT_EQ(pair_of(R"({"chosen": "é", "rejected": "è"})"), "text: +é/è");  // not within a character
}

TEST(PairRow, WhatIsLackingIsNamed) {
  EXPECT_EQ(pair_of(R"({"chosen": "a"})"), "refused: the row has \"chosen\" and no \"rejected\": a pair has both");
  EXPECT_EQ(pair_of(R"({"rejected": "a", "chosen": null})"),
            "refused: the row has \"rejected\" and no \"chosen\": a pair has both");
  EXPECT_NE(pair_of(R"({"rejected_response": "a"})").find("no conversation (\"messages\") with the chosen one"),
            std::string::npos);
  EXPECT_NE(pair_of(R"({"query": "q", "response": "a"})").find("no rejected answer"), std::string::npos);
  EXPECT_NE(pair_of(R"({"prompt": "q", "chosen": "a", "rejected": ["b"]})").find("not two texts"), std::string::npos);
  EXPECT_NE(pair_of(R"({"prompt": [{"role": "user", "content": "q"}], "chosen": [{"role": "user", "content": "a"}],
                     "rejected": [{"role": "assistant", "content": "b"}]})")
                .find("the chosen conversation does not end with an answer"),
            std::string::npos);
  EXPECT_NE(
      pair_of(R"({"messages": [{"role": "user", "content": "q"}], "rejected_response": "b"})").find("last message"),
      std::string::npos);
}

/// "chosen" or "rejected", and turns or texts.
std::string labelled(const std::string& text) {
  std::int64_t repaired = 0;
  try {
    const io::PairRow row = io::read_labelled(io::parse_row(text, repaired));
    if (row.has_chosen && row.has_rejected) return "pair " + turns_of(row.chosen) + " / " + turns_of(row.rejected);
    return (row.has_chosen ? "chosen " + turns_of(row.chosen) : "rejected " + turns_of(row.rejected)) +
           (row.text ? " text: " + row.text->prompt + "+" + row.text->chosen : "");
  } catch (const io::RowError& error) { return "refused: " + error.why; }
}

TEST(LabelledRow, Forms) {
  const std::string turns = R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])";
  EXPECT_EQ(labelled(R"({"messages": )" + turns + R"(, "label": true})"), "chosen uq|aa");
  EXPECT_EQ(labelled(R"({"messages": )" + turns + R"(, "label": 0})"), "rejected uq|aa");
  EXPECT_EQ(labelled(R"({"query": "q", "response": "a", "label": "False"})"), "rejected uq|aa");
  EXPECT_EQ(labelled(R"({"prompt": [{"role": "user", "content": "q"}],
                      "completion": [{"role": "assistant", "content": "a"}], "label": false})"),
            "rejected uq|aa");
  EXPECT_EQ(labelled(R"({"prompt": "q", "completion": "a", "label": true})"), "chosen uq|aa text: q+a");
  EXPECT_EQ(labelled(R"({"prompt": "q", "chosen": "yes", "rejected": "no"})"), "pair uq|ayes / uq|ano");
  EXPECT_EQ(labelled(R"({"prompt": "q", "completion": "a"})"),
            "refused: the row has no \"label\" that says whether its answer is wanted, and no second answer");
  EXPECT_EQ(labelled(R"({"prompt": "q", "completion": "a", "label": 2})"),
            "refused: \"label\" is not true or false: expected true, false, 1 or 0, or one of them as a text");
  EXPECT_EQ(labelled(R"({"prompt": "q", "completion": "a", "label": 1.0})"),
            "refused: \"label\" is not true or false: expected true, false, 1 or 0, or one of them as a text");
  // A completion that begins with the prompt is the whole conversation.
  EXPECT_EQ(labelled(R"({"prompt": [{"role": "user", "content": "q"}], "completion": )" + turns + R"(, "label": 1})"),
            "chosen uq|aa");
  EXPECT_EQ(labelled(R"({"prompt": "q", "chosen": "a", "rejected": "b", "label": true})"),
            "refused: the row has \"label\" and two answers");
  EXPECT_NE(labelled(R"({"text": "q", "label": true})").find("no conversation"), std::string::npos);
  // No prompt is left out.
  EXPECT_EQ(labelled(R"({"history": [["q", "a"]], "prompt": "r", "completion": "b", "label": true})"),
            "chosen uq|aa|ur|ab");
  EXPECT_EQ(labelled(R"({"history": [], "prompt": "r", "completion": "b", "label": true})"), "chosen ur|ab text: r+b");
  EXPECT_EQ(labelled(R"({"history": [["q", "a"]], "prompt": [{"role": "user", "content": "r"}],
                      "completion": [{"role": "assistant", "content": "b"}], "label": true})"),
            R"(refused: the row has "history" beside "prompt" and "completion", which are not texts)");
  for (const char* key : {"messages", "conversations", "instruction", "question"})
    EXPECT_EQ(labelled(R"({"prompt": "q", "completion": "a", "label": true, ")" + std::string(key) + R"(": "other"})"),
              "refused: the row has \"" + std::string(key) + "\" beside \"prompt\" and \"completion\"");
}

TEST(LabelledRow, OnlyTheLastAnswerHasALoss) {
  const auto row = [](const std::string& first, const std::string& answers) {
    return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a")" + first +
           R"(}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "b", "loss": true}])" + answers +
           "}";
  };
  const std::string refused =
      "refused: message 2 has a loss of its own, and that of a labelled row is of its last answer";
  EXPECT_EQ(labelled(row(R"(, "loss": true)", R"(, "label": true)")), refused);
  EXPECT_EQ(labelled(row(R"(, "loss": true)", R"(, "rejected_response": "c")")), refused);
  EXPECT_EQ(labelled(row(R"(, "loss": false)", R"(, "label": true)")), "chosen uq|aa|ur|ab");
}

/// Token i of the stream is i; those of `masked` have no loss.
class MaskedPairs final : public io::TokenStream {
 public:
  MaskedPairs(std::int64_t size, std::int64_t without) : size_(size), without_(without) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] bool masked() const override { return true; }
  void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override {
    for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::int32_t>(first + i);
  }
  /// The first `without_` tokens of each ten have none.
  void read_loss(std::int64_t first, std::int64_t count, std::uint8_t* out) const override {
    for (std::int64_t i = 0; i < count; ++i) out[i] = (first + i) % 10 >= without_ ? 1 : 0;
  }

 private:
  std::int64_t size_, without_;
};

TEST(PairPacking, ASampleIsTwoRowsAndBothAreLeftOutTogether) {
  // Lengths of chosen and rejected: 10 8 | 10 12 | 10 1 | 10 6.
  const std::vector<std::int64_t> ends = {10, 18, 28, 40, 50, 51, 61, 67};
  const auto stream = std::make_shared<MaskedPairs>(70, 4);
  const auto packed = [&](io::Truncation truncation) {
    return std::make_unique<io::PackedStream>(stream, io::Documents{0, ends}, 10, io::Packing::pairs, truncation);
  };
  const auto removed = packed(io::Truncation::remove);
  EXPECT_EQ(removed->count().samples, 2);
  EXPECT_EQ(removed->count().documents, 2);
  EXPECT_EQ(removed->count().too_long, 1);
  EXPECT_EQ(removed->count().dropped, 1);
  EXPECT_EQ(removed->count().longest, 10);
  EXPECT_EQ(removed->sequences(), 2);
  EXPECT_EQ(removed->tokens_of(1), 16);
  EXPECT_EQ(removed->longest_together(1, {0, 1}), 10);
  EXPECT_EQ(removed->longest_together(1, {0, 2}), 18);
  EXPECT_EQ(removed->longest_together(5, {0, 2}), 34);
  io::PackedCounts counts;
  removed->add_counts(0, counts);
  EXPECT_EQ(counts.tokens, 18);
  EXPECT_EQ(counts.first_targets, 6);  // tokens 4 to 9
  std::vector<std::int32_t> ids(12, -1), targets(12, -1), positions(12, -1);
  removed->read_sequence(1, 1, {12, ids.data(), targets.data(), positions.data(), nullptr, -100});
  EXPECT_EQ(ids, (std::vector<std::int32_t>{61, 62, 63, 64, 65, 66, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(targets, (std::vector<std::int32_t>{-100, -100, 64, 65, 66, -100, -100, -100, -100, -100, -100, -100}));
  EXPECT_EQ(packed(io::Truncation::right)->count().samples, 3);
  EXPECT_EQ(packed(io::Truncation::right)->count().cut, 1);
  EXPECT_NE(packed(io::Truncation::right)->hash(), packed(io::Truncation::left)->hash());
}

TEST(PairPacking, ATruncationThatLeavesNoAnswerLeavesOutThePair) {
  const std::vector<std::int64_t> ends = {10, 20};
  const io::PackedStream packed(std::make_shared<MaskedPairs>(20, 6), {0, ends}, 5, io::Packing::pairs,
                                io::Truncation::right);
  EXPECT_EQ(packed.count().samples, 0);
  EXPECT_EQ(packed.count().no_loss, 1);
  EXPECT_EQ(packed.count().cut_no_loss, 1);
}

TEST(PairRow, AMarginIsANumberOrSuchAText) {
  const auto margin_of = [](const char* text) {
    Json row = Json::parse(text);
    const float margin = io::take_margin(row);
    EXPECT_FALSE(row.contains("margin") && !row.at("margin").is_null());
    return margin;
  };
  EXPECT_EQ(margin_of(R"({"margin": -1.25})"), -1.25F);
  EXPECT_EQ(margin_of(R"({"margin": 3})"), 3.0F);
  EXPECT_EQ(margin_of(R"({"margin": "0.5"})"), 0.5F);
  EXPECT_EQ(margin_of(R"({"margin": null})"), 0.0F);
  EXPECT_EQ(margin_of(R"({"chosen": "a"})"), 0.0F);
  for (const char* wrong :
       {R"({"margin": "much"})", R"({"margin": true})", R"({"margin": [1]})", R"({"margin": 1e300})"})
    EXPECT_THROW((void)margin_of(wrong), io::RowError) << wrong;
}

TEST(PairPacking, AMarginIsAThirdDocument) {
  /// Two pairs of 10 and 8 tokens, then the digits of -1.25; of 10 and 10, without a margin.
  class Rated final : public io::TokenStream {
   public:
    Rated() : margin_(io::margin_tokens(-1.25F)) {}
    [[nodiscard]] std::int64_t size() const override { return 46; }
    void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override {
      for (std::int64_t i = first; i < first + count; ++i)
        *out++ = i >= 18 && i < 26 ? margin_[static_cast<std::size_t>(i - 18)] : static_cast<std::int32_t>(i);
    }

   private:
    std::vector<std::int32_t> margin_;
  };
  EXPECT_TRUE(io::margin_tokens(0).empty());
  const std::vector<std::int64_t> ends = {10, 18, 26, 36, 46, 46};
  const io::PackedStream packed(std::make_shared<Rated>(), {0, ends}, 10, io::Packing::rated, io::Truncation::remove);
  ASSERT_EQ(packed.count().samples, 2);
  EXPECT_EQ(packed.count().tokens, 38);
  EXPECT_EQ(packed.count().longest, 10);
  EXPECT_EQ(packed.sequences(), 2);
  EXPECT_TRUE(packed.has_rows());
  EXPECT_EQ(packed.margin_of(0), -1.25F);
  EXPECT_EQ(packed.margin_of(1), 0.0F);
  EXPECT_EQ(packed.tokens_of(0), 18);
  io::PackedCounts counts;
  packed.add_counts(0, counts);
  EXPECT_EQ(counts.tokens, 18);
  EXPECT_EQ(counts.targets, 16);
  std::vector<std::int32_t> ids(10, -1), targets(10, -1), positions(10, -1);
  packed.read_sequence(0, 1, {10, ids.data(), targets.data(), positions.data(), nullptr, -100});
  EXPECT_EQ(ids, (std::vector<std::int32_t>{10, 11, 12, 13, 14, 15, 16, 17, 0, 0}));
  const std::vector<std::int64_t> part = {10, 18};
  test::expect_error(ExitCode::data, "not those of complete pairs", [&] {
    const io::PackedStream two(std::make_shared<Rated>(), {0, part}, 10, io::Packing::rated, io::Truncation::remove);
  });
}

TEST(UnpairedPacking, AnswersAreSamplesAndTakeThoseOfOthersOfTheirGroup) {
  // Prompts of 4 tokens. Chosen and rejected: 10 10 (a pair) | none 10 | 7 none.
  const auto stream = std::make_shared<MaskedPairs>(40, 4);
  const std::vector<std::int64_t> documents = {10, 20, 20, 30, 37, 37};
  const io::PackedStream packed(stream, {0, documents}, 10, io::Packing::unpaired, io::Truncation::remove, 3);
  ASSERT_EQ(packed.count().samples, 4);
  EXPECT_EQ(packed.sequences(), 2);
  const bool expected[] = {true, false, true, false};  // the rejected answer of the pair is the last one
  for (int k = 0; k < 4; ++k) EXPECT_EQ(packed.is_chosen(k), expected[k]) << k;
  EXPECT_EQ(packed.tokens_of(1), 10);
  EXPECT_EQ(packed.tokens_of(2), 7);
  EXPECT_EQ(packed.tokens_of(2, 1), 10);  // 4 of its prompt and 6 of the answer before it
  EXPECT_EQ(packed.tokens_of(0, 1), 7);   // 4, and the 3 of the last answer of the group
  io::PackedCounts counts;
  packed.add_counts(2, counts);
  EXPECT_EQ(counts.tokens, 7);
  EXPECT_EQ(counts.targets, 3);
  std::vector<std::int32_t> ids(12, -1), targets(12, -1), positions(12, -1);
  const io::PackedSample to{12, ids.data(), targets.data(), positions.data(), nullptr, -100};
  packed.read_sequence(2, 0, to);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{30, 31, 32, 33, 34, 35, 36, 0, 0, 0, 0, 0}));
  packed.read_sequence(2, 1, to);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{30, 31, 32, 33, 24, 25, 26, 27, 28, 29, 0, 0}));
  EXPECT_EQ(targets, (std::vector<std::int32_t>{-100, -100, -100, 24, 25, 26, 27, 28, 29, -100, -100, -100}));
  EXPECT_EQ(positions, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0}));
  packed.read_sequence(3, 1, to);  // a group of one
  EXPECT_EQ(ids, (std::vector<std::int32_t>{10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 0, 0}));
}

TEST(UnpairedPacking, AnAnswerIsShortenedBehindItsNewPromptAlone) {
  // Prompts of 8 and 3 tokens, answers of 6 and 3: no row keeps more than 10 tokens.
  class Stream final : public io::TokenStream {
   public:
    [[nodiscard]] std::int64_t size() const override { return 20; }
    [[nodiscard]] bool masked() const override { return true; }
    void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override {
      for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::int32_t>(first + i);
    }
    void read_loss(std::int64_t first, std::int64_t count, std::uint8_t* out) const override {
      for (std::int64_t i = first; i < first + count; ++i) *out++ = (i >= 8 && i < 14) || i >= 17 ? 1 : 0;
    }
  };
  const std::vector<std::int64_t> documents = {14, 14, 20, 20};
  const io::PackedStream packed(std::make_shared<Stream>(), {0, documents}, 10, io::Packing::unpaired,
                                io::Truncation::right, 2);
  ASSERT_EQ(packed.count().samples, 2);
  EXPECT_EQ(packed.tokens_of(0, 0), 10);
  EXPECT_EQ(packed.tokens_of(1, 1), 9);  // its prompt, and all 6 tokens of the answer of which its own row keeps 2
  std::vector<std::int32_t> ids(10, -1), targets(10, -1), positions(10, -1);
  packed.read_sequence(1, 1, {10, ids.data(), targets.data(), positions.data(), nullptr, -100});
  EXPECT_EQ(ids, (std::vector<std::int32_t>{14, 15, 16, 8, 9, 10, 11, 12, 13, 0}));
  EXPECT_EQ(packed.tokens_of(0, 1), 10);  // of the 3 tokens of the other answer, 2
  io::PackedCounts counts;
  packed.add_counts(1, counts, 1);
  EXPECT_EQ(counts.tokens, 9);
  EXPECT_EQ(counts.squares, 81);
}

TEST(UnpairedPacking, WithoutGroupsThereAreNoSecondSequences) {
  const auto stream = std::make_shared<MaskedPairs>(40, 4);
  const std::vector<std::int64_t> documents = {10, 20, 20, 30};
  const io::PackedStream packed(stream, {0, documents}, 10, io::Packing::unpaired, io::Truncation::remove);
  ASSERT_EQ(packed.count().samples, 3);
  EXPECT_EQ(packed.sequences(), 1);
  EXPECT_TRUE(packed.is_chosen(0));
  EXPECT_FALSE(packed.is_chosen(1));
  std::vector<std::int32_t> ids(10, -1), targets(10, -1), positions(10, -1);
  packed.read_sequence(1, 0, {10, ids.data(), targets.data(), positions.data(), nullptr, -100});
  EXPECT_EQ(ids.front(), 20);
  EXPECT_EQ(targets[3], 24);
}

TEST(PairPacking, AnOddNumberOfDocumentsIsRefused) {
  const std::vector<std::int64_t> ends = {10, 20, 30};
  test::expect_error(ExitCode::data, "not those of complete pairs", [&] {
    const io::PackedStream packed(std::make_shared<MaskedPairs>(30, 1), {0, ends}, 10, io::Packing::pairs,
                                  io::Truncation::right);
  });
}

}  // namespace
}  // namespace tessera
