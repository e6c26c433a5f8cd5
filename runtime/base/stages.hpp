// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stages of a module, and the exchanges of activations between them: what models and schedules share about them.

#include <string>
#include <vector>

namespace tessera {

/// What becomes of an activation in a group of ranks. `from` is each member's; sums are of the host, in fp32 and in
/// the order of Communicator::reduce_scatter; NCCL's have its own order and type. They take values of the activations'
/// type, and may overwrite `from`.
enum class ExchangeKind : unsigned char {
  copy,            // to = from
  all_gather,      // to = the `from` of all members, in member order
  reduce_scatter,  // to = this member's part of Σ from
  all_reduce,      // to = Σ from
  all_to_all,      // part i of to = this member's part of member i's from. Parts are equal
};
[[nodiscard]] constexpr const char* name_of(ExchangeKind kind) {
  constexpr const char* names[] = {"copy", "all_gather", "reduce_scatter", "all_reduce", "all_to_all"};
  return names[static_cast<int>(kind)];
}
[[nodiscard]] constexpr bool is_sum(ExchangeKind kind) {
  return kind == ExchangeKind::reduce_scatter || kind == ExchangeKind::all_reduce;
}

/// A value that stages pass to one another. kept: backward reads it too. constant: it has no gradient, and an exchange
/// of it, into another one, is of forward alone.
struct StageValue {
  std::string name;
  bool kept = false, constant = false;
};

/// The values (by index) that the forward of a stage reads and writes. Its backward reads the gradients of what it has
/// written, and writes those of what it has read, if they are not constant.
struct ModuleStage {
  std::vector<int> reads, writes;
};

/// After stage `after`, before the next one: value `from` is exchanged into value `to`, which only later stages read.
/// In backward, after the stages that read `to`: the gradient of `to` into that of `from`.
struct StageExchange {
  int after = 0, from = -1, to = -1;
  ExchangeKind forward = ExchangeKind::copy, backward = ExchangeKind::copy;
};

}  // namespace tessera
