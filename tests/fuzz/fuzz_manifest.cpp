// SPDX-License-Identifier: Apache-2.0
// Fuzz target: a checkpoint's manifest. Its checksum is corrected first, so that mutations reach the parser. An
// accepted one has data sets inside their files without overlap, and is the same when written and read again.

#include <cstdlib>
#include <span>
#include <string>

#include "io/checkpoint/manifest.hpp"
#include "io/file/crc32c.hpp"
#include "runtime/base/error.hpp"

namespace {
constexpr const char* open_crc = "\"crc32c\": \"";

/// `text` up to its last line, which is replaced.
std::string with_right_checksum(std::string text) {
  if (const auto last = text.rfind(open_crc); last != text.npos) text.resize(last);
  const std::uint32_t crc = tessera::io::crc32c(0, std::as_bytes(std::span(text)));
  return text + open_crc + tessera::strfmt("%08x\"\n}\n", crc);
}

void traverse(const tessera::io::Manifest& manifest) {
  for (const auto& file : manifest.files) {
    if (file.name.empty() || file.name.find('/') != file.name.npos || file.name == "..") std::abort();
    if (file.crcs.size() !=
        file.bytes / tessera::io::block_bytes + (file.bytes % tessera::io::block_bytes != 0 ? 1 : 0))
      std::abort();
    std::uint64_t at = 0;
    for (const auto& d : file.datasets) {
      if (d.offset < at || d.offset > file.bytes || d.bytes > file.bytes - d.offset) std::abort();
      at = d.offset + d.bytes;
    }
    if (tessera::io::describe_range(file, 0, file.bytes).empty()) std::abort();
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const io::Manifest manifest = io::parse_manifest(with_right_checksum(text), "input");
    traverse(manifest);
    const std::string again = io::manifest_text(manifest);
    if (io::manifest_text(io::parse_manifest(again, "input")) != again) std::abort();
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) std::abort();
  }
  return 0;
}
