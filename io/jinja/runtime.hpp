// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runtime: the limits of one rendering, where it is, and the making of values.

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "io/jinja/template.hpp"
#include "io/jinja/value.hpp"

namespace tessera::io::jinja {

class Runtime {
 public:
  Runtime(const std::string& name, const RenderOptions& limits) : options(limits), name_(name) {}
  Runtime(const Runtime&) = delete;

  const RenderOptions& options;
  int line = 1;  // of what is evaluated, for errors

  /// Throws TemplateError with the current line.
  [[noreturn]] void fail(const std::string& what, const std::string& what_to_do = {}) const;
  /// The same for `raise_exception`.
  [[noreturn]] void fail_raised(const std::string& what) const;
  /// The same for a limit of the options.
  [[noreturn]] void fail_at_limit(const std::string& what, const std::string& what_to_do) const;
  /// Counts work, and memory in bytes; throws TemplateError past the limits.
  void step(std::int64_t count = 1) {
    if ((steps_ += count) > options.max_steps) too_many_steps();
  }
  void charge(std::size_t bytes);

  /// New values; they count their memory. Throw TemplateError: too large, nested too deeply.
  [[nodiscard]] Value string(std::string text);
  [[nodiscard]] Value safe_string(std::string text);
  [[nodiscard]] Value list(std::vector<Value> items);
  [[nodiscard]] Value tuple(std::vector<Value> items);
  [[nodiscard]] Value dict(std::shared_ptr<Dict> dict);
  [[nodiscard]] Value object(Value::Kind kind, std::shared_ptr<Object> object);
  [[nodiscard]] Value name_space(Dict attributes);
  /// dict[key] = value while it is made; throws if the key cannot be hashed.
  void set(Dict& dict, Value key, Value value);

  /// Counts nested evaluation; the C++ stack is used with it.
  class Nested {
   public:
    explicit Nested(Runtime& runtime) : runtime_(runtime) {
      if (++runtime.depth_ > max_depth) runtime.too_deep();
    }
    ~Nested() { --runtime_.depth_; }
    Nested(const Nested&) = delete;

   private:
    Runtime& runtime_;
  };
  static constexpr int max_depth = 1500;

 private:
  void charge_text(const std::string& text);
  [[noreturn]] void too_many_steps() const;
  [[noreturn]] void too_deep() const;

  const std::string& name_;
  std::int64_t steps_ = 0, bytes_ = 0;
  int depth_ = 0;
  std::deque<Namespace> namespaces_;
};

/// A JSON value as a template's. Throws TemplateError: nested too deeply.
[[nodiscard]] Value from_json(Runtime& runtime, const nlohmann::ordered_json& json, int depth = 0);

}  // namespace tessera::io::jinja
