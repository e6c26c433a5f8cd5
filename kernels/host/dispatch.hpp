// SPDX-License-Identifier: Apache-2.0
#pragma once
// Run-time choice of the instruction set. Only host/isa/*.cpp are compiled once per set; they hold the arithmetic.
//
// How to add an operation `op`:
//   1. operations.hpp: one line. kernels/op.hpp: the arguments and the contract. kernels/op.cpp: check shapes and
//      dispatch to host or device.
//   2. host/op.cpp: split the work over threads (host/parallel.hpp) and call `op<T>().forward(…)`.
//   3. host/op.hpp: `template <class T> struct Op { void (*forward)(const T* x, T* y, std::int64_t n); … };` and, in
//      namespace host, `TESSERA_TABLE(Op, op)`. Plain pointers and integers only; include <cstdint> and this file only.
//   4. host/isa/op.cpp: in `namespace tessera::kernels::host::TESSERA_ISA`, every function and template static or in an
//      anonymous namespace (the linker might keep a weak symbol compiled for AVX-512 for everybody), then
//      `TESSERA_TABLE_DEFINE(Op, op, forward<T>, …)`. Elements of T are stored, and
//      computed in Acc<T> (`widen(x[i])`, `put(y[i], result)`: one rounding). One thread, a range of rows; of the
//      standard headers only <cstdint> and <cstddef>; exp and log from host/isa/math.hpp; `#pragma omp simd` on loops
//      that need it to vectorize.
//   5. cuda/op.cu: the device's side.
// CMake finds the files by itself. An operation of one dtype: TESSERA_TABLE_PLAIN(Op, op), table `op_table`.

#include <cstdint>
#include <type_traits>

#include "runtime/base/half.hpp"

#if defined(__x86_64__)
#define TESSERA_X86 1
#endif

namespace tessera::kernels::host {

/// kernels::isa() as a number: 0 portable, 1 AVX2, 2 AVX-512, 3 AVX-512 with BF16.
[[nodiscard]] int isa_index();

template <class Table>
[[nodiscard]] const Table& choose(const Table& portable, const Table& avx2, const Table& avx512,
                                  const Table& avx512_bf16) {
  const int index = isa_index();
  return index == 0 ? portable : index == 1 ? avx2 : index == 2 ? avx512 : avx512_bf16;
}

}  // namespace tessera::kernels::host

// extern: a const object at namespace scope would have internal linkage. A build for one instruction set
// (TESSERA_ONE_ISA) has one table.
#ifdef TESSERA_ONE_ISA
#define TESSERA_TABLE_DECLARE(Type, table) \
  namespace TESSERA_ONE_ISA {              \
  extern const Type table;                 \
  }
#define TESSERA_TABLE_CHOOSE(table) TESSERA_ONE_ISA::table
#elif defined(TESSERA_X86)
#define TESSERA_TABLE_DECLARE(Type, table) \
  namespace portable {                     \
  extern const Type table;                 \
  }                                        \
  namespace avx2 {                         \
  extern const Type table;                 \
  }                                        \
  namespace avx512 {                       \
  extern const Type table;                 \
  }                                        \
  namespace avx512_bf16 {                  \
  extern const Type table;                 \
  }
#define TESSERA_TABLE_CHOOSE(table) choose(portable::table, avx2::table, avx512::table, avx512_bf16::table)
#else
#define TESSERA_TABLE_DECLARE(Type, table) \
  namespace portable {                     \
  extern const Type table;                 \
  }
#define TESSERA_TABLE_CHOOSE(table) portable::table
#endif

/// Declares name_f32, name_f64, name_bf16 and name_f16 of every instruction set, and name<T>(), the table of the set in
/// use.
#define TESSERA_TABLE(Type, name)                                                                  \
  TESSERA_TABLE_DECLARE(Type<float>, name##_f32)                                                   \
  TESSERA_TABLE_DECLARE(Type<double>, name##_f64)                                                  \
  TESSERA_TABLE_DECLARE(Type<tessera::bf16>, name##_bf16)                                          \
  TESSERA_TABLE_DECLARE(Type<tessera::f16>, name##_f16)                                            \
  template <class T>                                                                               \
  [[nodiscard]] const Type<T>& name() {                                                            \
    if constexpr (std::is_same_v<T, float>) return TESSERA_TABLE_CHOOSE(name##_f32);               \
    else if constexpr (std::is_same_v<T, double>) return TESSERA_TABLE_CHOOSE(name##_f64);         \
    else if constexpr (std::is_same_v<T, tessera::bf16>) return TESSERA_TABLE_CHOOSE(name##_bf16); \
    else return TESSERA_TABLE_CHOOSE(name##_f16);                                                  \
  }

/// Defines the four tables of the instruction set that is compiled; the other arguments are Type<T>'s members.
#define TESSERA_TABLE_DEFINE(Type, name, ...)                       \
  template <class T>                                                \
  static constexpr Type<T> name##_of = {__VA_ARGS__};               \
  const Type<float> name##_f32 = name##_of<float>;                  \
  const Type<double> name##_f64 = name##_of<double>;                \
  const Type<tessera::bf16> name##_bf16 = name##_of<tessera::bf16>; \
  const Type<tessera::f16> name##_f16 = name##_of<tessera::f16>;

/// The same for a table without a type parameter: name_table, and name().
#define TESSERA_TABLE_PLAIN(Type, name)     \
  TESSERA_TABLE_DECLARE(Type, name##_table) \
  [[nodiscard]] inline const Type& name() { return TESSERA_TABLE_CHOOSE(name##_table); }
