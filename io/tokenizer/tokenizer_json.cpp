// SPDX-License-Identifier: Apache-2.0
// A SAX parser that refuses keys that occur twice; it does not see the large tables.

#include "io/tokenizer/tokenizer_json.hpp"

#include <set>

#include "io/file/file.hpp"
#include "io/tokenizer/token_tables.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io {

namespace {

using Tree = nlohmann::ordered_json;

class TokenizerEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  TokenizerEvents(Tree& out, const TokenTableReader& tables, const std::string& where)
      : out_(out), tables_(tables), where_(where) {}

  bool null() override { return value(nullptr); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return value(v); }
  bool number_unsigned(number_unsigned_t v) override { return value(v); }
  bool number_float(number_float_t v, const string_t&) override { return value(v); }
  bool string(string_t& v) override { return value(v); }
  bool binary(binary_t&) override { return value(nullptr); }

  bool start_object(std::size_t) override { return push(Tree::object()); }
  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second)
      throw damaged_tokenizer("the key " + quote_name(key) + " occurs twice", where_);
    key_ = key;
    return true;
  }
  bool end_object() override { return pop(); }
  bool start_array(std::size_t) override { return push(Tree::array()); }
  bool end_array() override { return pop(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw damaged_tokenizer("not JSON at byte " + std::to_string(tables_.place(position)), where_);
  }

 private:
  template <class T>
  bool value(T&& v) {
    attach(Tree(std::forward<T>(v)));
    return true;
  }
  Tree* attach(Tree&& v) {
    if (open_.empty()) return &(out_ = std::move(v));
    if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(v));
    return &((*open_.back())[key_] = std::move(v));
  }
  bool push(Tree&& v) {
    if (open_.size() >= 64) throw damaged_tokenizer("it is nested deeper than 64 levels", where_);
    open_.push_back(attach(std::move(v)));
    keys_.emplace_back();
    return true;
  }
  bool pop() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  Tree& out_;
  const TokenTableReader& tables_;
  const std::string& where_;
  std::vector<Tree*>
      open_;  // enclosing objects and lists; values are added only to the innermost, so the pointers stay valid
  std::vector<std::set<std::string>> keys_;
  std::string key_;
};

}  // namespace

TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& where) {
  if (text.find('\0') != text.npos)  // the parser would stop there
    throw damaged_tokenizer("it holds a zero byte", where);
  if (const std::size_t valid = utf8::valid_prefix(text); valid != text.size())
    throw damaged_tokenizer("not JSON at byte " + std::to_string(valid + 1), where);
  TokenizerJson parsed;
  TokenTableReader tables(text, where, parsed);
  const std::string rest = tables.rest();
  TokenizerEvents events(parsed.tree, tables, where);
  nlohmann::json::sax_parse(rest.begin(), rest.end(), &events);
  if (!parsed.tree.is_object()) throw damaged_tokenizer("it is not an object", where);
  return parsed;
}

}  // namespace tessera::io
