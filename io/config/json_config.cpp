// SPDX-License-Identifier: Apache-2.0
// JSON configuration files: SAX events to ConfigNode, with line numbers, which the parser does not give.

#include <nlohmann/json.hpp>

#include "io/config/yaml.hpp"
#include "io/file/file.hpp"

namespace tessera::io {

namespace {

using Kind = ConfigNode::Kind;

/// The line of the parser's position. `last_line` is the line one character earlier: the parser reads one character
/// past the end of a number.
struct Position {
  int line = 1, last_line = 1;
};

/// Input iterator over the text that advances a Position.
class Counting {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Counting(const char* at, Position* position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  Counting& operator++() {
    position_->last_line = position_->line;
    if (*at_ == '\n') ++position_->line;
    ++at_;
    return *this;
  }
  Counting operator++(int) {
    Counting before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const Counting& a, const Counting& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  Position* position_;
};

class TreeEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeEvents(const std::string& source, const Position& position) : source_(source), position_(position) {}
  [[nodiscard]] ConfigNode take() { return std::move(root_); }

  bool null() override { return put({.kind = Kind::null, .line = position_.line}); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return scalar(std::to_string(value), position_.last_line); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(std::to_string(value), position_.last_line); }
  bool number_float(number_float_t, const string_t& text) override { return scalar(text, position_.last_line); }
  bool string(string_t& value) override {
    return put({.kind = Kind::scalar, .text = std::move(value), .line = position_.line, .quoted = true});
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Kind::map); }
  bool start_array(std::size_t) override { return open(Kind::list); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (const ConfigNode* before = open_.back()->find(name); before != nullptr)
      throw refuse(position_.line, quote_name(name) + strfmt(" is given twice (before in line %d)", before->line));
    if (open_.back()->entries.size() == max_config_entries)
      throw refuse(position_.line, strfmt("a table of more than %zu entries", max_config_entries));
    open_.back()->entries.push_back({name, ConfigNode{.line = position_.line}});
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    const std::string text = error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: WHY"
    const auto why = text.find(": ");
    throw refuse(position_.line, "not JSON: " + (why == text.npos ? text : text.substr(why + 2)));
  }

 private:
  [[nodiscard]] Error refuse(int line, const std::string& what) const {
    return Error(ExitCode::usage, what, source_ + ":" + std::to_string(line));
  }
  bool scalar(std::string text, int line) { return put({.kind = Kind::scalar, .text = std::move(text), .line = line}); }
  bool scalar(std::string text) { return scalar(std::move(text), position_.line); }

  /// Adds the next value's node. The tree is built from the top, so that open_ points to nodes that do not
  /// move: only the innermost one grows.
  bool put(ConfigNode node) {
    insert(std::move(node));
    return true;
  }
  ConfigNode* insert(ConfigNode node) {
    if (open_.empty()) {
      if (node.kind != Kind::map) throw refuse(node.line, "the file is not a table of options");
      return &(root_ = std::move(node));
    }
    ConfigNode& parent = *open_.back();
    if (parent.kind == Kind::list) return &parent.items.emplace_back(std::move(node));
    ConfigNode& value = parent.entries.back().second;
    node.line = value.line;  // the line of the key
    return &(value = std::move(node));
  }
  bool open(Kind kind) {
    if (open_.size() > max_config_depth)
      throw refuse(position_.line, strfmt("nested more than %d deep", max_config_depth));
    open_.push_back(insert({.kind = kind, .line = position_.line}));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& source_;
  const Position& position_;
  ConfigNode root_;
  std::vector<ConfigNode*> open_;
};

}  // namespace

ConfigNode parse_json_config(const std::string& text, const std::string& source) {
  const auto refuse = [&](const std::string& what) { return Error(ExitCode::usage, what, source); };
  if (text.size() > max_config_bytes) throw refuse(strfmt("longer than %zu bytes", max_config_bytes));
  if (text.find('\0') != text.npos) throw refuse("not JSON: a zero byte");  // the parser would stop there
  if (text.find_first_not_of(" \t\r\n") == text.npos) return ConfigNode{.kind = Kind::map, .line = 1};
  Position position;
  TreeEvents events(source, position);
  nlohmann::json::sax_parse(Counting(text.data(), &position), Counting(text.data() + text.size(), &position), &events,
                            nlohmann::json::input_format_t::json, true, true);
  return events.take();
}

}  // namespace tessera::io
