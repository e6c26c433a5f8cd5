// SPDX-License-Identifier: Apache-2.0
// The table of classes, and normal forms by ICU.

#include "io/tokenizer/unicode.hpp"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>

#include "io/tokenizer/unicode_ranges.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io::unicode {

namespace detail {
const unsigned char* class_table = nullptr;
}

namespace {

unsigned char bits_of(Category category) {
  constexpr unsigned char both = detail::upper_bit | detail::lower_bit;
  if (category == Lu || category == Lt) return letter | detail::upper_bit;
  if (category == Ll) return letter | detail::lower_bit;
  if (category == Lm || category == Lo) return letter | both;
  if (category >= Mn && category <= Me) return detail::mark_bit | both;
  if (category >= Nd && category <= No) return number;
  return category >= Pc && category <= So ? detail::symbol_bit : 0;
}

}  // namespace

void prepare_classes() {
  static unsigned char table[0x110000] = {};
  static std::once_flag once;
  std::call_once(once, [] {
    const std::span<const std::uint32_t> runs = category_runs();
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const std::size_t first = runs[i] >> 5, end = i + 1 < runs.size() ? runs[i + 1] >> 5 : sizeof table;
      std::memset(table + first, bits_of(static_cast<Category>(runs[i] & 31)), end - first);
    }
    const auto set = [](std::span<const Range> ranges, unsigned char bits) {
      for (const Range& range : ranges)
        for (std::uint32_t code = range.first; code <= range.last; ++code) table[code] |= bits;
    };
    set(space_ranges(), space);
    set(punctuation_ranges(), detail::punctuation_bit);
    detail::class_table = table;
  });
}

namespace {

bool contains(std::span<const Range> ranges, char32_t code) {
  const auto found = std::ranges::lower_bound(ranges, code, {}, &Range::last);
  return found != ranges.end() && code >= found->first;
}

}  // namespace

bool is_word(char32_t code) { return contains(word_ranges(), code); }
bool is_numeric(char32_t code) { return classify(code) == number || contains(newer_number_ranges(), code); }

namespace {

struct FormTables {
  /// The form, with characters unchanged that Unicode 9.0 did not have.
  std::unique_ptr<const icu::FilteredNormalizer2> composer;
  /// Characters that canonical ordering may move: with a combining class, or decomposed into such (three Tibetan
  /// vowels; in compatibility forms the voiced marks of half width too).
  icu::UnicodeSet marks;
};

FormTables make_tables(const icu::Normalizer2* (*form)(UErrorCode&), const char* moved) {
  UErrorCode status = U_ZERO_ERROR;
  static const icu::UnicodeSet known = [&status] {
    icu::UnicodeSet set(icu::UnicodeString("[:age=9.0:]"), status);
    set.freeze();
    return set;
  }();
  const icu::Normalizer2* full = form(status);
  icu::UnicodeSet marks(icu::UnicodeString(moved), status);
  if (U_FAILURE(status))
    throw Error(ExitCode::internal, std::string("ICU has no normal forms: ") + u_errorName(status), {},
                "Install libicu with its data");
  marks.freeze();
  return {std::make_unique<const icu::FilteredNormalizer2>(*full, known), std::move(marks)};
}

const FormTables& tables_of(Form form) {
  if (form == Form::nfkc) {
    static const FormTables made =
        make_tables(icu::Normalizer2::getNFKCInstance, "[[[:^ccc=0:]\\u0F73\\u0F75\\u0F81\\uFF9E\\uFF9F]&[:age=9.0:]]");
    return made;
  }
  static const FormTables made =
      make_tables(icu::Normalizer2::getNFCInstance, "[[[:^ccc=0:]\\u0F73\\u0F75\\u0F81]&[:age=9.0:]]");
  return made;
}

/// Appends a run of marks, decomposed and sorted by combining class, which is stable.
void append_ordered(const icu::Normalizer2& composer, std::string_view run, std::string& out) {
  icu::UnicodeString decomposed, one;
  const icu::UnicodeString marks = icu::UnicodeString::fromUTF8({run.data(), static_cast<std::int32_t>(run.size())});
  for (std::int32_t at = 0; at < marks.length(); at = marks.moveIndex32(at, 1)) {
    const UChar32 mark = marks.char32At(at);
    decomposed.append(composer.getDecomposition(mark, one) != 0 ? one : icu::UnicodeString(mark));
  }
  std::array<icu::UnicodeString, 256> by_class;
  for (std::int32_t at = 0; at < decomposed.length(); at = decomposed.moveIndex32(at, 1)) {
    const UChar32 mark = decomposed.char32At(at);
    by_class[composer.getCombiningClass(mark)].append(mark);
  }
  for (const icu::UnicodeString& sorted : by_class) sorted.toUTF8String(out);
}

}  // namespace

std::string_view order_marks(Form form, std::string_view text, std::string& buffer) {
  constexpr std::size_t longest_unordered = 64;
  const icu::UnicodeSet& marks = tables_of(form).marks;
  const auto span = [&](std::size_t at, USetSpanCondition condition) {
    const std::string_view rest = text.substr(at);
    return static_cast<std::size_t>(marks.spanUTF8(rest.data(), static_cast<std::int32_t>(rest.size()), condition));
  };
  std::size_t done = 0;  // the text before it is in the buffer
  buffer.clear();
  for (std::size_t at = span(0, USET_SPAN_NOT_CONTAINED); at < text.size();) {
    const std::size_t run = span(at, USET_SPAN_CONTAINED);
    if (run > longest_unordered) {
      buffer += text.substr(done, at - done);
      append_ordered(*tables_of(form).composer, text.substr(at, run), buffer);
      done = at + run;
    }
    at += run;
    at += span(at, USET_SPAN_NOT_CONTAINED);
  }
  if (done == 0) return text;
  buffer += text.substr(done);
  return buffer;
}

std::string_view normalize(Form form, std::string_view text, std::string& buffer) {
  // Below U+0300, so with a first byte below 0xCC, everything is composed already; in NFKC below U+0080.
  const unsigned char least = form == Form::nfc ? 0xCC : 0x80;
  const auto composed = [least](char c) { return static_cast<unsigned char>(c) < least; };
  if (std::all_of(text.begin(), text.end(), composed)) return text;
  // ICU orders marks by insertion, which is quadratic in the length of a run of them; with ordered ones it is linear.
  std::string ordered;
  text = order_marks(form, text, ordered);
  const icu::Normalizer2& composer = *tables_of(form).composer;
  UErrorCode status = U_ZERO_ERROR;
  const icu::StringPiece piece(text.data(), static_cast<std::int32_t>(text.size()));
  if (composer.isNormalizedUTF8(piece, status) != 0 && U_SUCCESS(status)) {
    if (ordered.empty()) return text;
    return buffer = std::move(ordered);
  }
  status = U_ZERO_ERROR;
  buffer.clear();
  icu::StringByteSink<std::string> sink(&buffer, static_cast<std::int32_t>(text.size()));
  composer.normalizeUTF8(0, piece, sink, nullptr, status);
  TESSERA_ASSERT(U_SUCCESS(status), "ICU: %s", u_errorName(status));
  return buffer;
}

}  // namespace tessera::io::unicode
