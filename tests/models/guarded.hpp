// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory between guard bytes, filled with NaN.

#include <memory>

#include "runtime/base/tensor.hpp"

namespace tessera::test {

/// `bytes` bytes on a 64-byte boundary, guarded on both sides.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes);
  /// Every bit set: NaN in every floating type.
  void poison();
  /// False if a guard byte changed.
  [[nodiscard]] bool intact() const;
  [[nodiscard]] TensorView bytes() const;  // u8; absent if there are none
  [[nodiscard]] TensorView view(DType dtype, Shape shape) const;

 private:
  static constexpr std::size_t guard = 256;
  std::size_t size_;
  std::unique_ptr<std::byte[]> memory_;
  std::byte* data_;
};

}  // namespace tessera::test
