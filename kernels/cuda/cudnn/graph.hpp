// SPDX-License-Identifier: Apache-2.0
#pragma once
// A graph of cuDNN operations, built one after the other, and the engine configuration to run it with. The including
// source includes cudnn.h.

#include <array>
#include <initializer_list>
#include <optional>
#include <vector>

#include "kernels/cuda/cudnn/library.hpp"

namespace tessera::kernels::cuda::cudnn {

using Dims = std::array<std::int64_t, 4>;  // batch, head, row, column

/// A tensor of the graph, by its index in the builder.
struct Node {
  std::size_t index = 0;
};

/// The sizes that a matmul uses in place of its tensors', by sequence: int32 tensors of the batch.
struct MatmulSizes {
  std::optional<Node> m, n, k;
  bool pads = false;  // the rest of the result is 0
};

class Graph {
 public:
  /// A tensor in device memory, bound at each execution by `uid`; aligned to 16 bytes, fp32 and int32 to 4.
  /// With `offsets`, integers of one more than the batch, sequence b begins `offsets[b]` elements from the bound
  /// address in place of b times its stride.
  [[nodiscard]] Node memory(std::int64_t uid, cudnnDataType_t type, const Dims& dims, const Dims& strides,
                            std::optional<Node> offsets = std::nullopt);
  /// `count` int32 in device memory, bound at each execution by `uid`.
  [[nodiscard]] Node integers(std::int64_t uid, std::int64_t count);
  /// One fp32 scalar in host memory, bound at each execution by `uid`.
  [[nodiscard]] Node number(std::int64_t uid);
  /// A virtual tensor between operations, not in memory: packed, or with `strides`; `offsets` as in memory().
  [[nodiscard]] Node value(cudnnDataType_t type, const Dims& dims, std::optional<Dims> strides = std::nullopt,
                           std::optional<Node> offsets = std::nullopt);

  /// to = a·b, sums in fp32. These return `to`.
  Node matmul(Node a, Node b, Node to, const MatmulSizes& sizes = {});
  Node pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Node> inputs, Node to,
                 cudnnDataType_t arithmetic = CUDNN_DATA_FLOAT);
  /// The index of each element along an axis; int32.
  Node index(Node like, std::int64_t axis, Node to);
  Node reduce(cudnnReduceTensorOp_t op, Node from, Node to);
  Node reshape(Node from, Node to);

  /// The first configuration of the library's heuristic that runs on the device that `device` describes, with its
  /// scratch. Throws Error (internal) if there is none.
  struct Config {
    Descriptor config;
    std::size_t workspace = 0;
  };
  [[nodiscard]] Config configure(const Descriptor& device, const std::string& about);

 private:
  enum class Kind : unsigned char { memory, virtual_value, host_scalar };
  [[nodiscard]] Node tensor(std::int64_t uid, cudnnDataType_t type, const Dims& dims, const Dims& strides, Kind kind,
                            std::optional<Node> offsets = std::nullopt);
  [[nodiscard]] cudnnBackendDescriptor_t at(Node node) const { return nodes_[node.index]; }
  /// Finalizes the descriptor and keeps it as long as the graph: a plan may read what it was made from.
  cudnnBackendDescriptor_t keep(Descriptor descriptor);
  std::vector<Descriptor> kept_;
  std::vector<cudnnBackendDescriptor_t> nodes_, operations_;
  std::int64_t next_uid_ = 1000;
};

/// A device's description: of the handle's device, or from JSON (in tests: of an absent device).
[[nodiscard]] Descriptor describe(cudnnHandle_t handle);
[[nodiscard]] Descriptor describe(const std::string& json);

}  // namespace tessera::kernels::cuda::cudnn
