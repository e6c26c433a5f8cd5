// SPDX-License-Identifier: Apache-2.0
#pragma once
// `tessera bench`: measures the program against what the machine can do. Each throws the same Error on every rank.

#include "jobs/cli/session/call.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// Calls one of those below, by the first operand.
void bench_command(const Call& call, World& world);
void bench_attention_command(const Call& call, World& world);
void bench_collectives_command(const Call& call, World& world);
void bench_dequantize_command(const Call& call, World& world);
void bench_kernels_command(const Call& call, World& world);
void bench_step_command(const Call& call, World& world);
void bench_strategies_command(const Call& call, World& world);
void bench_compression_command(const Call& call, World& world);
void bench_io_command(const Call& call, World& world);
void bench_scratch_command(const Call& call, World& world);
void bench_scratch_steps(const Call& call, World& world);  // of bench_scratch_command, with a model
void bench_convert_command(const Call& call, World& world);
void bench_generate_command(const Call& call, World& world);
void bench_tokenizer_command(const Call& call, World& world);

}  // namespace tessera::jobs
