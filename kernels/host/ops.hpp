// SPDX-License-Identifier: Apache-2.0
#pragma once
// The host's side of every operation: splits it over this rank's threads and calls the table of the instruction set.
// kernels/<op>.cpp has checked shapes. Not for host/isa.

#include "kernels/operations.hpp"
#include "runtime/base/exact_sum.hpp"

namespace tessera::kernels::host {

#define TESSERA_DECLARE(name, Args, ...) void name(const Args& args);
TESSERA_OPERATIONS(TESSERA_DECLARE)
#undef TESSERA_DECLARE
#define TESSERA_DECLARE(name, ...) void name(__VA_ARGS__);
TESSERA_OTHER_OPERATIONS(TESSERA_DECLARE)
#undef TESSERA_DECLARE

[[nodiscard]] std::size_t attention_forward_workspace(const AttentionShape& shape, DType dtype);
[[nodiscard]] std::size_t attention_backward_workspace(const AttentionShape& shape, DType dtype);
[[nodiscard]] std::size_t linear_cross_entropy_workspace(std::int64_t rows, std::int64_t vocab, DType dtype);
void convert_serial(const ConvertArgs& args);
void sum_tree_int8(const SumTreeInt8Args& args);
void sum_of_squares(const float* x, std::size_t count, ExactSum& sum);

}  // namespace tessera::kernels::host
