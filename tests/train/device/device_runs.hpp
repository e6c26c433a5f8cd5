// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs on a device, and what device_runs compares them with.

#include <functional>
#include <string>
#include <vector>

#include "io/data/packing.hpp"
#include "tests/train/run.hpp"

namespace tessera::test {

/// exact: a simulated device, which is equal to the host bit for bit.
enum class Truth : unsigned char { exact, near };

/// Results of a run on one rank.
struct Said {
  std::vector<double> numbers;  // losses, norms, balance losses, loss of an evaluation
  std::vector<std::int32_t> tokens;
  std::uint64_t hash = 0;
  [[nodiscard]] std::string str() const;
};

inline constexpr int steps_of_run = 3;
/// Checkpoints that a run loads and saves, and its data.
struct Files {
  std::string from, to;  // "": fresh; not saved
  int first = 0, last = steps_of_run;
  const io::TokenStream* stream = nullptr;  // null: random tokens
};
/// GEMM algorithms chosen before the first step: how, and the result.
struct Choosing {
  std::string kept;
  train::GemmChoices chosen;
};
/// Collective: trains, evaluates, generates. Ends all ranks if the measured memory is not the planned one, or a canary
/// was overwritten. `choosing` null: nothing is chosen.
[[nodiscard]] Said one_rank(World& world, const models::Model& model, const Variant& variant, const Files& files,
                            Choosing* choosing = nullptr);
/// The same run on the host, on ranks as threads: results of `rank`.
[[nodiscard]] Said on_host(int size, int rank, const std::function<Said(World&)>& body);
/// 900 tokens in documents of 1 to 23, in samples of 13: some are padded.
[[nodiscard]] const io::PackedStream& packed_documents();
/// Compares every bit, or the numbers within a tolerance.
[[nodiscard]] bool agree(const Said& device, const Said& host, Truth truth, DType dtype);

// Each returns the number of errors on this rank, and prints them.

/// Steps of every strategy and dtype against host ranks as threads, and checkpoints between host and device.
[[nodiscard]] int against_host(World& world, Truth truth);
/// Those of against_host that shard over a part of the ranks: on four ranks alone.
[[nodiscard]] int against_host_on_a_mesh(World& world, Truth truth);
/// Ten steps of PyTorch at every ZeRO stage, and those of other families at ZeRO-3, with the tolerances of the host's
/// tests; stages equal bit for bit.
[[nodiscard]] int golden_curves(World& world, Truth truth);
/// Mixtures of experts with load-balancing loss, packed rows and padding, as against_host.
[[nodiscard]] int experts(World& world, Truth truth);
/// Runs that send int8, as against_host: the same bits on a device, with their residuals; bytes as planned.
[[nodiscard]] int compressed(World& world, Truth truth);
/// cuDNN's attention, chosen before the first step, and switched on and off.
[[nodiscard]] int library_attention(World& world, Truth truth);
/// An asynchronous save writes the bytes of a synchronous one.
[[nodiscard]] int save_asynchronously(World& world);
/// Exact sums at their bound on every rank: norm carries before it adds them. On any device, the host too.
[[nodiscard]] int sums_at_the_bound(World& world);
/// Simulated device alone: its waits are enough and, one by one, needed. Prints how many there are.
[[nodiscard]] int wait_order(World& world);
/// Simulated device, 0 on others: a warm-up step has all kernels of step 1 and changes no bit.
[[nodiscard]] int warm_up(World& world, Truth truth);
/// Spans of a traced step, and the time that compute waits for communication.
[[nodiscard]] int trace(World& world);

}  // namespace tessera::test
