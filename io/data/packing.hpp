#pragma once
// Packing: samples of T that hold whole documents, or pieces of those longer than T, and know where each begins. Which
// document goes where is a function of the lengths alone.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "io/data/dataset.hpp"

namespace tessera::io {

/// sequential: in the order of the stream, a new sample where the next piece does not fit. binpack: of every 1000
/// documents the longest first, each into the fullest sample that still has room for it; the emptiest of a thousand's
/// samples goes on with the next ones.
enum class Packing : unsigned char { binpack, sequential };
/// "binpack" or "sequential"; else a bug.
[[nodiscard]] Packing packing_of(std::string_view word);

/// Documents [first, ends[0]), [ends[0], ends[1]), … of a stream. Ends do not descend; a document may be empty.
struct Documents {
  std::int64_t first = 0;
  std::span<const std::int64_t> ends;
};

struct PackingCount {
  std::int64_t documents = 0;  // that are in samples
  std::int64_t cut = 0;        // of them, longer than T
  std::int64_t samples = 0;
  std::int64_t tokens = 0;  // in samples, padding left out
  std::int64_t targets = 0;
  std::int64_t squares = 0;  // Σ over documents, or their pieces, of tokens²: what attention costs
  std::int64_t dropped = 0;  // documents of one token: nothing predicts it, and it predicts nothing
};

/// What is in a sample, or in several.
struct PackedCounts {
  std::int64_t targets = 0, tokens = 0, squares = 0;  // as in PackingCount
};

/// What reading a sample fills: T each.
struct PackedSample {
  std::int32_t* ids = nullptr;
  std::int32_t* targets = nullptr;
  std::int32_t* positions = nullptr;
  std::int32_t no_target = 0;  // what stands where there is none
};

/// A stream with its samples. A document's last token has no target, so a document adds to the loss what it would
/// alone; a piece that is not its document's last has the next piece's first token as its last target, so that every
/// token of a document but its first is a target once. Positions count from 0 in every piece. What is left of a sample
/// is padding: id 0, position 0, no target.
class PackedStream final : public TokenStream {
 public:
  /// `tokens`: T.
  PackedStream(std::shared_ptr<const TokenStream> whole, const Documents& documents, std::int64_t tokens,
               Packing packing);
  PackedStream(const PackedStream&) = delete;
  PackedStream& operator=(const PackedStream&) = delete;

  [[nodiscard]] std::int64_t size() const override { return whole_->size(); }
  void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override {
    whole_->read(first, count, out);
  }
  [[nodiscard]] const PackedStream* packed() const override { return this; }

  [[nodiscard]] const PackingCount& count() const { return count_; }
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }  // T
  /// Adds what `sample` holds.
  void add_counts(std::int64_t sample, PackedCounts& work) const;
  /// Thread-safe, allocates nothing.
  void read_sample(std::int64_t sample, const PackedSample& to) const;
  /// Of what is in which sample: ranks compare it.
  [[nodiscard]] std::uint64_t hash() const;

  /// What knowing the samples takes: 16 bytes for each piece, 8 for each sample and the end.
  [[nodiscard]] std::size_t index_bytes() const { return pieces_.size_bytes() + begins_.size_bytes(); }
  /// Puts the index into memory of somebody else, of index_bytes(), 8-byte aligned, that lasts as long as the
  /// stream is read; frees its own.
  void move_index(std::span<std::byte> room);

 private:
  /// Tokens of one document that stand together; `continues`: the document does, behind them.
  struct Piece {
    std::int64_t first = 0;
    std::int32_t tokens = 0;
    bool continues = false;
    [[nodiscard]] std::int64_t targets() const { return tokens - (continues ? 0 : 1); }
  };
  class Packer;
  void cut(std::int64_t begin, std::int64_t end, std::vector<Piece>& pieces);
  void close(std::vector<Piece>& sample);
  [[nodiscard]] std::span<const Piece> pieces_of(std::int64_t sample) const;

  std::shared_ptr<const TokenStream> whole_;
  std::int64_t tokens_;
  std::vector<Piece> own_pieces_;
  std::vector<std::int64_t> own_begins_;
  std::span<const Piece> pieces_;         // by sample
  std::span<const std::int64_t> begins_;  // first piece of each sample, and the end
  PackingCount count_;
};

}  // namespace tessera::io
