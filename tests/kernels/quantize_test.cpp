// SPDX-License-Identifier: Apache-2.0
// Quantized matrices: bitsandbytes' codes, statistics and values; the same bytes in whatever pieces they are made; the
// same values on every instruction set and number of threads.
#include "kernels/quantize.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/dequantize.hpp"
#include "quantized_golden.hpp"
#include "reference.hpp"

namespace tessera::kernels {
namespace {

/// As in make_quantized_golden.py.
std::vector<float> golden_matrix() {
  std::vector<float> x(static_cast<std::size_t>(golden_rows * golden_columns));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint64_t hashed = (i * 2654435761ULL + 12345) % 4294967296ULL % 65521;
    x[i] = std::ldexp((static_cast<float>(hashed) - 32760.0F) / 65536.0F, static_cast<int>(i / 97 % 5) - 3);
  }
  std::fill_n(x.begin() + 64L * 5, 64, 0.0F);
  return x;
}

ReadElements reader(const std::vector<float>& x) {
  return [&x](std::int64_t first, std::int64_t count, float* to) { std::copy_n(x.begin() + first, count, to); };
}

std::vector<std::byte> quantized(const QuantizedMatrix& matrix, const std::vector<float>& x, std::int64_t piece = 0) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.bytes()));
  const std::int64_t step = piece > 0 ? piece : matrix.bytes();
  for (std::int64_t at = 0; at < matrix.bytes(); at += step) {
    const auto n = static_cast<std::size_t>(std::min(step, matrix.bytes() - at));
    Quantizer(matrix, reader(x)).read(at, std::span(bytes).subspan(static_cast<std::size_t>(at), n));
  }
  return bytes;
}

template <class T>
std::vector<T> values_of(const QuantizedMatrix& matrix, const std::vector<std::byte>& bytes) {
  std::vector<T> out(static_cast<std::size_t>(matrix.numel()));
  dequantize({.matrix = matrix,
              .bytes = {const_cast<std::byte*>(bytes.data()), DType::u8, Shape{matrix.bytes()}},
              .out = {out.data(), Shape{matrix.rows, matrix.columns}}},
             host_stream);
  return out;
}

constexpr QuantizedMatrix golden_nf4{QuantFormat::nf4, golden_rows, golden_columns};
constexpr QuantizedMatrix golden_int8{QuantFormat::int8, int8_rows, int8_columns};

TEST(Quantize, Nf4IsBitsandbytes) {
  const std::vector<float> x = golden_matrix();
  const QuantizedMatrix matrix = golden_nf4;
  std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.bytes()));
  Quantizer quantizer(matrix, reader(x));
  quantizer.set_mean(nf4_mean[0]);
  quantizer.read(0, bytes);
  ASSERT_EQ(std::size(nf4_codes), static_cast<std::size_t>(matrix.code_bytes()));
  EXPECT_EQ(std::memcmp(bytes.data(), nf4_codes, sizeof nf4_codes), 0);
  ASSERT_EQ(std::size(nf4_absmax), static_cast<std::size_t>(matrix.groups()));
  EXPECT_EQ(std::memcmp(bytes.data() + matrix.absmax_at(), nf4_absmax, sizeof nf4_absmax), 0);
  ASSERT_EQ(std::size(nf4_nested_absmax), static_cast<std::size_t>(matrix.nested_groups()));
  EXPECT_EQ(std::memcmp(bytes.data() + matrix.scales_at(), nf4_nested_absmax, sizeof nf4_nested_absmax), 0);
  const std::vector<float> values = values_of<float>(matrix, bytes);
  EXPECT_EQ(std::memcmp(values.data(), nf4_first_values, sizeof nf4_first_values), 0);
  EXPECT_EQ(
      std::memcmp(values.data() + values.size() - std::size(nf4_last_values), nf4_last_values, sizeof nf4_last_values),
      0);
}

/// nf4's codes do not depend on how the absmax are kept.
TEST(Quantize, WithoutDoubleQuantizationAndFp4AreBitsandbytes) {
  const std::vector<float> x = golden_matrix();
  const auto check = [&](QuantFormat format, auto& codes, auto& last_codes, auto& first_values) {
    const QuantizedMatrix matrix{format, golden_rows, golden_columns};
    const std::vector<std::byte> bytes = quantized(matrix, x);
    EXPECT_EQ(std::memcmp(bytes.data(), codes, sizeof codes), 0) << name_of(format);
    EXPECT_EQ(std::memcmp(bytes.data() + matrix.code_bytes() - sizeof last_codes, last_codes, sizeof last_codes), 0);
    if (is_nested(format)) return;
    EXPECT_EQ(matrix.bytes(), matrix.scales_at() + 4 * matrix.groups());
    EXPECT_EQ(std::memcmp(bytes.data() + matrix.scales_at(), block_absmax, sizeof block_absmax), 0);
    const std::vector<float> values = values_of<float>(matrix, bytes);
    EXPECT_EQ(std::memcmp(values.data(), first_values, sizeof first_values), 0) << name_of(format);
    if (format != QuantFormat::nf4_single) return;
    EXPECT_EQ(std::memcmp(values.data() + values.size() - std::size(nf4_single_last_values), nf4_single_last_values,
                          sizeof nf4_single_last_values),
              0);
  };
  check(QuantFormat::nf4_single, nf4_codes, nf4_codes, nf4_single_values);
  check(QuantFormat::fp4_single, fp4_codes, fp4_last_codes, fp4_first_values);
  check(QuantFormat::fp4, fp4_codes, fp4_last_codes, fp4_first_values);
}

/// torch sums in another order.
TEST(Quantize, TheMeanIsExact) {
  const std::vector<std::byte> bytes = quantized(golden_nf4, golden_matrix());
  float mean = 0;
  std::memcpy(&mean, bytes.data() + golden_nf4.offset_at(), sizeof mean);
  EXPECT_NEAR(mean, nf4_mean[0], 2e-7 * nf4_mean[0]);
}

TEST(Quantize, Int8IsBitsandbytes) {
  const std::vector<float> all = golden_matrix();
  std::vector<float> x;
  for (int row = 0; row < int8_rows; ++row)
    x.insert(x.end(), all.begin() + row * golden_columns, all.begin() + row * golden_columns + int8_columns);
  std::fill_n(x.begin() + 4L * int8_columns, int8_columns, 0.0F);
  const std::vector<std::byte> bytes = quantized(golden_int8, x);
  EXPECT_EQ(std::memcmp(bytes.data(), int8_codes, sizeof int8_codes), 0);
  EXPECT_EQ(std::memcmp(bytes.data() + golden_int8.scales_at(), int8_absmax, sizeof int8_absmax), 0);
  const std::vector<float> values = values_of<float>(golden_int8, bytes);
  EXPECT_EQ(std::memcmp(values.data(), int8_values, sizeof int8_values), 0);
}

TEST(Quantize, PiecesDoNotChangeTheBytes) {
  const std::vector<float> x = golden_matrix();
  for (const QuantFormat format : quant_formats) {
    const QuantizedMatrix matrix{format, golden_rows, golden_columns};
    const std::vector<std::byte> whole = quantized(matrix, x);
    for (const std::int64_t piece : {777L, 4096L, 8321L, matrix.bytes() - 3})
      EXPECT_EQ(quantized(matrix, x, piece), whole) << name_of(format) << " in pieces of " << piece;
  }
}

/// Several of the quantizer's pieces in memory, and a last block and a last byte that are not full.
TEST(Quantize, LongMatricesAreStreamed) {
  const std::int64_t rows = 413, columns = 1401;
  const std::vector<float> x = random_vector<float>(rows * columns, 5);
  for (const QuantFormat format : quant_formats) {
    const QuantizedMatrix matrix{format, rows, columns};
    std::int64_t most = 0;
    std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.bytes()));
    Quantizer quantizer(matrix, [&](std::int64_t first, std::int64_t count, float* to) {
      most = std::max(most, count);
      std::copy_n(x.begin() + first, count, to);
    });
    quantizer.read(0, bytes);
    EXPECT_LE(most, 1 << 18);
    const std::vector<float> values = values_of<float>(matrix, bytes);
    double error = 0, square = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      error += std::pow(static_cast<double>(values[i]) - static_cast<double>(x[i]), 2);
      square += std::pow(static_cast<double>(x[i]), 2);
    }
    EXPECT_LT(std::sqrt(error / square), is_fp4(format) ? 0.14 : is_4bit(format) ? 0.12 : 0.012);
  }
}

TEST(Quantize, SixteenBitValuesAreRoundedOnce) {
  const std::vector<float> x = golden_matrix();
  for (const QuantFormat format : quant_formats) {
    const QuantizedMatrix matrix{format, golden_rows, golden_columns};
    const std::vector<std::byte> bytes = quantized(matrix, x);
    const std::vector<float> values = values_of<float>(matrix, bytes);
    const auto check = [&]<class T>(T) {
      const std::vector<T> rounded = values_of<T>(matrix, bytes);
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(static_cast<float>(rounded[i]), static_cast<float>(T(values[i]))) << i;
    };
    check(bf16{});
    check(f16{});
    check(double{});
  }
}

TEST(Quantize, ValuesAreTheSameOnEveryInstructionSetAndNumberOfThreads) {
  const std::int64_t rows = 99, columns = 1027;
  const std::vector<float> x = random_vector<float>(rows * columns, 9);
  for (const QuantFormat format : quant_formats) {
    const QuantizedMatrix matrix{format, rows, columns};
    const std::vector<std::byte> bytes = quantized(matrix, x);
    const std::vector<float> values = values_of<float>(matrix, bytes);
    for (const int count : {1, 3})
      for (const Isa set : instruction_sets()) {
        const Setting setting(count, set);
        EXPECT_EQ(quantized(matrix, x), bytes) << count << " threads";
        EXPECT_EQ(values_of<float>(matrix, bytes), values) << count << " threads";
      }
  }
}

TEST(Quantize, WhatIsNotFiniteIsRefused) {
  std::vector<float> x = golden_matrix();
  x[700] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(quantized(golden_nf4, x), Error);
  x[700] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(quantized(golden_nf4, x), Error);
  x[700] = 1e5F;
  EXPECT_NO_THROW(quantized(golden_nf4, x));
  EXPECT_THROW(quantized({QuantFormat::int8, golden_rows, golden_columns}, x), Error) << "too large for fp16";
}

}  // namespace
}  // namespace tessera::kernels
