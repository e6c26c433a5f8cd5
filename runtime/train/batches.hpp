#pragma once
// Where micro-batches come from: samples of a token stream, cut by the batch equation; or a prompt.

#include <vector>

#include "io/data/packing.hpp"
#include "runtime/plan/batch.hpp"
#include "runtime/train/executor.hpp"

namespace tessera::train {

/// Micro-batches of samples [first, first + count) of an order, for one rank.
class SampleBatches : public BatchSource {
 public:
  /// `place` is this rank's place in the data, from the mesh. Without a sampler, samples come in file order.
  SampleBatches(const plan::BatchPlan& batch, int place, std::int64_t tokens)
      : batch_(batch), data_rank_(place), tokens_(tokens) {}
  void set(const io::TokenStream& stream, const io::Sampler* sampler, std::int64_t first, std::int64_t count);
  /// What is in all of them, on all ranks.
  [[nodiscard]] io::PackedCounts work() const;

  [[nodiscard]] std::int64_t rows(int micro) const override { return batch_.range(micro, data_rank_, count_).count; }
  [[nodiscard]] std::int64_t tokens() const override { return tokens_; }
  void load(int micro, const BatchMemory& to) override;

 private:
  [[nodiscard]] std::int64_t sample(std::int64_t index) const { return sampler_ ? sampler_->sample(index) : index; }

  plan::BatchPlan batch_;
  int data_rank_;
  std::int64_t tokens_;
  const io::TokenStream* stream_ = nullptr;
  const io::Sampler* sampler_ = nullptr;
  std::int64_t first_ = 0, count_ = 0;
};

/// One row of ids, as long as it is: what generation has so far.
class PromptBatch : public BatchSource {
 public:
  explicit PromptBatch(const std::vector<std::int32_t>& ids, std::int64_t limit) : ids_(ids), limit_(limit) {}
  [[nodiscard]] std::int64_t rows(int) const override { return 1; }
  [[nodiscard]] std::int64_t tokens() const override {
    return std::min(limit_, static_cast<std::int64_t>(ids_.size()));
  }
  void load(int micro, const BatchMemory& to) override;

 private:
  const std::vector<std::int32_t>& ids_;
  std::int64_t limit_;  // the last so many tokens
};

}  // namespace tessera::train
