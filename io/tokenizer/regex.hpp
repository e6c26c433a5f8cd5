// SPDX-License-Identifier: Apache-2.0
#pragma once
// Regular expressions that have no matcher of their own (split.hpp), by Oniguruma, the engine of Hugging Face's
// `tokenizers`.

#include <memory>
#include <optional>
#include <string_view>

namespace tessera::io {

/// A compiled expression: immutable, shared by threads.
class Regex {
 public:
  /// Its classes are those of regex_classes.hpp. Throws UnsupportedRegex: also for what is no regular expression.
  explicit Regex(std::string_view pattern);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  struct Match {
    const char *begin = nullptr, *end = nullptr;
  };
  /// The matches of a text, one after the other, as the iterator of `tokenizers` gives them: an empty match at the end
  /// of the one before is skipped. One thread at a time.
  class Search {
   public:
    explicit Search(const Regex& regex);
    ~Search();
    Search(Search&&) noexcept;
    /// Begins a text, which is UTF-8 and outlives the search.
    void start(std::string_view text);
    /// Throws Error (data) where a text takes more steps of backtracking than its length allows (steps_per_byte), or
    /// more memory than longest_stack entries: a pattern must not take quadratic time.
    [[nodiscard]] std::optional<Match> next();

   private:
    struct State;
    std::unique_ptr<State> state_;
  };
  static constexpr unsigned long steps_per_byte = 4096, free_steps = 1 << 22;
  static constexpr unsigned longest_stack = 32 << 20;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace tessera::io
