// SPDX-License-Identifier: Apache-2.0
#include "io/tensorboard/event.hpp"

#include <bit>
#include <span>

#include "io/file/crc32c.hpp"

namespace tessera::io {

namespace {

template <class T>
void put_fixed(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

/// A protobuf message in its wire format. Fields are written in the order of the calls.
class Message {
 public:
  Message& integer(int field, std::uint64_t value) {
    key(field, 0);
    varint(value);
    return *this;
  }
  Message& real(int field, double value) {
    key(field, 1);
    put_fixed(bytes_, std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real(int field, float value) {
    key(field, 5);
    put_fixed(bytes_, std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  /// A string, or an embedded message.
  Message& bytes(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.bytes_); }
  [[nodiscard]] const std::string& str() const { return bytes_; }

 private:
  void key(int field, unsigned wire_type) { varint(static_cast<std::uint64_t>(field) << 3 | wire_type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

/// Summary.Value: tag 1, simple_value 2, tensor 8, metadata 9. Text is a tensor of one string (dtype 1, tensor_shape 2,
/// string_val 8) that the metadata gives to the plugin "text" (plugin_data 1, plugin_name 1).
Message summary_value(const SummaryValue& value) {
  Message message;
  message.bytes(1, value.tag);
  if (const float* scalar = std::get_if<float>(&value.value)) return message.real(2, *scalar);
  constexpr std::uint64_t dt_string = 7;
  const Message shape = Message().message(2, Message().integer(1, 1));  // one dimension of size 1
  const Message tensor = Message().integer(1, dt_string).message(2, shape).bytes(8, std::get<std::string>(value.value));
  const Message metadata = Message().message(1, Message().bytes(1, "text"));
  return message.message(8, tensor).message(9, metadata);
}

/// As TFRecord masks it: a CRC of bytes that contain CRCs is weak.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(0, std::as_bytes(std::span(bytes))), 15) + 0xa282ead8u;
}

}  // namespace

std::string encode(const Event& event) {
  Message message;
  message.real(1, event.wall_time);
  if (event.step != 0) message.integer(2, static_cast<std::uint64_t>(event.step));
  if (!event.file_version.empty()) message.bytes(3, event.file_version);
  Message summary;
  for (const SummaryValue& value : event.values) summary.message(1, summary_value(value));
  if (!event.values.empty()) message.message(5, summary);
  constexpr std::uint64_t session_start = 1;
  if (event.starts_session) message.message(7, Message().integer(1, session_start));  // SessionLog
  return message.str();
}

std::string tf_record(std::string_view bytes) {
  std::string record;
  put_fixed(record, static_cast<std::uint64_t>(bytes.size()));
  put_fixed(record, masked_crc(record));
  record += bytes;
  put_fixed(record, masked_crc(bytes));
  return record;
}

}  // namespace tessera::io
