// SPDX-License-Identifier: Apache-2.0
// Functions that every template has.
#include <algorithm>
#include <array>
#include <ctime>

#include "io/jinja/builtins.hpp"
#include "io/jinja/operations.hpp"

namespace tessera::io::jinja {
namespace {

using Kind = Value::Kind;

class GlobalFunction final : public Callable {
 public:
  explicit GlobalFunction(const Builtin& builtin) : builtin_(builtin) {}
  Value call(Runtime& runtime, Arguments& arguments) const override {
    return jinja::call(runtime, builtin_, Value(), arguments);
  }

 private:
  const Builtin& builtin_;
};

Value function_range(Runtime& runtime, const Value&, Bound& arguments) {
  constexpr std::int64_t most = 100'000;  // as in Jinja's sandbox
  auto range = make_object<Range>();
  const std::int64_t first = integer_of(runtime, arguments[0], "a bound of range");
  range->stop = first;
  if (arguments.has(1)) {
    range->start = first;
    range->stop = integer_of(runtime, arguments[1], "a bound of range");
  }
  if (arguments.has(2)) range->step = integer_of(runtime, arguments[2], "the step of range");
  if (range->step == 0) runtime.fail("range: the step is 0");
  const auto far = [](std::int64_t value) { return value > INT64_MAX / 4 || value < INT64_MIN / 4; };
  if (far(range->start) || far(range->stop) || far(range->step) || range->size() > most)
    runtime.fail("range has more than " + std::to_string(most) + " items");
  return runtime.object(Kind::range, std::move(range));
}

/// dict(mapping or pairs, **named).
Dict dict_of(Runtime& runtime, const Bound& arguments) {
  Dict out;
  if (arguments.has(0)) {
    const Value& from = arguments[0];
    if (from.is(Kind::dict)) out = from.dict();
    else
      for (const Value& pair : list_of(runtime, from)) {
        const std::vector<Value> parts = list_of(runtime, pair);
        if (parts.size() != 2) runtime.fail("dict: an item is not a pair");
        runtime.set(out, parts[0], parts[1]);
      }
  }
  for (const auto& [name, value] : arguments.rest.named) runtime.set(out, runtime.string(name), value);
  return out;
}

Value function_dict(Runtime& runtime, const Value&, Bound& arguments) {
  return runtime.dict(make_object<Dict>(dict_of(runtime, arguments)));
}

Value function_namespace(Runtime& runtime, const Value&, Bound& arguments) {
  Dict attributes = dict_of(runtime, arguments);
  for (const auto& [name, value] : attributes.entries)
    if (name.is(Kind::string) && name.text().starts_with('_'))
      runtime.fail("namespace: the attribute '" + name.text() + "' begins with an underscore");
  return runtime.name_space(std::move(attributes));
}

Value function_raise(Runtime& runtime, const Value&, Bound& arguments) {
  runtime.fail_raised(text_of(runtime, arguments[0]));
}

Value function_strftime(Runtime& runtime, const Value&, Bound& arguments) {
  if (!arguments[0].is(Kind::string)) runtime.fail("strftime_now takes a format");
  const auto now = runtime.options.clock ? runtime.options.clock() : std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  std::tm parts{};
  localtime_r(&seconds, &parts);
  std::string format;
  const std::string& given = arguments[0].text();
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char next = given[i] == '%' && i + 1 < given.size() ? given[i + 1] : '\0';
    if (next == 'f') format += strfmt("%06d", static_cast<int>((since % 1'000'000 + 1'000'000) % 1'000'000));
    if (next == '%') format += "%%";
    // A local time without a zone, as Python's datetime.now().
    if (next == 'f' || next == '%' || next == 'z' || next == 'Z') ++i;
    else format += given[i];
  }
  std::array<char, 4096> out{};
  if (format.size() > 512) runtime.fail("strftime_now: the format has more than 512 bytes");
  return runtime.string(std::string(out.data(), std::strftime(out.data(), out.size(), format.c_str(), &parts)));
}

constexpr Builtin table_of_functions[] = {
    {"range", "start stop? step?", function_range},   {"dict", "mapping? **", function_dict},
    {"namespace", "mapping? **", function_namespace}, {"raise_exception", "message", function_raise},
    {"strftime_now", "format", function_strftime},
};

}  // namespace

std::optional<Value> global_function(Runtime& runtime, const std::string& name) {
  for (const Builtin& builtin : table_of_functions)
    if (name == builtin.name) return runtime.object(Kind::callable, make_object<GlobalFunction>(builtin));
  if (name == "cycler" || name == "joiner" || name == "lipsum")
    runtime.fail("the function '" + name + "' is not supported");
  return std::nullopt;
}

}  // namespace tessera::io::jinja
