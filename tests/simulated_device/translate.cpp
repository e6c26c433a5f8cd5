// SPDX-License-Identifier: Apache-2.0
// Translates a device source to C++ that the host's compiler takes, with simt.hpp: launches, shared variables,
// #pragma unroll. The lines keep their numbers.
//   translate FROM TO
#include <cctype>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <regex>
#include <stdexcept>
#include <string>

namespace {

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':'; }

/// Where the name that ends before `end` begins, its template arguments included.
std::size_t begin_of_name(const std::string& text, std::size_t end) {
  std::size_t at = end;
  if (at > 0 && text[at - 1] == '>') {
    int depth = 0;
    do {
      --at;
      if (text[at] == '>') ++depth;
      if (text[at] == '<') --depth;
    } while (at > 0 && depth > 0);
  }
  while (at > 0 && in_name(text[at - 1])) --at;
  return at;
}

/// kernel<A><<<grid, block, bytes, stream>>>(…) becomes Launcher(Launch(…), "kernel", a lambda that calls it)(…).
std::string with_launches(std::string text) {
  for (std::size_t open = text.find("<<<"); open != std::string::npos; open = text.find("<<<", open)) {
    std::size_t end = open;
    while (end > 0 && std::isspace(static_cast<unsigned char>(text[end - 1])) != 0) --end;
    const std::size_t begin = begin_of_name(text, end);
    std::size_t close = open + 3;
    for (int depth = 0; depth > 0 || text.compare(close, 3, ">>>") != 0; ++close) {
      if (close >= text.size()) throw std::runtime_error("<<< without >>>");
      if (text[close] == '(') ++depth;
      if (text[close] == ')') --depth;
    }
    const std::string kernel = text.substr(begin, end - begin), space = text.substr(end, open - end),
                      launch = text.substr(open + 3, close - open - 3);
    const std::string now = space + "::tessera::simulated::Launcher(::tessera::simulated::Launch(" + launch + "), \"" +
                            kernel.substr(0, kernel.find('<')) + "\", [=](const auto&... simulated_args) { " + kernel +
                            "(simulated_args...); })";
    text.replace(begin, close + 3 - begin, now);
    open = begin + now.size();
  }
  return text;
}

std::string translated(std::string text) {
  text = std::regex_replace(text, std::regex("#pragma unroll[^\n]*"), "");
  text = std::regex_replace(text, std::regex(R"(extern __shared__ (?:__align__\(\d+\) )?([\w ]+?) (\w+)\[\];)"),
                            "$1* const $2 = static_cast<$1*>(::tessera::simulated::dynamic_shared());");
  text = std::regex_replace(text, std::regex(R"(__shared__ ([^;]*?)(\w+)((?:\s*\[[^;]*\])?);)"),
                            "static $1$2$3; ::tessera::simulated::static_shared(&$2, sizeof $2);");
  return with_launches(std::move(text));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw std::runtime_error("usage: translate FROM TO");
    std::ifstream from(argv[1]);
    const std::string text((std::istreambuf_iterator<char>(from)), {});
    if (text.empty()) throw std::runtime_error(std::string(argv[1]) + " cannot be read");
    std::ofstream to(argv[2]);
    to << "#line 1 \"" << argv[1] << "\"\n" << translated(text);
    if (!to.flush()) throw std::runtime_error(std::string(argv[2]) + " cannot be written");
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
