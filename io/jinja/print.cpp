// SPDX-License-Identifier: Apache-2.0
// str(), repr() and json.dumps() of values.
#include <algorithm>
#include <cmath>

#include "io/jinja/operations.hpp"
#include "io/jinja/python_text.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io::jinja {
namespace {

using Kind = Value::Kind;

void append_repr(Runtime& runtime, std::string& out, const Value& value);

void check_size(Runtime& runtime, const std::string& out) {
  runtime.step();
  if (static_cast<std::int64_t>(out.size()) > runtime.options.max_output)
    runtime.fail("a string has more than " + std::to_string(runtime.options.max_output) + " bytes");
}

void append_items(Runtime& runtime, std::string& out, const std::vector<Value>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(runtime, out, items[i]);
  }
}

void append_entries(Runtime& runtime, std::string& out, const Dict& dict) {
  out += '{';
  for (std::size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(runtime, out, dict.entries[i].first);
    out += ": ";
    append_repr(runtime, out, dict.entries[i].second);
  }
  out += '}';
}

void append_view(Runtime& runtime, std::string& out, const Value& view) {
  constexpr const char* names[] = {"dict_keys", "dict_values", "dict_items"};
  out += names[static_cast<int>(view.as<View>().of)];
  out += "([";
  append_items(runtime, out, list_of(runtime, view));
  out += "])";
}

void append_range(std::string& out, const Range& range) {
  out += "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
  out += range.step == 1 ? ")" : ", " + std::to_string(range.step) + ")";
}

void append_repr(Runtime& runtime, std::string& out, const Value& value) {
  const Runtime::Nested nested(runtime);
  check_size(runtime, out);
  switch (value.kind()) {
    case Kind::undefined: out += "Undefined"; return;
    case Kind::none: out += "None"; return;
    case Kind::boolean: out += value.boolean() ? "True" : "False"; return;
    case Kind::integer: out += std::to_string(value.integer()); return;
    case Kind::big_integer: out += value.text(); return;
    case Kind::real: out += repr_of(value.real()); return;
    case Kind::string: out += repr_of(std::string_view(value.text())); return;
    case Kind::list:
      out += '[';
      append_items(runtime, out, value.items());
      out += ']';
      return;
    case Kind::tuple:
      out += '(';
      append_items(runtime, out, value.items());
      out += value.items().size() == 1 ? ",)" : ")";
      return;
    case Kind::dict: append_entries(runtime, out, value.dict()); return;
    case Kind::view: append_view(runtime, out, value); return;
    case Kind::range: append_range(out, value.as<Range>()); return;
    case Kind::name_space:
      out += "<Namespace ";
      append_entries(runtime, out, value.as<Namespace>().attributes);
      out += '>';
      return;
    default: break;
  }
  // Python prints addresses of these.
  runtime.fail(std::string("a ") + value.type_name() + " has no text",
               value.is(Kind::iterator) ? "Add |list to read its items" : "Call it");
}

/// A text in quotes, as json.dumps has it.
void append_quoted(std::string& out, std::string_view text, bool ascii) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const utf8::Point point = utf8::read(text.data() + at);
    const auto code = static_cast<unsigned>(point.code);
    constexpr std::string_view special = "\"\\\n\r\t\f\b", letters = "\"\\nrtfb";
    if (const auto i = code < 0x80 ? special.find(static_cast<char>(code)) : std::string_view::npos; i != special.npos)
      (out += '\\') += letters[i];
    else if (code < 0x20 || (ascii && code >= 0x7F && code < 0x10000 && code != 0x7F)) out += strfmt("\\u%04x", code);
    else if (ascii && code >= 0x10000)
      out += strfmt("\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF));
    else out += text.substr(at, static_cast<std::size_t>(point.length));
    at += static_cast<std::size_t>(point.length);
  }
  out += '"';
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  void write(const Value& value) {
    const Runtime::Nested nested(runtime_);
    check_size(runtime_, out);
    switch (value.kind()) {
      case Kind::string: append_quoted(out, value.text(), style_.ascii); return;
      case Kind::list:
      case Kind::tuple: write_list(value.items()); return;
      case Kind::dict: write_dict(value.dict()); return;
      default: out += scalar(value); return;
    }
  }
  std::string out;

 private:
  [[nodiscard]] std::string scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::none: return "null";
      case Kind::boolean: return value.boolean() ? "true" : "false";
      case Kind::integer: return std::to_string(value.integer());
      case Kind::big_integer: return value.text();
      case Kind::real:
        if (std::isnan(value.real())) return "NaN";
        if (std::isinf(value.real())) return value.real() < 0 ? "-Infinity" : "Infinity";
        return repr_of(value.real());
      default: runtime_.fail(std::string("tojson: a value of type ") + value.type_name() + " is not JSON");
    }
  }

  void separate(bool first) {
    if (!first) out += style_.item_separator;
    if (!style_.indent) return;
    out += '\n';
    for (int i = 0; i < level_; ++i) out += *style_.indent;
  }

  void write_list(const std::vector<Value>& items) {
    out += '[';
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      separate(i == 0);
      write(items[i]);
    }
    --level_;
    if (style_.indent && !items.empty()) separate(true);
    out += ']';
  }

  void write_dict(const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return compare(runtime_, Comparison::less, a->first, b->first);
      });
    out += '{';
    ++level_;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      separate(i == 0);
      const Value& key = entries[i]->first;
      append_quoted(out, key.is(Kind::string) ? key.text() : scalar(key), style_.ascii);
      out += style_.key_separator;
      write(entries[i]->second);
    }
    --level_;
    if (style_.indent && !entries.empty()) separate(true);
    out += '}';
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  int level_ = 0;
};

}  // namespace

void append_text(Runtime& runtime, std::string& out, const Value& value) {
  if (value.is(Kind::string)) out += value.text();
  else if (!value.is(Kind::undefined)) append_repr(runtime, out, value);
}

std::string text_of(Runtime& runtime, const Value& value) {
  std::string out;
  append_text(runtime, out, value);
  return out;
}

std::string repr_of(Runtime& runtime, const Value& value) {
  std::string out;
  append_repr(runtime, out, value);
  return out;
}

std::string json_text(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.write(value);
  return std::move(writer.out);
}

}  // namespace tessera::io::jinja
