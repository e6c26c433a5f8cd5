// SPDX-License-Identifier: Apache-2.0
#pragma once
// The documents of a packed micro-batch, listed by length for attention kernels that take a list of sequences.

#include <array>
#include <cstdint>
#include <span>

#include "runtime/base/tensor.hpp"

namespace tessera::kernels {

/// Documents of at most `tokens` tokens, and of more than the group before: entries [first, first + count) of a list.
struct DocumentGroup {
  std::int64_t tokens = 0, first = 0, count = 0;
};

inline constexpr std::int64_t shortest_document_group = 128;  // tokens; each group has twice as many as the one before
inline constexpr std::size_t most_document_groups = 24;

/// The groups of a list that are not empty, shortest documents first.
class DocumentGroups {
 public:
  [[nodiscard]] std::span<const DocumentGroup> list() const { return {groups_.data(), size_}; }
  void add(const DocumentGroup& group);

 private:
  std::array<DocumentGroup, most_document_groups> groups_{};
  std::size_t size_ = 0;
};

/// A packed micro-batch in host memory.
struct PackedTokens {
  std::int64_t rows = 0, tokens = 0;        // B, T
  const std::int32_t* positions = nullptr;  // (B, T): a document begins where it is 0, and with the row
  const std::int32_t* targets = nullptr;    // (B, T)
};

/// Lists every token of a micro-batch once: `starts[i]` is the first token of document i, in the numbering of all B·T,
/// and `lengths[i]` says how many it has; both have memory for B·T entries. Padding (kernels/padding.hpp) is listed as
/// documents of up to shortest_document_group tokens: no result depends on it. Documents of a group are in the order
/// of their tokens. Allocates nothing.
[[nodiscard]] DocumentGroups list_documents(const PackedTokens& packed, std::int32_t* starts, std::int32_t* lengths);

/// A list of documents whose entries are on a device: what attention takes beside positions.
struct AttentionDocuments {
  std::span<const DocumentGroup> groups;  // in host memory
  TensorView starts, lengths;             // as list_documents() writes them
};

}  // namespace tessera::kernels
