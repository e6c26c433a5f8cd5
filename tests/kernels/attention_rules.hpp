// SPDX-License-Identifier: Apache-2.0
#pragma once
// Cases of attention's rules, for the host's kernels and a device's: parts of rows, documents, windows, soft caps and
// sinks, each by itself and together.

#include <ostream>
#include <vector>

#include "kernels/attention.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::kernels {

struct RuleCase {
  AttentionShape shape;
  bool documents = false;
  [[nodiscard]] std::int64_t queries() const { return shape.batch * shape.tokens; }
  [[nodiscard]] std::int64_t keys() const { return shape.batch * shape.num_keys(); }
  [[nodiscard]] std::int64_t q_width() const { return shape.heads * shape.head_dim; }
  [[nodiscard]] std::int64_t kv_width() const { return shape.kv_heads * shape.head_dim; }
};

inline std::ostream& operator<<(std::ostream& os, const RuleCase& c) {
  const AttentionShape& s = c.shape;
  return os << s.batch << " x " << s.tokens << " queries from " << s.query_offset << " on of " << s.num_keys()
            << " keys, heads " << s.heads << "/" << s.kv_heads << " of " << s.head_dim << ", window " << s.window
            << ", cap " << s.soft_cap << (s.sinks ? ", sinks" : "") << (c.documents ? ", documents" : "");
}

/// Window × documents × part of a row × groups of heads; and caps and sinks with them. Windows of two keys, within a
/// tile, across tiles and longer than the row; parts at odd places, of one token, and with keys after them.
inline std::vector<RuleCase> rule_cases() {
  const auto shape = [](std::int64_t tokens, std::int64_t keys, std::int64_t offset, std::int64_t window, double cap,
                        bool sinks) {
    return AttentionShape{.batch = 2,
                          .tokens = tokens,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = 16,
                          .keys = keys,
                          .query_offset = offset,
                          .window = window,
                          .soft_cap = cap,
                          .sinks = sinks};
  };
  std::vector<RuleCase> cases{{shape(150, 0, 0, 2, 0, false)},        {shape(250, 0, 0, 7, 0, false)},
                              {shape(250, 0, 0, 100, 0, false)},      {shape(90, 0, 0, 1000, 0, false)},
                              {shape(61, 211, 150, 0, 0, false)},     {shape(61, 211, 37, 0, 0, false)},
                              {shape(1, 130, 129, 0, 0, false)},      {shape(130, 0, 0, 0, 2.5, false)},
                              {shape(130, 0, 0, 0, 0, true)},         {shape(61, 211, 93, 20, 0, false)},
                              {shape(211, 0, 0, 30, 0, false), true}, {shape(77, 211, 101, 0, 0, false), true},
                              {shape(211, 0, 0, 0, 1.5, true), true}, {shape(77, 211, 101, 30, 1.5, true), true},
                              {shape(50, 400, 200, 130, 1.5, true)}};
  for (std::size_t i = 0; i < cases.size(); ++i) {  // groups of 2, 4 and 1; odd heads
    if (i % 3 == 1) cases[i].shape.kv_heads = 1;
    if (i % 3 == 2) cases[i].shape.kv_heads = 4, cases[i].shape.head_dim = 20;
  }
  return cases;
}

/// Positions (B, keys) of documents of different lengths, the first of which began before its row.
inline std::vector<std::int32_t> rule_positions(const RuleCase& c) {
  std::vector<std::int32_t> positions;
  for (std::int64_t b = 0; b < c.shape.batch; ++b) {
    std::int32_t at = b == 0 ? 3 : 0;
    for (std::int64_t t = 0; t < c.shape.num_keys(); ++t, ++at) {
      if (t > 0 && uniform(9, static_cast<std::uint64_t>(b * c.shape.num_keys() + t)) < 0.02) at = 0;
      positions.push_back(at);
    }
  }
  return positions;
}

}  // namespace tessera::kernels
