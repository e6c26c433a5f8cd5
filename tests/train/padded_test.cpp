// SPDX-License-Identifier: Apache-2.0
// Rows of one document each are as long as the longest of their micro-batch, or one row end to end: the same results as
// at full length, the same bits at every stage, and a dropout mask that does not depend on the rows beside.
#include <gtest/gtest.h>

#include <atomic>

#include "io/data/packing.hpp"
#include "runtime/exec/batches.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {
namespace {

constexpr std::int64_t row_limit = 64;

/// 12 documents of 33 to 58 tokens: none shares a row of 64 with another.
const std::vector<std::int64_t>& document_ends() {
  static const std::vector<std::int64_t> ends = [] {
    std::vector<std::int64_t> all;
    for (std::int64_t at = 0, i = 0; i < 12; ++i) all.push_back(at += 33 + i * i % 28);
    return all;
  }();
  return ends;
}

io::PackedStream documents(io::Packing packing) {
  return {std::make_shared<RandomTokens>(document_ends().back(), 37), {0, document_ends()}, row_limit, packing};
}

std::string with_positions(std::string config) { return config.replace(config.find("16"), 2, "64"); }

models::Model small_model(const std::string& config, double dropout, DType dtype = DType::f32) {
  models::Model model = models::make(config, "test", dtype);
  if (dropout > 0) models::add_lora(model, {.rank = 3, .alpha = 6, .dropout = dropout});
  return model;
}

const std::vector<std::string>& configs() {
  static const std::vector<std::string> all = {config_json({.positions = 64}), with_positions(qwen3_config),
                                               with_positions(experts_config)};
  return all;
}

TEST(PaddedRows, AreAsLongAsTheLongestOfTheirMicroBatch) {
  const io::PackedStream stream = documents(io::Packing::padded);
  EXPECT_EQ(stream.count().longest, 33 + 25);
  for (const std::int64_t micro : {1, 2, 5}) {
    const plan::BatchPlan batch{.global_batch = 12,
                                .micro_batch = micro,
                                .data_ranks = 1,
                                .accumulation = static_cast<int>((12 + micro - 1) / micro)};
    exec::SampleBatches batches(batch, 0, row_limit);
    batches.set(stream, nullptr, 0, 12);
    std::int64_t all = 0;
    for (int m = 0; m < batch.accumulation; ++m) {
      std::int64_t longest = 0;
      for (std::int64_t row = 0; row < batches.rows(m); ++row)
        longest = std::max(longest, stream.tokens_of(batches.first_row(m) + row));
      EXPECT_EQ(batches.tokens(m), (longest + 15) / 16 * 16);
      all += batches.tokens(m);
    }
    EXPECT_TRUE(micro > 1 || all < 12 * row_limit);
    const io::PackedStream packed = documents(io::Packing::sequential);
    batches.set(packed, nullptr, 0, 12);
    EXPECT_EQ(batches.tokens(0), row_limit) << "packed samples have one length";
  }
}

TEST(PaddedRows, GiveTheResultsOfFullRows) {
  const io::PackedStream padded = documents(io::Packing::padded), full = documents(io::Packing::sequential);
  ASSERT_EQ(full.count().samples, 12);
  for (const std::string& config : configs()) {
    const models::Model model = small_model(config, 0);
    for (const int world : {1, 3}) {
      const Variant v{.world = world, .global_batch = 12, .micro_batch = 2, .tokens = row_limit};
      const Outcome a = run({&model, &full, 3, "", true, {}}, v), b = run({&model, &padded, 3, "", true, {}}, v);
      EXPECT_EQ(a.tokens, b.tokens);
      for (std::size_t s = 0; s < a.losses.size(); ++s) {
        EXPECT_NEAR(b.losses[s], a.losses[s], 2e-6 * a.losses[s]) << v.str();
        EXPECT_NEAR(b.norms[s], a.norms[s], 2e-5 * a.norms[s]) << v.str();
      }
      EXPECT_NEAR(b.eval_loss, a.eval_loss, 2e-6 * a.eval_loss);
    }
  }
}

TEST(PaddedRows, HaveTheSameBitsAtEveryStageAndOnAnyMesh) {
  const io::PackedStream stream = documents(io::Packing::padded);
  for (const std::string& config : configs()) {
    const models::Model model = small_model(config, 0.3);
    const Variant base{.world = 3, .strategy = "0", .global_batch = 11, .micro_batch = 2, .tokens = row_limit};
    const Outcome first = run({&model, &stream, 2, "", true, {}}, base);
    Variant v = base;
    for (const char* stage : {"1", "2", "3"}) {
      v.strategy = stage;
      v.recompute = stage[0] == '3';
      EXPECT_EQ(difference(first, run({&model, &stream, 2, "", true, {}}, v)), "") << v.str();
    }
    Variant one{.world = 1, .global_batch = 8, .tokens = row_limit, .reproducible = true};
    const Outcome alone = run({&model, &stream, 2, "", true, {}}, one);
    one.world = 4;
    EXPECT_EQ(difference(alone, run({&model, &stream, 2, "", true, {}}, one)), "");
  }
}

TEST(PaddedRows, KeepTheMaskOfDropoutHoweverTheBatchIsSplit) {
  const io::PackedStream stream = documents(io::Packing::padded);
  const models::Model model = small_model(configs()[1], 0.3);
  const auto outcome = [&](int world, std::int64_t micro) {
    const Variant v{.world = world, .global_batch = 12, .micro_batch = micro, .tokens = row_limit};
    return run({&model, &stream, 2, "", false, {}}, v);
  };
  const Outcome first = outcome(1, 12);
  for (const auto& [world, micro] : {std::pair{1, 1}, {2, 2}, {4, 3}}) {
    const Outcome other = outcome(world, micro);
    for (std::size_t s = 0; s < first.losses.size(); ++s) {
      EXPECT_NEAR(other.losses[s], first.losses[s], 2e-6 * first.losses[s]) << world;
      EXPECT_NEAR(other.norms[s], first.norms[s], 2e-5 * first.norms[s]) << world;
    }
  }
}

TEST(PaddingFree, LaysTheSamplesOfAMicroBatchEndToEnd) {
  const io::PackedStream stream = documents(io::Packing::padded);
  const plan::BatchPlan batch{.global_batch = 12, .micro_batch = 5, .data_ranks = 1, .accumulation = 3};
  const std::int64_t most = stream.longest_together(5, {0, 1});
  EXPECT_EQ(stream.longest_together(100, {0, 1}), stream.count().tokens);
  EXPECT_EQ(stream.longest_together(1, {0, 1}), stream.count().longest);
  EXPECT_LT(most, 5 * stream.count().longest);
  exec::SampleBatches batches(batch, 0, row_limit, most);
  batches.set(stream, nullptr, 0, 12);
  for (int m = 0; m < batch.accumulation; ++m) {
    EXPECT_EQ(batches.rows(m), 1);
    const auto tokens = static_cast<std::size_t>(batches.tokens(m));
    std::vector<std::int32_t> ids(tokens, -7), targets(tokens, -7), positions(tokens, -7);
    exec::BatchMemory to;
    to.set(models::BatchField::ids, reinterpret_cast<std::byte*>(ids.data()));
    to.set(models::BatchField::targets, reinterpret_cast<std::byte*>(targets.data()));
    to.set(models::BatchField::positions, reinterpret_cast<std::byte*>(positions.data()));
    batches.load(m, to);
    std::size_t at = 0;
    const auto lengths = batches.row_lengths(m);
    EXPECT_EQ(lengths.size(), m < 2 ? 5U : 2U);
    for (std::size_t row = 0; row < lengths.size(); ++row)
      for (std::int64_t t = 0; t < lengths[row]; ++t, ++at) {
        EXPECT_EQ(lengths[row], stream.tokens_of(batches.first_row(m) + static_cast<std::int64_t>(row)));
        EXPECT_EQ(positions[at], t);
        EXPECT_EQ(targets[at] == kernels::ignore_index, t + 1 == lengths[row]);
        if (t > 0) { EXPECT_EQ(ids[at], targets[at - 1]); }
      }
    EXPECT_LT(tokens - at, 16U);
    for (; at < tokens; ++at) EXPECT_TRUE(targets[at] == kernels::ignore_index && positions[at] == 0);
  }
}

TEST(PaddingFree, GivesTheResultsOfPaddedRowsDropoutIncluded) {
  const io::PackedStream stream = documents(io::Packing::padded);
  for (const std::string& config : configs())
    for (const auto& [dtype, loss, norm] : {std::tuple{DType::f32, 2e-6, 2e-5}, std::tuple{DType::bf16, 1e-2, 2e-2}})
      for (const double dropout : {0.0, 0.3}) {
        const models::Model model = small_model(config, dropout, dtype);
        for (const int world : {1, 3}) {
          Variant v{.world = world, .global_batch = 12, .micro_batch = 3, .tokens = row_limit, .dtype = dtype};
          const Outcome a = run({&model, &stream, 3, "", true, {}}, v);
          v.padding_free = true;
          const Outcome b = run({&model, &stream, 3, "", true, {}}, v);
          EXPECT_EQ(a.tokens, b.tokens);
          for (std::size_t s = 0; s < a.losses.size(); ++s) {
            EXPECT_NEAR(b.losses[s], a.losses[s], loss * a.losses[s]) << v.str();
            EXPECT_NEAR(b.norms[s], a.norms[s], norm * a.norms[s]) << v.str();
          }
          EXPECT_NEAR(b.eval_loss, a.eval_loss, loss * a.eval_loss);
        }
      }
}

TEST(PaddingFree, HasTheSameBitsAtEveryStageAndOnAnyMesh) {
  const io::PackedStream stream = documents(io::Packing::padded);
  for (const std::string& config : configs()) {
    const models::Model model = small_model(config, 0.3);
    Variant v{
        .world = 3, .strategy = "0", .global_batch = 11, .micro_batch = 2, .tokens = row_limit, .padding_free = true};
    const Outcome first = run({&model, &stream, 2, "", true, {}}, v);
    for (const char* stage : {"1", "2", "3"}) {
      v.strategy = stage;
      v.recompute = stage[0] == '3';
      v.copies = stage[0] == '2';
      EXPECT_EQ(difference(first, run({&model, &stream, 2, "", true, {}}, v)), "") << v.str();
    }
    Variant one{.world = 1, .global_batch = 8, .tokens = row_limit, .reproducible = true, .padding_free = true};
    const Outcome alone = run({&model, &stream, 2, "", true, {}}, one);
    one.world = 4;
    EXPECT_EQ(difference(alone, run({&model, &stream, 2, "", true, {}}, one)), "");
  }
}

TEST(PaddingFree, OfPackedSamplesAndWithMemoryAsPlanned) {
  const io::PackedStream packed = documents(io::Packing::sequential);
  const models::Model model = small_model(configs()[1], 0);
  Variant v{.world = 2, .global_batch = 12, .micro_batch = 3, .tokens = row_limit};
  const Outcome a = run({&model, &packed, 2, "", true, {}}, v);
  v.padding_free = true;
  std::atomic<std::size_t> differences = 0;
  const auto compare = [&](train::Trainer& trainer) {
    differences += plan::compare_memory(trainer.plan(), trainer.measured_memory()).size();
  };
  const Outcome b = run({&model, &packed, 2, "", true, compare}, v);
  EXPECT_EQ(differences.load(), 0U);
  for (std::size_t s = 0; s < a.losses.size(); ++s) EXPECT_NEAR(b.losses[s], a.losses[s], 2e-6 * a.losses[s]);
}

}  // namespace
}  // namespace tessera::test
