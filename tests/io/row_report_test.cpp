// SPDX-License-Identifier: Apache-2.0
// What is counted of rows while they are tokenized, on any number of ranks, and read again from beside the tokens.

#include "io/data/row_report.hpp"

#include <mutex>

#include "io/chat/template_format.hpp"
#include "io/corpus/tokenize_corpus.hpp"
#include "io/data/dataset.hpp"
#include "io/file/text_file.hpp"
#include "tests/io/files.hpp"

namespace tessera::row_report {
namespace {

using test::expect_error;
using test::TempDir;

io::TextTokenizer gpt2() {
  return io::TextTokenizer::load(std::string(TESSERA_TEST_DATA) + "/tokenizer/gpt2.tokenizer.json");
}

io::CorpusReport tokenize(int ranks, const std::vector<std::string>& files, const io::TokenizeOptions& options,
                          const io::Columns& columns = {}) {
  io::CorpusReport report;
  std::mutex guard;
  run_local(ranks, [&](World& world) {
    const io::CorpusReport mine =
        io::tokenize_corpus(world, gpt2(), io::Corpus(io::data_files(files), columns), options);
    const std::lock_guard lock(guard);
    if (world.rank() == 0) report = mine;
  });
  return report;
}

/// The contents of messages; an assistant's has loss.
class Lines final : public io::ChatFormat {
 public:
  [[nodiscard]] io::ChatText render(const io::ConversationRow& conversation) const override {
    io::ChatText made;
    for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
      const std::size_t begin = made.text.size();
      made.text += conversation.content(i) + "\n";
      if (conversation.role(i) == "assistant") made.loss.push_back({begin, made.text.size()});
    }
    return made;
  }
  [[nodiscard]] std::uint64_t hash() const override { return 1; }
};

TEST(RowReport, HasRowsOfTablesWithoutAValue) {
  const TempDir folder;
  const std::string table = folder.file("t.csv", "query,response,system\nq,,s\n,a,s\nq,a,\n\"\",a,\n"),
                    out = folder / "out.bin";
  const Lines format;
  const io::CorpusReport report =
      tokenize(1, {table}, {.out = out, .eos = 7, .rows = {.chat = &format}, .progress = {}});
  EXPECT_EQ(report.documents, 2);
  EXPECT_EQ(report.skipped.named,
            (std::vector<std::string>{
                table + ":2: no known form of row; its keys: \"query\" \"response\" (null) \"system\"",
                table + ":3: no known form of row; its keys: \"query\" (null) \"response\" \"system\""}));
}

TEST(RowReport, HasRowsInWhichColumnsGiveANameTwice) {
  const TempDir folder;
  const std::string out = folder / "out.bin", why = R"("q" is to be "query" by --columns, which the row has itself)",
                    table = folder.file("t.csv", "q,query,response\n1,2,a\n1,,a\n,2,a\n"),
                    tabs = folder.file("t.tsv", "q\tquery\tresponse\n1\t2\ta\n1\t\ta\n\t2\ta\n"),
                    lines = folder.file("r.jsonl", R"({"q": "1", "response": "a"}
{"q": "1", "query": "2", "response": "a"}
{"q": "1", "response": "a"}
)"),
                    pairs = folder.file("pairs.jsonl", R"({"p": "1", "prompt": "2", "chosen": "a", "rejected": "b"}
{"p": "1", "chosen": "a", "rejected": "b"}
)");
  const Lines format;
  for (const auto& [file, line] : {std::pair{table, ":2: "}, {tabs, ":2: "}, {lines, ":2: "}}) {
    const io::CorpusReport report =
        tokenize(1, {file}, {.out = out, .eos = 7, .rows = {.chat = &format}, .progress = {}}, {{"q", "query"}});
    EXPECT_EQ(report.documents, 2);
    EXPECT_EQ(report.skipped.named, std::vector{file + line + why});
  }
  const io::CorpusReport report = tokenize(
      1, {pairs}, {.out = out, .eos = 7, .rows = {.chat = &format, .pairs = true}, .progress = {}}, {{"p", "prompt"}});
  EXPECT_EQ(report.pairs, 1);
  EXPECT_EQ(report.skipped.named,
            std::vector{pairs + R"(:1: "p" is to be "prompt" by --columns, which the row has itself)"});
}

TEST(RowReport, HasConversationsWithTokensOfImages) {
  const TempDir folder;
  const std::string table = folder.file("t.csv", "query,response\nq,a\nq!,a\n"), out = folder / "out.bin";
  const Lines format;
  const io::CorpusReport report =
      tokenize(1, {table}, {.out = out, .eos = 7, .rows = {.chat = &format, .images = {0}}, .progress = {}});  // "!"
  EXPECT_EQ(report.documents, 1);
  EXPECT_EQ(report.skipped.named, std::vector{table + ":3: token 0 stands for an image, and text alone is read"});
}

TEST(RowReport, HasTextsWithTokensOfImages) {
  const TempDir folder;
  const std::string rows = folder.file("r.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b!\"}\n{\"text\": \"c\"}\n"),
                    plain = folder.file("p.txt", "a\nb!"), out = folder / "out.bin";
  const auto made = [&](const std::string& file, bool strict) {
    return tokenize(1, {file}, {.out = out, .eos = 7, .rows = {.strict = strict, .images = {0}}, .progress = {}});
  };
  const io::CorpusReport report = made(rows, false);
  EXPECT_EQ(report.documents, 2);
  EXPECT_EQ(report.tokens, 4);
  EXPECT_EQ(report.skipped.named, std::vector{rows + ":2: token 0 stands for an image, and text alone is read"});
  expect_error(ExitCode::data, "token 0 stands for an image", [&] { (void)made(rows, true); });
  expect_error(ExitCode::data, "token 0 stands for an image, and text alone is read [" + plain + "]",
               [&] { (void)made(plain, false); });
}

TEST(RowReport, NamesColumnsThatNoRowHas) {
  const TempDir folder;
  std::string rows;
  for (int i = 0; i < 50; ++i) rows += "{\"text\": \"a\", \"n\": 1}\n";
  const std::string path = folder.file("r.jsonl", rows + "{\"words\": \"b\"}\n"), out = folder / "out.bin";
  const io::Columns columns = {{"n", "unused"}, {"words", "text"}, {"nn", "unused"}, {"ident\"", "x"}};
  run_local(3, [&](World& world) {
    const io::CorpusReport report =
        io::tokenize_corpus(world, gpt2(), io::Corpus({{path, {}, {}}}, columns),
                            {.out = out, .eos = 7, .range_bytes = 100, .rows = {}, .progress = {}});
    EXPECT_EQ(report.documents, 51);
    EXPECT_EQ(report.absent_columns, (std::vector<std::string>{"ident\"", "nn"}));
  });
  EXPECT_EQ(io::open_dataset({out}).rows.absent_columns, (std::vector<std::string>{"ident\"", "nn"}));
}

TEST(RowReport, CountsPythonLiteralsOnce) {
  const TempDir folder;
  std::string csv = "messages\n";
  for (int i = 0; i < 40; ++i)
    csv += i % 4 == 1
               ? "\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"q\"\"}, {\"\"role\"\": \"\"assistant\"\", "
                 "\"\"content\"\": \"\"a\"\"}]\"\n"
               : "\"[{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': None}]\"\n";
  const std::string table = folder.file("t.csv", csv), out = folder / "out.bin";
  const Lines format;
  for (const int ranks : {1, 3}) {
    const io::CorpusReport report =
        tokenize(ranks, {table}, {.out = out, .eos = 7, .range_bytes = 300, .rows = {.chat = &format}, .progress = {}});
    EXPECT_EQ(report.documents, 10);
    EXPECT_EQ(report.skipped.count, 30);
    EXPECT_EQ(report.skipped.named.size(), 0U);
    ASSERT_EQ(report.skipped.literals.size(), 1U);
    for (const io::SkippedRows& skipped : {report.skipped, io::open_dataset({out}).rows.skipped}) {
      EXPECT_EQ(skipped.literals.at("\"messages\"").rows, 30) << ranks;
      EXPECT_EQ(skipped.literals.at("\"messages\"").first, table + ":2");
    }
  }
  const std::string alone = folder.file("alone.csv", csv.substr(0, csv.find('\n', 10) + 1));
  expect_error(ExitCode::data, "alone.csv:2: \"messages\" is a Python literal, not JSON: write it by json.dumps",
               [&] { (void)tokenize(1, {alone}, {.out = out, .eos = 7, .progress = {}}); });
}

TEST(RowReport, SaysHowManyAnswersHaveLabels) {
  const TempDir folder;
  const std::string rows = folder.file("rows.jsonl", R"({"query": "q", "response": "a", "label": true}
{"query": "q", "response": "a", "rejected_response": "b"}
{"query": "q</think>\n", "response": "a", "label": false}
)"),
                    out = folder / "out.bin";
  const Lines format;
  const io::CorpusReport report = tokenize(
      2, {rows}, {.out = out, .eos = 7, .rows = {.chat = &format, .pairs = true, .labels = true}, .progress = {}});
  const io::RowReport read =
      io::parse_row_report(io::read_text(io::row_report_name(out)), report.tokens, io::row_report_name(out));
  for (const io::RowReport& of : {static_cast<const io::RowReport&>(report), read}) {
    EXPECT_EQ(of.labelled, 2);
    EXPECT_EQ(of.pairs, 1);
    EXPECT_EQ(of.after_think, 1);
    EXPECT_EQ(of.files_of_margins, 0);
    EXPECT_EQ(of.files_of_labels, 1);
  }
}

TEST(RowReport, HasRowsWhoseMarginIsNoNumber) {
  const TempDir folder;
  const auto row = [](const std::string& rest) {
    return R"({"query": "q", "response": "a", "rejected_response": "b", )" + rest + "}\n";
  };
  const std::string rows = folder.file("rows.jsonl", row(R"("margin": NaN)") + row(R"("margin": null, "id": NaN)") +
                                                         row(R"("lead": -Infinity)") + row(R"("margin": "NaN")")),
                    out = folder / "out.bin";
  const Lines format;
  const io::CorpusReport report = tokenize(
      2, {rows}, {.out = out, .eos = 7, .rows = {.chat = &format, .pairs = true, .margins = true}, .progress = {}},
      {{"lead", "margin"}});
  EXPECT_EQ(report.pairs, 1);
  EXPECT_EQ(report.skipped.named, (std::vector<std::string>{rows + ":1: \"margin\" is NaN or Infinity",
                                                            rows + ":3: \"margin\" is NaN or Infinity",
                                                            rows + ":4: \"margin\" is not a number"}));
}

TEST(RowReport, CountsConversationsWithMessagesThatTheTemplateLeavesOut) {
  const TempDir folder;
  const io::TemplateFormat format(
      io::ChatTemplate::parse("{% for m in messages if m.role in ['user', 'assistant'] %}{{ m.role + ':' + m.content + "
                              "';' }}{% endfor %}",
                              "test"),
      io::LossRule::standard, "");
  std::string rows;
  for (int i = 0; i < 30; ++i)
    rows += std::string(R"({"query": "q", "response": "a")") + (i % 3 == 0 ? R"(, "system": "Be brief.")" : "") + "}\n";
  const std::string path = folder.file("r.jsonl", rows), out = folder / "out.bin";
  for (const int ranks : {1, 3}) {
    const io::CorpusReport report =
        tokenize(ranks, {path}, {.out = out, .eos = 7, .range_bytes = 100, .rows = {.chat = &format}, .progress = {}});
    EXPECT_EQ(report.without_messages, 10) << ranks;
    EXPECT_EQ(io::open_dataset({out}).rows.without_messages, 10);
  }
  // A report of an older version does not have the count.
  std::string text = io::read_text(io::row_report_name(out));
  const std::string counted = " \"without_messages\": 10,\n";
  ASSERT_NE(text.find(counted), std::string::npos);
  text.erase(text.find(counted), counted.size());
  EXPECT_EQ(io::parse_row_report(text, io::open_dataset({out}).tokens->size(), "old").without_messages, 0);
}

TEST(RowReport, SaysThatPairsHaveMargins) {
  const TempDir folder;
  const std::string rows = folder.file("rows.jsonl",
                                       R"({"query": "q", "response": "a", "rejected_response": "b", "margin": 0.5}
{"query": "q", "response": "a", "rejected_response": "b"}
)"),
                    out = folder / "out.bin";
  const Lines format;
  const io::CorpusReport report = tokenize(
      1, {rows}, {.out = out, .eos = 7, .rows = {.chat = &format, .pairs = true, .margins = true}, .progress = {}});
  const io::RowReport read =
      io::parse_row_report(io::read_text(io::row_report_name(out)), report.tokens, io::row_report_name(out));
  EXPECT_EQ(report.documents, 6);
  for (const io::RowReport& of : {static_cast<const io::RowReport&>(report), read}) {
    EXPECT_EQ(of.files_of_margins, 1);
    EXPECT_EQ(of.pairs, 2);
    EXPECT_TRUE(of.skipped.unread.counts.empty());
  }
}

}  // namespace
}  // namespace tessera::row_report
