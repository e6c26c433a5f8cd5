// SPDX-License-Identifier: Apache-2.0
// Reads safetensors, .bin and .txt without checks: the files are our own.
#include "golden.hpp"

#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tessera::test {
namespace {

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<float> decode(const std::string& dtype, const char* data, std::size_t bytes) {
  const std::size_t size = dtype == "F32" ? 4 : 2;
  if (dtype == "F16") {
    std::vector<float> widened(bytes / 2);
    for (std::size_t i = 0; i < widened.size(); ++i) {
      _Float16 half = 0;
      std::memcpy(&half, data + 2 * i, 2);
      widened[i] = static_cast<float>(half);
    }
    return widened;
  }
  std::vector<float> out(bytes / size);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(size == 4 ? reinterpret_cast<char*>(&bits) : reinterpret_cast<char*>(&bits) + 2, data + i * size, size);
    std::memcpy(&out[i], &bits, 4);
  }
  return out;
}

}  // namespace

std::string read_file(const std::string& path) { return slurp(path); }

std::map<std::string, std::vector<float>> read_tensors(const std::string& path) {
  std::map<std::string, std::vector<float>> tensors;
  const std::string file = slurp(path);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  const nlohmann::json header = nlohmann::json::parse(file.substr(8, length));
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") continue;
    const std::size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    tensors[key] = decode(entry["dtype"], file.data() + 8 + length + begin, end - begin);
  }
  return tensors;
}

Golden read_golden(const std::string& name) {
  const std::string folder = std::string(TESSERA_TEST_DATA) + "/golden/" + name + "/";
  Golden g;
  g.config = slurp(folder + "config.json");
  g.expected = nlohmann::json::parse(slurp(folder + "golden.json"));

  g.weights = read_tensors(folder + "model.safetensors");

  const std::string token_file = g.expected["tokens"], bytes = slurp(folder + token_file);
  if (token_file.ends_with(".txt")) {
    for (const char c : bytes) g.tokens.push_back(static_cast<unsigned char>(c));
  } else {
    for (std::size_t i = 1024; i + 1 < bytes.size(); i += 2) {
      std::uint16_t id = 0;
      std::memcpy(&id, bytes.data() + i, 2);
      g.tokens.push_back(id);
    }
  }
  return g;
}

}  // namespace tessera::test
