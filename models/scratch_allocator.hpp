// SPDX-License-Identifier: Apache-2.0
#pragma once
// ScratchAllocator: a bump allocator for tensors in one block. The same layout code runs once without memory to compute
// the size, and once with memory to get the pointers, so that the two cannot differ.

#include <algorithm>

#include "runtime/base/tensor.hpp"

namespace tessera::models {

class ScratchAllocator {
 public:
  static constexpr std::size_t alignment = 64;  // bytes; of every tensor

  /// Sizing only: take() returns tensors without memory, which are absent.
  ScratchAllocator() = default;
  /// Allocates from `block`, which must be aligned (absent: no bytes). Asserts that everything fits.
  explicit ScratchAllocator(const TensorView& block)
      : sizing_(false),
        base_(static_cast<char*>(block.data)),
        capacity_(block ? block.nbytes() : 0),
        device_(block.device) {
    TESSERA_ASSERT(reinterpret_cast<std::uintptr_t>(block.data) % alignment == 0, "block is not aligned to %zu bytes",
                   alignment);
  }

  /// The next tensor, uninitialized.
  [[nodiscard]] TensorView take(DType dtype, Shape shape) {
    const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
    char* data = sizing_ ? nullptr : base_ + offset_;
    offset_ += (bytes + alignment - 1) / alignment * alignment;
    peak_ = std::max(peak_, offset_);
    TESSERA_ASSERT(sizing_ || offset_ <= capacity_, "%zu bytes needed of %zu", offset_, capacity_);
    return {data, dtype, shape, device_};
  }
  /// The next `bytes` bytes, as u8; absent if there are none.
  [[nodiscard]] TensorView take_bytes(std::size_t bytes) {
    return bytes ? take(DType::u8, {static_cast<std::int64_t>(bytes)}) : TensorView{};
  }

  /// After rewind(mark()), take() reuses what was taken since mark().
  [[nodiscard]] std::size_t mark() const { return offset_; }
  void rewind(std::size_t mark) { offset_ = mark; }
  /// Peak bytes in use: the size that the block needs.
  [[nodiscard]] std::size_t bytes() const { return peak_; }

 private:
  bool sizing_ = true;
  char* base_ = nullptr;
  std::size_t offset_ = 0, peak_ = 0, capacity_ = 0;
  Device device_;
};

/// Bytes that `layout` takes from an allocator.
template <class Layout>
[[nodiscard]] std::size_t bytes_of(const Layout& layout) {
  ScratchAllocator allocator;
  layout(allocator);
  return allocator.bytes();
}

}  // namespace tessera::models
