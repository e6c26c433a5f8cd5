// Documents cut into pieces, pieces dealt to samples, samples read.
#include "io/data/packing.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <tuple>

#include "runtime/base/error.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::io {

namespace {
constexpr std::int64_t window = 1000;  // documents that are sorted together
}  // namespace

Packing packing_of(std::string_view word) {
  TESSERA_ASSERT(word == "binpack" || word == "sequential", "packing %s", std::string(word).c_str());
  return word == "binpack" ? Packing::binpack : Packing::sequential;
}

/// Deals pieces to samples of one stream.
class PackedStream::Packer {
 public:
  explicit Packer(PackedStream& stream) : stream_(stream) {}

  /// Next-fit: the pieces in their order.
  void sequential(std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) {
      if (used_ + piece.tokens > stream_.tokens_) finish();
      open_.push_back(piece);
      used_ += piece.tokens;
    }
  }

  /// Best-fit decreasing: the sample left open first, as if it were one piece.
  void binpack(std::vector<Piece>& pieces) {
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.tokens > b.tokens; });
    std::vector<std::vector<Piece>> samples;
    std::set<std::pair<std::int64_t, std::size_t>> rooms;  // room left, sample
    if (!open_.empty()) {
      samples.push_back(std::move(open_));
      rooms.emplace(stream_.tokens_ - used_, 0);
      open_.clear();
    }
    for (const Piece& piece : pieces) {
      const auto found = rooms.lower_bound({piece.tokens, 0});
      std::size_t sample = samples.size();
      std::int64_t room = stream_.tokens_;
      if (found == rooms.end()) {
        samples.emplace_back();
      } else {
        std::tie(room, sample) = *found;
        rooms.erase(found);
      }
      samples[sample].push_back(piece);
      rooms.emplace(room - piece.tokens, sample);
    }
    if (samples.empty()) return;
    const auto [room, emptiest] = *rooms.rbegin();
    open_ = std::move(samples[emptiest]);
    used_ = stream_.tokens_ - room;
    samples.erase(samples.begin() + static_cast<std::ptrdiff_t>(emptiest));
    close_in_order(samples);
  }

  void finish() {
    if (!open_.empty()) stream_.close(open_);
    open_.clear();
    used_ = 0;
  }

 private:
  /// Pieces of a sample, and samples, as they come in the stream: what is read together lies together.
  void close_in_order(std::vector<std::vector<Piece>>& samples) {
    const auto earlier = [](const Piece& a, const Piece& b) { return a.first < b.first; };
    for (auto& sample : samples) std::sort(sample.begin(), sample.end(), earlier);
    std::sort(samples.begin(), samples.end(),
              [&](const auto& a, const auto& b) { return earlier(a.front(), b.front()); });
    for (auto& sample : samples) stream_.close(sample);
  }

  PackedStream& stream_;
  std::vector<Piece> open_;  // of the sample that is not full yet
  std::int64_t used_ = 0;    // of its tokens
};

PackedStream::PackedStream(std::shared_ptr<const TokenStream> whole, const Documents& documents, std::int64_t tokens,
                           Packing packing)
    : whole_(std::move(whole)), tokens_(tokens), own_begins_{0} {
  TESSERA_ASSERT(tokens >= 1 && tokens <= INT32_MAX, "samples of %lld", static_cast<long long>(tokens));
  Packer packer(*this);
  std::vector<Piece> pieces;
  std::int64_t begin = documents.first, in_window = 0;
  const auto pack = [&] {
    if (packing == Packing::binpack) packer.binpack(pieces);
    else packer.sequential(pieces);
    pieces.clear();
    in_window = 0;
  };
  for (const std::int64_t end : documents.ends) {
    TESSERA_ASSERT(end >= begin && end <= whole_->size(), "a document ends at %lld", static_cast<long long>(end));
    cut(begin, end, pieces);
    begin = end;
    if (++in_window == window) pack();
  }
  pack();
  packer.finish();
  own_pieces_.shrink_to_fit(), own_begins_.shrink_to_fit();
  pieces_ = own_pieces_, begins_ = own_begins_;
}

void PackedStream::cut(std::int64_t begin, std::int64_t end, std::vector<Piece>& pieces) {
  const std::int64_t length = end - begin;
  count_.dropped += length == 1;
  if (length < 2) return;
  ++count_.documents;
  count_.cut += length > tokens_;
  for (std::int64_t at = begin; at < end; at += tokens_) {
    const std::int64_t n = std::min(tokens_, end - at);
    const Piece piece{at, static_cast<std::int32_t>(n), at + n < end};
    if (piece.targets() > 0)
      pieces.push_back(piece);  // else: one last token, which the piece before it has as a target
  }
}

void PackedStream::close(std::vector<Piece>& sample) {
  for (const Piece& piece : sample) {
    count_.tokens += piece.tokens;
    count_.targets += piece.targets();
    count_.squares += std::int64_t{piece.tokens} * piece.tokens;
    own_pieces_.push_back(piece);
  }
  ++count_.samples;
  own_begins_.push_back(static_cast<std::int64_t>(own_pieces_.size()));
}

std::span<const PackedStream::Piece> PackedStream::pieces_of(std::int64_t sample) const {
  TESSERA_ASSERT(sample >= 0 && sample < count_.samples, "sample %lld of %lld", static_cast<long long>(sample),
                 static_cast<long long>(count_.samples));
  const auto first = static_cast<std::size_t>(begins_[static_cast<std::size_t>(sample)]),
             end = static_cast<std::size_t>(begins_[static_cast<std::size_t>(sample) + 1]);
  return pieces_.subspan(first, end - first);
}

void PackedStream::add_counts(std::int64_t sample, PackedCounts& work) const {
  for (const Piece& piece : pieces_of(sample)) {
    work.targets += piece.targets();
    work.tokens += piece.tokens;
    work.squares += std::int64_t{piece.tokens} * piece.tokens;
  }
}

void PackedStream::move_index(std::span<std::byte> room) {
  TESSERA_ASSERT(room.size() == index_bytes(), "an index of %zu bytes in %zu", index_bytes(), room.size());
  static_assert(std::is_trivially_copyable_v<Piece> && alignof(Piece) == 8 && sizeof(Piece) == 16);
  auto* const pieces = reinterpret_cast<Piece*>(room.data());
  auto* const begins = reinterpret_cast<std::int64_t*>(room.data() + pieces_.size_bytes());
  std::uninitialized_copy(pieces_.begin(), pieces_.end(), pieces);
  std::uninitialized_copy(begins_.begin(), begins_.end(), begins);
  pieces_ = {pieces, pieces_.size()}, begins_ = {begins, begins_.size()};
  own_pieces_ = {}, own_begins_ = {};
}

void PackedStream::read_sample(std::int64_t sample, const PackedSample& to) const {
  std::int64_t at = 0;
  for (const Piece& piece : pieces_of(sample)) {
    whole_->read(piece.first, piece.tokens, to.ids + at);
    whole_->read(piece.first + 1, piece.targets(), to.targets + at);
    if (!piece.continues) to.targets[at + piece.tokens - 1] = to.no_target;
    for (std::int32_t t = 0; t < piece.tokens; ++t) to.positions[at + t] = t;
    at += piece.tokens;
  }
  std::fill(to.ids + at, to.ids + tokens_, 0);
  std::fill(to.targets + at, to.targets + tokens_, to.no_target);
  std::fill(to.positions + at, to.positions + tokens_, 0);
}

std::uint64_t PackedStream::hash() const {
  std::uint64_t hash = hash64("packed samples");
  for (const Piece& piece : pieces_) {
    const std::int64_t words[2] = {piece.first, piece.tokens * 2 + (piece.continues ? 1 : 0)};
    hash = hash64({reinterpret_cast<const char*>(words), sizeof words}, hash);
  }
  return hash64({reinterpret_cast<const char*>(begins_.data()), begins_.size_bytes()}, hash);
}

}  // namespace tessera::io
