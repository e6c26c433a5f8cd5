// SPDX-License-Identifier: Apache-2.0
// Headers and ids of .bin token files.

#include "io/data/token_file.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <tuple>
#include <vector>

#include "io/data/megatron.hpp"
#include "io/file/file.hpp"
#include "io/file/link_text.hpp"

namespace tessera::io {

namespace {

constexpr std::size_t token_header_bytes = 256 * 4;
constexpr std::size_t wide_count_at = 16;  // int64, where the third number is -1
constexpr std::size_t repairs_at = 24;     // two int64

Error refuse_tokens(const std::string& path, const std::string& rule,
                    const std::string& to_do = "Write the file again") {
  return Error(ExitCode::data, path + " is not a token file that can be read: " + rule, {}, to_do);
}

/// Other kinds of files that end in .bin.
const char* known_as(std::string_view bytes, std::int32_t number) {
  if (bytes.starts_with("BIN.TOK\n")) return "an LLMQ token file";
  if (bytes.starts_with("MMIDIDX")) return "a Megatron index file";
  if (number == 20240522) return "an llm.c evaluation file";
  if (number == 20240326) return "an llm.c model file";
  if (number == 20240327) return "an llm.c debug state";
  return nullptr;
}

/// Copies ids; the first of `count` that is negative or not below `vocab`, `count` if there is none.
template <class Id>
std::int64_t copy_as(const char* from, std::int64_t vocab, std::int64_t count, std::int32_t* out) {
  Id largest = 0, smallest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Id id = 0;
    std::memcpy(&id, from + static_cast<std::size_t>(i) * sizeof(Id), sizeof(Id));
    largest = std::max(largest, id);
    smallest = std::min(smallest, id);
    out[i] = static_cast<std::int32_t>(id);
  }
  if (largest < vocab && smallest >= 0) return count;
  std::int64_t at = 0;
  for (Id id = 0; at < count; ++at) {
    std::memcpy(&id, from + static_cast<std::size_t>(at) * sizeof(Id), sizeof(Id));
    if (id < 0 || id >= vocab) break;
  }
  return at;
}

/// Throws Error (data) at the first of the ids, which begin with token `first` of the file, that is one of `images`.
void refuse_images(std::span<const std::int32_t> ids, const std::string& path, const std::vector<std::int32_t>& images,
                   std::int64_t first) {
  if (images.empty()) return;
  const auto found = std::ranges::find_first_of(ids, images);
  if (found != ids.end())
    throw Error(ExitCode::data,
                strfmt("token %ld is %d, which stands for an image, and text alone is read",
                       first + (found - ids.begin()), *found),
                path, "Give tokens of texts without images");
}

/// Calls f with a value of the type.
template <class F>
auto with_type(IdType type, const F& f) {
  switch (type) {
    case IdType::u8: return f(std::uint8_t{});
    case IdType::i8: return f(std::int8_t{});
    case IdType::i16: return f(std::int16_t{});
    case IdType::u16: return f(std::uint16_t{});
    case IdType::i32: return f(std::int32_t{});
    case IdType::u32: return f(std::uint32_t{});
    default: return f(std::int64_t{});
  }
}

}  // namespace

std::string token_file_header(int width, std::int64_t count, Repairs repairs) {
  TESSERA_ASSERT((width == 2 || width == 4) && count > 0, "width %d, %ld tokens", width, count);
  const bool narrow = count <= std::numeric_limits<std::int32_t>::max();
  const std::int32_t numbers[3] = {width == 2 ? 20240520 : 20240801, width == 2 ? 1 : 7,
                                   narrow ? static_cast<std::int32_t>(count) : -1};
  std::string header(token_header_bytes, '\0');
  std::memcpy(header.data(), numbers, sizeof numbers);
  if (!narrow) std::memcpy(header.data() + wide_count_at, &count, sizeof count);
  std::memcpy(header.data() + repairs_at, &repairs, sizeof repairs);
  return header;
}

TokenFileLayout check_token_file(std::string_view bytes, const std::string& path) {
  std::int32_t header[3] = {};
  std::memcpy(header, bytes.data(), std::min(bytes.size(), sizeof header));
  const auto [magic, version, narrow_count] = std::tuple(header[0], header[1], header[2]);
  if (const char* name = known_as(bytes, magic))
    throw refuse_tokens(path, strfmt("it is %s", name), "Give llm.c's token files (.bin)");
  const bool gpt2 = magic == 20240520, llama = magic == 20240801;
  if (bytes.size() >= sizeof header && !gpt2 && !llama)
    throw refuse_tokens(
        path, strfmt("its first number is %d, not 20240520 or 20240801 (a file of ids without a header?)", magic),
        "Give llm.c's token files (.bin), or Megatron's .bin with its .idx beside it");
  if (bytes.size() < token_header_bytes)
    throw refuse_tokens(path, strfmt("it has %zu bytes, its header alone 1024", bytes.size()));
  const int expected = gpt2 ? 1 : 7;
  if (version != expected)
    throw refuse_tokens(path, strfmt("version %d with magic %d, where %d is known", version, magic, expected));
  std::int64_t count = narrow_count;
  if (narrow_count == -1) std::memcpy(&count, bytes.data() + wide_count_at, sizeof count);
  if (count <= 0) throw refuse_tokens(path, strfmt("its header says %d tokens", narrow_count));
  TokenFileLayout layout{.type = gpt2 ? IdType::u16 : IdType::u32,
                         .data = bytes.data() + token_header_bytes,
                         .count = count,
                         .first_byte = token_header_bytes};
  std::memcpy(&layout.repairs, bytes.data() + repairs_at, sizeof layout.repairs);
  if (layout.repairs.invalid < 0 || layout.repairs.replaced < 0) layout.repairs = {};  // another program's numbers
  const auto width = static_cast<std::uint64_t>(width_of(layout.type)),
             data = static_cast<std::uint64_t>(bytes.size() - token_header_bytes);
  if (data % width != 0 || data / width != static_cast<std::uint64_t>(count))
    throw refuse_tokens(
        path, strfmt("it has %zu bytes, but %ld tokens of %d bytes and the header make another number: it is %s",
                     bytes.size(), count, width_of(layout.type),
                     data / width < static_cast<std::uint64_t>(count) ? "truncated" : "too long"));
  return layout;
}

TokenFileLayout open_token_file(std::string_view bytes, const std::string& path) {
  refuse_link_text(path, bytes);
  return is_megatron(path) ? check_megatron_file(bytes, path) : check_token_file(bytes, path);
}

std::int32_t largest_token(const TokenFileLayout& layout, const std::string& path) {
  constexpr std::int64_t block = 1 << 16;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(block, layout.count)));
  std::int32_t largest = 0;
  for (std::int64_t at = 0; at < layout.count; at += block) {
    const std::int64_t n = std::min(block, layout.count - at);
    copy_tokens(layout, path, {}, at, n, ids.data());
    largest = std::max(largest, *std::max_element(ids.begin(), ids.begin() + n));
  }
  return largest;
}

void copy_tokens(const TokenFileLayout& layout, const std::string& path, const TokenRule& rule, std::int64_t first,
                 std::int64_t count, std::int32_t* out) {
  const int width = width_of(layout.type);
  const char* from = layout.data + first * width;
  const std::int64_t wrong =
      with_type(layout.type, [&](auto id) { return copy_as<decltype(id)>(from, rule.vocab, count, out); });
  if (wrong == count) return refuse_images({out, static_cast<std::size_t>(count)}, path, rule.images, first);
  const std::int64_t at = first + wrong, id = with_type(layout.type, [&](auto value) {
                                           std::memcpy(&value, from + wrong * width, sizeof value);
                                           return static_cast<std::int64_t>(value);
                                         });
  throw Error(
      ExitCode::data,
      strfmt("token %ld (byte %ld of the file) has id %ld, ", at, layout.first_byte + at * width, id) +
          (rule.vocab == largest_vocab ? "which is not one of 31 bits"
                                       : strfmt("but the last id of the model's vocabulary is %ld", rule.vocab - 1)),
      path, "Use a model with a larger vocab_size, or data of its tokenizer");
}

}  // namespace tessera::io
