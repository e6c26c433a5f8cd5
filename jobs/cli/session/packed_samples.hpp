// SPDX-License-Identifier: Apache-2.0
#pragma once
// Samples of complete documents: their index is made once, kept in the cache, and mapped by every rank.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/data/data_files.hpp"
#include "io/data/documents.hpp"
#include "io/data/packing.hpp"
#include "jobs/cli/options/options.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// The documents of an opened data set. Where they end is found when it is first asked for, by the rank that makes an
/// index.
class SampleDocuments {
 public:
  /// `separator`: the id that ends documents in token files that do not say where they end (DocumentEnds).
  SampleDocuments(std::shared_ptr<const io::Dataset> data, std::optional<std::int32_t> separator)
      : data_(std::move(data)), separator_(separator) {}
  [[nodiscard]] const io::DocumentEnds& ends();
  /// Only some documents of each token file are used, or some several times (io::DataFile).
  void select(std::vector<io::DataFile> files, std::uint64_t seed) { files_ = std::move(files), seed_ = seed; }
  /// Passes documents [first, last), or, where they are selected, all that are, as often as they are.
  void for_each(std::int64_t first, std::int64_t last, const io::TakeDocument& take);
  /// A hash of names, sizes and times of the files, and of the separator.
  [[nodiscard]] std::uint64_t key() const;
  /// A hash of the numbers and shares that select() was given; 0: every document once.
  [[nodiscard]] std::uint64_t selection() const;

 private:
  std::shared_ptr<const io::Dataset> data_;
  std::optional<std::int32_t> separator_;
  std::optional<io::DocumentEnds> ends_;
  std::vector<io::DataFile> files_;  // none: every document once
  std::uint64_t seed_ = 0;
};

/// Which documents: all, those before the one with the token at `position`, and that one, or those behind it.
enum class DocumentPart : unsigned char { all, before, behind };

/// Collective: the packed samples of some documents of `tokens`. Their index is packed-<hash>.index in --cache_dir;
/// rank 0 makes it unless it is there, and so does the first rank of a host that does not see that directory. Throws
/// Error (data) on every rank.
[[nodiscard]] std::shared_ptr<io::PackedStream> packed_samples(const Options& options, World& world,
                                                               const std::shared_ptr<const io::TokenStream>& tokens,
                                                               SampleDocuments& documents, DocumentPart part,
                                                               std::int64_t position, const io::PackingRule& rule);

}  // namespace tessera::jobs
