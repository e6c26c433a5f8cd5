// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which tokens of a token file F.bin have loss: F.bin.loss, one byte for each id, which `tessera tokenize` writes of
// conversations.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::io {

/// Weights of tokens in the loss by their byte: 0 has none, 1 has 1, and the others those that rows name.
using LossWeights = std::array<float, 256>;

struct LossFile {
  const std::uint8_t* bytes = nullptr;  // one for each token
  std::int64_t skipped = 0;             // rows that could not be used when the file was made
  LossWeights weights{};
};

/// "F.bin.loss".
[[nodiscard]] std::string loss_file_name(const std::string& token_file);
/// The header of such a file; the bytes follow.
[[nodiscard]] std::string loss_file_header(std::int64_t tokens, std::int64_t skipped, const LossWeights& weights);
/// Throws Error (data): another magic, a length that contradicts the count, another number of tokens than the token
/// file has.
[[nodiscard]] LossFile check_loss_file(std::string_view bytes, std::int64_t tokens, const std::string& path);

}  // namespace tessera::io
