#pragma once
// A graph of operations in the library's words, built one operation behind the other, and the configuration that the
// library would run it with. cudnn.h is in the including source file.

#include <array>
#include <initializer_list>
#include <optional>
#include <vector>

#include "kernels/cuda/cudnn/library.hpp"

namespace tessera::kernels::cuda::cudnn {

using Dims = std::array<std::int64_t, 4>;  // batch, head, row, column

/// A tensor of the graph, by its place in the builder.
struct Node {
  std::size_t index = 0;
};

class Graph {
 public:
  /// Device memory, told at each execution under `uid`; aligned to 16 bytes, of fp32 to 4.
  [[nodiscard]] Node memory(std::int64_t uid, cudnnDataType_t type, const Dims& dims, const Dims& strides);
  /// One fp32 number of the host's, told at each execution under `uid`.
  [[nodiscard]] Node number(std::int64_t uid);
  /// A value between operations, which is nowhere in memory: packed, or as `strides` say.
  [[nodiscard]] Node value(cudnnDataType_t type, const Dims& dims, std::optional<Dims> strides = std::nullopt);

  /// to = a·b, sums in fp32. These return `to`.
  Node matmul(Node a, Node b, Node to);
  Node pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Node> inputs, Node to,
                 cudnnDataType_t arithmetic = CUDNN_DATA_FLOAT);
  /// Of each element the index along an axis; int32.
  Node index(Node like, std::int64_t axis, Node to);
  Node reduce(cudnnReduceTensorOp_t op, Node from, Node to);
  Node reshape(Node from, Node to);

  /// What the library's heuristic would take first of what runs on the device that `device` describes, with its
  /// scratch. Throws Error (internal) if nothing does.
  struct Config {
    Descriptor config;
    std::size_t workspace = 0;
  };
  [[nodiscard]] Config configure(const Descriptor& device, const std::string& about);

 private:
  [[nodiscard]] Node tensor(std::int64_t uid, cudnnDataType_t type, const Dims& dims, const Dims& strides,
                            bool is_virtual, bool by_value);
  [[nodiscard]] cudnnBackendDescriptor_t at(Node node) const { return nodes_[node.index]; }
  /// Finalised, until the graph goes: a plan may look at what it was made from.
  cudnnBackendDescriptor_t keep(Descriptor descriptor);
  std::vector<Descriptor> kept_;
  std::vector<cudnnBackendDescriptor_t> nodes_, operations_;
  std::int64_t next_uid_ = 1000;
};

/// A device's description: of the handle's device, or of what a JSON says (tests: a device that is not here).
[[nodiscard]] Descriptor describe(cudnnHandle_t handle);
[[nodiscard]] Descriptor describe(const std::string& json);

}  // namespace tessera::kernels::cuda::cudnn
