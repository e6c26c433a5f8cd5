// SPDX-License-Identifier: Apache-2.0
#pragma once
// CUDA C++ for the host's compiler: included before everything else in the device sources that translate.cpp has
// translated. A kernel runs block by block on one thread of the host. Each CUDA thread is a fiber that runs until it
// waits for others: at a barrier, or at an instruction of its warp.
//
// Whatever order of threads CUDA permits must give the same results. There are three; launches take each of them:
//   ascending   each warp runs as far as it can, the lowest first, and so do the lanes of a warp; asynchronous copies
//               are made when they are waited for
//   descending  the highest first; asynchronous copies are made at once
//   shuffled    another order in each block, from a fixed seed; copies as with ascending
// A barrier that is missing gives other results in one of them, unless no other thread's data depend on it.
// TESSERA_SIMULATED_THREADS names one for all launches.
//
// Ends the process with a message: threads of a block that wait for different things, a warp whose lanes meet at
// different instructions or without one of them, a grid or an amount of shared memory that no GPU takes.

#pragma GCC diagnostic ignored "-Wshadow"  // nvcc has no such warnings
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "tests/simulated_device/device.hpp"

#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

struct dim3 {
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(4) char4 {
  signed char x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
using std::max, std::min;

namespace tessera::simulated {

inline constexpr int warp_lanes = 32;

/// The launch's grid and the place of the thread that runs.
struct Place {
  dim3 thread, block, block_dim, grid_dim;
};
extern Place place;

struct Launch {
  Launch(dim3 grid_, dim3 block_, std::size_t shared_bytes_, void* stream_)
      : grid(grid_), block(block_), shared_bytes(shared_bytes_), stream{stream_} {}
  dim3 grid, block;
  std::size_t shared_bytes;
  StreamView stream;
};

/// Runs `body` as every thread of every block.
void run_grid(const Launch& launch, const char* kernel, const std::function<void()>& body);
/// Throws nothing: what CUDA would refuse ends the process.
void check_launch(const Launch& launch, const char* kernel);

/// kernel<<<…>>>: called with the kernel's arguments, it enqueues the grid on the stream.
template <class Kernel>
class Launcher {
 public:
  Launcher(const Launch& launch, const char* name, Kernel kernel) : launch_(launch), name_(name), kernel_(kernel) {}
  template <class... Args>
  void operator()(const Args&... args) const {
    check_launch(launch_, name_);
    simulated::launch(launch_.stream, [launch = launch_, name = name_, kernel = kernel_, args...] {
      run_grid(launch, name, [&] { kernel(args...); });
    });
  }

 private:
  Launch launch_;
  const char* name_;
  Kernel kernel_;
};

/// The block's dynamic shared memory. All bits of shared memory are set before a block begins.
[[nodiscard]] void* dynamic_shared();
/// Each thread of a block names its static shared variables before it uses them.
void static_shared(void* variable, std::size_t bytes);

// Barriers. They are named by where they are in the source: TESSERA_SIMULATED_WITHOUT=file.cu:line (the end of the
// path) leaves one out, to show that a test notices.
void sync_threads(const char* file, int line);
void sync_warp(const char* file, int line);

/// cp.async: from null: zeros.
void copy_async(void* to, const void* from);
void commit_copies();
void await_copies(int groups_pending, const char* file, int line);

/// One instruction of a warp: `in` of each lane; the last lane to arrive calls `execute` with all of them, which fills
/// `out` of each.
struct WarpInstruction {
  const void* in;
  std::size_t in_bytes;
  void* out;
  std::size_t out_bytes;
  const char* name;
  void (*execute)(const std::byte* in, std::byte* out);  // lanes are `lane_bytes` apart
};
inline constexpr std::size_t lane_bytes = 64;
void warp_instruction(const WarpInstruction& instruction);

/// Out of each lane from In of all: F::run(std::span<const In, 32>, std::span<Out, 32>).
template <class Out, class F, class In>
Out of_warp(const char* name, const In& in) {
  static_assert(std::is_trivially_copyable_v<In> && std::is_trivially_copyable_v<Out> && sizeof(In) <= lane_bytes &&
                sizeof(Out) <= lane_bytes);
  Out result;
  warp_instruction({&in, sizeof in, &result, sizeof result, name, [](const std::byte* from, std::byte* to) {
                      In ins[warp_lanes];
                      Out outs[warp_lanes];
                      for (int lane = 0; lane < warp_lanes; ++lane)
                        std::memcpy(static_cast<void*>(&ins[lane]), from + lane * lane_bytes, sizeof(In));
                      F::run(std::span<const In, warp_lanes>(ins), std::span<Out, warp_lanes>(outs));
                      for (int lane = 0; lane < warp_lanes; ++lane)
                        std::memcpy(to + lane * lane_bytes, &outs[lane], sizeof(Out));
                    }});
  return result;
}

template <class V>
struct Shuffled {
  V value;
  int from;  // lane; beyond the warp: the lane's own value
};
template <class V>
struct Shuffle {
  static void run(std::span<const Shuffled<V>, warp_lanes> in, std::span<V, warp_lanes> out) {
    for (int lane = 0; lane < warp_lanes; ++lane) {
      const int from = in[lane].from;
      out[lane] = in[from < 0 || from >= warp_lanes ? lane : from].value;
    }
  }
};
struct Ballot {
  static void run(std::span<const bool, warp_lanes> in, std::span<unsigned, warp_lanes> out) {
    unsigned votes = 0;
    for (int lane = 0; lane < warp_lanes; ++lane) votes |= static_cast<unsigned>(in[lane]) << lane;
    for (unsigned& v : out) v = votes;
  }
};
struct Match {
  static void run(std::span<const std::uint64_t, warp_lanes> in, std::span<unsigned, warp_lanes> out) {
    for (int lane = 0; lane < warp_lanes; ++lane) {
      out[lane] = 0;
      for (int other = 0; other < warp_lanes; ++other)
        out[lane] |= static_cast<unsigned>(in[other] == in[lane]) << other;
    }
  }
};

/// Ends the process unless all lanes take part: nothing here has uses for fewer.
void require_all_lanes(unsigned mask);
[[nodiscard]] int lane();

}  // namespace tessera::simulated

#define threadIdx (::tessera::simulated::place.thread)
#define blockIdx (::tessera::simulated::place.block)
#define blockDim (::tessera::simulated::place.block_dim)
#define gridDim (::tessera::simulated::place.grid_dim)

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  ::tessera::simulated::sync_threads(file, line);
}
inline void __syncwarp(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  ::tessera::simulated::sync_warp(file, line);
}
template <class V>
V __shfl_sync(unsigned mask, V value, int from) {
  namespace sim = ::tessera::simulated;
  sim::require_all_lanes(mask);
  return sim::of_warp<V, sim::Shuffle<V>>("__shfl_sync", sim::Shuffled<V>{value, from % sim::warp_lanes});
}
template <class V>
V __shfl_xor_sync(unsigned mask, V value, int bits) {
  namespace sim = ::tessera::simulated;
  sim::require_all_lanes(mask);
  return sim::of_warp<V, sim::Shuffle<V>>("__shfl_xor_sync", sim::Shuffled<V>{value, sim::lane() ^ bits});
}
template <class V>
V __shfl_up_sync(unsigned mask, V value, unsigned distance) {
  namespace sim = ::tessera::simulated;
  sim::require_all_lanes(mask);
  return sim::of_warp<V, sim::Shuffle<V>>("__shfl_up_sync",
                                          sim::Shuffled<V>{value, sim::lane() - static_cast<int>(distance)});
}
inline unsigned __ballot_sync(unsigned mask, bool vote) {
  ::tessera::simulated::require_all_lanes(mask);
  return ::tessera::simulated::of_warp<unsigned, ::tessera::simulated::Ballot>("__ballot_sync", vote);
}
template <class V>
unsigned __match_any_sync(unsigned mask, V value) {
  ::tessera::simulated::require_all_lanes(mask);
  return ::tessera::simulated::of_warp<unsigned, ::tessera::simulated::Match>("__match_any_sync",
                                                                              static_cast<std::uint64_t>(value));
}
inline int __popc(unsigned x) { return std::popcount(x); }
/// One thread runs at a time.
template <class V>
V atomicAdd(V* to, V value) {
  const V before = *to;
  *to += value;
  return before;
}

// The part of the CUDA runtime that kernels use.
using cudaStream_t = struct CUstream_st*;
enum cudaError_t { cudaSuccess };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
inline cudaError_t cudaGetLastError() { return cudaSuccess; }  // a launch that fails has ended the process
namespace tessera::simulated {
/// The next launch may have so much dynamic shared memory; without it 48 KB.
void allow_shared(std::size_t bytes);
void fill(void* to, int value, std::size_t bytes, StreamView stream);
}  // namespace tessera::simulated
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int bytes) {
  ::tessera::simulated::allow_shared(static_cast<std::size_t>(bytes));
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  ::tessera::simulated::fill(to, value, bytes, {stream});
  return cudaSuccess;
}
