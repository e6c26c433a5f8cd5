// SPDX-License-Identifier: Apache-2.0
#pragma once
// Helpers of the io tests: a temporary directory, files of given bytes, and checks of errors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"

namespace tessera::test {

/// A temporary directory. Storage::memory: on a tmpfs, for tests that write thousands of small files; on disk if there
/// is none.
class TempDir {
 public:
  enum class Storage { disk, memory };
  explicit TempDir(Storage storage = Storage::disk);
  ~TempDir();
  TempDir(const TempDir&) = delete;
  [[nodiscard]] std::string path() const { return path_.string(); }
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  /// Writes a file of these bytes and returns its path.
  std::string file(const std::string& name, const std::string& bytes) const;
  /// Names in it, sorted.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  std::filesystem::path path_;
};

[[nodiscard]] std::string bytes_of(const std::string& path);

/// Runs `action`; fails unless it throws Error with this code and a message that contains `text`.
void expect_error(ExitCode code, const std::string& text, const std::function<void()>& action);

/// Bytes that this thread has allocated by operator new since the last call.
[[nodiscard]] std::size_t allocated_bytes();

/// A safetensors file around this JSON, padded with `data_bytes` bytes of data.
[[nodiscard]] std::string safetensors_of(const std::string& json, std::size_t data_bytes);
/// An llm.c token file: magic, version, count, then `ids` unchanged.
[[nodiscard]] std::string token_file_of(int magic, int version, int count, const std::string& ids);

}  // namespace tessera::test
