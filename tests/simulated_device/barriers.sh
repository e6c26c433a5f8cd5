#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Leaves out each barrier of the device's kernels in turn (__syncthreads, __syncwarp, waits for asynchronous copies), and
# runs the tests over the translated kernels, which must fail. A line with the comment "orders memory" is left as it
# is: after it comes a shuffle or a vote, which makes the same threads wait. On a GPU only the barrier lets them see each
# other's writes; the threads of translated kernels always see them, so no test could fail.
#   barriers.sh PROGRAM [FILE …]     PROGRAM: kernels_translated; FILE: of kernels/cuda, by default all
set -euo pipefail
program=$(realpath "$1")
shift
cd "$(dirname "$0")/../../kernels/cuda"
[ $# -gt 0 ] || set -- *.cu *.cuh

# tests_of FILE: the test suites that run its kernels.
tests_of() {
  case $1 in
    attention_*) echo 'CudaAttention/*-*OfCudnn*' ;;
    grouped_gemm*) echo 'CudaGroupedGemm/*' ;;
    linear_cross_entropy*) echo 'CudaHeadLoss*' ;;
    adamw* | sgd* | update*) echo 'CudaUpdate/*' ;;
    norm_rows* | rms_norm* | layer_norm*) echo 'CudaNorm/*' ;;
    sort_rows*) echo 'CudaSort*:CudaRows/1*:CudaExperts*:CudaDispatch*' ;;
    moe*) echo 'CudaExperts*:CudaDispatch*:CudaRows/1*' ;;
    reduce*) echo 'CudaReduce*' ;;
    step*) echo 'CudaStep*' ;;
    thread_group*) echo 'CudaNorm/*:CudaHeadLoss*' ;;
    *) echo '*-*OfCudnn*' ;;
  esac
}

missed=0 sites=0
for file in "$@"; do
  for line in $(grep -nE '__syncthreads\(\)|__syncwarp\(\)|await_copies<[0-9a-z -]+>\(\)' "$file" | grep -v 'orders memory' | cut -d: -f1); do
    sites=$((sites + 1)) noticed=
    for order in ascending descending shuffled; do
      if ! TESSERA_SIMULATED_WITHOUT=/kernels/cuda/$file:$line TESSERA_SIMULATED_THREADS=$order OMP_NUM_THREADS=1 \
        timeout 600 "$program" --gtest_fail_fast --gtest_brief=1 --gtest_filter="$(tests_of "$file")" >/dev/null 2>&1; then
        noticed=$order
        break
      fi
    done
    echo "$file:$line: ${noticed:-not noticed}"
    [ -n "$noticed" ] || missed=$((missed + 1))
  done
done
echo "$sites barriers, $missed not noticed"
[ "$missed" = 0 ]
