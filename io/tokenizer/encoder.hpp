// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text to ids: split at added tokens, normalize, pre-tokenize, merge.

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "io/tokenizer/tables.hpp"
#include "io/tokenizer/word_cache.hpp"

namespace tessera::io {

class Encoder {
 public:
  enum class Memory : unsigned char { none, cache };
  /// `tables` must outlive it.
  Encoder(const TokenizerTables& tables, Memory memory);

  /// Appends the ids of `text`, which begins a document or continues one.
  void encode(std::string_view text, Normalizer::Position position, std::vector<std::int32_t>& ids);
  /// The same of a UTF-8 text. For each of `offsets`, bytes of `text` that ascend, sets the number of `ids` that end at
  /// or before it: a token that an offset lies in counts as behind it.
  void encode(std::string_view text, Normalizer::Position position, std::vector<std::int32_t>& ids,
              std::span<const std::size_t> offsets, std::vector<std::size_t>& ids_before);
  /// How many texts had invalid UTF-8.
  [[nodiscard]] std::int64_t repaired() const { return repaired_; }

 private:
  using Offsets = std::vector<std::size_t>;
  void between_added(std::string_view text, Normalizer::Position position, bool first, std::vector<std::int32_t>& ids,
                     Offsets offsets);
  void section(std::string_view text, Normalizer::Position position, bool first, std::vector<std::int32_t>& ids,
               Offsets offsets);
  /// Writes the ids of a piece, and returns how many they are; places behind them, up to LongWords::most_ids in all,
  /// may be written too.
  std::size_t piece(std::string_view text, std::int32_t* ids);
  template <class Cache>
  std::size_t cached_piece(std::string_view text, Cache& cache, std::int32_t* ids);
  std::size_t merged_piece(std::string_view text, std::int32_t* ids);
  /// Offsets in a piece that made ids [first, end).
  void count_in_piece(std::string_view text, std::span<const std::size_t> offsets, std::span<const std::int32_t> ids,
                      std::size_t first);

  const TokenizerTables& tables_;
  WordMerger merger_;
  PieceReader pieces_;
  struct Caches {
    ShortWords short_words;
    LongWords long_words;
  };
  std::optional<Caches> cache_;
  std::vector<std::int32_t> word_;
  std::vector<Section> sections_, parts_;
  std::string normalized_, prepared_;
  std::vector<std::size_t>* ids_before_ = nullptr;  // of the offsets of this encode()
  std::int64_t repaired_ = 0;
};

}  // namespace tessera::io
