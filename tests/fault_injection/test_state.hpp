// SPDX-License-Identifier: Apache-2.0
#pragma once
// A training state without a trainer: parameters of odd shapes whose values are a function of (step, vector, parameter,
// element) alone, held by a rank of any mesh, saved and loaded through io::Checkpoint. Differences after a load are
// reported as text.

#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"

namespace tessera::test {

/// The vectors of a test's state: the parameters and two states of an optimizer.
inline constexpr int num_vectors = 3;
[[nodiscard]] std::vector<StateSpec> test_states();

struct TestTensors {
  std::vector<ParamSpec> params;
  std::vector<shard::UnitSpec> units;
  [[nodiscard]] std::uint64_t numel() const;
  /// Of all vectors.
  [[nodiscard]] std::uint64_t bytes() const { return numel() * sizeof(float) * num_vectors; }
};
/// 11 tensors in 3 units, about 20 KB of state: odd shapes, one scalar.
[[nodiscard]] TestTensors small_tensors();
/// 4 tensors in 2 units, 29 MB of state: tensors over several blocks, tensors that share one.
[[nodiscard]] TestTensors large_tensors();

[[nodiscard]] float test_value(std::int64_t step, int vector, int param, std::int64_t element);

/// The shards of one rank of `mesh`.
class TestState {
 public:
  TestState(const TestTensors& tensors, const Mesh& mesh, int rank);
  /// The state of a step; padding is zero.
  void fill(std::int64_t step);
  /// Sets every element to NaN.
  void spoil();
  /// "" if every element and all padding are those of the step; else the first that is not.
  [[nodiscard]] std::string difference(std::int64_t step) const;

  [[nodiscard]] const TestTensors& tensors() const { return tensors_; }
  [[nodiscard]] const shard::ShardLayout& layout() const { return layout_; }
  [[nodiscard]] io::TrainingState views();

 private:
  const TestTensors& tensors_;
  shard::ShardLayout layout_;
  int shard_;
  std::vector<std::vector<float>> values_;  // [unit · 3 + vector], shard_numel each
};

/// The request that the trainer would make; tests change it.
[[nodiscard]] io::SaveRequest save_request(TestState& state, const std::string& directory, std::int64_t step);
/// Collective: saves and commits.
io::SaveReport save(World& world, TestState& state, const std::string& directory, std::int64_t step);
/// Collective: loads what is in `directory`; "" or what differs from the state of `step` on the first rank that
/// differs. Throws as the reader does.
[[nodiscard]] std::string load(World& world, TestState& state, const std::string& directory, std::int64_t step);

}  // namespace tessera::test
