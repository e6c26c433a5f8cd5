// SPDX-License-Identifier: Apache-2.0
// Text files to token files: the ids of each document, for any number of ranks and size of ranges.

#include <mutex>

#include "io/corpus/decompressed_files.hpp"
#include "io/data/documents.hpp"
#include "io/data/token_file.hpp"
#include "io/file/text_file.hpp"
#include "tests/io/corpus_files.hpp"

namespace tessera::corpus {
namespace {

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
