// SPDX-License-Identifier: Apache-2.0
// Part of the option table: where a run computes, and how its ranks communicate.
#include "jobs/cli/options/table_parts.hpp"

namespace tessera::jobs {

namespace {

constexpr const char* device_group = "Devices and communication";

// One option per paragraph reads better than one field per line.
// clang-format off

const OptionSpec device_table[] = {
    {.name = "comm", .type = Type::choice, .default_value = "auto", .values = "auto|mpi|node|nccl",
     .group = device_group,
     .help = "transport: node uses shared memory within a node and MPI between nodes; mpi uses MPI only; nccl needs "
             "--backend cuda", .commands = for_computing | for_tokenize},
    {.name = "comm_timeout", .aliases = "ddp_timeout", .type = Type::duration, .default_value = "600",
     .group = device_group, .help = "end the run if a rank reaches a collective later than this",
     .equivalents = "ms-swift --ddp_timeout", .commands = for_computing | for_tokenize, .min = 0.001},
    {.name = "ranks_per_node", .type = Type::integer, .values = "N", .group = device_group,
     .help = "treat every N consecutive ranks as a node [by host name; plan: all ranks on one node]; "
             "job-script: ranks of a node [one a GPU; without GPUs one a socket]",
     .commands = for_computing | for_tokenize | for_job_script, .min = 1},
    {.name = "threads", .aliases = "num_threads", .type = Type::integer, .values = "N", .group = device_group,
     .help = "threads of a rank [its share of the cores in its affinity mask; convert and checkpoint: 2]",
     .commands = for_computing | for_convert | for_checkpoint, .min = 1, .max = 4096},
    {.name = "backend", .aliases = "device", .type = Type::choice, .default_value = "auto", .values = "auto|cpu|cuda",
     .group = device_group,
     .help = "where to compute; auto: on GPUs if CUDA is built in and every rank finds one (sm_80 or newer), otherwise "
             "on the CPU", .commands = for_computing},
    {.name = "use_cpu", .type = Type::flag, .group = device_group,
     .help = "true: --backend cpu; false: --backend auto, which may use a GPU", .equivalents = "accelerate use_cpu",
     .commands = for_computing},
    {.name = "attention", .type = Type::choice, .default_value = "auto", .values = "auto|own|cudnn|measured",
     .group = device_group,
     .help = "attention kernels on GPUs: own: Tessera's; cudnn: cuDNN's, which need sm_90 or newer, bf16 or fp16, and "
             "heads of 64 or 128; measured: times both in a warm-up step and takes the faster; auto: cudnn where every "
             "rank can, own with --reproducible"},
    {.name = "gemm_choice", .type = Type::choice, .default_value = "auto", .values = "auto|heuristic|measured",
     .group = device_group,
     .help = "GEMM algorithms on GPUs: the first that cuBLASLt proposes, which gives the same bits in every run; or "
             "the fastest, timed before step 1; auto: the fastest, kept for later runs in ~/.cache/tessera, the "
             "first with --reproducible"},
    {.name = "gemm_choice_file", .values = "FILE", .group = device_group,
     .help = "with --gemm_choice measured: read algorithms from FILE and add new ones, so that later runs give the "
             "same bits"},
};

// clang-format on

}  // namespace

std::span<const OptionSpec> device_options() { return device_table; }

}  // namespace tessera::jobs
