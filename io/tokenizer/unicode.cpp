// The table of classes; normal forms and word characters by ICU.

#include "io/tokenizer/unicode.hpp"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>

#include "io/tokenizer/unicode_ranges.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io::unicode {

namespace detail {
const unsigned char* class_table = nullptr;
}

void prepare_classes() {
  static unsigned char table[0x110000] = {};
  static std::once_flag once;
  std::call_once(once, [] {
    const auto fill = [](std::span<const Range> ranges, Class what) {
      for (const Range& range : ranges) std::memset(table + range.first, what, range.last - range.first + 1);
    };
    fill(letter_ranges(), letter);
    fill(number_ranges(), number);
    fill(space_ranges(), space);
    detail::class_table = table;
  });
}

bool is_word(char32_t code) {
  const auto point = static_cast<UChar32>(code);
  constexpr std::uint32_t masks = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return (U_GET_GC_MASK(point) & masks) != 0 || u_hasBinaryProperty(point, UCHAR_ALPHABETIC) != 0 ||
         u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL) != 0;
}

namespace {

/// NFC that keeps characters unchanged that Unicode 9.0 did not have.
const icu::Normalizer2& composer() {
  static const std::unique_ptr<const icu::FilteredNormalizer2> made = [] {
    UErrorCode status = U_ZERO_ERROR;
    static icu::UnicodeSet known(icu::UnicodeString("[:age=9.0:]"), status);
    const icu::Normalizer2* full_nfc = icu::Normalizer2::getNFCInstance(status);
    if (U_FAILURE(status))
      throw Error(ExitCode::internal, std::string("ICU has no normal forms: ") + u_errorName(status), {},
                  "Install libicu with its data");
    known.freeze();
    return std::make_unique<const icu::FilteredNormalizer2>(*full_nfc, known);
  }();
  return *made;
}

}  // namespace

std::string_view nfc(std::string_view text, std::string& buffer) {
  // Below U+0300, so with a first byte below 0xCC, everything is composed already.
  const auto composed = [](char c) { return static_cast<unsigned char>(c) < 0xCC; };
  if (std::all_of(text.begin(), text.end(), composed)) return text;
  UErrorCode status = U_ZERO_ERROR;
  const icu::StringPiece piece(text.data(), static_cast<std::int32_t>(text.size()));
  if (composer().isNormalizedUTF8(piece, status) != 0 && U_SUCCESS(status)) return text;
  status = U_ZERO_ERROR;
  buffer.clear();
  icu::StringByteSink<std::string> sink(&buffer, static_cast<std::int32_t>(text.size()));
  composer().normalizeUTF8(0, piece, sink, nullptr, status);
  TESSERA_ASSERT(U_SUCCESS(status), "ICU: %s", u_errorName(status));
  return buffer;
}

}  // namespace tessera::io::unicode
