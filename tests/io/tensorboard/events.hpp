// SPDX-License-Identifier: Apache-2.0
#pragma once
// A reader of event files, written from the format and not from the writer, for tests.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::test {

struct ReadEvent {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string file_version;
  std::int64_t session_status = 0;  // 1: START
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> texts;
};

/// CRC32C bit by bit.
inline std::uint32_t slow_crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

/// The payloads of a TFRecord file; fails the test at a wrong checksum or a record that is not whole.
inline std::vector<std::string> read_records(std::string_view file) {
  std::vector<std::string> records;
  const auto crc_is_good = [](std::string_view bytes, std::string_view stored) {
    std::uint32_t masked = 0;
    std::memcpy(&masked, stored.data(), 4);
    const std::uint32_t rotated = masked - 0xa282ead8u;
    return (rotated >> 17 | rotated << 15) == slow_crc32c(bytes);
  };
  while (!file.empty()) {
    std::uint64_t length = 0;
    if (file.size() >= 12) std::memcpy(&length, file.data(), 8);
    if (file.size() < 16 || file.size() - 16 < length) {
      ADD_FAILURE() << "half a record";
      return records;
    }
    EXPECT_TRUE(crc_is_good(file.substr(0, 8), file.substr(8, 4))) << "of the length";
    EXPECT_TRUE(crc_is_good(file.substr(12, length), file.substr(12 + length, 4))) << "of the bytes";
    records.emplace_back(file.substr(12, length));
    file.remove_prefix(16 + length);
  }
  return records;
}

/// A protobuf message: its fields by number, in order. A varint or fixed number is kept as its 8 bytes.
class ReadMessage {
 public:
  explicit ReadMessage(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::uint64_t key = varint(bytes);
      std::size_t size = key % 8 == 1 ? 8 : 4;
      if (key % 8 == 0) {
        const std::uint64_t value = varint(bytes);
        fields_[static_cast<int>(key / 8)].emplace_back(reinterpret_cast<const char*>(&value), 8);
        continue;
      }
      if (key % 8 == 2) size = varint(bytes);
      fields_[static_cast<int>(key / 8)].emplace_back(bytes.substr(0, size));
      bytes.remove_prefix(std::min(size, bytes.size()));
    }
  }
  [[nodiscard]] std::vector<std::string> all(int field) const {
    const auto found = fields_.find(field);
    return found == fields_.end() ? std::vector<std::string>{} : found->second;
  }
  [[nodiscard]] std::string bytes(int field) const { return all(field).empty() ? "" : all(field).front(); }
  [[nodiscard]] ReadMessage message(int field) const { return ReadMessage(bytes(field)); }
  template <class T>
  [[nodiscard]] T number(int field) const {
    T value{};
    const std::string stored = bytes(field);
    std::memcpy(&value, stored.data(), std::min(sizeof value, stored.size()));
    return value;
  }

 private:
  static std::uint64_t varint(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (int shift = 0; !bytes.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.front());
      bytes.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value;
  }
  std::map<int, std::vector<std::string>> fields_;
};

inline std::vector<ReadEvent> read_events(std::string_view file) {
  std::vector<ReadEvent> events;
  for (const std::string& record : read_records(file)) {
    const ReadMessage message(record);
    ReadEvent event{.wall_time = message.number<double>(1),
                    .step = message.number<std::int64_t>(2),
                    .file_version = message.bytes(3),
                    .session_status = message.message(7).number<std::int64_t>(1)};
    for (const std::string& bytes : message.message(5).all(1)) {
      const ReadMessage value(bytes);
      const std::string tag = value.bytes(1);
      if (value.message(9).message(1).bytes(1) == "text") {
        EXPECT_EQ(value.message(8).number<std::int64_t>(1), 7) << "DT_STRING";
        EXPECT_EQ(value.message(8).message(2).message(2).number<std::int64_t>(1), 1) << "one string";
        event.texts[tag] = value.message(8).bytes(8);
      } else {
        event.scalars[tag] = value.number<float>(2);
      }
    }
    events.push_back(std::move(event));
  }
  return events;
}

}  // namespace tessera::test
