// SPDX-License-Identifier: Apache-2.0
// Operations as descriptors.
#include <cudnn.h>

#include "kernels/cuda/cudnn/graph.hpp"

namespace tessera::kernels::cuda::cudnn {

namespace {

Dims packed(const Dims& d) { return {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}; }

}  // namespace

Node Graph::tensor(std::int64_t uid, cudnnDataType_t type, const Dims& dims, const Dims& strides, Kind kind,
                   std::optional<Node> offsets) {
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const std::int64_t alignment = type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_INT32 ? 4 : 16;
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::span<const std::int64_t>(dims));
  d.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::span<const std::int64_t>(strides));
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, uid);
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, kind == Kind::virtual_value);
  d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, kind == Kind::host_scalar);
  if (offsets) d.set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, at(*offsets));
  nodes_.push_back(keep(std::move(d)));
  return {nodes_.size() - 1};
}

Node Graph::memory(std::int64_t uid, cudnnDataType_t type, const Dims& dims, const Dims& strides,
                   std::optional<Node> offsets) {
  return tensor(uid, type, dims, strides, Kind::memory, offsets);
}
Node Graph::integers(std::int64_t uid, std::int64_t count) {
  return tensor(uid, CUDNN_DATA_INT32, {count, 1, 1, 1}, {1, 1, 1, 1}, Kind::memory);
}
Node Graph::number(std::int64_t uid) {
  return tensor(uid, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, Kind::host_scalar);
}
Node Graph::value(cudnnDataType_t type, const Dims& dims, std::optional<Dims> strides, std::optional<Node> offsets) {
  return tensor(next_uid_++, type, dims, strides.value_or(packed(dims)), Kind::virtual_value, offsets);
}

Node Graph::matmul(Node a, Node b, Node to, const MatmulSizes& sizes) {
  Descriptor how(CUDNN_BACKEND_MATMUL_DESCRIPTOR), d(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  if (sizes.pads) how.set(CUDNN_ATTR_MATMUL_PADDING_VALUE, CUDNN_TYPE_DOUBLE, 0.0);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, keep(std::move(how)));
  d.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a))
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b))
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(to));
  if (sizes.m) d.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, at(*sizes.m));
  if (sizes.n) d.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, at(*sizes.n));
  if (sizes.k) d.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, at(*sizes.k));
  operations_.push_back(keep(std::move(d)));
  return to;
}

Node Graph::pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Node> inputs, Node to,
                      cudnnDataType_t arithmetic) {
  constexpr cudnnBackendAttributeName_t names[] = {
      CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  Descriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR), d(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, arithmetic);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(how)));
  std::size_t i = 0;
  for (const Node input : inputs) d.set(names[i++], at(input));
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(to));
  operations_.push_back(keep(std::move(d)));
  return to;
}

Node Graph::index(Node like, std::int64_t axis, Node to) {
  Descriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR), d(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_GEN_INDEX);
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_INT32)
      .set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(how)));
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(like)).set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(to));
  operations_.push_back(keep(std::move(d)));
  return to;
}

Node Graph::reduce(cudnnReduceTensorOp_t op, Node from, Node to) {
  Descriptor how(CUDNN_BACKEND_REDUCTION_DESCRIPTOR), d(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op);
  how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, keep(std::move(how)));
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(from)).set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(to));
  operations_.push_back(keep(std::move(d)));
  return to;
}

Node Graph::reshape(Node from, Node to) {
  Descriptor d(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(from)).set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(to));
  operations_.push_back(keep(std::move(d)));
  return to;
}

cudnnBackendDescriptor_t Graph::keep(Descriptor descriptor) {
  kept_.push_back(std::move(descriptor.finalize()));
  return kept_.back().get();
}

Graph::Config Graph::configure(const Descriptor& device, const std::string& about) {
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            std::span<const cudnnBackendDescriptor_t>(operations_));
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, keep(std::move(graph)))
      .set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device.get());
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A).finalize();
  Config first{Descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)};
  if (!heuristic.fetch(CUDNN_ATTR_ENGINEHEUR_RESULTS, first.config))
    throw Error(ExitCode::internal, "cuDNN has no kernel: " + last_error_message(), about, "Use --attention own");
  first.workspace = static_cast<std::size_t>(first.config.integer(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE));
  return first;
}

Descriptor describe(cudnnHandle_t handle) {
  Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set(CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, handle);
  return std::move(device.finalize());
}

Descriptor describe(const std::string& json) {
  Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::span<const char>(json));
  return std::move(device.finalize());
}

}  // namespace tessera::kernels::cuda::cudnn
