// SPDX-License-Identifier: Apache-2.0
// Methods of strings.
#include <algorithm>

#include "io/jinja/builtins.hpp"
#include "io/jinja/operations.hpp"
#include "io/jinja/python_text.hpp"

namespace tessera::io::jinja {
namespace {

using Kind = Value::Kind;

/// An argument that must be a string.
const std::string& string_argument(Runtime& runtime, const Value& value) {
  if (!value.is(Kind::string))
    runtime.fail(std::string("a method of a string takes a string and not a ") + value.type_name());
  return value.text();
}

Value new_text(Runtime& runtime, std::string_view text) { return runtime.string(std::string(text)); }

Value texts(Runtime& runtime, const std::vector<std::string_view>& parts) {
  std::vector<Value> out;
  for (const std::string_view part : parts) out.push_back(new_text(runtime, part));
  return runtime.list(std::move(out));
}

template <Side side>
Value method_strip(Runtime& runtime, const Value& self, Bound& arguments) {
  const bool given = arguments.has(0) && !arguments[0].is(Kind::none);
  return new_text(runtime, stripped(self.text(), side, given ? &string_argument(runtime, arguments[0]) : nullptr));
}

template <Side from>
Value method_split(Runtime& runtime, const Value& self, Bound& arguments) {
  const std::int64_t limit = arguments.has(1) ? integer_of(runtime, arguments[1], "maxsplit") : -1;
  runtime.step(static_cast<std::int64_t>(self.text().size() / 64));
  if (!arguments.has(0) || arguments[0].is(Kind::none)) return texts(runtime, split_white(self.text(), limit, from));
  const std::string& separator = string_argument(runtime, arguments[0]);
  if (separator.empty()) runtime.fail("split: empty separator");
  return texts(runtime, split_at(self.text(), separator, limit, from));
}

Value method_splitlines(Runtime& runtime, const Value& self, Bound& arguments) {
  return texts(runtime, split_lines(self.text(), arguments.flag(0)));
}

/// The part that `start` and `end` arguments choose, by code points; nothing if it begins after the text.
std::optional<std::string_view> part_of(Runtime& runtime, const Value& self, const Bound& arguments, std::size_t start,
                                        std::size_t& skipped) {
  const auto size = static_cast<std::int64_t>(self.length());
  const auto bound = [&](std::size_t parameter, std::int64_t otherwise) {
    if (!arguments.has(parameter) || arguments[parameter].is(Kind::none)) return otherwise;
    const std::int64_t index = integer_of(runtime, arguments[parameter], "an index");
    return std::max<std::int64_t>(index < 0 ? index + size : index, 0);
  };
  const std::int64_t first = bound(start, 0), last = std::min(bound(start + 1, size), size);
  if (first > last) return std::nullopt;
  const std::string_view text = self.text();
  const std::size_t begin = byte_of_point(text, static_cast<std::size_t>(first));
  skipped = static_cast<std::size_t>(first);
  return text.substr(begin, byte_of_point(text.substr(begin), static_cast<std::size_t>(last - first)));
}

template <bool at_start>
Value method_affix(Runtime& runtime, const Value& self, Bound& arguments) {
  std::size_t skipped = 0;
  const auto part = part_of(runtime, self, arguments, 1, skipped);
  const auto matches = [&](const Value& affix) {
    const std::string& text = string_argument(runtime, affix);
    return part && (at_start ? part->starts_with(text) : part->ends_with(text));
  };
  if (!arguments[0].is(Kind::tuple)) return Value::of(matches(arguments[0]));
  const auto& all = arguments[0].items();
  return Value::of(std::any_of(all.begin(), all.end(), matches));
}

template <bool at_start>
Value method_remove(Runtime& runtime, const Value& self, Bound& arguments) {
  std::string_view text = self.text();
  const std::string& affix = string_argument(runtime, arguments[0]);
  if (at_start && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!at_start && text.ends_with(affix)) text.remove_suffix(affix.size());
  return new_text(runtime, text);
}

template <Side from, bool must_be>
Value method_find(Runtime& runtime, const Value& self, Bound& arguments) {
  const std::string& wanted = string_argument(runtime, arguments[0]);
  std::size_t skipped = 0;
  const auto part = part_of(runtime, self, arguments, 1, skipped);
  const std::size_t at = !part ? std::string::npos : from == Side::left ? part->find(wanted) : part->rfind(wanted);
  if (at != std::string::npos) return Value::of(static_cast<std::int64_t>(skipped + count_points(part->substr(0, at))));
  if (must_be) runtime.fail("index: substring not found");
  return Value::of(std::int64_t{-1});
}

Value method_text_count(Runtime& runtime, const Value& self, Bound& arguments) {
  const std::string& wanted = string_argument(runtime, arguments[0]);
  std::size_t skipped = 0;
  const auto part = part_of(runtime, self, arguments, 1, skipped);
  if (!part) return Value::of(std::int64_t{0});
  if (wanted.empty()) return Value::of(static_cast<std::int64_t>(count_points(*part) + 1));
  return Value::of(static_cast<std::int64_t>(split_at(*part, wanted, -1, Side::left).size() - 1));
}

Value method_replace(Runtime& runtime, const Value& self, Bound& arguments) {
  string_argument(runtime, arguments[0]);
  string_argument(runtime, arguments[1]);
  Arguments given{{arguments[0], arguments[1]}, {}};
  if (arguments.has(2)) given.positional.push_back(Value::of(integer_of(runtime, arguments[2], "count")));
  return call(runtime, *find_filter("replace"), self, given);
}

Value method_join(Runtime& runtime, const Value& self, Bound& arguments) {
  const std::vector<Value> parts = list_of(runtime, arguments[0]);
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].is(Kind::string))
      runtime.fail("join: item " + std::to_string(i) + " is a " + parts[i].type_name() + " and not a string");
    if (i > 0) out += self.text();
    out += parts[i].text();
    if (static_cast<std::int64_t>(out.size()) > runtime.options.max_output) break;  // string() refuses it
  }
  return runtime.string(std::move(out));
}

template <Side from>
Value method_partition(Runtime& runtime, const Value& self, Bound& arguments) {
  const std::string& separator = string_argument(runtime, arguments[0]);
  if (separator.empty()) runtime.fail("partition: empty separator");
  const std::string_view text = self.text();
  const std::size_t at = from == Side::left ? text.find(separator) : text.rfind(separator);
  if (at == std::string_view::npos)
    return from == Side::left ? runtime.tuple({self, new_text(runtime, ""), new_text(runtime, "")})
                              : runtime.tuple({new_text(runtime, ""), new_text(runtime, ""), self});
  return runtime.tuple(
      {new_text(runtime, text.substr(0, at)), arguments[0], new_text(runtime, text.substr(at + separator.size()))});
}

/// ljust, rjust and center: padded with `fill` on the sides that are not `text_at`.
template <Side text_at>
Value method_justify(Runtime& runtime, const Value& self, Bound& arguments) {
  const std::int64_t width = integer_of(runtime, arguments[0], "width");
  const std::string fill = arguments.has(1) ? string_argument(runtime, arguments[1]) : " ";
  if (count_points(fill) != 1) runtime.fail("the fill character must be exactly one character long");
  const std::int64_t space = width - static_cast<std::int64_t>(self.length());
  if (space <= 0) return self;
  if (space > runtime.options.max_output) runtime.fail("the width is too large");
  const std::int64_t left = text_at == Side::left    ? 0
                            : text_at == Side::right ? space
                                                     : space / 2 + (space & width & 1);
  std::string out;
  for (std::int64_t i = 0; i < left; ++i) out += fill;
  out += self.text();
  for (std::int64_t i = left; i < space; ++i) out += fill;
  return runtime.string(std::move(out));
}

Value method_zfill(Runtime& runtime, const Value& self, Bound& arguments) {
  const std::int64_t space = integer_of(runtime, arguments[0], "width") - static_cast<std::int64_t>(self.length());
  if (space <= 0) return self;
  if (space > runtime.options.max_output) runtime.fail("the width is too large");
  std::string out = self.text();
  out.insert(out.starts_with('-') || out.starts_with('+') ? 1 : 0, static_cast<std::size_t>(space), '0');
  return runtime.string(std::move(out));
}

Value method_format(Runtime& runtime, const Value& self, Bound& arguments) {
  return runtime.string(brace_format(runtime, self.text(), arguments.rest));
}

template <std::string (*function)(std::string_view)>
Value method_mapped(Runtime& runtime, const Value& self, Bound&) {
  return runtime.string(function(self.text()));
}

template <TextClass text_class>
Value method_class(Runtime&, const Value& self, Bound&) {
  return Value::of(in_text_class(text_class, self.text()));
}

constexpr Builtin table_of_text_methods[] = {
    {"strip", "chars?", method_strip<Side::both>},
    {"lstrip", "chars?", method_strip<Side::left>},
    {"rstrip", "chars?", method_strip<Side::right>},
    {"split", "sep? maxsplit?", method_split<Side::left>},
    {"rsplit", "sep? maxsplit?", method_split<Side::right>},
    {"splitlines", "keepends?", method_splitlines},
    {"startswith", "prefix start? end?", method_affix<true>},
    {"endswith", "suffix start? end?", method_affix<false>},
    {"removeprefix", "prefix", method_remove<true>},
    {"removesuffix", "suffix", method_remove<false>},
    {"find", "sub start? end?", method_find<Side::left, false>},
    {"rfind", "sub start? end?", method_find<Side::right, false>},
    {"index", "sub start? end?", method_find<Side::left, true>},
    {"rindex", "sub start? end?", method_find<Side::right, true>},
    {"count", "sub start? end?", method_text_count},
    {"replace", "old new count?", method_replace},
    {"join", "iterable", method_join},
    {"partition", "sep", method_partition<Side::left>},
    {"rpartition", "sep", method_partition<Side::right>},
    {"ljust", "width fillchar?", method_justify<Side::left>},
    {"rjust", "width fillchar?", method_justify<Side::right>},
    {"center", "width fillchar?", method_justify<Side::both>},
    {"zfill", "width", method_zfill},
    {"format", "* **", method_format},
    {"upper", "", method_mapped<upper>},
    {"lower", "", method_mapped<lower>},
    {"title", "", method_mapped<title_cased>},
    {"capitalize", "", method_mapped<capitalized>},
    {"swapcase", "", method_mapped<swapped_case>},
    {"isspace", "", method_class<TextClass::space>},
    {"isalpha", "", method_class<TextClass::alpha>},
    {"isascii", "", method_class<TextClass::ascii>},
    {"isdecimal", "", method_class<TextClass::decimal>},
    {"isdigit", "", method_class<TextClass::digit>},
    {"isnumeric", "", method_class<TextClass::numeric>},
    {"isalnum", "", method_class<TextClass::alnum>},
    {"isupper", "", method_class<TextClass::upper>},
    {"islower", "", method_class<TextClass::lower>},
};

}  // namespace

std::span<const Builtin> text_methods() { return table_of_text_methods; }

}  // namespace tessera::io::jinja
