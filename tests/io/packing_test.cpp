// SPDX-License-Identifier: Apache-2.0
// Packed samples: every token of a document but its first is a target once, for any T and strategy; refusals.
#include "io/data/packing.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "io/data/documents.hpp"
#include "io/data/packed_index.hpp"
#include "runtime/base/rng.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

using io::PackedStream;
using io::Packing;
using test::expect_error;
using test::TempDir;
using Ids = std::vector<std::int32_t>;
using Ends = std::vector<std::int64_t>;

/// Token i of the stream is i.
class Counting final : public io::TokenStream {
 public:
  explicit Counting(std::int64_t size) : size_(size) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override {
    ASSERT_TRUE(first >= 0 && first + count <= size_);
    for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::int32_t>(first + i);
  }

 private:
  std::int64_t size_;
};

Ends ends_of(const Ends& lengths, std::int64_t first = 0) {
  Ends ends;
  for (const std::int64_t n : lengths) ends.push_back(first += n);
  return ends;
}

PackedStream packed(const Ends& lengths, std::int64_t tokens, Packing packing) {
  const Ends ends = ends_of(lengths);
  return {std::make_shared<Counting>(ends.back()), {0, ends}, tokens, packing};
}

struct Sample {
  Ids ids, targets, positions;
};
Sample read(const PackedStream& stream, std::int64_t k) {
  const auto n = static_cast<std::size_t>(stream.tokens());
  Sample s{Ids(n, -5), Ids(n, -5), Ids(n, -5)};
  stream.read_sample(k, {stream.tokens(), s.ids.data(), s.targets.data(), s.positions.data(), nullptr, -100});
  return s;
}

/// Reads every sample and compares it with the documents.
void check(const Ends& lengths, std::int64_t tokens, Packing packing) {
  SCOPED_TRACE(testing::Message() << "T " << tokens << (packing == Packing::binpack ? " binpack" : " sequential"));
  const PackedStream stream = packed(lengths, tokens, packing);
  const Ends ends = ends_of(lengths);
  const auto document = [&](std::int64_t token) {
    return std::upper_bound(ends.begin(), ends.end(), token) - ends.begin();
  };
  std::map<std::int32_t, int> predicted;
  std::int64_t all = 0, used = 0, squares = 0;
  for (std::int64_t k = 0; k < stream.count().samples; ++k) {
    const Sample s = read(stream, k);
    std::int64_t targets = 0;
    bool padding = false;
    for (std::size_t t = 0; t < s.ids.size(); ++t) {
      const bool first = s.positions[t] == 0, ends_here = t + 1 == s.ids.size() || s.positions[t + 1] == 0;
      padding = padding || (first && ends_here && s.targets[t] == -100 && s.ids[t] == 0);
      if (padding) {
        EXPECT_TRUE(first && s.targets[t] == -100 && s.ids[t] == 0) << "sample " << k << " token " << t;
        continue;
      }
      ++used;
      squares += 2 * s.positions[t] + 1;  // n² is the sum of the first n odd numbers
      if (!first) {
        EXPECT_EQ(s.ids[t], s.ids[t - 1] + 1);
        EXPECT_EQ(s.positions[t], s.positions[t - 1] + 1);
        EXPECT_EQ(document(s.ids[t]), document(s.ids[t - 1]));
      }
      if (s.targets[t] == -100) {
        EXPECT_TRUE(ends_here && document(s.ids[t]) != document(s.ids[t] + 1)) << s.ids[t];
        continue;
      }
      EXPECT_EQ(s.targets[t], s.ids[t] + 1);
      EXPECT_EQ(document(s.targets[t]), document(s.ids[t]));
      ++predicted[s.targets[t]];
      ++targets;
    }
    io::PackedCounts work;
    stream.add_counts(k, work);
    EXPECT_EQ(work.targets, targets);
    all += targets;
  }
  io::PackedCounts work;
  for (std::int64_t k = 0; k < stream.count().samples; ++k) stream.add_counts(k, work);
  EXPECT_EQ(work.tokens, used);
  EXPECT_EQ(work.squares, squares);
  EXPECT_EQ(stream.count().squares, squares);
  EXPECT_EQ(stream.count().targets, all);
  EXPECT_EQ(stream.count().tokens, used);
  std::int64_t expected = 0;
  for (const std::int64_t n : lengths) expected += std::max<std::int64_t>(n - 1, 0);
  EXPECT_EQ(static_cast<std::int64_t>(predicted.size()), expected);
  for (const auto& [token, times] : predicted) EXPECT_EQ(times, 1) << token;
}

TEST(Packing, EveryTokenButTheFirstIsATargetOnce) {
  Ends lengths = {3, 1, 0, 17, 2, 5, 5, 16, 33, 1, 8};
  for (std::uint64_t i = 0; i < 2500; ++i)
    lengths.push_back(1 + static_cast<std::int64_t>(philox(3, i)[0] % 23));  // three windows
  for (const std::int64_t tokens : {1, 2, 8, 16, 100})
    for (const Packing packing : {Packing::binpack, Packing::sequential}) check(lengths, tokens, packing);
}

/// Tokens whose number is divisible by 3 have loss.
class Masked final : public io::TokenStream {
 public:
  explicit Masked(std::int64_t size) : ids_(size) {}
  [[nodiscard]] std::int64_t size() const override { return ids_.size(); }
  void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override { ids_.read(first, count, out); }
  [[nodiscard]] bool masked() const override { return true; }
  void read_loss(std::int64_t first, std::int64_t count, std::uint8_t* out) const override {
    ASSERT_TRUE(first >= 0 && first + count <= size());
    for (std::int64_t i = 0; i < count; ++i) out[i] = (first + i) % 3 == 0;
  }

 private:
  Counting ids_;
};

TEST(Packing, PaddedHasOneDocumentASample) {
  const PackedStream stream = packed({3, 1, 7, 2}, 5, Packing::padded);
  EXPECT_EQ(stream.count().samples, 4);  // the third document is split
  EXPECT_EQ(read(stream, 0).ids, (Ids{0, 1, 2, 0, 0}));
  EXPECT_EQ(read(stream, 0).targets, (Ids{1, 2, -100, -100, -100}));
  EXPECT_EQ(read(stream, 0).positions, (Ids{0, 1, 2, 0, 0}));
  EXPECT_EQ(read(stream, 3).ids, (Ids{11, 12, 0, 0, 0}));
}

TEST(Packing, TokensWithoutLossAreNoTargets) {
  Ends lengths = {2, 3, 5000, 7, 2, 4};
  const Ends ends = ends_of(lengths);
  for (const Packing packing : {Packing::binpack, Packing::sequential, Packing::padded}) {
    const PackedStream stream(std::make_shared<Masked>(ends.back()), {0, ends}, 10, packing);
    EXPECT_TRUE(stream.masked());
    EXPECT_EQ(stream.count().no_loss, 1);  // the first one: token 0 is no target, token 1 has no loss
    std::set<std::int32_t> targets;
    std::int64_t all = 0;
    for (std::int64_t k = 0; k < stream.count().samples; ++k) {
      const Sample s = read(stream, k);
      io::PackedCounts work;
      stream.add_counts(k, work);
      std::int64_t here = 0;
      for (std::size_t t = 0; t < s.ids.size(); ++t) {
        if (s.targets[t] == -100) continue;
        EXPECT_EQ(s.targets[t], s.ids[t] + 1);
        targets.insert(s.targets[t]);
        ++here;
      }
      EXPECT_EQ(work.targets, here);
      all += here;
    }
    std::set<std::int32_t> expected;
    for (std::int32_t token = 0; token < ends.back(); token += 3)
      if (token != 0 && std::find(ends.begin(), ends.end(), token) == ends.end()) expected.insert(token);
    EXPECT_EQ(targets, expected);
    EXPECT_EQ(all, static_cast<std::int64_t>(expected.size()));
    EXPECT_EQ(stream.count().targets, all);
  }
}

TEST(Packing, DocumentsThatAreTooLongAreShortenedOrLeftOut) {
  const Ends ends = ends_of({3, 12, 10, 25});
  const auto stream = [&](io::Truncation truncation) {
    return PackedStream(std::make_shared<Masked>(50), {0, ends}, 10, Packing::padded, truncation);
  };
  const PackedStream removed = stream(io::Truncation::remove), left = stream(io::Truncation::left),
                     right = stream(io::Truncation::right), parts = stream(io::Truncation::split);
  EXPECT_EQ(removed.count().too_long, 2);
  EXPECT_EQ(removed.count().samples, 1);  // the first document has no loss
  EXPECT_EQ(removed.count().no_loss, 1);
  EXPECT_EQ(removed.count().cut_no_loss, 0);
  const PackedStream shortened(std::make_shared<Masked>(50), {0, ends}, 3, Packing::padded, io::Truncation::right);
  EXPECT_EQ(shortened.count().no_loss, 3);      // targets 1, 2; 4, 5; 16, 17; only 27 of 26, 27 has loss
  EXPECT_EQ(shortened.count().cut_no_loss, 2);  // the first document is not longer
  EXPECT_EQ(left.count().cut, 2);
  EXPECT_EQ(read(left, 0).ids, (Ids{5, 6, 7, 8, 9, 10, 11, 12, 13, 14}));
  EXPECT_EQ(read(left, 0).targets, (Ids{6, -100, -100, 9, -100, -100, 12, -100, -100, -100}));
  EXPECT_EQ(read(right, 0).ids, (Ids{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(read(right, 0).targets, (Ids{-100, -100, 6, -100, -100, 9, -100, -100, 12, -100}));
  EXPECT_EQ(right.count().samples, 3);
  EXPECT_EQ(parts.count().samples, 5);  // tokens 13 and 14 have no loss
}

TEST(Packing, SequentialKeepsTheOrderAndBinpackFillsBest) {
  const Ends lengths = {6, 6, 4, 3, 4, 1, 7};
  const PackedStream in_order = packed(lengths, 10, Packing::sequential), best = packed(lengths, 10, Packing::binpack);
  EXPECT_EQ(in_order.count().samples, 4);  // 6 | 6+4 | 3+4 | 7
  EXPECT_EQ(read(in_order, 1).ids, (Ids{6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(read(in_order, 1).positions, (Ids{0, 1, 2, 3, 4, 5, 0, 1, 2, 3}));
  EXPECT_EQ(read(in_order, 1).targets, (Ids{7, 8, 9, 10, 11, -100, 13, 14, 15, -100}));
  EXPECT_EQ(read(in_order, 0).targets, (Ids{1, 2, 3, 4, 5, -100, -100, -100, -100, -100}));
  EXPECT_EQ(best.count().samples, 3);  // 6+4 | 6+4 | 7+3
  EXPECT_EQ(best.count().tokens, 30);
  EXPECT_EQ(best.count().dropped, 1);
  EXPECT_NE(best.hash(), in_order.hash());
  EXPECT_EQ(best.hash(), packed(lengths, 10, Packing::binpack).hash());
}

TEST(Packing, AnIndexFileHasTheSameSamples) {
  TempDir folder;
  const Ends lengths = {3, 1, 0, 17, 2, 5, 5, 16, 33, 1, 8}, ends = ends_of(lengths);
  const auto source = std::make_shared<Counting>(ends.back());
  const auto documents = [&](const io::TakeDocument& take) {
    std::int64_t begin = 0;
    for (const std::int64_t end : ends) take(std::exchange(begin, end), end);
  };
  for (const Packing packing : {Packing::binpack, Packing::sequential, Packing::padded}) {
    const PackedStream original(source, {0, ends}, 8, packing);
    const io::PackingRule rule{8, packing, io::Truncation::split};
    const std::string path = folder / "index";
    EXPECT_FALSE(io::has_packed_index(path, source->size(), rule));
    io::write_packed_index(path, *source, documents, rule);
    EXPECT_TRUE(io::has_packed_index(path, source->size(), rule));
    EXPECT_FALSE(io::has_packed_index(path, source->size() + 1, rule));
    EXPECT_FALSE(io::has_packed_index(path, source->size(), {9, packing, io::Truncation::split}));
    EXPECT_FALSE(io::has_packed_index(path, source->size(), {8, packing, io::Truncation::left}));
    EXPECT_EQ(folder.names(), std::vector<std::string>{"index"});
    const PackedStream mapped(source, path, rule);
    EXPECT_EQ(mapped.hash(), original.hash());
    EXPECT_EQ(std::memcmp(&mapped.count(), &original.count(), sizeof(io::PackingCount)), 0);
    for (std::int64_t k = 0; k < original.count().samples; ++k) {
      EXPECT_EQ(read(mapped, k).ids, read(original, k).ids);
      EXPECT_EQ(read(mapped, k).targets, read(original, k).targets);
      EXPECT_EQ(read(mapped, k).positions, read(original, k).positions);
    }
    const std::string bytes = test::bytes_of(path);
    for (std::size_t length = 0; length < bytes.size(); length += 7) {
      (void)folder.file("short", bytes.substr(0, length));
      EXPECT_FALSE(io::has_packed_index(folder / "short", source->size(), rule)) << length;
      expect_error(ExitCode::data, "short is not an index of these samples",
                   [&] { PackedStream stream(source, folder / "short", rule); });
    }
    std::filesystem::remove(path);
    std::filesystem::remove(folder / "short");
  }
}

TEST(Packing, AnIndexFileWithWrongRangesIsRefused) {
  TempDir folder;
  const Ends ends = ends_of({3, 17, 2, 5, 8});
  const auto source = std::make_shared<Counting>(ends.back());
  const io::PackingRule rule{8, Packing::binpack, io::Truncation::split};
  const std::string path = folder / "index";
  io::write_packed_index(
      path, *source,
      [&](const io::TakeDocument& take) {
        std::int64_t begin = 0;
        for (const std::int64_t end : ends) take(std::exchange(begin, end), end);
      },
      rule);
  const std::string bytes = test::bytes_of(path);
  const auto use = [&] {  // Counting asserts that reads are inside the stream
    const PackedStream stream(source, path, rule, 7);
    EXPECT_EQ(stream.selection(), 7U);
    for (std::int64_t k = 0; k < stream.count().samples; ++k) (void)read(stream, k);
  };
  const auto with = [&](std::size_t at, std::int64_t number) {
    std::string changed = bytes;
    std::memcpy(changed.data() + at, &number, sizeof number);
    (void)folder.file("index", changed);
  };
  EXPECT_NO_THROW(use());
  const auto samples = static_cast<std::size_t>(PackedStream(source, path, rule).count().samples);
  for (const std::int64_t begin : {std::int64_t{-1}, std::int64_t{1} << 40, INT64_MIN, INT64_MAX})
    for (std::size_t k = 0; k <= samples; ++k) {
      with(bytes.size() - 8 * (samples + 1 - k), begin);
      expect_error(ExitCode::data, "index is not an index of these samples: the ranges of sample", use);
    }
  const std::size_t range = bytes.size() - 8 * (samples + 1) - 16;  // the last one: its first token, then two int32
  for (const std::int64_t first : {std::int64_t{-1}, ends.back(), INT64_MIN, INT64_MAX}) {
    with(range, first);
    expect_error(ExitCode::data, "Delete it", use);
  }
  for (const std::int64_t numbers : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{9}, std::int64_t{INT32_MIN},
                                     std::int64_t{2} | std::int64_t{-2} * (std::int64_t{1} << 32)}) {
    with(range + 8, numbers);
    expect_error(ExitCode::data, "Delete it", use);
  }
  int refused = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ (1U << bit));
      (void)folder.file("index", changed);
      try {
        use();
      } catch (const Error& error) {
        ++refused;
        EXPECT_EQ(error.code(), ExitCode::data) << "byte " << at;
      }
    }
  EXPECT_GT(refused, 0);
}

TEST(Packing, AMappedIndexTakesNoMemoryForItsDocuments) {
  TempDir folder;
  const auto memory = [&](const char* name, std::int64_t count) {  // documents of two tokens
    const auto source = std::make_shared<Counting>(2 * count);
    const io::PackingRule rule{8, Packing::binpack, io::Truncation::split};
    const auto documents = [&](const io::TakeDocument& take) {
      for (std::int64_t i = 0; i < count; ++i) take(2 * i, 2 * i + 2);
    };
    const std::string path = folder / name;
    io::write_packed_index(path, *source, documents, rule);
    (void)test::allocated_bytes();
    const PackedStream mapped(source, path, rule);
    EXPECT_EQ(mapped.count().documents, count);
    return test::allocated_bytes();
  };
  EXPECT_EQ(memory("a", 1000), memory("b", 100000));
}

TEST(Packing, SplitDocumentsLoseNoTarget) {
  const PackedStream stream = packed({11}, 5, Packing::sequential);  // 5 + 5, and the last token is a target alone
  EXPECT_EQ(stream.count().samples, 2);
  EXPECT_EQ(stream.count().cut, 1);
  EXPECT_EQ(read(stream, 1).ids, (Ids{5, 6, 7, 8, 9}));
  EXPECT_EQ(read(stream, 1).targets, (Ids{6, 7, 8, 9, 10}));
  EXPECT_EQ(read(stream, 1).positions, (Ids{0, 1, 2, 3, 4}));
  EXPECT_EQ(packed({1, 1}, 5, Packing::binpack).count().samples, 0);
}

}  // namespace
}  // namespace tessera
