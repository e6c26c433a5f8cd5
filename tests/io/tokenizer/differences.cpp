// SPDX-License-Identifier: Apache-2.0
// The program that differences.py compares: `tokenizer_differences TOKENIZER` reads texts as lines of hexadecimal
// digits, and prints "ID ID … | TEXT", the ids of each and the text that they decode to.

#include <iostream>

#include "io/tokenizer/tokenizer.hpp"

namespace {

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string to_hex(const std::string& bytes) {
  std::string hex;
  for (const char c : bytes) hex += tessera::strfmt("%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
  return hex;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tessera;
  if (argc != 2) return 2;
  try {
    const io::TextTokenizer tokenizer = io::TextTokenizer::load(argv[1]);
    io::TextEncoder encoder(tokenizer);
    for (std::string line; std::getline(std::cin, line);) {
      std::vector<std::int32_t> ids;
      encoder.encode(from_hex(line), io::Special::without, ids);
      for (const std::int32_t id : ids) std::cout << id << ' ';
      std::cout << "| " << to_hex(tokenizer.decode(ids, io::Special::with)) << '\n';
    }
  } catch (const Error& error) {
    std::cerr << "error: " << error.line() << '\n';
    return static_cast<int>(error.code());
  }
  return 0;
}
