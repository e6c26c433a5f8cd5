// SPDX-License-Identifier: Apache-2.0
#pragma once
// An order of samples in which those of similar length follow one another, so that micro-batches of padded rows hold
// little padding.

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace tessera::io {

/// Each epoch's order is cut into windows of 4,096 samples. In a window samples are sorted by length, longest first,
/// and runs of 64 of them then get a random order of their own. What an epoch's last window has beyond a multiple of 64
/// comes at its end. A function of (seed, epoch, index) and the lengths alone, not of the batch or the world.
class LengthOrder {
 public:
  static constexpr std::int64_t window_samples = 4096, run_samples = 64;
  using SampleOf = std::function<std::int64_t(std::int64_t)>;

  /// `length_of`: the tokens of a sample.
  LengthOrder(std::int64_t num_samples, std::uint64_t seed, SampleOf length_of);
  /// The sample at place `index` of an epoch; `before` maps a place to its sample in the epoch's order so far. Sorts a
  /// window at its first call, and keeps it until the next; allocates nothing.
  [[nodiscard]] std::int64_t sample(std::int64_t epoch, std::int64_t index, const SampleOf& before);

 private:
  struct Entry {
    std::int64_t length = 0, sample = 0;
  };
  void sort_window(std::int64_t epoch, std::int64_t window, const SampleOf& before);
  /// The place before runs were moved.
  [[nodiscard]] std::int64_t place_in_window(std::int64_t place) const;

  std::int64_t num_samples_;
  std::uint64_t seed_, key_ = 0;
  SampleOf length_of_;
  std::mutex mutex_;
  std::int64_t epoch_ = -1, window_ = -1;  // of entries_
  std::vector<Entry> entries_;
};

}  // namespace tessera::io
