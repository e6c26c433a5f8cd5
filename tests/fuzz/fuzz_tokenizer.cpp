// SPDX-License-Identifier: Apache-2.0
// Fuzz target: a tokenizer.json and a text, a zero byte between them. A tokenizer that loads must give known ids,
// the same with and without the word cache, and decode them; a text split at a split point gives the same ids.

#include <cstdlib>

#include "io/tokenizer/encoder.hpp"
#include "io/tokenizer/split_point.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "io/tokenizer/utf8.hpp"

namespace {

using namespace tessera;

void check(const io::TextTokenizer& tokenizer, std::string_view text) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text, io::Special::without);
  std::vector<std::int32_t> again;
  io::TextEncoder encoder(tokenizer);
  for (int pass = 0; pass < 2; ++pass) {
    again.clear();
    encoder.encode(text, io::Special::without, again);
    if (again != ids) std::abort();
  }
  for (const std::int32_t id : ids)
    if (id < 0 || id >= tokenizer.vocab_size() || !tokenizer.tables().has(id)) std::abort();
  const std::string back = tokenizer.decode(ids, io::Special::with);
  if (io::utf8::valid_prefix(back) != back.size()) std::abort();
  io::StreamDecoder stream(tokenizer, io::Special::with);
  std::string joined;
  for (const std::int32_t id : ids) joined += stream.push(id);
  joined += stream.finish();
  if (io::utf8::valid_prefix(joined) != joined.size()) std::abort();
  if (!tokenizer.tables().is_splittable) return;
  const std::size_t cut = io::find_split_point(text, text.size() / 3);
  io::Encoder parts(tokenizer.tables(), io::Encoder::Memory::none);
  again.clear();
  parts.encode(text.substr(0, cut), io::Normalizer::Position::beginning, again);
  parts.encode(text.substr(cut), io::Normalizer::Position::inside, again);
  if (again != ids) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = input.find('\0');
  if (zero == input.npos) return 0;
  try {
    check(io::TextTokenizer::parse(input.substr(0, zero), "input"), input.substr(zero + 1));
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) std::abort();
  }
  return 0;
}
