// SPDX-License-Identifier: Apache-2.0
// YAML configuration files: libyaml's events to ConfigNode. Everything but maps, lists and scalars is refused by name.

#include "io/config/yaml.hpp"

#include <yaml.h>

#include <algorithm>
#include <string_view>

#include "io/file/file.hpp"
#include "io/file/text_file.hpp"

namespace tessera::io {

namespace {

using Kind = ConfigNode::Kind;

Error yaml_error(const std::string& source, std::size_t line, const std::string& what, const std::string& to_do = {}) {
  return Error(ExitCode::usage, what, source + ":" + std::to_string(line), to_do);
}

/// libyaml's parser, one event at a time.
class Events {
 public:
  Events(const std::string& text, const std::string& source) : source_(source) {
    if (yaml_parser_initialize(&parser_) == 0) throw std::bad_alloc();
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  Events(const Events&) = delete;
  ~Events() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }

  /// The next event; valid until the next call. Throws on a syntax error.
  const yaml_event_t& next() {
    yaml_event_delete(&event_);
    event_ = {};
    if (yaml_parser_parse(&parser_, &event_) != 0) return event_;
    if (parser_.error == YAML_MEMORY_ERROR) throw std::bad_alloc();
    const std::size_t line = parser_.problem_mark.line + 1;
    std::string why = parser_.problem != nullptr ? parser_.problem : "malformed";
    if (parser_.context != nullptr) why += std::string(" ") + parser_.context;
    throw yaml_error(source_, line, "not YAML: " + why);
  }
  [[nodiscard]] std::size_t line() const { return event_.start_mark.line + 1; }

 private:
  const std::string& source_;
  yaml_parser_t parser_{};
  yaml_event_t event_{};
};

class YamlReader {
 public:
  YamlReader(const std::string& text, const std::string& source) : events_(text, source), source_(source) {}

  ConfigNode document() {
    events_.next();  // the stream's start
    const yaml_event_t* event = &events_.next();
    if (event->type == YAML_STREAM_END_EVENT) return ConfigNode{.kind = Kind::map, .line = 1};
    if (event->data.document_start.tag_directives.start != event->data.document_start.tag_directives.end)
      throw error_here("tags are not read", "Drop the %TAG line");
    event = &events_.next();
    ConfigNode root = node(*event, 0);
    if (root.kind == Kind::null) root = ConfigNode{.kind = Kind::map, .line = 1};  // only comments
    if (root.kind != Kind::map)
      throw yaml_error(source_, static_cast<std::size_t>(root.line), "the file is not a table of options",
                       "Write one \"option: value\" a line");
    events_.next();  // the document's end
    if (events_.next().type != YAML_STREAM_END_EVENT)
      throw error_here("a second document in the file", "Write one file for each");
    return root;
  }

 private:
  [[nodiscard]] Error error_here(const std::string& what, const std::string& to_do = {}) const {
    return yaml_error(source_, events_.line(), what, to_do);
  }
  void refuse_extras(const yaml_char_t* anchor, const yaml_char_t* tag) const {
    if (anchor != nullptr) throw error_here("anchors (&name) are not read", "Write the value where it is used");
    if (tag != nullptr) throw error_here("tags (!type) are not read", "Types come from the options");
  }

  ConfigNode node(const yaml_event_t& event, int depth) {
    if (depth > max_config_depth) throw error_here(strfmt("nested more than %d deep", max_config_depth));
    switch (event.type) {
      case YAML_SCALAR_EVENT: return scalar(event);
      case YAML_SEQUENCE_START_EVENT: return list(event, depth);
      case YAML_MAPPING_START_EVENT: return map(event, depth);
      case YAML_ALIAS_EVENT: throw error_here("aliases (*name) are not read", "Write the value out");
      default: throw error_here("not YAML that can be read here");
    }
  }

  ConfigNode scalar(const yaml_event_t& event) {
    const auto& s = event.data.scalar;
    refuse_extras(s.anchor, s.tag);
    ConfigNode n{.kind = Kind::scalar, .line = static_cast<int>(events_.line())};
    n.text.assign(reinterpret_cast<const char*>(s.value), s.length);
    n.quoted = s.style != YAML_PLAIN_SCALAR_STYLE;
    const bool null = n.text.empty() || n.text == "~" || n.text == "null" || n.text == "Null" || n.text == "NULL";
    if (!n.quoted && null) n = ConfigNode{.kind = Kind::null, .line = n.line};
    return n;
  }

  ConfigNode list(const yaml_event_t& event, int depth) {
    refuse_extras(event.data.sequence_start.anchor, event.data.sequence_start.tag);
    ConfigNode n{.kind = Kind::list, .line = static_cast<int>(events_.line())};
    for (const yaml_event_t* e = &events_.next(); e->type != YAML_SEQUENCE_END_EVENT; e = &events_.next())
      n.items.push_back(node(*e, depth + 1));
    return n;
  }

  ConfigNode map(const yaml_event_t& event, int depth) {
    refuse_extras(event.data.mapping_start.anchor, event.data.mapping_start.tag);
    ConfigNode n{.kind = Kind::map, .line = static_cast<int>(events_.line())};
    for (const yaml_event_t* e = &events_.next(); e->type != YAML_MAPPING_END_EVENT; e = &events_.next()) {
      if (e->type == YAML_ALIAS_EVENT) throw error_here("aliases (*name) are not read", "Write the value out");
      if (e->type != YAML_SCALAR_EVENT) throw error_here("a key that is not a single word");
      const ConfigNode key = scalar(*e);
      if (key.kind == Kind::null) throw error_here("a key that is empty");
      if (!key.quoted && key.text == "<<") throw error_here("merge keys (<<) are not read", "Write the values out");
      add_entry(n, key.text, key.line, source_);
      ConfigNode value = node(events_.next(), depth + 1);
      value.line = key.line;
      n.entries.back().second = std::move(value);
    }
    return n;
  }

 public:
  /// A new entry without a value; refuses a repeated key.
  static void add_entry(ConfigNode& map, const std::string& key, int line, const std::string& source) {
    if (const ConfigNode* before = map.find(key); before != nullptr)
      throw yaml_error(source, static_cast<std::size_t>(line),
                       quote_name(key) + strfmt(" is given twice (before in line %d)", before->line),
                       "Keep one of them");
    if (map.entries.size() == max_config_entries)
      throw yaml_error(source, static_cast<std::size_t>(line),
                       strfmt("a table of more than %zu entries", max_config_entries));
    map.entries.push_back({key, ConfigNode{.line = line}});
  }

 private:
  Events events_;
  const std::string& source_;
};

}  // namespace

const ConfigNode* ConfigNode::find(const std::string& key) const {
  const auto at = std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == key; });
  return at == entries.end() ? nullptr : &at->second;
}

ConfigNode parse_yaml(const std::string& text, const std::string& source) {
  if (text.size() > max_config_bytes) throw yaml_error(source, 1, strfmt("longer than %zu bytes", max_config_bytes));
  // libyaml counts a byte order mark as a column, so that the lines below the first would be indented less.
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  const bool marked = text.starts_with(mark);
  return YamlReader(marked ? text.substr(mark.size()) : text, source).document();
}

ConfigNode read_config(const std::string& path) {
  const std::string text = read_text(path, max_config_bytes);
  if (text.empty())
    throw Error(ExitCode::usage, "the configuration file is empty", path,
                "Write it again; one that sets nothing may have a comment, or {}");
  return path.ends_with(".json") ? parse_json_config(text, path) : parse_yaml(text, path);
}

}  // namespace tessera::io
