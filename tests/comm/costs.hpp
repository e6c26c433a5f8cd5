// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a rank sends for one collective of its group along `axes`.

#include "runtime/comm/topology.hpp"

namespace tessera::test {

inline TrafficCount traffic(const Topology& topology, const Mesh& mesh, AxisSet axes, int rank, CollectiveKind kind,
                            std::uint64_t bytes) {
  return AxisCosts(topology, mesh, axes).group(rank).traffic(mesh.coordinate(rank, axes), kind, bytes);
}
inline TrafficCount sum_traffic(const Topology& topology, const Mesh& mesh, AxisSet axes, int rank, CollectiveKind kind,
                                std::uint64_t numel, DType dtype) {
  return AxisCosts(topology, mesh, axes).group(rank).sum_traffic(mesh.coordinate(rank, axes), kind, numel, dtype);
}
inline TrafficCount counters_traffic(const Topology& topology, const Mesh& mesh, AxisSet axes, int rank,
                                     std::uint64_t count) {
  return AxisCosts(topology, mesh, axes).group(rank).counters_traffic(mesh.coordinate(rank, axes), count);
}

}  // namespace tessera::test
