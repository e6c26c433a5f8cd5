#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# States on disk (--offload_optimizer disk, --offload_params disk) as users run them.
#   disk.sh TESSERA MPIRUN SHIM PART
# PART: short: the bits and the checkpoints of a resident run, refusals, full and failing disks, files of killed runs.
#       larger: a model whose master weights and moments are three times the memory that the run may take.
set -u
tessera=$1 mpirun=$2 shim=$3 part=$4
work=$(realpath "$(mktemp -d -p "${DISK_DIR:-/tmp}")")
group=/sys/fs/cgroup/memory/tessera-disk-$$
finish() {
  rm -rf "$work"
  [ ! -d "$group" ] || rmdir "$group"
}
trap finish EXIT
cd "$work" || exit 1
fail() { echo "FAILED: $*"; [ ! -f log ] || tail -30 log; exit 1; }
model() {  # LAYERS WIDTH HEADS
  cat > config.json << JSON
{"model_type": "gpt2", "n_layer": $1, "n_embd": $2, "n_head": $3, "vocab_size": 256, "n_positions": 64, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
JSON
}
for i in $(seq 300); do echo "line $i of the training text, as plain as can be"; done > train.txt
common=(train --model config.json --from_scratch --dataset train.txt --max_length 16 --global_batch_size 8 --per_device_train_batch_size 2
        --learning_rate 1e-2 --lr_scheduler_type constant --logging_steps 1 --add_version false --max_grad_norm 1.0)
extra=()
# runs RANKS OPTIONS…: output into log, exit code into $code.
runs() {
  local ranks=$1
  shift
  code=0
  "$mpirun" -n "$ranks" "${extra[@]}" "$tessera" "${common[@]}" "$@" > log 2>&1 < /dev/null || code=$?
}
losses() { grep '"loss"' "$1/logging.jsonl" | sed -E 's/.*"loss":([^,]*),"grad_norm":([^,]*),.*"global_step":([0-9]*),.*/\3 \1 \2/'; }
state() { cat "$1"/*.h5 | sha256sum; }
nothing_left() { [ -z "$(ls scratch 2> /dev/null)" ] || fail "left: $(ls scratch)"; }
shim_at() {  # READS WITH AT KIND
  extra=(-x "LD_PRELOAD=$shim" -x "FAULT_DIR=$work/scratch" -x "FAULT_WITH=$2" -x FAULT_RANK=0 -x "FAULT_AT=$3" -x "FAULT_KIND=$4")
  [ "$1" = 0 ] || extra+=(-x FAULT_READS=1)
}
one_error() { [ "$(grep -c '^error: ' log)" = 1 ] && grep '^error: ' log | grep -qE -- "$1"; }

short() {
  model 3 32 2
  runs 2 --max_steps 6 --save_steps 3 --output_dir resident
  [ $code = 0 ] || fail "the resident run ended with $code"
  local disk=(--offload_optimizer disk --nvme_path scratch) all=(--offload_optimizer nvme --offload_params nvme --nvme_path scratch)
  runs 2 --max_steps 6 --save_steps 3 --output_dir optimizer "${disk[@]}"
  [ $code = 0 ] && grep -qE '^disk      rank 0: steps read .* written .* while busy .* exposed .* updates .* in steps: most ' log || fail "optimizer: exit $code"
  runs 2 --max_steps 3 --save_steps 3 --output_dir all "${all[@]}"
  [ $code = 0 ] || fail "all states: exit $code"
  nothing_left
  runs 2 --max_steps 6 --save_steps 3 --output_dir all --resume_from_checkpoint auto --async_save "${all[@]}"
  [ $code = 0 ] || fail "resuming with an asynchronous save: exit $code"
  for other in optimizer all; do
    cmp <(losses resident) <(losses $other) || fail "$other: other losses"
    for step in 3 6; do
      cmp <(state resident/checkpoint-$step) <(state $other/checkpoint-$step) || fail "$other: another checkpoint-$step"
    done
    cmp resident/model.safetensors $other/model.safetensors || fail "$other: another model"
  done
  nothing_left
  # Refused before anything is read.
  runs 1 --max_steps 1 --output_dir never --offload_optimizer disk
  [ $code = 2 ] && one_error 'nvme_path' || fail "no --nvme_path: exit $code"
  runs 1 --max_steps 1 --output_dir never --zero_stage 2 --offload_params disk --nvme_path scratch
  [ $code = 2 ] && one_error 'offload_params' || fail "parameters that are not sharded: exit $code"
  # A full disk before the first step, and one that fails during a step.
  local at
  for at in 1 2 3 4 5 6 7 8; do
    shim_at 0 tessera-scratch $at ENOSPC
    runs 1 --max_steps 2 --output_dir full "${all[@]}"
    ! grep -q 'cannot allocate the scratch file' log || break
  done
  [ $code = 3 ] && one_error 'cannot allocate the scratch file .*No space left.*nvme_path' && ! grep -q '^step ' log || fail "a full disk: exit $code"
  shim_at 0 tessera-scratch 60 EIO
  runs 1 --max_steps 20 --output_dir failing "${all[@]}"
  [ $code = 3 ] && one_error 'cannot write .*tessera-scratch.*Input/output error .state [a-z_.0]+ of unit ' || fail "a write that fails: exit $code"
  nothing_left
  shim_at 1 tessera-scratch 60 flip
  runs 1 --max_steps 20 --output_dir failing "${all[@]}"
  [ $code = 3 ] && one_error 'is not what was written.*state [a-z_.0]+ of unit ' || fail "a flipped bit: exit $code"
  extra=()
  # What a killed run leaves, the next one removes.
  "$tessera" "${common[@]}" --max_steps 1000000 --output_dir killed "${disk[@]}" > log 2>&1 < /dev/null &
  local pid=$!
  for _ in $(seq 600); do
    ! grep -q '^step 2/' log || break
    sleep 0.1
  done
  kill -9 $pid
  wait $pid 2> /dev/null
  [ "$(ls scratch | wc -l)" -ge 1 ] || fail "no file of a killed run"
  runs 1 --max_steps 1 --output_dir next "${disk[@]}"
  [ $code = 0 ] || fail "after a killed run: exit $code"
  nothing_left
}

# 151 million parameters: 1.7 GiB of masters and moments, in a cgroup of a third of that (with mpirun and the program).
larger() {
  mkdir "$group" 2> /dev/null && [ -w "$group/memory.limit_in_bytes" ] || { echo "skipped: no memory cgroup (v1) can be made here"; exit 77; }
  case $(stat -f -c %T .) in tmpfs | ramfs) echo "skipped: $PWD is in memory"; exit 77 ;; esac
  model 48 512 8
  local third=$((151000000 * 12 / 3))
  common+=(--per_device_train_batch_size 1 --global_batch_size 2 --save_steps 2 --save_model false --bf16 true)
  runs 1 --max_steps 4 --output_dir resident
  [ $code = 0 ] || fail "the resident run ended with $code"
  grep '^memory ' log
  echo $third > "$group/memory.limit_in_bytes" || fail "no limit"
  (echo "$BASHPID" > "$group/cgroup.procs" && runs 1 --max_steps 4 --output_dir disk --offload_optimizer disk --offload_params disk --nvme_path scratch; exit $code)
  code=$?
  [ $code = 0 ] || fail "in $third bytes: exit $code"
  grep -E '^(memory|disk) ' log
  echo "cgroup: $third bytes, at most $(cat "$group/memory.max_usage_in_bytes") used, limit reached $(cat "$group/memory.failcnt") times"
  cmp <(losses resident) <(losses disk) || fail "other losses"
  cmp <(state resident/checkpoint-4) <(state disk/checkpoint-4) || fail "another checkpoint"
  (echo "$BASHPID" > "$group/cgroup.procs" && runs 1 --max_steps 2 --output_dir too_large; exit $code)
  code=$?
  [ $code != 0 ] || fail "the resident run fits in the cgroup"
  "$tessera" bench scratch --size 1GiB --dir . --bench_repeats 3
  (echo "$BASHPID" > "$group/cgroup.procs" && "$tessera" bench scratch --model config.json --from_scratch --max_length 16 --max_grad_norm 1.0 \
    --per_device_train_batch_size 1 --global_batch_size 2 --bf16 true --offload_optimizer disk --offload_params disk --nvme_path scratch --bench_steps 5)
}

$part
echo "$part: good"
