// The files of a corpus, and their division into ranges.

#include "io/tokenizer/corpus.hpp"

#include <algorithm>

#include "io/data/data_kind.hpp"
#include "io/tokenizer/byte_hash.hpp"
#include "io/tokenizer/split_point.hpp"

namespace tessera::io {

Corpus::Corpus(const std::vector<std::string>& paths) : paths_(paths) {
  if (paths.empty()) throw Error(ExitCode::data, "the data set names no file", {}, "Give --dataset FILE");
  for (const std::string& path : paths) {
    maps_.emplace_back(path);
    reject_unsupported(path, maps_.back().bytes());
    const std::string kind = data_kind(path);
    if (kind == "bin") throw Error(ExitCode::data, path + " holds tokens already", {}, "Give text or .jsonl files");
    if (maps_.back().bytes().empty()) throw Error(ExitCode::data, path + " is empty", {}, "Give a file with data");
    jsonl_.push_back(kind == "jsonl");
  }
}

std::vector<Corpus::ByteRange> Corpus::ranges(std::size_t bytes, Split texts) const {
  std::vector<ByteRange> all;
  for (std::size_t file = 0; file < maps_.size(); ++file) {
    const std::string_view text = maps_[file].bytes();
    for (std::size_t at = 0; at < text.size();) {
      const std::string_view rest = text.substr(at);
      std::size_t length = rest.size();
      if (jsonl_[file]) {
        const std::size_t newline = rest.find('\n', bytes - 1);
        if (newline != rest.npos) length = newline + 1;
      } else if (texts == Split::at_safe_newlines) {
        length = find_split_point(rest, bytes);
      }
      const bool lines = jsonl_[file];
      all.push_back({file, at, length, lines || at == 0, lines || at + length == text.size()});
      at += length;
    }
  }
  return all;
}

std::size_t Corpus::line_at(std::size_t file, std::size_t offset) const {
  const std::string_view before = maps_[file].bytes().substr(0, offset);
  return static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
}

std::uint64_t Corpus::bytes() const {
  std::uint64_t all = 0;
  for (const MappedFile& map : maps_) all += map.bytes().size();
  return all;
}

std::uint64_t Corpus::content_hash(World& world) const {
  constexpr std::size_t block = std::size_t{4} << 20;
  std::uint64_t mine = 0, index = 0;
  std::uint64_t shapes = maps_.size();
  for (std::size_t file = 0; file < maps_.size(); ++file) {
    const std::string_view text = maps_[file].bytes();
    shapes = mix(shapes, mix(text.size(), jsonl_[file] ? 1 : 0));
    for (std::size_t at = 0; at < text.size(); at += block, ++index)
      if (index % static_cast<std::uint64_t>(world.size()) == static_cast<std::uint64_t>(world.rank()))
        mine += hash_bytes(text.substr(at, block), index);  // a sum over blocks, in any order and on any rank
  }
  const auto low = static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(mine & 0xFFFFFFFFu)));
  const auto high = static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(mine >> 32)));
  return mix(shapes, (high << 32) + low);
}

}  // namespace tessera::io
