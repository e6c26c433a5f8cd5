// SPDX-License-Identifier: Apache-2.0
// Reads .idx files in place: their numbers are not aligned.

#include "io/data/megatron.hpp"

#include <cstring>

#include "io/file/file.hpp"

namespace tessera::io {

namespace {

constexpr std::string_view index_magic{"MMIDIDX\0\0", 9};
constexpr std::size_t index_header_bytes = 9 + 8 + 1 + 8 + 8;

template <class T>
T number_at(const char* at, std::int64_t index = 0) {
  T number;
  std::memcpy(&number, at + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return number;
}

Error refuse_index(const std::string& path, const std::string& rule) {
  return Error(ExitCode::data, path + " is not a Megatron index that can be read: " + rule, {},
               "Give the .bin and .idx that preprocess_data.py wrote together");
}

/// Megatron's codes.
IdType type_of(int code, const std::string& path) {
  switch (code) {
    case 1: return IdType::u8;
    case 2: return IdType::i8;
    case 3: return IdType::i16;
    case 4: return IdType::i32;
    case 5: return IdType::i64;
    case 8: return IdType::u16;
    case 6:
    case 7: throw refuse_index(path, strfmt("its ids are floating-point numbers (type %d)", code));
    default: throw refuse_index(path, strfmt("type %d of ids is unknown", code));
  }
}

}  // namespace

std::string megatron_index_name(const std::string& token_file) {
  return token_file.substr(0, token_file.size() - 4) + ".idx";
}

bool is_megatron(const std::string& token_file) {
  return token_file.size() > 4 && exists(megatron_index_name(token_file));
}

MegatronIndex::MegatronIndex(std::string_view bytes, std::uint64_t token_bytes, const std::string& path) : path_(path) {
  if (bytes.size() < index_header_bytes)
    throw refuse_index(path, strfmt("it has %zu bytes, its header alone %zu", bytes.size(), index_header_bytes));
  if (!bytes.starts_with(index_magic)) throw refuse_index(path, "it does not begin with MMIDIDX");
  const char* const at = bytes.data() + index_magic.size();
  const auto version = number_at<std::uint64_t>(at);
  if (version != 1) throw refuse_index(path, strfmt("version %lu, where 1 is known", version));
  type_ = type_of(static_cast<unsigned char>(at[8]), path);
  const auto sequences = number_at<std::uint64_t>(at + 9), boundaries = number_at<std::uint64_t>(at + 17);
  const std::uint64_t room = bytes.size() - index_header_bytes;
  if (sequences < 1 || sequences > room / 12 || boundaries > room / 8 || 12 * sequences + 8 * boundaries != room)
    throw refuse_index(path, strfmt("it has %zu bytes, and %lu sequences and %lu ends of documents make another number",
                                    bytes.size(), sequences, boundaries));
  sequences_ = static_cast<std::int64_t>(sequences);
  documents_ = static_cast<std::int64_t>(boundaries) - 1;
  sizes_ = bytes.data() + index_header_bytes;
  pointers_ = sizes_ + 4 * sequences;
  first_of_ = pointers_ + 8 * sequences;
  const std::int64_t last = sequences_ - 1;
  std::int64_t end = 0;
  if (begin_of(0) != 0 || bytes_of(last) < 0 || __builtin_add_overflow(begin_of(last), bytes_of(last), &end) ||
      static_cast<std::uint64_t>(end) != token_bytes)
    throw refuse_index(path, strfmt("its sequences have %ld bytes, and the .bin file has %lu", end, token_bytes));
  if (documents_ < 1 || number_at<std::int64_t>(first_of_) != 0 ||
      number_at<std::int64_t>(first_of_, documents_) != sequences_)
    throw refuse_index(path, "its documents do not hold all sequences");
  if (token_bytes % static_cast<std::uint64_t>(width_of(type_)) != 0)
    throw refuse_index(path, "the .bin file ends within an id");
  tokens_ = end / width_of(type_);
}

std::int64_t MegatronIndex::begin_of(std::int64_t sequence) const {
  return number_at<std::int64_t>(pointers_, sequence);
}
std::int64_t MegatronIndex::bytes_of(std::int64_t sequence) const {
  return std::int64_t{number_at<std::int32_t>(sizes_, sequence)} * width_of(type_);
}

std::int64_t MegatronIndex::document_end(std::int64_t i) const {
  const auto first = number_at<std::int64_t>(first_of_, i), last = number_at<std::int64_t>(first_of_, i + 1);
  if (first < 0 || last < first || last > sequences_)
    throw refuse_index(path_, strfmt("document %ld has the sequences [%ld, %ld) of %ld", i, first, last, sequences_));
  const std::int64_t all = tokens_ * width_of(type_);
  for (std::int64_t s = first; s < last; ++s) {
    const std::int64_t next = s + 1 < sequences_ ? begin_of(s + 1) : all;
    if (bytes_of(s) < 0 || begin_of(s) < 0 || next > all || begin_of(s) > all - bytes_of(s) ||
        begin_of(s) + bytes_of(s) != next)
      throw refuse_index(path_, strfmt("sequence %ld does not begin where the one before it ends", s + 1));
  }
  return (last < sequences_ ? begin_of(last) : all) / width_of(type_);
}

TokenFileLayout check_megatron_file(std::string_view bytes, const std::string& path) {
  const MappedFile map(megatron_index_name(path));
  const MegatronIndex index(map.bytes(), bytes.size(), megatron_index_name(path));
  return {.type = index.type(), .data = bytes.data(), .count = index.tokens(), .first_byte = 0};
}

}  // namespace tessera::io
