// SPDX-License-Identifier: Apache-2.0
#pragma once
// Templates: the subset of Jinja that published chat templates use (docs/chat-templates.md).

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

namespace tessera::io::jinja {

/// What is wrong with a template, or with what it was given; exit code data; "WHAT [NAME:LINE]".
class TemplateError : public Error {
 public:
  TemplateError(const std::string& what, const std::string& name, int line, const std::string& what_to_do = {});
  /// Line of the template, counted from 1.
  [[nodiscard]] int line() const { return line_; }
  /// True if the template itself refused its input (`raise_exception`).
  [[nodiscard]] bool raised() const { return raised_; }
  /// True if a limit on steps or memory was passed (RenderOptions): with other input it will be again.
  [[nodiscard]] bool past_limit() const { return past_limit_; }

 private:
  friend class Runtime;
  int line_;
  bool raised_ = false, past_limit_ = false;
};

/// A moment of the local calendar, for `strftime_now`.
using Clock = std::function<std::chrono::system_clock::time_point()>;

struct RenderOptions {
  /// More evaluated expressions, statements and items of loops than this are an error.
  std::int64_t max_steps = 20'000'000;
  /// Bytes that the values of one rendering may take in all, the output among them.
  std::int64_t max_bytes = std::int64_t{512} << 20;
  /// Bytes of the output, and of any one string.
  std::int64_t max_output = std::int64_t{64} << 20;
  /// What `strftime_now` formats, in the local time zone; unset: the system's clock.
  Clock clock;
};

/// A part of the output between {% generation %} and {% endgeneration %}.
struct Span {
  std::size_t begin = 0, end = 0;            // code points, as transformers counts
  std::size_t begin_byte = 0, end_byte = 0;  // bytes of the UTF-8 text
};

struct Rendered {
  std::string text;  // UTF-8
  std::vector<Span> generation;
};

struct Program;  // the parsed template

/// A parsed template. Immutable; any number of threads may render it at once.
class Template {
 public:
  /// Parses as transformers does: trim_blocks and lstrip_blocks on, no autoescape, one newline at the end dropped,
  /// loop controls and {% generation %}. `name` is for errors. Throws TemplateError: not UTF-8, syntax, a statement,
  /// filter or test that is not supported, more than `max_template_bytes` bytes, nested too deeply.
  [[nodiscard]] static Template parse(std::string_view text, const std::string& name);

  /// Renders with the variables of `context`, an object. Throws TemplateError: `raise_exception`, what Jinja or Python
  /// would refuse, what is not supported, a limit of the options.
  [[nodiscard]] Rendered render(const nlohmann::ordered_json& context, const RenderOptions& options = {}) const;

  /// True if the template has a {% generation %} block.
  [[nodiscard]] bool marks_generation() const;
  /// True if the template reads a variable of this name that it does not set itself before, or sets only in a branch.
  [[nodiscard]] bool reads(std::string_view variable) const;
  /// True if an expression of the template has this name as an attribute or a string: it may read such a key of a
  /// value.
  [[nodiscard]] bool mentions(std::string_view key) const;
  [[nodiscard]] const std::string& name() const;
  /// A hash of the text.
  [[nodiscard]] std::uint64_t hash() const;

 private:
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

/// Python's repr() of a JSON value: what a template prints of a dict that it takes for a text.
[[nodiscard]] std::string python_repr(const nlohmann::ordered_json& json);

constexpr std::size_t max_template_bytes = std::size_t{4} << 20;

}  // namespace tessera::io::jinja
