// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether the training loss has fallen: the first tenth of a run's steps against the last.

#include <cstdint>
#include <string>

namespace tessera::jobs {

class LossTrend {
 public:
  LossTrend() = default;
  /// Of a process that trains `steps` steps; fewer than `least_steps` say nothing, fewer than `steps_for_chance`
  /// little.
  explicit LossTrend(std::int64_t steps) : steps_(steps) {}
  static constexpr std::int64_t least_steps = 3, steps_for_chance = 10, steps_for_means = 50;

  /// The next step's loss and its tokens. A skipped step (fp16) has 0 tokens.
  void add(double loss, std::int64_t tokens);

  struct Start {
    double log_vocabulary = 0;  // the loss of a model that has learnt nothing; 0: losses are weighted, so none
    bool resumed = false;       // the loss may have reached its floor before
  };
  /// After the last step, why the loss has not fallen: it is that of a model that has learnt nothing, or 10 % above
  /// that of the beginning; in a new run of `steps_for_means` steps or more also, not below that of the first tenth of
  /// them.
  /// "": it has fallen, or there were too few steps.
  [[nodiscard]] std::string not_fallen(const Start& start) const;

 private:
  struct Mean {
    double sum = 0;
    std::int64_t tokens = 0;
    [[nodiscard]] double value() const { return sum / static_cast<double>(tokens); }
  };
  std::int64_t steps_ = 0, done_ = 0;
  Mean very_first_, first_, last_;
};

}  // namespace tessera::jobs
