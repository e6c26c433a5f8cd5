// SPDX-License-Identifier: Apache-2.0
// The header: magic, tokens, skipped rows, 256 weights.

#include "io/data/loss_file.hpp"

#include <cstring>

#include "runtime/base/error.hpp"

namespace tessera::io {

namespace {
constexpr std::string_view loss_magic = "TSRLOSS1";
constexpr std::size_t loss_header_bytes = 8 + 2 * sizeof(std::int64_t) + sizeof(LossWeights);
}  // namespace

std::string loss_file_name(const std::string& token_file) { return token_file + ".loss"; }

std::string loss_file_header(std::int64_t tokens, std::int64_t skipped, const LossWeights& weights) {
  std::string header(loss_magic);
  for (const std::int64_t number : {tokens, skipped})
    header.append(reinterpret_cast<const char*>(&number), sizeof number);
  header.append(reinterpret_cast<const char*>(weights.data()), sizeof weights);
  return header;
}

LossFile check_loss_file(std::string_view bytes, std::int64_t tokens, const std::string& path) {
  const auto refuse = [&](const std::string& rule) {
    return Error(ExitCode::data, path + " does not say which tokens of its token file have loss: " + rule, {},
                 "Run tessera tokenize again");
  };
  if (bytes.size() < loss_header_bytes || !bytes.starts_with(loss_magic))
    throw refuse("its first bytes are not those of a .loss file");
  std::int64_t numbers[2] = {};
  LossFile file;
  std::memcpy(numbers, bytes.data() + loss_magic.size(), sizeof numbers);
  std::memcpy(file.weights.data(), bytes.data() + loss_magic.size() + sizeof numbers, sizeof file.weights);
  if (numbers[0] != tokens) throw refuse(strfmt("it is of a file of %ld tokens, not of %ld", numbers[0], tokens));
  if (bytes.size() - loss_header_bytes != static_cast<std::uint64_t>(tokens))
    throw refuse(strfmt("it has %zu bytes, which is not what its count says", bytes.size()));
  file.bytes = reinterpret_cast<const std::uint8_t*>(bytes.data() + loss_header_bytes);
  file.skipped = numbers[1];
  return file;
}

}  // namespace tessera::io
