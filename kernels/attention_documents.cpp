// SPDX-License-Identifier: Apache-2.0
// Lists the documents of a packed micro-batch by length.
#include "kernels/attention_documents.hpp"

#include <algorithm>

#include "kernels/padding.hpp"
#include "runtime/base/error.hpp"

namespace tessera::kernels {
namespace {

std::size_t group_of(std::int64_t length) {
  std::size_t group = 0;
  for (std::int64_t most = shortest_document_group; most < length; most *= 2) ++group;
  return group;
}

/// Calls f(first token, length) for every document, and for every piece of padding.
template <class F>
void each_document(const PackedTokens& packed, const F& f) {
  const PaddingMap padding(packed.positions, packed.targets, packed.tokens);
  for (std::int64_t row = 0; row < packed.rows; ++row) {
    const std::int64_t end = (row + 1) * packed.tokens;
    for (std::int64_t first = row * packed.tokens, last = first; first < end; first = last) {
      const bool pads = padding.has(first);
      const auto continues = [&](std::int64_t token) {
        return pads ? padding.has(token) && token - first < shortest_document_group : packed.positions[token] != 0;
      };
      for (last = first + 1; last < end && continues(last);) ++last;
      f(first, last - first);
    }
  }
}

}  // namespace

void DocumentGroups::add(const DocumentGroup& group) {
  TESSERA_ASSERT(size_ < groups_.size(), "more than %zu groups of documents", groups_.size());
  groups_[size_++] = group;
}

DocumentGroups list_documents(const PackedTokens& packed, std::int32_t* starts, std::int32_t* lengths) {
  std::array<std::int64_t, most_document_groups> counts{}, next{};
  each_document(packed, [&](std::int64_t, std::int64_t length) {
    TESSERA_ASSERT(group_of(length) < counts.size());
    ++counts[group_of(length)];
  });
  DocumentGroups groups;
  std::int64_t listed = 0;
  for (std::size_t g = 0; g < counts.size(); ++g) {
    next[g] = listed;
    if (counts[g] > 0) groups.add({shortest_document_group << g, listed, counts[g]});
    listed += counts[g];
  }
  each_document(packed, [&](std::int64_t first, std::int64_t length) {
    const std::int64_t at = next[group_of(length)]++;
    starts[at] = static_cast<std::int32_t>(first);
    lengths[at] = static_cast<std::int32_t>(length);
  });
  return groups;
}

}  // namespace tessera::kernels
