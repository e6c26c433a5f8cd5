// SPDX-License-Identifier: Apache-2.0
// Text files to token files: the ids of each document, for any number of ranks and size of ranges.

#include "io/corpus/tokenize_corpus.hpp"

#include <mutex>
#include <set>

#include "io/corpus/decompressed_files.hpp"
#include "io/data/dataset.hpp"
#include "io/data/documents.hpp"
#include "io/data/loss_file.hpp"
#include "io/data/token_file.hpp"
#include "io/file/text_file.hpp"
#include "tests/io/files.hpp"

namespace tessera::corpus {
namespace {

using io::Special;
using io::TextTokenizer;
using test::expect_error;
using test::TempDir;
using Ids = std::vector<std::int32_t>;

TextTokenizer tokenizer(const std::string& family) {
  return TextTokenizer::load(std::string(TESSERA_TEST_DATA) + "/tokenizer/" + family + ".tokenizer.json");
}

io::CorpusReport tokenize(int ranks, const TextTokenizer& with, const std::vector<std::string>& files,
                          const io::TokenizeOptions& check) {
  io::CorpusReport report;
  std::mutex guard;
  run_local(ranks, [&](World& world) {
    const io::CorpusReport mine = io::tokenize_corpus(world, with, io::Corpus(files), check);
    const std::lock_guard lock(guard);
    if (world.rank() == 0) report = mine;
  });
  return report;
}

Ids ids_in(const std::string& path) {
  const io::Dataset data = io::open_dataset({path});
  Ids ids(static_cast<std::size_t>(data.tokens->size()));
  data.tokens->read(0, data.tokens->size(), ids.data());
  return ids;
}

class CorpusFiles : public testing::Test {
 protected:
  CorpusFiles() {
    std::string lines, json;
    for (int i = 0; i < 400; ++i) {
      const std::string text = "Line " + std::to_string(i * 37) +
                               " of  the \u00dcbung\u2019s text, caf\u0065\u0301 \u6f22\u5b57 <|endoftext|>" +
                               std::string(i % 7, '!');
      lines += text + (i % 5 == 0 ? "\n\n  " : "\n");
      json += "{\"text\": \"" + text + "\\nnext " + std::to_string(i) + "\"}\n" + (i % 9 == 0 ? "\n" : "");
      documents.push_back(text + "\nnext " + std::to_string(i));
    }
    documents.insert(documents.begin(), lines);
    files = {folder.file("a.txt", lines), folder.file("b.jsonl", json)};
  }
  TempDir folder;
  std::vector<std::string> documents, files;
};

TEST_F(CorpusFiles, AreWrittenAlikeByAnyNumberOfRanks) {
  for (const char* family : {"gpt2", "llama3", "qwen2", "llama2", "added"}) {
    const TextTokenizer with = tokenizer(family);
    const std::int32_t eos = 7;
    Ids expected;
    std::vector<std::int64_t> ends;
    for (const std::string& document : documents) {
      const Ids ids = with.encode(document, Special::with);
      expected.insert(expected.end(), ids.begin(), ids.end());
      expected.push_back(eos);
      ends.push_back(static_cast<std::int64_t>(expected.size()));
    }
    std::string bytes;
    for (const int ranks : {1, 2, 3, 5}) {
      for (const std::size_t part : {std::size_t{300}, std::size_t{1} << 20}) {
        const std::string out = folder / "out.bin";
        const io::CorpusReport report =
            tokenize(ranks, with, files, {.out = out, .eos = eos, .range_bytes = part, .progress = {}});
        EXPECT_EQ(report.documents, 401);
        EXPECT_EQ(report.tokens, static_cast<std::int64_t>(expected.size()));
        EXPECT_EQ(report.repairs.invalid, 0);
        EXPECT_EQ(report.width, 2);
        const std::string written = test::bytes_of(out);
        EXPECT_EQ(io::DocumentEnds(io::open_dataset({out}), [] { return -1; }).all(), ends);
        if (bytes.empty()) bytes = written;
        EXPECT_EQ(written == bytes, true) << family << " " << ranks << " " << part;
      }
    }
    EXPECT_EQ(ids_in(folder / "out.bin"), expected) << family;
  }
  EXPECT_EQ(folder.names(),
            (std::vector<std::string>{"a.txt", "b.jsonl", "out.bin", "out.bin.documents", "out.bin.report"}));
}

TEST_F(CorpusFiles, EndAsTheTemplateSaysOnce) {
  const TextTokenizer with = tokenizer("llama3");
  const std::string out = folder / "out.bin", text = folder.file("c.txt", "one\ntwo");
  (void)tokenize(1, with, {text}, {.out = out, .eos = std::nullopt, .progress = {}});
  EXPECT_EQ(ids_in(out), with.encode("one\ntwo", Special::with));
  (void)tokenize(1, with, {text}, {.out = out, .eos = 0, .progress = {}});
  EXPECT_EQ(ids_in(out).back(), 0);
}

TEST_F(CorpusFiles, ThatHaveTheirOwnBeginAndEndGetNoSecondOnes) {
  const TextTokenizer llama = tokenizer("llama3"), gpt2 = tokenizer("gpt2");
  const std::int32_t begin = *llama.id_of("<|begin_of_text|>"), end = *llama.id_of("<|end_of_text|>"),
                     gpt2_end = *gpt2.id_of("<|endoftext|>");
  const std::string out = folder / "out.bin",
                    rows = folder.file("r.jsonl",
                                       "{\"text\": \"<|begin_of_text|>one<|end_of_text|>\"}\n"
                                       "{\"text\": \"one\"}\n{\"text\": \"one<|end_of_text|>\\n\"}\n");
  (void)tokenize(2, llama, {rows}, {.out = out, .eos = end, .range_bytes = 10, .progress = {}});
  const Ids one = llama.encode("one", Special::without);
  Ids expected = {begin};
  expected.insert(expected.end(), one.begin(), one.end());
  expected.push_back(end);
  const std::size_t length = expected.size();
  const Ids ids = ids_in(out);
  ASSERT_GT(ids.size(), 2 * length);
  EXPECT_EQ(Ids(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(length)), expected);
  EXPECT_EQ(
      Ids(ids.begin() + static_cast<std::ptrdiff_t>(length), ids.begin() + static_cast<std::ptrdiff_t>(2 * length)),
      expected);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), end), 4) << "a text that goes on behind the token gets one";
  std::string text;
  for (int i = 0; i < 50; ++i) text += "word word\nword ";
  text += "<|endoftext|>";
  for (const std::size_t part : {std::size_t{20}, std::size_t{1} << 20}) {
    (void)tokenize(2, gpt2, {folder.file("t.txt", text)},
                   {.out = out, .eos = gpt2_end, .range_bytes = part, .progress = {}});
    EXPECT_EQ(ids_in(out), gpt2.encode(text, Special::without)) << part;
  }
}
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

TEST_F(CorpusFiles, CountInvalidUtf8) {
  // The same word several times, in one place each: words are cached, their bytes are not counted less for it.
  std::string words;
  for (int i = 0; i < 800; ++i) words += i % 200 == 7 ? "caf\xE9\n" : i == 300 ? "\xF0\x9F\n" : "words\n";
  const std::string text = folder.file("c.txt", words), out = folder / "out.bin",
                    rows =
                        folder.file("c.jsonl", test::bytes_of(files[1]) + "{\"text\": \"\xff \\ud800\", \"x\": NaN}\n");
  for (const int ranks : {1, 3}) {
    const io::CorpusReport report =
        tokenize(ranks, tokenizer("gpt2"), {text, rows}, {.out = out, .eos = 0, .range_bytes = 300, .progress = {}});
    EXPECT_EQ(report.repairs.invalid, 6);
    EXPECT_EQ(report.repairs.replaced, 2);
  }
  const io::Dataset data = io::open_dataset({out});
  EXPECT_EQ(data.repairs.invalid, 6) << "the token file keeps the count";
  EXPECT_EQ(data.repairs.replaced, 2);
  const auto refused = [&](const std::string& path, bool strict, const std::string& why) {
    for (const int ranks : {1, 3})
      expect_error(ExitCode::data, why, [&] {
        (void)tokenize(
            ranks, tokenizer("gpt2"), {files[0], path},
            {.out = folder / "no.bin", .eos = 0, .range_bytes = 300, .rows = {.strict = strict}, .progress = {}});
      });
    EXPECT_FALSE(std::filesystem::exists(folder / "no.bin"));
  };
  refused(text, true, "the bytes here are not UTF-8 [" + text + ":8]");
  const std::size_t lines = static_cast<std::size_t>(std::ranges::count(test::bytes_of(rows), '\n'));
  refused(rows, true, "the bytes here are not UTF-8 [" + rows + ":" + std::to_string(lines) + "]");
  refused(folder.file("latin.txt", std::string(98, 'a') + "\xE9\n"), true, "latin.txt:1");
  refused(folder.file("latin.txt", std::string(97, 'a') + "\xE9\n"), false,
          "latin.txt is not UTF-8: of its 99 characters 1 ");
  refused(folder.file("surrogate.jsonl", "{\"text\": \"\\ud800\"}\n"), true, "surrogate.jsonl:1");
}

TEST_F(CorpusFiles, HaveNoByteOrderMarkAndBeginBehindIt) {
  const TextTokenizer with = tokenizer("gpt2");
  const std::string out = folder / "out.bin";
  (void)tokenize(1, with, {folder.file("m.txt", "\xEF\xBB\xBFone\ntwo")},
                 {.out = out, .eos = std::nullopt, .progress = {}});
  EXPECT_EQ(ids_in(out), with.encode("one\ntwo", Special::with));
}

TEST_F(CorpusFiles, MayBeCompressed) {
  // Two gzip files of {"text": "one"} and {"text": "two"}, a line each.
  using namespace std::string_literals;
  const std::string packed =
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x2a\x49\xad\x28\x51\xb2\x52\x50\xca\xcf\x4b\x55"
      "\xaa\xe5\xaa\x86\xf3\x4b\xca\xf3\x81\x7c\x00\xd1\x5b\x69\xd5\x20\x00\x00\x00"s;
  const std::vector<std::string> names = {folder.file("p.jsonl.gz", packed), folder.file("q.jsonl.gz", packed + packed),
                                          files[1]};
  expect_error(ExitCode::data, "p.jsonl.gz is gzip-compressed", [&] { (void)io::Corpus({names[0]}); });
  std::function<void()> check;
  const auto run = [&](int ranks, std::uint64_t reserve) {
    std::int64_t tokenized_rows = 0, made = 0;
    std::mutex guard;
    run_local(ranks, [&](World& world) {
      std::vector<io::DataFile> all = io::data_files(names);
      io::decompress_files(world, all,
                           {.directory = [&] { return folder / "cache"; },
                            .made =
                                [&](const io::DataFile&) {
                                  const std::lock_guard lock(guard);
                                  ++made;
                                },
                            .check = check,
                            .reserve = reserve});
      EXPECT_EQ(all[2].content(), names[2]);
      const io::CorpusReport report = io::tokenize_corpus(
          world, tokenizer("gpt2"), io::Corpus(all), {.out = folder / "out.bin", .eos = 0, .rows = {}, .progress = {}});
      const std::lock_guard lock(guard);
      if (world.rank() == 0) tokenized_rows = report.documents;
    });
    return std::pair(tokenized_rows, made);
  };
  expect_error(ExitCode::data, "too little space", [&] { (void)run(2, ~std::uint64_t{0}); });
  check = [] { throw Error(ExitCode::preempted, "stopped"); };
  expect_error(ExitCode::preempted, "stopped", [&] { (void)run(2, 0); });
  expect_error(ExitCode::preempted, "stopped", [&] {
    run_local(2,
              [&](World& world) { io::Corpus(std::vector<std::string>{files[1]}).find_conversations(world, check); });
  });
  check = {};
  EXPECT_TRUE(std::filesystem::is_empty(folder / "cache"));
  EXPECT_EQ(run(3, 0), (std::pair<std::int64_t, std::int64_t>(406, 2)));
  EXPECT_EQ(run(2, 0), (std::pair<std::int64_t, std::int64_t>(406, 0))) << "the second run finds them";
}

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

TEST_F(CorpusFiles, AreRefusedByNameAndPosition) {
  const TextTokenizer with = tokenizer("gpt2");
  const std::string out = folder / "out.bin";
  const auto refused = [&](const std::vector<std::string>& paths, const std::string& words) {
    for (const int ranks : {1, 3})
      expect_error(ExitCode::data, words, [&] {
        (void)tokenize(ranks, with, paths,
                       {.out = out, .eos = 0, .range_bytes = 100, .rows = {.strict = true}, .progress = {}});
      });
    EXPECT_FALSE(std::filesystem::exists(out));
  };
  refused({files[0], folder.file("empty.txt", "")}, "empty.txt is empty");
  refused({folder.file("t.bin", "x")}, "t.bin holds tokens already");
  refused({folder.file("t.parquet", "PAR1")}, "Parquet");
  refused({folder / "none.txt"}, "none.txt");
  refused({folder.file("zero.txt", std::string(500, 'a') + std::string(1, '\0'))},
          "zero.txt is not text: byte 500 is zero");
  std::string json;
  for (int i = 0; i < 100; ++i) json += i == 77 ? "{\"text\": 5}\n" : "{\"text\": \"some words to fill the line\"}\n";
  refused({folder.file("bad.jsonl", json)}, "bad.jsonl:78");
  refused({folder.file("blank.jsonl", "\n\n")}, "no document");
  EXPECT_EQ(folder.names().size(), 2u + 6u);  // no incomplete file
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

TEST_F(CorpusFiles, HashByContentsAlone) {
  const auto hash = [](const std::vector<std::string>& paths, int ranks) {
    std::uint64_t found = 0;
    run_local(ranks, [&](World& world) {
      const std::uint64_t mine = io::Corpus(paths).content_hash(world);
      if (world.rank() == 0) found = mine;
    });
    return found;
  };
  const std::uint64_t reference = hash(files, 1);
  EXPECT_EQ(hash(files, 3), reference);
  EXPECT_EQ(hash({folder.file("copy.txt", test::bytes_of(files[0])), files[1]}, 2), reference);
  EXPECT_NE(hash({files[1], files[0]}, 1), reference);
  std::string changed = test::bytes_of(files[0]);
  changed.back() ^= 1;
  EXPECT_NE(hash({folder.file("copy.txt", changed), files[1]}, 1), reference);
}

TEST(TokenFile, CountsBeyond31BitsInItsOwnForm) {
  const std::string narrow = io::token_file_header(2, 2147483647), wide = io::token_file_header(4, 2147483648);
  EXPECT_EQ(narrow.size(), 1024u);
  EXPECT_EQ(narrow.substr(0, 12), std::string("\x88\xd8\x34\x01\x01\0\0\0\xff\xff\xff\x7f", 12));
  EXPECT_EQ(wide.substr(0, 24),
            std::string("\xa1\xd9\x34\x01\x07\0\0\0\xff\xff\xff\xff\0\0\0\0\0\0\0\x80\0\0\0\0", 24));
  std::string small = wide + "abcdefgh";
  small.replace(16, 8, std::string("\x02\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(io::check_token_file(small, "small.bin").count, 2);
  expect_error(ExitCode::data, "truncated", [&] { (void)io::check_token_file(wide + "abcd", "cut.bin"); });
  small.replace(16, 8, std::string(8, '\xff'));
  expect_error(ExitCode::data, "says -1 tokens", [&] { (void)io::check_token_file(small, "odd.bin"); });
}

}  // namespace
}  // namespace tessera::corpus
