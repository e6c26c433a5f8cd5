// SPDX-License-Identifier: Apache-2.0
#include "io/data/length_order.hpp"

#include <algorithm>
#include <tuple>

#include "runtime/base/rng.hpp"

namespace tessera::io {

LengthOrder::LengthOrder(std::int64_t num_samples, std::uint64_t seed, SampleOf length_of)
    : num_samples_(num_samples), seed_(seed), length_of_(std::move(length_of)) {
  entries_.reserve(static_cast<std::size_t>(std::min(num_samples, window_samples)));
}

void LengthOrder::sort_window(std::int64_t epoch, std::int64_t window, const SampleOf& before) {
  if (epoch == epoch_ && window == window_) return;
  const std::int64_t first = window * window_samples, count = std::min(window_samples, num_samples_ - first);
  epoch_ = window_ = -1;  // unless the following succeeds
  entries_.resize(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t k = before(first + i);
    entries_[static_cast<std::size_t>(i)] = {length_of_(k), k};
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::tuple(-a.length, a.sample) < std::tuple(-b.length, b.sample);
  });
  const auto words = philox(seed_, static_cast<std::uint64_t>(epoch) << 32 | static_cast<std::uint64_t>(window),
                            hash64("order of runs of samples of similar length"));
  key_ = static_cast<std::uint64_t>(words[0]) << 32 | words[1];
  epoch_ = epoch;
  window_ = window;
}

std::int64_t LengthOrder::place_in_window(std::int64_t place) const {
  const auto runs = static_cast<std::int64_t>(entries_.size()) / run_samples;
  const std::int64_t run = place / run_samples;
  if (run >= runs) return place;
  const auto moved = permute(key_, static_cast<std::uint64_t>(runs), static_cast<std::uint64_t>(run));
  return static_cast<std::int64_t>(moved) * run_samples + place % run_samples;
}

std::int64_t LengthOrder::sample(std::int64_t epoch, std::int64_t index, const SampleOf& before) {
  const std::lock_guard lock(mutex_);
  sort_window(epoch, index / window_samples, before);
  return entries_[static_cast<std::size_t>(place_in_window(index % window_samples))].sample;
}

}  // namespace tessera::io
