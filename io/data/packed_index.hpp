// SPDX-License-Identifier: Apache-2.0
#pragma once
// Index files of packed samples: which tokens are in which sample. Made once, then mapped by every rank.

#include <span>
#include <string>
#include <string_view>

#include "io/data/packing.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

/// What an index file has; the spans are in the file's bytes.
struct PackedIndex {
  PackingSummary summary;
  std::span<const TokenRange> ranges;    // by sample
  std::span<const std::int64_t> begins;  // first range of each sample, and the end
};

/// Packs the documents of `source` into an index file, which appears at `path` when it is complete and durable. Takes
/// memory for 1000 documents. Throws Error (data): it cannot be written; what `documents` throws.
void write_packed_index(const std::string& path, const TokenStream& source, const DocumentSource& documents,
                        const PackingRule& rule);

/// The error of a file at `path` that is not an index of its samples, and `why`.
[[nodiscard]] Error damaged_index(const std::string& path, const std::string& why);

/// Checks header and size, not every range: PackedStream checks those that it uses. `source_tokens`: of the stream.
/// Throws Error (data): not an index file, truncated, of another number of tokens or another rule.
[[nodiscard]] PackedIndex check_packed_index(std::string_view bytes, std::int64_t source_tokens,
                                             const PackingRule& rule, const std::string& path);

/// True if there is an index file that check_packed_index accepts.
[[nodiscard]] bool has_packed_index(const std::string& path, std::int64_t source_tokens, const PackingRule& rule);

}  // namespace tessera::io
