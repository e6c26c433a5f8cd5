#pragma once
// Runs on a device, and what device_runs compares them with.

#include <functional>
#include <string>
#include <vector>

#include "tests/train/run.hpp"

namespace tessera::test {

/// exact: a simulated device, whose every bit is the host's.
enum class Truth : unsigned char { exact, near };

/// What one rank can say of a run.
struct Said {
  std::vector<double> numbers;  // losses, norms, balance losses, loss of an evaluation
  std::vector<std::int32_t> tokens;
  std::uint64_t hash = 0;
  [[nodiscard]] std::string str() const;
};

inline constexpr int steps_of_run = 3;
/// Where a run begins and ends in checkpoints, and what it reads.
struct Files {
  std::string from, to;  // "": fresh; not saved
  int first = 0, last = steps_of_run;
  const io::TokenStream* stream = nullptr;  // null: made tokens
};
/// Products that choose before the first step: by what, and what became of it.
struct Choosing {
  std::string kept;
  train::GemmChoices chosen;
};
/// Collective: trains, evaluates, generates. Ends all ranks where measured memory is not planned, or a canary is
/// broken. `choosing` null: nothing is chosen.
[[nodiscard]] Said one_rank(World& world, const models::Model& model, const Variant& variant, const Files& files,
                            Choosing* choosing = nullptr);
/// The same run on the host, by ranks that are threads: rank `rank`'s word of it.
[[nodiscard]] Said on_host(int size, int rank, const std::function<Said(World&)>& body);
/// Every bit, or the numbers within a tolerance.
[[nodiscard]] bool agree(const Said& device, const Said& host, Truth truth, DType dtype);

// Each returns how much is wrong on this rank, and prints it.

/// Steps of every strategy and type against the host's ranks that are threads, and checkpoints across.
[[nodiscard]] int against_host(World& world, Truth truth);
/// Ten steps of PyTorch at every stage, and those of other families at stage 3, to the tolerances of the host's
/// tests; stages bit for bit alike.
[[nodiscard]] int golden_curves(World& world, Truth truth);
/// Mixtures of experts with their balance loss, packed rows and padding, as against_host.
[[nodiscard]] int experts(World& world, Truth truth);
/// Attention by the library, chosen before the first step and turned to and from.
[[nodiscard]] int library_attention(World& world, Truth truth);
/// A save beside the steps: the bytes of one that training waits for.
[[nodiscard]] int save_beside(World& world);
/// Spans of a profiled step, and how long compute waits for communication.
[[nodiscard]] int trace(World& world);

}  // namespace tessera::test
