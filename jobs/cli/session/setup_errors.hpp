// SPDX-License-Identifier: Apache-2.0
#pragma once
// Several errors of set-up, told at once.

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "jobs/cli/options/options.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// Runs checks that do not depend on one another, and keeps what they refuse.
class SetupErrors {
 public:
  SetupErrors() = default;
  explicit SetupErrors(const Error& first);
  /// Keeps an Error that `check` throws, unless an earlier one says the same. An error of communication goes on.
  void check(const std::function<void()>& check);
  /// Throws what was kept: nothing, the one Error as it was, or SeveralErrors with the first one's exit code.
  void throw_all() const;

 private:
  std::exception_ptr first_;
  ExitCode code_ = ExitCode::ok;
  std::vector<std::string> lines_;
};

/// Collective, once set-up has failed with the same Error on every rank. Looks for what else would keep the run from
/// starting: files of --dataset and --val_dataset that cannot be read, an --output_dir that cannot be made (of
/// `train`), and what `checks` throw. Throws `first` if there is nothing else, or SeveralErrors with its exit code.
[[noreturn]] void throw_with_others(const Options& options, World& world, const Error& first,
                                    const std::vector<std::function<void()>>& checks = {});

}  // namespace tessera::jobs
