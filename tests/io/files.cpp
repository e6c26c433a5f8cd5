// SPDX-License-Identifier: Apache-2.0
// Helpers of files.hpp.

#include "tests/io/files.hpp"

#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>

namespace tessera::test {

TempDir::TempDir(Storage storage) {
  const std::string memory = "/dev/shm/";
  std::error_code missing;
  const bool roomy =
      storage == Storage::memory && std::filesystem::space(memory, missing).available > (16u << 20) && !missing;
  std::string name = (roomy ? memory : testing::TempDir()) + "tessera-io-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
  path_ = name;
}
TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempDir::file(const std::string& name, const std::string& bytes) const {
  const std::string path = *this / name;
  std::filesystem::remove(path);  // a new file: some file systems flush one that is truncated and written again
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
  return path;
}

std::vector<std::string> TempDir::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void expect_error(ExitCode code, const std::string& text, const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown; expected: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.line();
    EXPECT_THAT(error.line(), testing::HasSubstr(text));
    EXPECT_EQ(error.line().find('\n'), std::string::npos) << error.line();
  }
}

std::string safetensors_of(const std::string& json, std::size_t data_bytes) {
  const std::uint64_t length = json.size();
  std::string bytes(reinterpret_cast<const char*>(&length), 8);
  bytes += json;
  for (std::size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i * 37 + 1);
  return bytes;
}

std::string token_file_of(int magic, int version, int count, const std::string& ids) {
  std::int32_t header[256] = {magic, version, count};
  return std::string(reinterpret_cast<const char*>(header), sizeof header) + ids;
}

}  // namespace tessera::test
