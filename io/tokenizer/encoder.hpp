#pragma once
// Text to ids: split at added tokens, normalize, pre-tokenize, merge.

#include <optional>

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
  /// How many texts had invalid UTF-8.
  [[nodiscard]] std::int64_t repaired() const { return repaired_; }

 private:
  void section(std::string_view text, Normalizer::Position position, bool first, std::vector<std::int32_t>& ids);
  void piece(std::string_view text, std::vector<std::int32_t>& ids);

  const TokenizerTables& tables_;
  WordMerger merger_;
  std::optional<WordCache> cache_;
  std::vector<std::int32_t> word_;
  std::vector<Section> sections_, parts_;
  std::string normalized_, prepared_;
  std::int64_t repaired_ = 0;
};

}  // namespace tessera::io
