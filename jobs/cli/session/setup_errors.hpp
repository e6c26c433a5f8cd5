#pragma once
// Several errors of set-up, told at once.

#include <functional>

#include "jobs/cli/options/options.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// Collective, once set-up has failed with the same Error on every rank. Looks for what else would keep the run from
/// starting: files of --dataset and --val_dataset that cannot be read, an --output_dir that cannot be made (of
/// `train`), and what `more` throws (if set). Throws `first` if there is nothing else, or SeveralErrors with its exit
/// code.
[[noreturn]] void throw_with_others(const Options& options, World& world, const Error& first,
                                    const std::function<void()>& more = {});

}  // namespace tessera::jobs
