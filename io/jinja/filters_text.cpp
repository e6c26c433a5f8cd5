// SPDX-License-Identifier: Apache-2.0
// Filters of texts, and of any value to text.
#include <algorithm>

#include "io/jinja/builtins.hpp"
#include "io/jinja/operations.hpp"
#include "io/jinja/python_text.hpp"

namespace tessera::io::jinja {
namespace {

using Kind = Value::Kind;

std::string replaced(Runtime& runtime, std::string_view text, std::string_view old, std::string_view with,
                     std::int64_t count) {
  std::string out;
  const auto add = [&](std::string_view part) {
    out += part;
    if (static_cast<std::int64_t>(out.size()) > runtime.options.max_output)
      runtime.fail("a string has more than " + std::to_string(runtime.options.max_output) + " bytes");
  };
  std::size_t at = 0;
  for (; count != 0; --count) {
    std::size_t found = text.find(old, at);
    if (found == std::string_view::npos) break;
    if (old.empty()) {  // before every code point, and at the end
      add(with);
      if (at == text.size()) return out;
      const std::size_t length = byte_of_point(text.substr(at), 1);
      add(text.substr(at, length));
      at += length;
      continue;
    }
    add(text.substr(at, found - at));
    add(with);
    at = found + old.size();
  }
  add(text.substr(at));
  return out;
}

Value filter_trim(Runtime& runtime, const Value& self, Bound& arguments) {
  const std::string text = text_of(runtime, self);
  if (!arguments.has(0) || arguments[0].is(Kind::none)) return runtime.string(std::string(stripped(text, Side::both)));
  const std::string characters = text_of(runtime, arguments[0]);
  return runtime.string(std::string(stripped(text, Side::both, &characters)));
}

Value filter_replace(Runtime& runtime, const Value& self, Bound& arguments) {
  const bool limited = arguments.has(2) && !arguments[2].is(Kind::none);
  return runtime.string(replaced(runtime, text_of(runtime, self), text_of(runtime, arguments[0]),
                                 text_of(runtime, arguments[1]),
                                 limited ? integer_of(runtime, arguments[2], "count") : -1));
}

/// Jinja's: the first letter after white space or one of - ( { [ < is a capital, all others are small.
Value filter_title(Runtime& runtime, const Value& self, Bound&) {
  const std::string text = text_of(runtime, self);
  const auto separates = [](char32_t c) {
    return is_white(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
  };
  std::string out, word;
  const auto flush = [&] {
    if (word.empty()) return;
    const std::size_t first = byte_of_point(word, 1);
    out += upper(word.substr(0, first)) + lower(word.substr(first));
    word.clear();
  };
  for (const char32_t c : to_points(text)) {
    if (separates(c)) flush();
    (separates(c) ? out : word) += from_points({&c, 1});
  }
  flush();
  return runtime.string(std::move(out));
}

Value filter_indent(Runtime& runtime, const Value& self, Bound& arguments) {
  const Value width = arguments.get(0, Value::of(std::int64_t{4}));
  if (!self.is(Kind::string)) runtime.fail(std::string("indent takes a text and not a ") + self.type_name());
  const std::int64_t columns =
      width.is(Kind::string) ? 0 : std::clamp<std::int64_t>(integer_of(runtime, width, "width"), 0, 1 << 20);
  const std::string indent =
      width.is(Kind::string) ? width.text() : std::string(static_cast<std::size_t>(columns), ' ');
  const std::string text = self.text() + "\n";
  const auto lines = split_lines(text, false);
  runtime.charge(lines.size() * indent.size());
  std::string out = arguments.flag(1) ? indent : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (arguments.flag(2) || !lines[i].empty())) out += indent;
    out += lines[i];
  }
  return runtime.string(std::move(out));
}

Value filter_center(Runtime& runtime, const Value& self, Bound& arguments) {
  std::string text = text_of(runtime, self);
  const std::int64_t width = arguments.has(0) ? integer_of(runtime, arguments[0], "width") : 80;
  if (width > runtime.options.max_output) runtime.fail("center: the width is too large");
  const std::int64_t space = width - static_cast<std::int64_t>(count_points(text));
  if (space <= 0) return runtime.string(std::move(text));
  const std::int64_t left = space / 2 + (space & width & 1);
  return runtime.string(std::string(static_cast<std::size_t>(left), ' ') + text +
                        std::string(static_cast<std::size_t>(space - left), ' '));
}

Value filter_truncate(Runtime& runtime, const Value& self, Bound& arguments) {
  if (self.is(Kind::undefined)) return self;
  if (!self.is(Kind::string)) runtime.fail(std::string("truncate takes a text and not a ") + self.type_name());
  const std::u32string text = to_points(text_of(runtime, self)),
                       end = to_points(arguments.has(2) ? text_of(runtime, arguments[2]) : "...");
  const std::int64_t length = arguments.has(0) ? integer_of(runtime, arguments[0], "length") : 255;
  const bool given = arguments.has(3) && !arguments[3].is(Kind::none);
  const std::int64_t leeway = given ? integer_of(runtime, arguments[3], "leeway") : 5;
  const auto size = static_cast<std::int64_t>(text.size()), keeps = length - static_cast<std::int64_t>(end.size());
  if (keeps < 0 || leeway < 0) runtime.fail("truncate: the length is below that of the end, or the leeway is negative");
  if (size <= length + leeway) return runtime.string(from_points(text));
  std::u32string out = text.substr(0, static_cast<std::size_t>(keeps));
  if (!arguments.flag(1)) out = out.substr(0, out.rfind(U' '));
  return runtime.string(from_points(out + end));
}

Value filter_wordcount(Runtime& runtime, const Value& self, Bound&) {
  std::int64_t count = 0;
  bool inside = false;
  for (const char32_t c : to_points(text_of(runtime, self))) {
    const bool word = c == '_' || in_text_class(TextClass::alnum, from_points({&c, 1}));
    count += word && !inside;
    inside = word;
  }
  return Value::of(count);
}

Value filter_tojson(Runtime& runtime, const Value& self, Bound& arguments) {
  JsonStyle style;
  style.ascii = arguments.flag(0);
  if (arguments.has(1) && !arguments[1].is(Kind::none)) {
    const Value& indent = arguments[1];
    const std::int64_t width =
        indent.is(Kind::string) ? 0 : std::clamp<std::int64_t>(integer_of(runtime, indent, "indent"), 0, 1000);
    style.indent = indent.is(Kind::string) ? indent.text() : std::string(static_cast<std::size_t>(width), ' ');
    style.item_separator = ",";
  }
  if (arguments.has(2) && !arguments[2].is(Kind::none)) {
    const std::vector<Value> separators = list_of(runtime, arguments[2]);
    if (separators.size() != 2 || !separators[0].is(Kind::string) || !separators[1].is(Kind::string))
      runtime.fail("tojson: separators are two strings, of items and of keys");
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  style.sort_keys = arguments.flag(3);
  return runtime.string(json_text(runtime, self, style));
}

Value filter_format(Runtime& runtime, const Value& self, Bound& arguments) {
  if (!arguments.rest.named.empty() && !arguments.rest.positional.empty())
    runtime.fail("format: positional and named arguments cannot be used together");
  if (arguments.rest.named.empty())
    return runtime.string(percent_format(runtime, text_of(runtime, self), runtime.tuple(arguments.rest.positional)));
  auto named = make_object<Dict>();
  for (auto& [name, value] : arguments.rest.named) runtime.set(*named, runtime.string(name), value);
  return runtime.string(percent_format(runtime, text_of(runtime, self), runtime.dict(named)));
}

template <std::string (*function)(std::string_view)>
Value filter_mapped(Runtime& runtime, const Value& self, Bound&) {
  return runtime.string(function(text_of(runtime, self)));
}

Value filter_string(Runtime& runtime, const Value& self, Bound&) {
  return self.is(Kind::string) ? self : runtime.string(text_of(runtime, self));
}

Value filter_safe(Runtime& runtime, const Value& self, Bound&) { return runtime.safe_string(text_of(runtime, self)); }

constexpr Builtin table_of_text_filters[] = {
    {"trim", "chars?", filter_trim},
    {"replace", "old new count?", filter_replace},
    {"upper", "", filter_mapped<upper>},
    {"lower", "", filter_mapped<lower>},
    {"capitalize", "", filter_mapped<capitalized>},
    {"title", "", filter_title},
    {"indent", "width? first? blank?", filter_indent},
    {"center", "width?", filter_center},
    {"truncate", "length? killwords? end? leeway?", filter_truncate},
    {"wordcount", "", filter_wordcount},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", filter_tojson},
    {"format", "* **", filter_format},
    {"string", "", filter_string},
    {"safe", "", filter_safe},
};

}  // namespace

std::span<const Builtin> text_filters() { return table_of_text_filters; }

}  // namespace tessera::io::jinja
