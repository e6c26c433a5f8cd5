// SPDX-License-Identifier: Apache-2.0
// The order of samples.

#include "io/data/length_order.hpp"
#include "io/data/packing.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::io {

SampleCount count_samples(std::int64_t tokens, std::int64_t T) {
  TESSERA_ASSERT(tokens >= 0 && T >= 1, "%ld tokens in samples of %ld", tokens, T);
  const std::int64_t samples = tokens > 0 ? (tokens - 1) / T : 0;
  return {samples, samples > 0 ? tokens - (samples * T + 1) : tokens};
}

SampleCount count_samples(const TokenStream& tokens, std::int64_t T) {
  const PackedStream* packed = tokens.packed();
  if (packed == nullptr && tokens.selection() != 0) return {tokens.samples(T), 0};
  if (packed == nullptr) return count_samples(tokens.size(), T);
  TESSERA_ASSERT(packed->count().longest <= T && packed->tokens() >= T, "packed for %ld, not %ld", packed->tokens(), T);
  return {packed->count().samples, packed->count().dropped};
}

std::int64_t TokenStream::samples(std::int64_t length) const { return count_samples(size(), length).samples; }

Sampler::Sampler(std::int64_t num_samples, bool shuffle, std::uint64_t seed, const PackedStream* by_length)
    : num_samples_(num_samples), shuffle_(shuffle), seed_(seed) {
  if (num_samples < 1)
    throw Error(ExitCode::data, "the data set is too short for one sample", {},
                "Give more data, or a smaller --max_length");
  if (by_length != nullptr)
    order_ = std::make_unique<LengthOrder>(num_samples, seed,
                                           [by_length](std::int64_t k) { return by_length->tokens_of(k); });
}
Sampler::~Sampler() = default;

std::int64_t Sampler::shuffled(std::int64_t epoch, std::int64_t index) const {
  if (!shuffle_) return index;
  const auto words = philox(seed_, static_cast<std::uint64_t>(epoch), hash64("order of samples"));
  const std::uint64_t key = static_cast<std::uint64_t>(words[0]) << 32 | words[1];
  return static_cast<std::int64_t>(
      permute(key, static_cast<std::uint64_t>(num_samples_), static_cast<std::uint64_t>(index)));
}

std::int64_t Sampler::sample(std::int64_t global_index) const {
  TESSERA_ASSERT(global_index >= 0, "sample %ld", global_index);
  const std::int64_t epoch = global_index / num_samples_, index = global_index % num_samples_;
  if (order_ == nullptr) return shuffled(epoch, index);
  return order_->sample(epoch, index, [&](std::int64_t i) { return shuffled(epoch, i); });
}

}  // namespace tessera::io
