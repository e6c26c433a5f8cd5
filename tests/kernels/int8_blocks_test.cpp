// SPDX-License-Identifier: Apache-2.0
// Block-wise int8 against its formula; error feedback keeps what the codes lack; sums in the order of the binary
// counter; the same bits on every instruction set.
#include "kernels/int8_blocks.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/reduce.hpp"
#include "reference.hpp"

namespace tessera::kernels {
namespace {

std::vector<std::byte> encoded(const std::vector<float>& x, float* residual = nullptr) {
  std::vector<std::byte> bytes(int8_bytes(x.size()));
  encode_int8({.x = x.data(), .to = bytes.data(), .count = x.size(), .residual = residual}, host_stream);
  return bytes;
}

std::vector<float> decoded(const std::vector<std::byte>& bytes, std::size_t count) {
  std::vector<float> x(count);
  decode_int8({.from = bytes.data(), .to = x.data(), .count = count}, host_stream);
  return x;
}

std::vector<float> numbers(std::size_t count, std::uint64_t seed) {
  auto x = random_vector<float>(static_cast<std::int64_t>(count), seed, 1.0);
  for (std::size_t i = 0; i < count; ++i) x[i] *= std::ldexp(1.0F, static_cast<int>(i / 256 % 9) - 4);
  return x;
}

TEST(Int8Blocks, Bytes) {
  EXPECT_EQ(int8_bytes(0), 0U);
  EXPECT_EQ(int8_bytes(1), 8U);
  EXPECT_EQ(int8_bytes(256), 260U);
  EXPECT_EQ(int8_bytes(257), 8U + 260U);
}

TEST(Int8Blocks, TheFormulaOnEveryInstructionSet) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{37}, std::size_t{256}, std::size_t{1003}}) {
    const std::vector<float> x = numbers(count, count);
    for (const Isa set : instruction_sets()) {
      const Setting setting(1, set);
      const std::vector<std::byte> bytes = encoded(x);
      const std::vector<float> y = decoded(bytes, count);
      for (std::size_t i = 0; i < count; ++i) {
        float largest = 0;
        for (std::size_t k = i / 256 * 256; k < std::min(count, i / 256 * 256 + 256); ++k)
          largest = std::max(largest, std::abs(x[k]));
        const float scale = largest / 127.0F;
        ASSERT_EQ(y[i], scale * std::nearbyint(x[i] / scale)) << i;
        ASSERT_LE(std::abs(static_cast<double>(y[i]) - static_cast<double>(x[i])), 0.501 * static_cast<double>(scale));
      }
    }
  }
}

TEST(Int8Blocks, TheResidualIsWhatTheCodesLack) {
  const std::size_t count = 777;
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    std::vector<float> residual(count, 0.0F);
    std::vector<double> sent(count, 0.0), given(count, 0.0);
    for (std::uint64_t step = 0; step < 20; ++step) {
      const std::vector<float> x = numbers(count, 100 + step);
      const std::vector<float> before = residual, y = decoded(encoded(x, residual.data()), count);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(residual[i], (x[i] + before[i]) - y[i]);
        sent[i] += static_cast<double>(y[i]);
        given[i] += static_cast<double>(x[i]);
      }
    }
    // Twenty steps lack no more than one rounding, and not twenty.
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_NEAR(sent[i] + static_cast<double>(residual[i]), given[i], 1e-3) << i;
  }
}

TEST(Int8Blocks, ZeroTinyAndNonFiniteBlocks) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    std::vector<float> x(1024, 0.0F), residual(1024, 0.25F);
    std::fill(x.begin() + 256, x.begin() + 512, 1e-38F);
    x[600] = std::numeric_limits<float>::infinity();
    x[1000] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> y = decoded(encoded(x), 1024);
    for (std::size_t i = 0; i < 512; ++i) ASSERT_EQ(y[i], 0.0F);
    for (std::size_t i = 512; i < 1024; ++i) ASSERT_TRUE(std::isnan(y[i])) << i;
    std::fill(residual.begin(), residual.begin() + 512, 0.0F);
    (void)encoded(x, residual.data());
    for (std::size_t i = 256; i < 512; ++i) ASSERT_EQ(residual[i], 1e-38F);  // nothing of it was sent
    for (std::size_t i = 512; i < 1024; ++i) ASSERT_EQ(residual[i], 0.25F);
  }
}

TEST(Int8Blocks, SumsAreTheTreeOfTheDecodedParts) {
  const std::size_t count = 1300;
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    for (std::size_t number = 1; number <= 17; ++number) {
      std::vector<std::byte> parts;
      std::vector<std::vector<float>> plain;
      std::vector<const float*> floats;
      for (std::size_t i = 0; i < number; ++i) {
        const std::vector<std::byte> part = encoded(numbers(count, 7 * i + number));
        parts.insert(parts.end(), part.begin(), part.end());
        plain.push_back(decoded(part, count));
      }
      for (const auto& part : plain) floats.push_back(part.data());
      std::vector<float> sum(count), wanted(count);
      sum_tree_int8({.parts = parts.data(), .number = number, .out = sum.data(), .count = count}, host_stream);
      sum_tree({.parts = floats, .out = wanted.data(), .count = count}, host_stream);
      ASSERT_EQ(std::memcmp(sum.data(), wanted.data(), count * sizeof(float)), 0) << number;
    }
  }
}

/// Chunks are encoded each by itself, and 16-bit numbers as their values in fp32.
TEST(Int8Blocks, ChunksAndSixteenBits) {
  for (const std::size_t count : {std::size_t{128}, std::size_t{5003}}) {
    const std::size_t chunks = 3, bytes = int8_bytes(count);
    std::vector<bf16> x;
    for (const float v : numbers(chunks * count, 5)) x.emplace_back(v);
    std::vector<std::byte> got(chunks * bytes);
    std::vector<float> residual(chunks * count, 0.01F), wanted_residual = residual, wide(chunks * count);
    std::vector<bf16> narrow(chunks * count);
    encode_int8({.x = x.data(),
                 .dtype = DType::bf16,
                 .to = got.data(),
                 .count = count,
                 .chunks = chunks,
                 .residual = residual.data()},
                host_stream);
    decode_int8({.from = got.data(), .to = wide.data(), .count = count, .chunks = chunks}, host_stream);
    decode_int8({.from = got.data(), .to = narrow.data(), .dtype = DType::bf16, .count = count, .chunks = chunks},
                host_stream);
    for (std::size_t c = 0; c < chunks; ++c) {
      std::vector<float> chunk;
      for (std::size_t i = 0; i < count; ++i) chunk.push_back(static_cast<float>(x[c * count + i]));
      const std::vector<std::byte> alone = encoded(chunk, wanted_residual.data() + c * count);
      const std::vector<float> read = decoded(alone, count);
      ASSERT_EQ(std::memcmp(got.data() + c * bytes, alone.data(), bytes), 0) << c;
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(wide[c * count + i], read[i]);
        ASSERT_EQ(narrow[c * count + i].bits, bf16(read[i]).bits);
      }
    }
    EXPECT_EQ(residual, wanted_residual);
  }
}

}  // namespace
}  // namespace tessera::kernels
