// SPDX-License-Identifier: Apache-2.0
// Fuzz target: a safetensors file. The entries of an accepted one must cover its data without overlap.

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "io/model/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  // As SafetensorsFile does with the file's bytes; the 8 bytes of length stand for themselves.
  if (size < 8) return 0;
  const std::string_view json(reinterpret_cast<const char*>(data) + 8,
                              std::min<std::size_t>(size - 8, data[0] | data[1] << 8));
  try {
    const auto header = io::parse_safetensors_header(json, size, "input");
    std::uint64_t at = 8 + json.size();
    for (const auto& entry : header.entries) {
      if (entry.begin != at || entry.end < at || entry.end > size) std::abort();
      if (entry.known_dtype &&
          static_cast<std::uint64_t>(entry.numel()) * size_of(entry.dtype) != entry.end - entry.begin)
        std::abort();
      at = entry.end;
    }
    if (at != size) std::abort();
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) std::abort();
  }
  return 0;
}
