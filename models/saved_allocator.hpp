// SPDX-License-Identifier: Apache-2.0
#pragma once
// SavedAllocator: what a module saves for backward, in one block of memory, or in two with selective checkpointing: a
// module says of each tensor whether it is kept from forward to backward or recomputed before backward.

#include "models/module.hpp"
#include "models/scratch_allocator.hpp"

namespace tessera::models {

class SavedAllocator {
 public:
  /// Sizing only, as ScratchAllocator.
  SavedAllocator() = default;
  /// Of ForwardArgs or BackwardArgs.
  SavedAllocator(const TensorView& saved, const TensorView& kept)
      : split_(static_cast<bool>(kept)), saved_(saved), kept_(kept) {}

  /// For tensors that selective checkpointing keeps, and for those that it recomputes.
  [[nodiscard]] ScratchAllocator& kept() { return split_ ? kept_ : saved_; }
  [[nodiscard]] ScratchAllocator& recomputed() { return saved_; }

  /// Memory of a part of the module: `saved` and `kept` of its arguments.
  struct Memory {
    TensorView saved, kept;
  };
  [[nodiscard]] Memory take(const SavedBytes& bytes) {
    if (!split_) return {saved_.take_bytes(bytes.total()), {}};
    return {saved_.take_bytes(bytes.recomputed), kept_.take_bytes(bytes.kept)};
  }
  [[nodiscard]] SavedBytes bytes() const { return {.kept = kept_.bytes(), .recomputed = saved_.bytes()}; }

 private:
  bool split_ = true;
  ScratchAllocator saved_, kept_;
};

/// Bytes that `layout` takes from an allocator.
template <class Layout>
[[nodiscard]] SavedBytes saved_bytes_of(const Layout& layout) {
  SavedAllocator allocator;
  layout(allocator);
  return allocator.bytes();
}

}  // namespace tessera::models
