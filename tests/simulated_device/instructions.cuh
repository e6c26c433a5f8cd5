// SPDX-License-Identifier: Apache-2.0
#pragma once
// Replaces kernels/cuda/instructions.cuh on the simulated device: what the PTX ISA ("Warp-level matrix load
// instruction: ldmatrix", "Matrix Fragments for mma.m16n8k16", "cp.async") says of each instruction, in C++.

#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {

template <class T>
float float_of(std::uint32_t half) {
  return to_float(bits_as<T>(static_cast<std::uint16_t>(half)));
}
struct FourRegisters {
  std::uint32_t r[4];
};

/// Lane l gives the address of row l%8 of matrix l/8. Register i has of matrix i, row l/4, the elements 2·(l%4) and
/// 2·(l%4) + 1; transposed, of the columns' elements.
template <bool Transposed>
struct LoadMatrices {
  static void run(std::span<const void* const, 32> rows, std::span<FourRegisters, 32> out) {
    const auto element = [&](int matrix, int row, int column) -> std::uint32_t {
      return static_cast<const std::uint16_t*>(rows[8 * matrix + row])[column];
    };
    for (int lane = 0; lane < 32; ++lane)
      for (int matrix = 0; matrix < 4; ++matrix) {
        const int row = lane / 4, column = lane % 4 * 2;
        out[lane].r[matrix] = Transposed ? element(matrix, column, row) | element(matrix, column + 1, row) << 16
                                         : element(matrix, row, column) | element(matrix, row, column + 1) << 16;
      }
  }
};
template <bool Transposed>
void load_matrices_as(std::uint32_t (&r)[4], const void* row) {
  TESSERA_ASSERT(reinterpret_cast<std::uintptr_t>(row) % 16 == 0, "ldmatrix: a row that is not aligned to 16 bytes");
  const auto loaded = simulated::of_warp<FourRegisters, LoadMatrices<Transposed>>("ldmatrix", row);
  memcpy(r, loaded.r, sizeof r);
}
inline void load_matrices(std::uint32_t (&r)[4], const void* row) { load_matrices_as<false>(r, row); }
inline void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) { load_matrices_as<true>(r, row); }

struct MultiplyOperands {
  std::uint32_t a[4], b[2];
  float c[4];
};
struct FourFloats {
  float c[4];
};
template <class T>
struct MultiplyAdd {
  static void run(std::span<const MultiplyOperands, 32> in, std::span<FourFloats, 32> out) {
    float a[16][16], b[16][8], c[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane / 4, pair = lane % 4 * 2;
      for (int e = 0; e < 2; ++e) {
        for (int i = 0; i < 4; ++i)  // a0..a7: rows group and group + 8, then both 8 columns on
          a[group + 8 * (i % 2)][pair + e + 8 * (i / 2)] = float_of<T>(in[lane].a[i] >> 16 * e);
        for (int i = 0; i < 2; ++i) {
          b[pair + e + 8 * i][group] = float_of<T>(in[lane].b[i] >> 16 * e);
          c[group + 8 * i][pair + e] = in[lane].c[2 * i + e];
        }
      }
    }
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < 16; ++k)
        for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) out[lane].c[i] = c[lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2];
  }
};
template <class T>
void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  MultiplyOperands in{{a[0], a[1], a[2], a[3]}, {b0, b1}, {c[0], c[1], c[2], c[3]}};
  const auto sums = simulated::of_warp<FourFloats, MultiplyAdd<T>>("mma", in);
  memcpy(c, sums.c, sizeof c);
}

inline float fast_reciprocal(float x) { return 1.0F / x; }

inline uint4 load_once(const void* from) {
  TESSERA_ASSERT(reinterpret_cast<std::uintptr_t>(from) % 16 == 0, "16 bytes from an address that is not aligned");
  uint4 v;
  memcpy(&v, from, sizeof v);
  return v;
}

template <class T>
std::uint32_t packed(float low, float high) {
  return rounded<T>(low).bits | static_cast<std::uint32_t>(rounded<T>(high).bits) << 16;
}

inline void copy_async(void* to, const void* from, bool valid) {
  TESSERA_ASSERT((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % 16 == 0,
                 "cp.async: an address that is not aligned to 16 bytes");
  simulated::copy_async(to, valid ? from : nullptr);
}
inline void commit_copies() { simulated::commit_copies(); }
template <int Groups>
void await_copies(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  simulated::await_copies(Groups, file, line);
}

/// Each kernel runs after the one before it.
inline void await_kernel_before() {}
inline constexpr std::int64_t most_early_rows = 16;
struct LaunchShape {
  dim3 blocks;
  unsigned threads;
  cudaStream_t stream;
  const char* name;
};
template <class... Params, class... Args>
void launch_dependent(void (*kernel)(Params...), const LaunchShape& shape, const Args&... args) {
  simulated::Launcher(simulated::Launch(shape.blocks, shape.threads, 0, shape.stream), shape.name,
                      [=](const auto&... given) { kernel(given...); })(args...);
}

}  // namespace tessera::kernels::cuda
