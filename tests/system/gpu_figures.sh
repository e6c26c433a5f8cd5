#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The script for figures of two GPUs, dry on the simulated device; what one rank on a GPU decides.
#   gpu_figures.sh TESSERA MPIRUN SIMULATED_LIBRARIES SOURCE
set -u
tessera=$1 source=$4
export LD_LIBRARY_PATH=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_CACHE_HOME=$work SIMULATED_GPUS=0,1
PATH=$(dirname "$2"):$PATH
failures=0
fail() { echo "FAILED: $1"; shift; printf '%s\n' "$@"; failures=$((failures + 1)); }

cat > config.json <<'JSON'
{"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 256, "n_positions": 64, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
JSON

# One rank adds gradients where backward writes them.
out=$("$tessera" plan --backend cuda --model config.json --max_length 16 --gradient_accumulation_steps 2 --print_schedule 2>&1)
grep -q '| gradients are reduced after the last micro-batch: one rank on a GPU' <<< "$out" || fail "plan does not say it" "$out"
grep -q 'backward  *h\.0 .* adds' <<< "$out" || fail "no backward adds" "$out"

for i in $(seq 50); do echo "line $i of the training text, as plain as can be"; done > train.txt
out=$("$tessera" train --backend cuda --model config.json --from_scratch --dataset train.txt --max_length 16 --max_steps 1 \
  --per_device_train_batch_size 1 --gradient_accumulation_steps 2 --save_strategy no --output_dir out 2>&1)
grep -q '^batch .* | gradients are reduced after the last micro-batch: one rank on a GPU$' <<< "$out" || fail "train does not say it" "$out"

out=$("$tessera" bench step --backend cpu --model config.json --gemms 2>&1)
grep -q 'error: --gemms needs a GPU' <<< "$out" || fail "--gemms on the CPU" "$out"

export TESSERA=$tessera OUT=$work/two COMM=mpi SHAPE=$work/config.json REPLICATED='h.1' LENGTH=16 MICRO=1 STEPS=2 OMP_NUM_THREADS=1
out=$("$source/jobs/bench/figures/two" equality overlap 2>&1)
grep -q '^ZeRO-0, 1, 2, 3: loss and gradient norm of 2 steps are equal' <<< "$out" || fail "equality of stages" "$out"
grep -q '^overlap: computation [0-9.]* ms, communication [0-9.]* ms' <<< "$out" || fail "no shares of a step" "$out"
grep -q '^two-communicators: .* both communicators at once [0-9.]* ms' <<< "$out" || fail "two communicators" "$out"
exit $((failures > 0))
