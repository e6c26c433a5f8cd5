// SPDX-License-Identifier: Apache-2.0
// Reads a regular expression of Oniguruma's syntax as far as needed to find its classes.

#include "io/tokenizer/regex_classes.hpp"

#include <algorithm>
#include <vector>

#include "io/tokenizer/unicode_ranges.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

namespace {

using unicode::Range;

constexpr const char* category_names[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                          "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                          "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs"};

/// Code points of the categories that a name of one or two letters means.
std::vector<Range> category(std::string_view name) {
  const auto means = [name](unsigned which) { return std::string_view(category_names[which]).starts_with(name); };
  std::vector<Range> found;
  const std::span<const std::uint32_t> runs = unicode::category_runs();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::uint32_t which = runs[i] & 31, first = runs[i] >> 5;
    const std::uint32_t last = (i + 1 < runs.size() ? runs[i + 1] >> 5 : 0x110000) - 1;
    if (which == unicode::Cs || !means(which)) continue;  // no text has surrogates
    if (!found.empty() && found.back().last + 1 == first) found.back().last = last;
    else found.push_back({first, last});
  }
  return found;
}

std::string spelled(std::span<const Range> ranges) {
  std::string out;
  for (const Range& range : ranges)
    out +=
        range.first == range.last ? strfmt("\\x{%X}", range.first) : strfmt("\\x{%X}-\\x{%X}", range.first, range.last);
  return out;
}

class ClassWriter {
 public:
  explicit ClassWriter(std::string_view regex) : regex_(regex) {}

  [[nodiscard]] std::string write() {
    while (at_ < regex_.size()) {
      const char c = regex_[at_];
      if (c == '\\') escape();
      else if (c == '[') open_class();
      else if (depth_ > 0) inside_class(c);
      else if (c == '(') open_group();
      else if (c == ')') close_group();
      else copy(1);
    }
    return std::move(out_);
  }

 private:
  [[nodiscard]] std::string_view rest() const { return regex_.substr(at_); }
  void copy(std::size_t count) {
    const std::string_view part = regex_.substr(at_, count);
    if (ignore_case_ && std::any_of(part.begin(), part.end(), [](char c) { return (c & 0x80) != 0; }))
      throw UnsupportedRegex("a character beyond ASCII whose case is ignored");
    out_ += part;
    at_ += part.size();
  }

  void ranges(std::span<const Range> of, bool complement) {
    if (complement) out_ += "[^" + spelled(of) + "]";
    else out_ += depth_ > 0 ? spelled(of) : "[" + spelled(of) + "]";
  }

  void escape() {
    if (at_ + 1 >= regex_.size()) throw UnsupportedRegex("a backslash at its end");
    const char c = regex_[at_ + 1];
    if (ignore_case_ && std::string_view("pPwWSD").find(c) != std::string_view::npos)
      throw UnsupportedRegex(std::string("the class \\") + c + " whose case is ignored");
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), digit = c >= '0' && c <= '9';
    if (c == 'p' || c == 'P') return property(c == 'P');
    if (c == 's' || c == 'S') ranges(unicode::space_ranges(), c == 'S');
    else if (c == 'w' || c == 'W') ranges(unicode::pattern_word_ranges(), c == 'W');
    else if (c == 'd' || c == 'D') ranges(category("Nd"), c == 'D');
    else if (digit || (letter && std::string_view("nrtfvaexhHAzZ").find(c) == std::string_view::npos))
      throw UnsupportedRegex(std::string("the escape \\") + c);
    else return copy(2);
    at_ += 2;
  }

  void property(bool complement) {
    const std::size_t end = regex_.find('}', at_);
    if (regex_.substr(at_ + 2, 1) != "{" || end == regex_.npos) throw UnsupportedRegex("a property without braces");
    std::string_view name = regex_.substr(at_ + 3, end - at_ - 3);
    const std::string whole(regex_.substr(at_, end + 1 - at_));
    if (name.starts_with('^')) {
      complement = !complement;
      name.remove_prefix(1);
    }
    const std::vector<Range> found =
        name.empty() || name.size() > 2 || name == "Cs" ? std::vector<Range>() : category(name);
    if (found.empty()) throw UnsupportedRegex("the property " + whole);
    ranges(found, complement);
    at_ = end + 1;
  }

  void open_class() {
    if (rest().starts_with("[:")) throw UnsupportedRegex("a POSIX bracket");
    const std::size_t head = rest().starts_with("[^") ? 2 : 1;
    if (rest().substr(head).starts_with(']')) throw UnsupportedRegex("a class that begins with ]");
    ++depth_;
    copy(head);
  }
  void inside_class(char c) {
    if (c == ']') --depth_;
    copy(1);
  }

  void open_group() {
    if (rest().starts_with("(*") || rest().starts_with("(?{") || rest().starts_with("(?#") ||
        rest().starts_with("(?~") || rest().starts_with("(?(") || rest().starts_with("(?@"))
      throw UnsupportedRegex("a group that begins with " + std::string(rest().substr(0, 3)));
    groups_.push_back(ignore_case_);
    std::size_t at = 2;
    bool on = true, ignore = ignore_case_;
    if (rest().starts_with("(?")) {
      for (; at < rest().size() && std::string_view("imx-").find(rest()[at]) != std::string_view::npos; ++at) {
        if (rest()[at] == 'x') throw UnsupportedRegex("extended syntax");
        if (rest()[at] == '-') on = false;
        if (rest()[at] == 'i') ignore = on;
      }
      if (at < rest().size() && at > 2 && rest()[at] != ':' && rest()[at] != ')')
        throw UnsupportedRegex("a group that begins with " + std::string(rest().substr(0, at + 1)));
    }
    copy(1);
    if (at > 2) {  // (?i: or (?i), which reaches to the end of the group around it
      copy(at - 1);
      if (!regex_.substr(at_).starts_with(':')) groups_.pop_back(), copy(1);
      ignore_case_ = ignore;
    }
  }
  void close_group() {
    if (groups_.empty()) throw UnsupportedRegex("a parenthesis that closes nothing");
    ignore_case_ = groups_.back();
    groups_.pop_back();
    copy(1);
  }

  std::string_view regex_;
  std::string out_;
  std::size_t at_ = 0;
  int depth_ = 0;             // of nested classes
  bool ignore_case_ = false;  // here
  std::vector<bool> groups_;  // and around each open group
};

}  // namespace

std::string with_known_classes(std::string_view regex) { return ClassWriter(regex).write(); }

}  // namespace tessera::io
