// SPDX-License-Identifier: Apache-2.0
#pragma once
// Event records as TensorBoard reads them: protobuf messages Event and Summary (tensorflow/core/util/event.proto,
// tensorflow/core/framework/summary.proto), framed as in TFRecord files.
//
// They are encoded here and not with libprotobuf: seven small messages of a frozen format need varints, floats and
// length-delimited fields only, while the library would bring a code generator to every build and a shared library to
// every compute node. The checksum is the CRC32C of checkpoints.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera::io {

/// A value under a tag: a number, which is stored as float32, or UTF-8 text, which TensorBoard renders as Markdown.
struct SummaryValue {
  std::string tag;
  std::variant<float, std::string> value;
};

struct Event {
  double wall_time = 0;  // seconds since 1970
  std::int64_t step = 0;
  std::string file_version = {};  // of a file's first event: "brain.Event:2"
  bool starts_session = false;    // values of this step and later ones in earlier files are void: a run was resumed
  std::vector<SummaryValue> values = {};
};

/// The message Event.
[[nodiscard]] std::string encode(const Event& event);

/// A TFRecord: length (8 bytes), masked CRC32C of the length, the bytes, masked CRC32C of the bytes; little-endian.
[[nodiscard]] std::string tf_record(std::string_view bytes);

}  // namespace tessera::io
