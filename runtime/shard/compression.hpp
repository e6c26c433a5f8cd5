// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a run's collectives send as block-wise int8 (runtime/comm/int8_collectives.hpp): as its policy says it, and for
// one unit.

namespace tessera::shard {

/// Of a run.
struct Compression {
  bool gradients = false;
  enum class Gathers : unsigned char { none, frozen, all };  // of which units the gathered parameters are int8
  Gathers gathers = Gathers::none;
  /// Groups on one node too. False: groups whose ranks are on several nodes.
  bool everywhere = false;
  bool error_feedback = true;  // of gradients
  [[nodiscard]] bool any() const { return gradients || gathers != Gathers::none; }
  friend bool operator==(const Compression&, const Compression&) = default;
};

/// Of a unit: the collectives that send int8.
struct Int8Collectives {
  bool gather = false, reduce_scatter = false, all_reduce = false;
  /// reduce_scatter and all_reduce keep what the codes lack, on each rank a residual for each number that they encode.
  bool error_feedback = false;
  friend bool operator==(const Int8Collectives&, const Int8Collectives&) = default;
};

}  // namespace tessera::shard
