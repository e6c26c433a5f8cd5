// SPDX-License-Identifier: Apache-2.0
// Oniguruma behind Regex.

#include "io/tokenizer/regex.hpp"

#define ONIG_ESCAPE_UCHAR_COLLISION 1  // UChar is ICU's
#include <oniguruma.h>

#include <algorithm>
#include <mutex>

#include "io/tokenizer/regex_classes.hpp"
#include "io/tokenizer/utf8.hpp"
#include "runtime/base/error.hpp"

namespace tessera::io {

namespace {

const OnigUChar* onig_bytes(const char* text) { return reinterpret_cast<const OnigUChar*>(text); }

std::string onig_message(int code, OnigErrorInfo* about) {
  OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int length = onig_error_code_to_str(text, code, about);
  return {reinterpret_cast<const char*>(text), static_cast<std::size_t>(length)};
}

}  // namespace

struct Regex::Compiled {
  OnigRegex regex = nullptr;
  ~Compiled() {
    if (regex != nullptr) onig_free(regex);
  }
};

Regex::Regex(std::string_view pattern) : compiled_(std::make_unique<Compiled>()) {
  static std::once_flag once;
  std::call_once(once, [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
  });
  const std::string text = with_known_classes(pattern);
  OnigErrorInfo about{};
  const int code = onig_new(&compiled_->regex, onig_bytes(text.data()), onig_bytes(text.data() + text.size()),
                            ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &about);
  if (code != ONIG_NORMAL) {
    compiled_->regex = nullptr;
    throw UnsupportedRegex(onig_message(code, &about));
  }
}

Regex::~Regex() = default;

struct Regex::Search::State {
  explicit State(OnigRegex of) : regex(of), region(onig_region_new()), limits(onig_new_match_param()) {}
  ~State() {
    onig_region_free(region, 1);
    onig_free_match_param(limits);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Where the first match at or behind `at` is, ONIG_MISMATCH, or an error.
  [[nodiscard]] int search(unsigned long most_steps) {
    onig_initialize_match_param(limits);
    onig_set_retry_limit_in_match_of_match_param(limits, most_steps);
    onig_set_retry_limit_in_search_of_match_param(limits, most_steps);
    onig_set_match_stack_limit_size_of_match_param(limits, longest_stack);
    const OnigUChar* const end = onig_bytes(text.data() + text.size());
    return onig_search_with_param(regex, onig_bytes(text.data()), end, onig_bytes(text.data() + at), end, region,
                                  ONIG_OPTION_NONE, limits);
  }

  OnigRegex regex;
  OnigRegion* region;
  OnigMatchParam* limits;
  std::string_view text;
  std::size_t at = 0, last_end = std::string_view::npos;
  unsigned long steps_left = 0;
};

Regex::Search::Search(const Regex& regex) : state_(std::make_unique<State>(regex.compiled_->regex)) {}
Regex::Search::~Search() = default;
Regex::Search::Search(Search&&) noexcept = default;

void Regex::Search::start(std::string_view text) {
  state_->text = text;
  state_->at = 0;
  state_->last_end = std::string_view::npos;
  state_->steps_left = free_steps + steps_per_byte * text.size();
}

std::optional<Regex::Match> Regex::Search::next() {
  State& s = *state_;
  while (s.at <= s.text.size()) {
    // The engine does not tell how many steps it took: limits that grow bound what is spent within a factor.
    int found = ONIG_MISMATCH;
    for (unsigned long limit = 1024;; limit *= 8) {
      limit = std::min(limit, std::max(s.steps_left, 1ul));
      found = s.search(limit);
      if (found != ONIGERR_RETRY_LIMIT_IN_MATCH_OVER && found != ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER) break;
      if (limit >= s.steps_left)
        throw Error(
            ExitCode::data,
            strfmt("the tokenizer's split pattern takes more than %lu steps for each byte of a text of %zu bytes",
                   steps_per_byte, s.text.size()),
            {}, "Remove long runs of white space or of one character from the text, or divide it");
      s.steps_left -= limit;
    }
    if (found == ONIG_MISMATCH) break;
    if (found < 0)
      throw Error(ExitCode::data,
                  strfmt("the tokenizer's split pattern fails in a text of %zu bytes: ", s.text.size()) +
                      onig_message(found, nullptr),
                  {}, "Divide the text");
    const auto begin = static_cast<std::size_t>(s.region->beg[0]), end = static_cast<std::size_t>(s.region->end[0]);
    if (begin == end && s.last_end == end) {  // an empty match behind a match
      s.at = end == s.text.size() ? end + 1 : end + static_cast<std::size_t>(utf8::read(s.text.data() + end).length);
      continue;
    }
    s.at = s.last_end = end;
    return Match{s.text.data() + begin, s.text.data() + end};
  }
  s.at = s.text.size() + 1;
  return std::nullopt;
}

}  // namespace tessera::io
