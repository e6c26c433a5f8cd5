#pragma once
// Branch: a module of one residual branch. Two of them make a layer whose parts are separate shard units: attention,
// and a mixture of experts.

#include "models/residual.hpp"

namespace tessera::models {

struct BranchParts {
  std::string name;   // "layers.3", "layers.3.experts"
  std::string group;  // see Module::group
  std::int64_t channels = 0;
  std::vector<int> params;  // indices into Model::params
  Residual branch;
};

class Branch final : public Module {
 public:
  explicit Branch(BranchParts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] std::string name() const override { return parts_.name; }
  [[nodiscard]] std::string group() const override { return parts_.group; }
  [[nodiscard]] std::span<const int> params() const override { return parts_.params; }
  void forward(const ForwardArgs& args) const override;
  void backward(const BackwardArgs& args) const override;
  [[nodiscard]] std::size_t saved_bytes(BatchShape shape, DType dtype) const override {
    return parts_.branch.saved_bytes(shape, dtype);
  }
  [[nodiscard]] std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const override;
  [[nodiscard]] std::size_t cache_bytes(BatchShape capacity, DType dtype) const override {
    return parts_.branch.cache_bytes(capacity, dtype);
  }
  [[nodiscard]] double forward_flops(BatchShape shape) const override { return parts_.branch.forward_flops(shape); }
  [[nodiscard]] double backward_flops(BatchShape shape, const Wanted& wanted) const override {
    return parts_.branch.backward_flops(shape, wanted);
  }

 private:
  BranchParts parts_;
};

}  // namespace tessera::models
