// SPDX-License-Identifier: Apache-2.0
// Compares the loss at the beginning and at the end of a run.
#include "jobs/cli/session/loss_trend.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"

namespace tessera::jobs {

void LossTrend::add(double loss, std::int64_t tokens) {
  const std::int64_t tenth = std::max<std::int64_t>(1, steps_ / 10), step = done_++;
  if (tokens <= 0) return;
  const auto count = [&](Mean& mean) {
    mean.sum += loss * static_cast<double>(tokens);
    mean.tokens += tokens;
  };
  if (very_first_.tokens == 0) count(very_first_);
  if (step < tenth) count(first_);
  if (step >= steps_ - tenth) count(last_);
}

std::string LossTrend::not_fallen(const Start& start) const {
  if (done_ < std::max(steps_, least_steps) || first_.tokens == 0 || last_.tokens == 0) return {};
  const double before = std::min(first_.value(), very_first_.value()), after = last_.value();
  const std::string losses =
      strfmt(": %.4f in the first step, %.4f over the first tenth of the steps, %.4f over the last",
             very_first_.value(), first_.value(), after);
  const bool enough = steps_ >= steps_for_chance || after > 0.998 * before;
  if (enough && start.log_vocabulary > 0 && after >= 0.999 * start.log_vocabulary)
    return strfmt("the loss did not fall below ln(vocabulary) = %.4f, that of a model that has learnt nothing",
                  start.log_vocabulary) +
           losses;
  if (steps_ < steps_for_chance) return {};
  const bool compares_means = !start.resumed && steps_ >= steps_for_means;
  return after > 1.1 * before || (compares_means && after >= first_.value()) ? "the loss did not fall" + losses
                                                                             : std::string();
}

}  // namespace tessera::jobs
