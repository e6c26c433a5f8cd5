// SPDX-License-Identifier: Apache-2.0
// The binary-counter tree against an explicit counter, to the bit; norms that do not depend on the split; fill.
#include "kernels/reduce.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "reference.hpp"

namespace tessera::kernels {
namespace {

/// The rule as documented: a counter whose digits are partial sums.
float counter(const std::vector<float>& parts) {
  std::vector<std::pair<bool, float>> digits;
  for (float x : parts) {
    std::size_t level = 0;
    for (; level < digits.size() && digits[level].first; ++level) {
      x = digits[level].second + x;
      digits[level].first = false;
    }
    if (level == digits.size()) digits.emplace_back();
    digits[level] = {true, x};
  }
  bool any = false;
  float sum = 0;
  for (const auto& [used, value] : digits) {
    if (!used) continue;
    sum = any ? value + sum : value;
    any = true;
  }
  return sum;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Parts {
  std::vector<std::vector<float>> data;
  std::vector<const float*> pointers;
  std::vector<float> truth;
  Parts(int number, std::int64_t n) : truth(static_cast<std::size_t>(n)) {
    for (int i = 0; i < number; ++i)
      data.push_back(random_vector<float>(n, static_cast<std::uint64_t>(i), std::ldexp(1.0, i % 7)));
    for (const auto& part : data) pointers.push_back(part.data());
    for (std::size_t k = 0; k < truth.size(); ++k) {
      std::vector<float> column;
      for (const auto& part : data) column.push_back(part[k]);
      truth[k] = counter(column);
    }
  }
};

TEST(SumTree, IsTheBinaryCounter) {
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    for (int number = 1; number <= 40; ++number) {
      const Parts parts(number, 523 + number);
      std::vector<float> out(parts.truth.size());
      sum_tree({.parts = parts.pointers, .out = out.data(), .count = out.size()}, host_stream);
      EXPECT_TRUE(same_bits(out, parts.truth)) << number << " parts, " << name_of(set);
    }
  }
}

TEST(SumTree, ManyParts) {
  for (const int number : {127, 128, 1000, 4096, 5000}) {
    const Parts parts(number, 9);
    std::vector<float> out(parts.truth.size());
    sum_tree({.parts = parts.pointers, .out = out.data(), .count = out.size()}, host_stream);
    EXPECT_TRUE(same_bits(out, parts.truth)) << number;
  }
  std::vector<const float*> too_many((std::size_t{1} << 20) + 1);
  EXPECT_THROW(sum_tree({.parts = too_many}, host_stream), std::logic_error);
  EXPECT_THROW(sum_tree({}, host_stream), std::logic_error);
}

TEST(SumTree, IntoAnyOfTheParts) {
  for (int number = 1; number <= 17; ++number)
    for (int target = 0; target < number; ++target) {
      Parts parts(number, 1100);
      float* out = parts.data[static_cast<std::size_t>(target)].data();
      sum_tree({.parts = parts.pointers, .out = out, .count = 1100}, host_stream);
      EXPECT_TRUE(same_bits(parts.data[static_cast<std::size_t>(target)], parts.truth)) << number << " into " << target;
    }
}

TEST(SumTree, TheIdentityChangesNothing) {
  std::vector<float> zeros{0.0F, -0.0F, 1.0F, -std::numeric_limits<float>::infinity()};
  const auto before = zeros;
  std::vector<float> identity(zeros.size(), sum_identity), out(zeros.size());
  for (int where = 0; where < 3; ++where) {
    std::vector<const float*> parts(3, identity.data());
    parts[static_cast<std::size_t>(where)] = zeros.data();
    sum_tree({.parts = parts, .out = out.data(), .count = out.size()}, host_stream);
    EXPECT_TRUE(same_bits(out, before));
  }
  add_to(identity.data(), zeros.data(), zeros.size(), host_stream);
  EXPECT_TRUE(same_bits(zeros, before));
}

TEST(Reduce, AddTo) {
  auto x = random_vector<float>(1001, 1), y = random_vector<float>(1001, 2), sum = y;
  for (std::size_t i = 0; i < x.size(); ++i) sum[i] = x[i] + y[i];
  add_to(x.data(), y.data(), x.size(), host_stream);
  EXPECT_TRUE(same_bits(y, sum));
}

template <class T>
void expect_widened_sum(DType dtype) {
  constexpr std::size_t n = 5001;
  const auto given = random_vector<float>(n, 1);
  auto y = random_vector<float>(n, 2), sum = y;
  std::vector<T> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = T(given[i]);
  for (std::size_t i = 0; i < n; ++i) sum[i] = static_cast<float>(x[i]) + y[i];
  add_16bit_to(x.data(), dtype, y.data(), n, host_stream);
  EXPECT_TRUE(same_bits(y, sum));
}

TEST(Reduce, AddTo16Bit) {
  expect_widened_sum<bf16>(DType::bf16);
  expect_widened_sum<f16>(DType::f16);
}

/// The order documented in the header.
double block_of(const float* x) {
  std::array<double, 16> lanes{};
  for (std::size_t i = 0; i < norm_block; ++i) lanes[i % 16] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  for (std::size_t width = 8; width > 0; width /= 2)
    for (std::size_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  return lanes[0];
}

TEST(SumOfSquares, BlocksToTheBitOnEveryInstructionSet) {
  auto x = random_vector<float>(static_cast<std::int64_t>(norm_block) * 131, 1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(x[i], static_cast<int>(i % 200) - 100);
  for (const Isa set : instruction_sets()) {
    const Setting setting(1, set);
    for (std::size_t block = 0; block < 131; ++block) {
      ExactSum sum;
      sum_of_squares(x.data() + block * norm_block, norm_block, sum, host_stream);
      EXPECT_EQ(sum.value(), block_of(x.data() + block * norm_block));
    }
  }
}

TEST(SumOfSquares, DoesNotDependOnTheSplit) {
  const std::size_t blocks = 300;
  auto x = random_vector<float>(static_cast<std::int64_t>(blocks * norm_block), 1);
  ExactSum total;
  sum_of_squares(x.data(), x.size(), total, host_stream);
  double truth = 0;
  for (const float v : x) truth += static_cast<double>(v) * static_cast<double>(v);
  EXPECT_NEAR(total.value(), truth, 1e-12 * truth);
  for (const std::size_t ranks : {2, 3, 5, 64, 300}) {
    ExactSum sum;
    for (std::size_t rank = ranks; rank-- > 0;) {  // any order
      const std::size_t begin = blocks * rank / ranks, end = blocks * (rank + 1) / ranks;
      ExactSum own;
      sum_of_squares(x.data() + begin * norm_block, (end - begin) * norm_block, own, host_stream);
      sum.add(own);
    }
    EXPECT_EQ(sum.value(), total.value()) << ranks;
  }
}

TEST(SumOfSquares, RangeAndNonFinite) {
  std::vector<float> x(norm_block, std::numeric_limits<float>::max());
  ExactSum sum;
  sum_of_squares(x.data(), x.size(), sum, host_stream);
  EXPECT_FALSE(sum.nonfinite());
  EXPECT_DOUBLE_EQ(sum.value(), 128.0 * std::pow(static_cast<double>(x[0]), 2));
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    x.assign(norm_block, 1.0F);
    x[77] = bad;
    ExactSum other;
    sum_of_squares(x.data(), x.size(), other, host_stream);
    EXPECT_TRUE(other.nonfinite());
  }
  EXPECT_THROW(sum_of_squares(x.data(), norm_block - 1, sum, host_stream), std::logic_error);
}

TEST(Reduce, Fill) {
  for (const int num : {1, 2, 3}) {
    const Setting setting(num);
    std::vector<float> x(40001, 1.0F);
    fill(x.data(), 40000, -0.5F, host_stream);
    EXPECT_EQ(std::count(x.begin(), x.end(), -0.5F), 40000);
    EXPECT_EQ(x.back(), 1.0F);
  }
}

}  // namespace
}  // namespace tessera::kernels
