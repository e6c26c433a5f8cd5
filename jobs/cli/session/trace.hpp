// SPDX-License-Identifier: Apache-2.0
#pragma once
// Chrome trace (Perfetto reads it too) of one rank's spans.

#include <string>
#include <vector>

#include "runtime/train/trainer.hpp"

namespace tessera::jobs {

/// The file's text: one process for the rank, one lane for each stream.
[[nodiscard]] std::string chrome_trace(const std::vector<exec::TraceSpan>& spans, int rank, int world,
                                       const std::string& host, const char* transport);

}  // namespace tessera::jobs
