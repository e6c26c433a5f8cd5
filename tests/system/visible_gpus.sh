#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Which GPU a rank takes, by what its launcher lets it see, and a model that it cannot train, on the simulated device.
#   visible_gpus.sh TESSERA MPIRUN SIMULATED_LIBRARIES
set -u
tessera=$1 mpirun=$2
export LD_LIBRARY_PATH=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_CACHE_HOME=$work
failures=0

cat > config.json <<'JSON'
{"model_type": "gpt2", "n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": 256, "n_positions": 64, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
JSON
for i in $(seq 100); do echo "line $i of the training text, as plain as can be"; done > train.txt

fail() {
  echo "FAILED: $1"
  failures=$((failures + 1))
}

# try CODE WORDS VISIBLE ARGUMENTS…: two ranks; VISIBLE is what each sees, in which RANK stands for its number.
try() {
  local code=$1 words=$2 visible=$3 out rc
  shift 3
  export VISIBLE=$visible
  rm -rf out
  # shellcheck disable=SC2016
  out=$(timeout 120 "$mpirun" -n 2 bash -c \
    'SIMULATED_GPUS=${VISIBLE/RANK/$OMPI_COMM_WORLD_LOCAL_RANK} exec "$@"' - "$tessera" train \
    --model config.json --from_scratch --dataset train.txt --max_length 16 --per_device_train_batch_size 2 \
    --max_steps 1 --save_strategy no --mixed_precision no --output_dir out "$@" 2>&1 < /dev/null)
  rc=$?
  if [ "$rc" != "$code" ] || ! grep -qF -- "$words" <<< "$out"; then
    echo "FAILED: ranks see $visible, $*: exit $rc (wanted $code), and in its output (wanted \"$words\"):"
    echo "$out"
    failures=$((failures + 1))
  fi
}

try 0 'rank 0 on simulated device (visible GPU 0)' 0,1
try 0 'rank 0 on simulated device (visible GPU 0)' RANK
try 0 'W058: --backend auto uses the CPU, though there are GPUs: rank 0: 2 ranks on this node, but 1 GPU' 0
try 2 'finds no GPU: SIMULATED_GPUS is empty' '' --backend cuda
try 0 'no GPU in use' ''
try 0 'no GPU in use' 0 --backend cpu
# Heads that no kernel of a device takes.
sed 's/"n_embd": 32, "n_head": 2/"n_embd": 264, "n_head": 1/' config.json > heads.json
try 2 'attention with heads of 264 is not supported on a GPU' 0,1 --model heads.json
try 0 'no GPU in use' 0,1 --model heads.json --backend cpu
# A rank's share of what is free of a GPU's 8 GiB, less 768 MiB for libraries; another process may have 4 GiB.
try 0 ' 7.25 GiB' 0,1 --comm mpi
try 0 ' 7.25 GiB' RANK --comm mpi
try 0 ' 3.25 GiB' 0 --comm mpi
SIMULATED_NEIGHBOR=4096 try 0 ' 3.24 GiB' RANK --comm mpi
SIMULATED_NEIGHBOR=8192 try 4 'memory free on the GPU / the ranks that share it, less 768.00 MiB for libraries' RANK --comm mpi
# Lines of a run, and what its records have, are of the GPU, with the host's beside it.
try 0 'of 8.00 GiB on the largest rank, ' RANK --comm mpi
grep -q '"memory(GiB)":0.5.*"memory_total(GiB)":8.0,"host_memory(GiB)":' out/*/logging.jsonl || fail "logging.jsonl: $(cat out/*/logging.jsonl)"
grep -q '"device": "simulated device"' out/*/run.json || fail "run.json has no device"
try 0 '% host ' RANK --comm mpi
# Another process that allocates while memory is measured changes nothing; NVML does not list processes then.
SIMULATED_NEIGHBOR=1024 try 0 '% host ' RANK --comm mpi
if grep W029 out/*/logging.jsonl; then fail 'memory is not as planned beside another process'; fi

# bench WORDS ARGUMENTS…: on one simulated H200.
bench() {
  local words=$1 out
  shift
  out=$(SIMULATED_GPU_NAME='NVIDIA H200' timeout 120 "$tessera" bench "$@" 2>&1 < /dev/null)
  grep -qF -- "$words" <<< "$out" || fail "bench $*: $out"
}
bench 'NVIDIA H200: 989.5 TFLOP/s in bf16, memory 4800.0 GB/s, as published' generate --backend cuda --bf16 \
  --model config.json --max_new_tokens 4
bench 'bench gemm measures the CPU' gemm --backend cuda
bench 'bench collectives measures the CPU' collectives
bench 'the CPU, which is all that bench attention measures' attention --bench_repeats 1
exit $((failures > 0))
