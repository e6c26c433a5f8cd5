// SPDX-License-Identifier: Apache-2.0
// Files of rows to token files: conversations with their loss, rows of several forms, rows that are selected or
// skipped.

#include <set>

#include "io/data/documents.hpp"
#include "io/data/loss_file.hpp"
#include "tests/io/corpus_files.hpp"

namespace tessera::corpus {
namespace {

/// "role: content" lines; an assistant's content has loss.
class Lines final : public io::ChatFormat {
 public:
  [[nodiscard]] io::ChatText render(const io::ConversationRow& conversation) const override {
    io::ChatText made;
    for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
      made.text += conversation.role(i) + ": ";
      const std::size_t begin = made.text.size();
      made.text += conversation.content(i) + "\n";
      if (conversation.content(i) == "refused") throw io::RowError{"refused"};
      if (conversation.role(i) == "assistant")
        made.loss.push_back({begin, made.text.size(), conversation.weights[i].value_or(1)});
    }
    return made;
  }
  [[nodiscard]] std::uint64_t hash() const override { return 1; }
};

TEST_F(CorpusFiles, OfTablesAreConversations) {
  const std::string table = folder.file("t.csv", "query;response;system\nq 1;\"a\n1\";\n;;\nq 2;a 2;s\n"),
                    out = folder / "out.bin";
  const Lines format;
  const io::CorpusReport report =
      tokenize(2, tokenizer("gpt2"), {table},
               {.out = out, .eos = 7, .range_bytes = 5, .rows = {.chat = &format}, .progress = {}});
  EXPECT_EQ(report.documents + report.skipped.count, 3);
  const io::Dataset data = io::open_dataset({out});
  Ids first(static_cast<std::size_t>(io::DocumentEnds(data, [] { return -1; }).all()[0]));
  data.tokens->read(0, static_cast<std::int64_t>(first.size()), first.data());
  EXPECT_EQ(tokenizer("gpt2").decode(first, Special::with), "user: q 1\nassistant: a\n1\n");
}

TEST_F(CorpusFiles, OfConversationsHaveLossMasks) {
  std::string rows;
  for (int i = 0; i < 90; ++i) {
    const std::string number = std::to_string(i);
    rows += i % 30 == 7   ? "{\"query\": \"refused\", \"response\": \"x\"}\n"
            : i % 30 == 8 ? "no json\n"
                          : "{\"query\": \"question " + number + "\", \"response\": \"answer " + number + "\"}\n";
  }
  const std::string chat = folder.file("chat.jsonl", rows),
                    weighted = folder.file("w.json",
                                           "[{\"messages\": [{\"role\": \"user\", \"content\": \"q\"},\n{\"role\": "
                                           "\"assistant\", \"content\": \"half\", \"loss_scale\": 0.5}, {\"role\": "
                                           "\"assistant\", \"content\": \"none\", \"loss\": false}]}]");
  const TextTokenizer with = tokenizer("gpt2");
  const Lines format;
  const std::string out = folder / "out.bin";
  std::string bytes;
  for (const int ranks : {1, 3, 5}) {
    const io::CorpusReport report =
        tokenize(ranks, with, {files[0], chat, weighted},
                 {.out = out, .eos = 7, .range_bytes = 200, .rows = {.chat = &format}, .progress = {}});
    EXPECT_EQ(report.documents, 1 + 90 - 6 + 1);
    EXPECT_EQ(report.skipped.count, 6);
    ASSERT_EQ(report.skipped.named.size(), 6u);
    EXPECT_EQ(report.skipped.named[0], chat + ":8: refused");
    EXPECT_EQ(report.skipped.named[5], chat + ":69: the row is not JSON at column 2");
    const std::string written = test::bytes_of(out) + test::bytes_of(io::loss_file_name(out));
    if (bytes.empty()) bytes = written;
    EXPECT_TRUE(bytes == written) << ranks;
  }
  const io::Dataset data = io::open_dataset({out});
  ASSERT_TRUE(data.tokens->masked() && data.tokens->weighted());
  EXPECT_EQ(data.rows.skipped.count, 6);
  const std::vector<std::int64_t> ends = io::DocumentEnds(data, [] { return -1; }).all();
  std::vector<std::uint8_t> loss(static_cast<std::size_t>(data.tokens->size()));
  std::vector<float> weights(loss.size());
  data.tokens->read_loss(0, data.tokens->size(), loss.data());
  data.tokens->read_weights(0, data.tokens->size(), weights.data());
  EXPECT_EQ(loss[0], 0) << "the first token of a text is not a target";
  EXPECT_EQ(std::count(loss.begin(), loss.begin() + ends[0], 0), 1);
  const auto text_with = [&](std::size_t document, float weight) {
    Ids ids;
    for (std::int64_t at = ends[document - 1]; at < ends[document]; ++at) {
      std::int32_t id = 0;
      data.tokens->read(at, 1, &id);
      if (weights[static_cast<std::size_t>(at)] == weight) ids.push_back(id);
    }
    return with.decode(ids, Special::with);
  };
  EXPECT_EQ(text_with(1, 1), " answer 0\n");
  EXPECT_EQ(text_with(1, 0), "user: question 0\nassistant:");
  EXPECT_EQ(text_with(ends.size() - 1, 0.5F), " half\n");
  EXPECT_EQ(text_with(ends.size() - 1, 0), "user: q\nassistant:assistant: none\n");
  (void)tokenize(1, with, {files[0]}, {.out = out, .eos = 7, .progress = {}});
  EXPECT_FALSE(std::filesystem::exists(io::loss_file_name(out))) << "a loss file of other tokens";
}

TEST_F(CorpusFiles, HaveRowsOfSeveralForms) {
  std::string rows;
  for (int i = 0; i < 60; ++i)
    rows += "{\"text\": \"a plain text of \\\"messages\\\"\", \"number\": " + std::to_string(i) + "}\n";
  rows +=
      "{\"query\": \"q\", \"response\": \"late answer\", \"id\": 3}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"y\"}], "
      "\"text\": \"too\"}\n{\"unknown\": 1}\n";
  const std::string mixed = folder.file("mixed.jsonl", rows), plain = folder.file("plain.jsonl", rows.substr(0, 900)),
                    out = folder / "out.bin";
  const TextTokenizer with = tokenizer("gpt2");
  const Lines format;
  for (const int ranks : {1, 3}) {
    io::CorpusReport report;
    run_local(ranks, [&](World& world) {
      io::Corpus texts(std::vector<std::string>{plain}), corpus(std::vector<std::string>{mixed});
      texts.find_conversations(world);
      EXPECT_FALSE(texts.has_conversations());
      EXPECT_FALSE(corpus.has_conversations());
      corpus.find_conversations(world);
      EXPECT_TRUE(corpus.has_conversations());
      const io::CorpusReport mine = io::tokenize_corpus(
          world, with, corpus, {.out = out, .eos = 7, .range_bytes = 200, .rows = {.chat = &format}, .progress = {}});
      if (world.rank() == 0) report = mine;
      EXPECT_EQ(mine.skipped.unread.counts,
                (std::map<std::string, std::int64_t>{{"id", 1}, {"number", 60}, {"text", 1}}));
    });
    EXPECT_EQ(report.documents, 62);
    ASSERT_EQ(report.skipped.named.size(), 1u);
    EXPECT_EQ(report.skipped.named[0], mixed + ":63: no known form of row; its keys: \"unknown\"");
    const io::Dataset data = io::open_dataset({out});
    std::vector<std::uint8_t> loss(static_cast<std::size_t>(data.tokens->size()));
    data.tokens->read_loss(0, data.tokens->size(), loss.data());
    const Ids ids = ids_in(out);
    Ids trained;
    const std::vector<std::int64_t> ends = io::DocumentEnds(data, [] { return -1; }).all();
    for (auto at = static_cast<std::size_t>(ends[59]); at < ids.size(); ++at)
      if (loss[at] != 0) trained.push_back(ids[at]);
    EXPECT_EQ(with.decode(trained, Special::with), " late answer\ny\n");
    EXPECT_EQ(std::count(loss.begin(), loss.begin() + ends[59], 0), 60) << "the first token of each text";
  }
  expect_error(ExitCode::data, "the row has keys that are not read: \"number\" [" + mixed + ":1", [&] {
    (void)tokenize(2, with, {mixed}, {.out = out, .eos = 7, .rows = {.strict = true, .chat = &format}, .progress = {}});
  });
}

TEST_F(CorpusFiles, WithALateConversationInAnySpelling) {
  const std::string text = "{\"text\": \"a plain text\", \"source\": \"query\"}\n";
  const std::vector<std::pair<const char*, bool>> rows = {
      {R"({"text": null, "query": "a", "response": "b"})", true},
      {R"({"query": "a", "response": "b", "source": "text"})", true},
      {R"({"text": null, "prompt": "a", "answer_key": "b"})", true},
      {R"({"instruction": "a", "output": "b", "text": "t"})", true},
      {R"({"text": "t", "conversation": [{"human": "a", "assistant": "b"}]})", true},
      {R"({"te\u0078t": null, "\u0071uery": "a", "response": "b"})", true},
      {R"({"text": "the \"query\" and \"response\" of \"messages\""})", false},
      {R"({"text": "t", "query": "a", "response": "b"})", false},
      {R"({"text": null, "query": "a"})", false}};
  for (const auto& [row, expected] : rows) {
    const std::string path = folder.file("late.jsonl", text + row + "\n");
    run_local(1, [&](World& world) {
      io::Corpus corpus(std::vector<std::string>{path});
      corpus.find_conversations(world);
      EXPECT_EQ(corpus.has_conversations(), expected) << row;
    });
  }
}

TEST_F(CorpusFiles, EachHasARowThatCanBeUsed) {
  const std::string bad = folder.file("bad.jsonl", "\n{\"text\": 5}\n{\"text\": \"t\", \"images\": [1]}\n"),
                    out = folder / "out.bin";
  for (const int ranks : {1, 3})
    expect_error(ExitCode::data, "no row of " + bad + " can be used [" + bad + ":2: \"text\" is not a string]", [&] {
      (void)tokenize(ranks, tokenizer("gpt2"), {files[1], bad, files[0]},
                     {.out = out, .eos = 7, .range_bytes = 30, .rows = {}, .progress = {}});
    });
  expect_error(ExitCode::data, "no row of " + files[1] + " is selected", [&] {
    run_local(2, [&](World& world) {
      (void)io::tokenize_corpus(world, tokenizer("gpt2"), io::Corpus(std::vector<io::DataFile>{{files[1], {}, 0.0001}}),
                                {.out = out, .eos = 7, .rows = {}, .progress = {}});
    });
  });
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(CorpusFiles, WithTextAndAQueryAreAmbiguous) {
  const std::string both = folder.file("both.jsonl", R"({"text": "t", "prompt": "q", "completion": "a"})");
  EXPECT_EQ(io::Corpus(std::vector<std::string>{files[1], both}).ambiguous(), (std::vector<std::string>{both}));
  EXPECT_FALSE(io::Corpus(std::vector<std::string>{both}).has_conversations());
}

TEST_F(CorpusFiles, SelectRowsAtRandomAndExactly) {
  std::string rows;
  for (int i = 0; i < 200; ++i) rows += "{\"text\": \"row " + std::to_string(i) + "\"}\n";
  const std::string path = folder.file("rows.jsonl", rows), out = folder / "out.bin";
  const TextTokenizer with = tokenizer("gpt2");
  const auto selected = [&](const io::DataFile& file, int ranks, std::uint64_t seed) {
    run_local(ranks, [&](World& world) {
      (void)io::tokenize_corpus(world, with, io::Corpus({file}),
                                {.out = out, .eos = 7, .range_bytes = 300, .rows = {.seed = seed}, .progress = {}});
    });
    std::vector<std::string> texts;
    const io::Dataset data = io::open_dataset({out});
    std::int64_t begin = 0;
    for (const std::int64_t end : io::DocumentEnds(data, [] { return -1; }).all()) {
      Ids ids(static_cast<std::size_t>(end - begin));
      data.tokens->read(begin, end - begin, ids.data());
      texts.push_back(with.decode(ids, Special::with));
      begin = end;
    }
    return texts;
  };
  const auto some = selected({path, 50, {}}, 1, 3);
  EXPECT_EQ(some.size(), 50u);
  EXPECT_EQ(std::set<std::string>(some.begin(), some.end()).size(), 50u);
  EXPECT_EQ(selected({path, 50, {}}, 3, 3), some);
  EXPECT_NE(selected({path, 50, {}}, 1, 4), some);
  EXPECT_EQ(selected({path, {}, 0.1}, 2, 3).size(), 20u);
  const auto more = selected({path, {}, 1.5}, 2, 3);
  EXPECT_EQ(more.size(), 300u);
  EXPECT_EQ(std::set<std::string>(more.begin(), more.end()).size(), 200u);
}

}  // namespace
}  // namespace tessera::corpus
