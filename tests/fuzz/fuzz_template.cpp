// SPDX-License-Identifier: Apache-2.0
// Fuzz target: templates, rendered for a small conversation within small limits.

#include <cstdlib>

#include "io/jinja/template.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  static const auto context = nlohmann::ordered_json::parse(R"({"bos_token": "<s>", "eos_token": "</s>", "tools": [
      {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"é": {"items": 1.5}}}}}],
      "messages": [{"role": "system", "content": "a b\n"}, {"role": "user", "content": "Où?"}, {"role": "assistant",
      "content": "<think>x</think>y", "tool_calls": [{"function": {"name": "f", "arguments": {"é": [-1, null, true]}}}]}]})");
  io::jinja::RenderOptions options;
  options.max_steps = 100'000;
  options.max_bytes = 16 << 20;
  options.max_output = 1 << 20;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const auto rendered = io::jinja::Template::parse(text, "input").render(context, options);
    if (rendered.text.size() > static_cast<std::size_t>(options.max_output)) std::abort();
    std::size_t last = 0;
    for (const auto& span : rendered.generation) {
      if (span.begin_byte < last || span.end_byte < span.begin_byte || span.end_byte > rendered.text.size())
        std::abort();
      last = span.end_byte;
    }
  } catch (const io::jinja::TemplateError& error) {
    if (error.code() != ExitCode::data || error.line() < 1) std::abort();
  }
  return 0;
}
