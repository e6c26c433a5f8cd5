// SPDX-License-Identifier: Apache-2.0
// The binary-counter reduction tree by blocks that stay in L1, so that every part is read once; sums of squares; fill.
#include "kernels/reduce.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kernels/host/convert.hpp"
#include "kernels/host/int8_blocks.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/host/reduce.hpp"
#include "kernels/int8_blocks.hpp"

namespace tessera::kernels::host {
namespace {

constexpr std::size_t block_numel = 512;
constexpr int levels = std::bit_width(max_sum_parts);

using SumBlock = std::array<float, block_numel>;

/// fp32 parts, read in place.
class FloatParts {
 public:
  using Span = std::span<const float* const>;
  explicit FloatParts(Span parts) : parts_(parts) {}
  [[nodiscard]] std::size_t size() const { return parts_.size(); }
  /// `count` floats of part i. slot: below 5; parts in use at the same time have different slots.
  const float* get(std::size_t i, int /*slot*/, std::size_t offset, std::int64_t /*count*/) {
    return parts_[i] + offset;
  }

 private:
  Span parts_;
};

/// Parts of T, widened into a slot.
template <class T>
class NarrowParts {
 public:
  using Span = std::span<const void* const>;
  explicit NarrowParts(Span parts) : parts_(parts) {}
  [[nodiscard]] std::size_t size() const { return parts_.size(); }
  const float* get(std::size_t i, int slot, std::size_t offset, std::int64_t count) {
    float* const to = slots_[static_cast<std::size_t>(slot)].data();
    convert().widen(static_cast<const T*>(parts_[i]) + offset, to, count);
    return to;
  }

 private:
  Span parts_;
  alignas(64) std::array<SumBlock, 5> slots_;
};

/// Parts of block-wise int8, decoded into a slot.
class Int8Parts {
 public:
  using Span = const SumTreeInt8Args&;
  explicit Int8Parts(Span parts) : parts_(parts) {}
  [[nodiscard]] std::size_t size() const { return parts_.number; }
  const float* get(std::size_t i, int slot, std::size_t offset, std::int64_t count) {
    float* const to = slots_[static_cast<std::size_t>(slot)].data();
    const std::byte* const from = parts_.parts + i * int8_bytes(parts_.count) + int8_bytes(offset);
    int8_blocks().decode(reinterpret_cast<const unsigned char*>(from), to, count);
    return to;
  }

 private:
  static_assert(block_numel % quantization_block == 0);
  const SumTreeInt8Args& parts_;
  alignas(64) std::array<SumBlock, 5> slots_;
};

/// The tree over one block of elements. Scratch holds both operands of each level.
template <class Parts>
class BlockTree {
 public:
  BlockTree(typename Parts::Span parts, const Reduce& table) : parts_(parts), table_(table) {}

  void sum(std::size_t offset, std::size_t count, float* out) {
    offset_ = offset;
    count_ = static_cast<std::int64_t>(count);
    // Subtrees from the smallest, at the end, to the largest, at the start.
    std::size_t end = parts_.size();
    const float* sum = nullptr;
    for (std::size_t rest = end; rest != 0; rest &= rest - 1) {
      const int level = std::countr_zero(rest);
      const std::size_t first = end - (std::size_t{1} << level);
      const bool last = first == 0;
      float* const to = last && !sum ? out : subtree_.data();
      const float* tree = subtree(first, level, to);
      if (sum) {
        float* const into = last ? out : combined_.data();
        table_.sum2(tree, sum, into, count_);
        sum = into;
      } else if (!last && tree == subtree_.data()) {
        std::memcpy(combined_.data(), tree, count * sizeof(float));
        sum = combined_.data();
      } else {
        sum = tree;
      }
      end = first;
    }
    if (sum != out) std::memmove(out, sum, count * sizeof(float));
  }

 private:
  const float* part(std::size_t i, int slot) { return parts_.get(i, slot, offset_, count_); }

  /// The sum of 2^level parts from `first`: in `to`, or in place for a single part.
  const float* subtree(std::size_t first, int level, float* to) {
    if (level == 0) return part(first, 4);  // keeps its slot while larger subtrees are summed
    if (level == 1) {
      table_.sum2(part(first, 0), part(first + 1, 1), to, count_);
    } else if (level == 2) {
      table_.sum4(part(first, 0), part(first + 1, 1), part(first + 2, 2), part(first + 3, 3), to, count_);
    } else {
      const std::size_t half = std::size_t{1} << (level - 1);
      const auto at = static_cast<std::size_t>(level - 3);
      const float* left = subtree(first, level - 1, operands_[at][0].data());
      const float* right = subtree(first + half, level - 1, operands_[at][1].data());
      table_.sum2(left, right, to, count_);
    }
    return to;
  }

  Parts parts_;
  const Reduce& table_;
  std::size_t offset_ = 0;
  std::int64_t count_ = 0;
  alignas(64) SumBlock subtree_, combined_;
  alignas(64) std::array<std::array<SumBlock, 2>, levels - 3> operands_;
};

template <class T>
void sum_16bit(const SumTree16BitArgs& args) {
  BlockTree<NarrowParts<T>> tree(args.parts, reduce());
  for (std::size_t offset = 0; offset < args.count; offset += block_numel)
    tree.sum(offset, std::min(block_numel, args.count - offset), args.out + offset);
}

template <class T>
void add_narrow(const void* x, float* y, std::size_t count) {
  NarrowParts<T> part(std::span(&x, 1));
  for (std::size_t offset = 0; offset < count; offset += block_numel) {
    const auto n = static_cast<std::int64_t>(std::min(block_numel, count - offset));
    reduce().sum2(part.get(0, 0, offset, n), y + offset, y + offset, n);
  }
}

}  // namespace

void sum_tree(const SumTreeArgs& args) {
  const auto& table = reduce();
  const auto n = static_cast<std::int64_t>(args.count);
  const auto parts = args.parts;
  if (parts.size() == 1) {
    if (args.out != parts[0]) std::memmove(args.out, parts[0], args.count * sizeof(float));
    return;
  }
  if (parts.size() == 2) return table.sum2(parts[0], parts[1], args.out, n);
  if (parts.size() == 4) return table.sum4(parts[0], parts[1], parts[2], parts[3], args.out, n);
  BlockTree<FloatParts> tree(parts, table);
  for (std::size_t offset = 0; offset < args.count; offset += block_numel)
    tree.sum(offset, std::min(block_numel, args.count - offset), args.out + offset);
}

void sum_tree_16bit(const SumTree16BitArgs& args) {
  if (args.dtype == DType::bf16) sum_16bit<bf16>(args);
  else sum_16bit<f16>(args);
}

void sum_tree_int8(const SumTreeInt8Args& args) {
  BlockTree<Int8Parts> tree(args, reduce());
  for (std::size_t offset = 0; offset < args.count; offset += block_numel)
    tree.sum(offset, std::min(block_numel, args.count - offset), args.out + offset);
}

void add_to(const float* x, float* y, std::size_t count) { reduce().sum2(x, y, y, static_cast<std::int64_t>(count)); }

void add_16bit_to(const void* x, DType dtype, float* y, std::size_t count) {
  if (dtype == DType::bf16) add_narrow<bf16>(x, y, count);
  else add_narrow<f16>(x, y, count);
}

void sum_of_squares(const float* x, std::size_t count, ExactSum& sum) {
  static_assert(norm_block == 128, "host/isa/reduce.cpp sums blocks of 128");
  constexpr std::size_t batch = 64;
  std::array<double, batch> sums;
  for (std::size_t block = 0, blocks = count / norm_block; block < blocks; block += batch) {
    const std::size_t now = std::min(batch, blocks - block);
    reduce().squares(x + block * norm_block, static_cast<std::int64_t>(now), sums.data());
    for (std::size_t i = 0; i < now; ++i) sum.add(sums[i]);
  }
}

void fill(float* x, std::size_t count, float value) {
  const auto& table = reduce();
  parallel_ranges(static_cast<std::int64_t>(count), 16384,
                  [&](std::int64_t begin, std::int64_t end) { table.fill(x + begin, end - begin, value); });
}

}  // namespace tessera::kernels::host
