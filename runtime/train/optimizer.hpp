#pragma once
// Optimizer: updates one shard from its reduced gradient.

#include <span>
#include <vector>

#include "kernels/adamw.hpp"
#include "runtime/base/param.hpp"
#include "runtime/shard/manager.hpp"

namespace tessera::train {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
};

/// The states that AdamW keeps: exp_avg and exp_avg_sq, in this order.
[[nodiscard]] std::vector<StateSpec> adamw_states();

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Sets the scalars of step `step` (1-based), before its schedule runs.
  virtual void begin(std::int64_t step, double learning_rate) = 0;
  /// Sets the factor on the gradient: after norm, before the first update.
  virtual void set_clip(double factor) = 0;
  /// The scalars of the step. On a device they are copied to device memory, where the clip factor is computed.
  [[nodiscard]] virtual const kernels::AdamWScalars& scalars() const = 0;
  /// On a device: update reads the scalars from `memory`; null: from the optimizer itself.
  virtual void read_scalars_at(const kernels::AdamWScalars* memory) = 0;
  /// Updates the shard of a unit. Allocates nothing.
  virtual void update(const shard::UpdateView& shard, StreamView stream) = 0;
};

/// AdamW, element by element, so that shards may split parameters anywhere. The formula is in kernels/adamw.hpp.
class AdamW : public Optimizer {
 public:
  /// `params` says which parameters have weight decay; it must outlive the optimizer.
  AdamW(const AdamWOptions& options, std::span<const ParamSpec> params) : options_(options), params_(params) {
    segments_.reserve(params.size());
  }

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
  std::vector<kernels::AdamWSegment> segments_;  // of the current shard
};

}  // namespace tessera::train
