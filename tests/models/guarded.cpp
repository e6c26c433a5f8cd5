// SPDX-License-Identifier: Apache-2.0
// Memory between guard bytes.
#include "guarded.hpp"

#include <cstring>

namespace tessera::test {

Guarded::Guarded(std::size_t bytes) : size_(bytes), memory_(new std::byte[bytes + 2 * guard + 64]) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.get()) + guard;
  data_ = memory_.get() + guard + (64 - address % 64) % 64;
  std::memset(data_ - guard, 0xA5, guard);
  std::memset(data_ + size_, 0xA5, guard);
  poison();
}

void Guarded::poison() { std::memset(data_, 0xFF, size_); }

bool Guarded::intact() const {
  for (std::size_t i = 0; i < guard; ++i)
    if (data_[size_ + i] != std::byte{0xA5} || *(data_ - 1 - i) != std::byte{0xA5}) return false;
  return true;
}

TensorView Guarded::bytes() const {
  return size_ ? TensorView(data_, DType::u8, {static_cast<std::int64_t>(size_)}) : TensorView{};
}

TensorView Guarded::view(DType dtype, Shape shape) const {
  TESSERA_ASSERT(static_cast<std::size_t>(shape.numel()) * size_of(dtype) <= size_);
  return {data_, dtype, shape};
}

}  // namespace tessera::test
