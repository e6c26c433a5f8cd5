// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parses option values: flags, numbers, sizes, times, ranges. The whole text must be the value.

#include <cstdint>
#include <optional>
#include <string>

#include "jobs/cli/options/table.hpp"

namespace tessera::jobs {

/// true, 1, yes, on and false, 0, no, off, in any case; nothing for other texts.
[[nodiscard]] std::optional<bool> parse_flag(const std::string& text);
/// Decimal, or with an exponent or a suffix k, m, g that makes a whole number (1e3, 4k).
[[nodiscard]] std::optional<std::int64_t> parse_integer(const std::string& text);
[[nodiscard]] std::optional<double> parse_real(const std::string& text);
/// "5GB" (decimal), "512MiB", "2G" (= GiB), "4096".
[[nodiscard]] std::optional<std::uint64_t> parse_size(const std::string& text);
/// Seconds of "90", "90s", "1h30m", "2d", "500ms".
[[nodiscard]] std::optional<double> parse_duration(const std::string& text);

struct StepRange {
  std::int64_t first = 0, last = 0;  // both included
};
[[nodiscard]] std::optional<StepRange> parse_range(const std::string& text);

/// "" if `text` is a value of the option; otherwise what is expected: "an integer, at least 1".
[[nodiscard]] std::string expected_value(const OptionSpec& spec, const std::string& text);

/// "16.0 MiB"; parameters and tokens: "18.2k", "70.6B"; FLOPs: "3.1G", "41.0P"; "00:02:31".
[[nodiscard]] std::string human_bytes(double bytes);
[[nodiscard]] std::string human_count(double count);
[[nodiscard]] std::string human_flops(double flops);
[[nodiscard]] std::string human_time(double seconds);

}  // namespace tessera::jobs
