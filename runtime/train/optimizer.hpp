#pragma once
// Optimizer: updates one shard from its reduced gradient. It sees no mesh.

#include <span>
#include <vector>

#include "kernels/adamw.hpp"
#include "runtime/base/param.hpp"
#include "runtime/shard/manager.hpp"

namespace tessera::train {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// fp32 numbers kept per element.
  [[nodiscard]] virtual int num_states() const = 0;
  /// Fixes what step `step` (1-based) uses; before its schedule runs.
  virtual void begin(std::int64_t step, double learning_rate) = 0;
  /// Fixes the factor on the gradient; after the norm is known, before the first update.
  virtual void set_clip(double factor) = 0;
  /// What the step uses, as begin has fixed it; on a device it is copied to where update reads it, and the
  /// clip factor is decided there.
  [[nodiscard]] virtual const kernels::AdamWScalars& scalars() const = 0;
  /// On a device: update reads its numbers there from now on; null: its own.
  virtual void read_scalars_at(const kernels::AdamWScalars* memory) = 0;
  /// Updates a unit's shard. Allocates nothing.
  virtual void update(const shard::UpdateView& shard, StreamView stream) = 0;
};

/// kernels/adamw.hpp has the formula. Element by element, so shards may cut parameters anywhere.
class AdamW : public Optimizer {
 public:
  /// `params` is the model's list (which of them decay); it must outlive the optimizer.
  AdamW(const AdamWOptions& options, std::span<const ParamSpec> params) : options_(options), params_(params) {
    segments_.reserve(params.size());
  }

  [[nodiscard]] int num_states() const override { return 2; }
  void begin(std::int64_t step, double learning_rate) override;
  void set_clip(double factor) override { scalars_.clip = static_cast<float>(factor); }
  [[nodiscard]] const kernels::AdamWScalars& scalars() const override { return scalars_; }
  void read_scalars_at(const kernels::AdamWScalars* memory) override { memory_ = memory; }
  void update(const shard::UpdateView& shard, StreamView stream) override;

 private:
  AdamWOptions options_;
  std::span<const ParamSpec> params_;
  kernels::AdamWScalars scalars_;
  const kernels::AdamWScalars* memory_ = nullptr;
  std::vector<kernels::AdamWSegment> segments_;  // of the shard in work
};

}  // namespace tessera::train
