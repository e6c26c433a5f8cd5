// SPDX-License-Identifier: Apache-2.0
// A SAX parser: a vocabulary of 150,000 tokens is never built as a JSON tree.

#include "io/tokenizer/tokenizer_json.hpp"

#include <set>

#include "io/file/file.hpp"

namespace tessera::io {

namespace {

using Tree = nlohmann::ordered_json;

class TokenizerEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  TokenizerEvents(TokenizerJson& out, const std::string& where) : out_(out), where_(where) {}

  bool null() override { return value(nullptr); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return list_ == List::vocab ? token(v) : value(v); }
  bool number_unsigned(number_unsigned_t v) override {
    if (list_ == List::vocab && v > 0x7FFFFFFFu) throw refuse("an id beyond 31 bits: " + std::to_string(v));
    return list_ == List::vocab ? token(static_cast<std::int64_t>(v)) : value(v);
  }
  bool number_float(number_float_t v, const string_t&) override { return value(v); }
  bool string(string_t& v) override {
    if (list_ != List::merges) return value(v);
    if (inside_pair_) {
      pair_.push_back(v);
      return true;
    }
    if (v.rfind("#version", 0) == 0) return true;  // the first line of merges.txt
    const std::size_t blank = v.find(' ');
    if (blank == v.npos || v.find(' ', blank + 1) != v.npos)
      throw refuse("the merge " + quote_name(v) + " is not two tokens");
    out_.merges.emplace_back(v.substr(0, blank), v.substr(blank + 1));
    return true;
  }
  bool binary(binary_t&) override { return value(nullptr); }

  bool start_object(std::size_t) override {
    if (list_ == List::vocab || list_ == List::merges) throw refuse(std::string("a table inside ") + name_of_list());
    if (in_model("vocab")) {
      list_ = List::vocab;
      return true;
    }
    return push(Tree::object());
  }
  bool key(string_t& key) override {
    if (list_ != List::vocab && !keys_.back().insert(key).second)
      throw refuse("the key " + quote_name(key) + " occurs twice");
    key_ = key;
    return true;
  }
  bool end_object() override {
    if (list_ != List::vocab) return pop();
    list_ = List::none;
    return true;
  }
  bool start_array(std::size_t) override {
    if (list_ == List::vocab) throw refuse("a list inside the vocabulary");
    if (list_ == List::merges) {
      if (inside_pair_) throw refuse("a merge is a list of lists");
      inside_pair_ = true;
      pair_.clear();
      return true;
    }
    if (in_model("merges")) {
      list_ = List::merges;
      return true;
    }
    return push(Tree::array());
  }
  bool end_array() override {
    if (list_ != List::merges) return pop();
    if (!inside_pair_) {
      list_ = List::none;
      return true;
    }
    if (pair_.size() != 2) throw refuse("a merge of " + std::to_string(pair_.size()) + " tokens");
    out_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
    inside_pair_ = false;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw refuse("not JSON at byte " + std::to_string(position));
  }

 private:
  enum class List : unsigned char { none, vocab, merges };

  [[nodiscard]] Error refuse(const std::string& what) const {
    return Error(ExitCode::data, "this tokenizer.json is damaged: " + what, where_, "Fetch the file again");
  }
  [[nodiscard]] const char* name_of_list() const { return list_ == List::vocab ? "the vocabulary" : "the merges"; }
  /// True if the next value is model.NAME.
  [[nodiscard]] bool in_model(const char* name) const {
    return open_.size() == 2 && path_[1] == "model" && key_ == name;
  }
  bool token(std::int64_t id) {
    out_.vocab.emplace_back(std::move(key_), id);
    return true;
  }
  template <class T>
  bool value(T&& v) {
    if (list_ == List::vocab) throw refuse("the token " + quote_name(key_) + " has no integer id");
    if (list_ == List::merges) throw refuse("a merge that is not text");
    attach(Tree(std::forward<T>(v)));
    return true;
  }
  Tree* attach(Tree&& v) {
    if (open_.empty()) return &(out_.tree = std::move(v));
    if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(v));
    return &((*open_.back())[key_] = std::move(v));
  }
  bool push(Tree&& v) {
    if (open_.size() >= 64) throw refuse("it is nested deeper than 64 levels");
    path_.push_back(open_.empty() ? "" : key_);
    open_.push_back(attach(std::move(v)));
    keys_.emplace_back();
    return true;
  }
  bool pop() {
    open_.pop_back();
    path_.pop_back();
    keys_.pop_back();
    return true;
  }

  TokenizerJson& out_;
  const std::string& where_;
  std::vector<Tree*>
      open_;  // enclosing objects and lists; values are added only to the innermost, so the pointers stay valid
  std::vector<std::string> path_;  // the key of each
  std::vector<std::set<std::string>> keys_;
  std::vector<std::string> pair_;
  std::string key_;
  List list_ = List::none;
  bool inside_pair_ = false;
};

}  // namespace

TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& where) {
  TokenizerJson parsed;
  TokenizerEvents events(parsed, where);
  if (text.find('\0') != text.npos)  // the parser would stop there
    throw Error(ExitCode::data, "this tokenizer.json is damaged: it holds a zero byte", where, "Fetch the file again");
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  if (!parsed.tree.is_object())
    throw Error(ExitCode::data, "this tokenizer.json is damaged: it is not an object", where, "Fetch the file again");
  return parsed;
}

}  // namespace tessera::io
