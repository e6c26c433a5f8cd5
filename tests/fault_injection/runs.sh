#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of whole runs: saving and resuming, signals, time limits, two jobs on one directory, full disks, ranks that
# die or stop.
#   runs.sh TESSERA MPIRUN SHIM [PART …]
# PART: functions below, in order; mpio_saves, async_saves and damaged_ones read what saving_and_resuming leaves. IN_TIME=1 measures how
# soon a time limit ends a run.
set -u
tessera=$1 mpirun=$2 shim=$3
shift 3
work=$(realpath "$(mktemp -d)")
mounted=
finish() {
  [ -z "$mounted" ] || umount "$mounted"
  rm -rf "$work"
}
trap finish EXIT
cd "$work" || exit 1
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0
cat > config.json <<'JSON'
{"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 256, "n_positions": 64, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
JSON
for i in $(seq 300); do echo "line $i of the training text, as plain as can be"; done > train.txt
common=(train --model config.json --from_scratch --dataset train.txt --max_length 16 --global_batch_size 8 --per_device_train_batch_size 2
        --learning_rate 1e-2 --lr_scheduler_type constant --logging_steps 1 --max_steps 8 --add_version false --save_model false)
fail() { echo "FAILED: $*"; [ ! -f log ] || tail -30 log; exit 1; }
# runs RANKS OPTIONS…: output into log, exit code into $code.
runs() {
  local ranks=$1
  shift
  code=0
  timeout -k 2 120 "$mpirun" -n "$ranks" "${extra[@]}" "$tessera" "${common[@]}" "$@" > log 2>&1 < /dev/null || code=$?
}
extra=()
losses() { grep '"loss"' "$1/logging.jsonl" | sed -E 's/.*"loss":([^,]*),"grad_norm":([^,]*),"learning_rate":([^,]*),.*"global_step":([0-9]*),.*/\4 \1 \2 \3/'; }
one_error() { [ "$(grep -c '^error: ' log)" = 1 ] && grep '^error: ' log | grep -qE -- "$1"; }
state() { cat "$1"/*.h5 | sha256sum; }
status() { [ "$(head -n 1 "$1/STATUS")" = "$2" ] || fail "STATUS $(cat "$1/STATUS"), not $2"; }
# wait_for WORDS FILE
wait_for() {
  for _ in $(seq 600); do
    grep -qE -- "$1" "$2" 2> /dev/null && return
    sleep 0.1
  done
  fail "no \"$1\" in $2"
}

# With the same number of ranks a resumed run has the same losses, digit for digit; with another number the state is the
# same, and the losses within rounding.
saving_and_resuming() {
  runs 3 --save_steps 4 --output_dir whole
  [ $code = 0 ] || fail "the run ended with $code"
  [ "$(ls -d whole/checkpoint-*)" = "$(printf 'whole/checkpoint-4\nwhole/checkpoint-8')" ] || fail "checkpoints: $(ls whole)"
  grep -qE '^save checkpoint-4 \| [0-9.]+.?iB in [0-9.]+s \([0-9.]+.?iB/s\)$' log || fail "the save line"
  runs 3 --max_steps 4 --save_steps 2 --save_total_limit 1 --output_dir part
  [ "$code $(ls -d part/checkpoint-*)" = "0 part/checkpoint-4" ] || fail "retention: exit $code, $(ls part)"
  cmp <(state whole/checkpoint-4) <(state part/checkpoint-4) || fail "the same state, other files"
  cp -r part other
  runs 3 --save_steps 4 --resume_from_checkpoint auto --output_dir part
  [ $code = 0 ] || fail "resuming ended with $code"
  cmp <(losses whole) <(losses part) || fail "the curve is another one after resuming"
  cmp <(state whole/checkpoint-8) <(state part/checkpoint-8) || fail "the end is another one after resuming"
  status part completed
  runs 2 --save_steps 4 --resume_from_checkpoint auto --zero_stage 1 --output_dir other
  [ $code = 0 ] || fail "resuming on two ranks ended with $code"
  paste -d' ' <(losses whole) <(losses other) | awk '{d = $2 - $6; if ($1 != $5 || $4 != $8 || d > 1e-4 || d < -1e-4) exit 1} END {exit NR != 8}' ||
    fail "on two ranks: $(losses other)"
}

# By parallel HDF5, with large tensors at multiples of 64 KiB in one of them.
mpio_saves() {
  runs 3 --save_steps 4 --checkpoint_io mpio --output_dir by_mpio
  [ $code = 0 ] || fail "the run ended with $code"
  for step in 4 8; do cmp <(state whole/checkpoint-$step) <(state by_mpio/checkpoint-$step) || fail "mpio: other bytes at $step"; done
  runs 2 --max_steps 10 --save_steps 2 --checkpoint_io mpio --checkpoint_alignment 16KiB --resume_from_checkpoint whole/checkpoint-8 --output_dir aligned
  [ $code = 0 ] || fail "aligned: the run ended with $code"
  "$tessera" checkpoint verify aligned/checkpoint-10 > log 2>&1 || fail "aligned: it is not verified"
}

async_saves() {
  runs 3 --save_steps 4 --async_save --output_dir beside
  [ $code = 0 ] || fail "the run ended with $code"
  for step in 4 8; do cmp <(state whole/checkpoint-$step) <(state beside/checkpoint-$step) || fail "async: other bytes at $step"; done
  cmp <(losses whole) <(losses beside) || fail "saving beside the steps changed them"
}

# SIGUSR2 saves a checkpoint. SIGUSR1 saves one and exits with 75; the next start resumes from it.
signals() {
  "$mpirun" -n 2 "$tessera" "${common[@]}" --max_steps 100000 --output_dir signalled > log 2>&1 < /dev/null &
  wait_for '^step 3/' log
  kill -USR2 $!
  wait_for '^save checkpoint-' log
  kill -0 $! || fail "SIGUSR2 ended the run"
  kill -USR1 $!
  code=0
  wait $! || code=$?
  [ $code = 75 ] || fail "SIGUSR1: exit $code"
  status signalled preempted
  local last
  last=$(ls signalled | sed -n 's/^checkpoint-//p' | sort -n | tail -1)
  [ "$(losses signalled | tail -1 | cut -d' ' -f1)" = "$last" ] || fail "stopped after another step than checkpoint-$last"
  runs 2 --max_steps $((last + 2)) --resume_from_checkpoint auto --output_dir signalled
  [ $code = 0 ] || fail "going on ended with $code"
  status signalled completed
  [ "$(losses signalled | cut -d' ' -f1 | uniq | wc -l)" = $((last + 2)) ] || fail "steps are doubled or missing"
}

time_limits() {
  local begin=$SECONDS
  runs 2 --max_steps 100000000 --logging_steps 100000 --time_limit 6s --output_dir limited
  [ $code = 75 ] || fail "the time limit: exit $code"
  [ -z "${IN_TIME:-}" ] || [ $((SECONDS - begin)) -le 10 ] || fail "the time limit: took $((SECONDS - begin)) s"
  status limited preempted
  ls -d limited/checkpoint-* > /dev/null || fail "no checkpoint"
  runs 1 --time_limit 0s --output_dir never
  [ $code = 2 ] && one_error 'a time above 0' || fail "no time at all: exit $code"
  extra=(-x SLURM_JOB_END_TIME=soon)
  runs 1 --output_dir never
  extra=()
  [ $code = 2 ] && one_error 'SLURM_JOB_END_TIME' && [ ! -e never ] || fail "a job's end that is no time: exit $code"
}

# A second job on the same directory is refused and leaves the first one alone. A killed job does not block the next one.
two_jobs() {
  "$mpirun" -n 2 "$tessera" "${common[@]}" --max_steps 100000 --output_dir shared > first.log 2>&1 < /dev/null &
  local first=$!
  wait_for '^step 3/' first.log
  runs 1 --output_dir shared
  [ $code = 3 ] && one_error 'E150 .*process [0-9]+ on ' || fail "the second job: exit $code"
  status shared running
  kill -0 $first || fail "the first job is gone"
  local rank
  rank=$(sed -nE 's/.*process ([0-9]+) on.*/\1/p' shared/.lock)
  kill -9 "$rank"
  wait $first && fail "a killed rank, exit 0"
  runs 1 --output_dir shared
  [ $code = 0 ] || fail "after the killed job: exit $code"
}

# A save fails on one of five ranks (by the shim): `stop` ends the run; `continue` warns, and the next save succeeds.
shim_at() { extra=(-x "LD_PRELOAD=$shim" -x "FAULT_DIR=$(realpath .)/$1" -x "FAULT_WITH=$2" -x "FAULT_RANK=$3" -x "FAULT_AT=$4" -x "FAULT_KIND=$5"); }
stop_or_continue() {
  shim_at stop checkpoint-2.tmp/state 4 2 ENOSPC
  runs 5 --global_batch_size 10 --comm mpi --save_steps 2 --output_dir stop
  [ $code = 3 ] && one_error 'stop/checkpoint-2.tmp/state.*No space left on device' || fail "stop: exit $code"
  status stop failed
  [ -z "$(ls -d stop/checkpoint-* 2> /dev/null)" ] || fail "left: $(ls stop)"
  shim_at go checkpoint-2.tmp/state 1 2 EIO
  runs 5 --global_batch_size 10 --comm node --save_steps 2 --on_save_error continue --output_dir go
  [ $code = 0 ] && ! grep -q '^error:' log && [ "$(grep -c 'warning W027: checkpoint-2 was not saved.*Input/output error' log)" = 1 ] || fail "continue: exit $code"
  [ "$(ls -d go/checkpoint-* | tr '\n' ' ')" = "go/checkpoint-4 go/checkpoint-6 go/checkpoint-8 " ] || fail "continue: $(ls go)"
  status go completed
  extra=()
}

# Asynchronous saves: the error is raised at a step boundary soon after. A rank killed during a save leaves the checkpoint
# before it.
in_the_background() {
  shim_at behind checkpoint-4.tmp/state 1 2 EIO
  runs 2 --save_steps 2 --async_save --max_steps 400 --output_dir behind
  [ $code = 3 ] && one_error 'behind/checkpoint-4.tmp/state.*Input/output error' || fail "an error in the background: exit $code"
  [ "$(losses behind | wc -l)" -lt 100 ] || fail "the error came after $(losses behind | wc -l) steps"
  [ "$(ls -d behind/checkpoint-*)" = behind/checkpoint-2 ] || fail "in the background: $(ls behind)"
  extra=()
  runs 3 --max_steps 4 --resume_from_checkpoint auto --output_dir behind
  [ $code = 0 ] && grep -q '^resume .*checkpoint-2 ' log || fail "going on after it: exit $code"
  shim_at killed checkpoint-4.tmp/state 1 2 kill
  runs 2 --save_steps 2 --async_save --output_dir killed
  case $code in 0 | 124) fail "a rank killed in the background: exit $code" ;; esac
  extra=()
  runs 2 --max_steps 6 --save_steps 2 --resume_from_checkpoint auto --output_dir killed
  [ $code = 0 ] && grep -q '^resume .*checkpoint-2 ' log || fail "going on after a kill: exit $code"
  [ "$(ls -d killed/checkpoint-* | tr '\n' ' ')" = "killed/checkpoint-2 killed/checkpoint-4 killed/checkpoint-6 " ] || fail "after a kill: $(ls killed)"
}

# The others report a rank that is stopped during a save.
standing_still() {
  local comm
  for comm in mpi node; do
    shim_at still-$comm checkpoint-2.tmp/state 3 2 stop
    runs 5 --global_batch_size 10 --comm $comm --save_steps 2 --comm_timeout 3 --output_dir still-$comm
    [ $code = 6 ] && one_error 'rank 3@.* is late' || fail "a stopped rank, $comm: exit $code"
  done
  extra=()
}

# `auto` skips damaged checkpoints with a warning. A checkpoint given by name is loaded or refused. If none is complete, that
# is an error, not a fresh start.
damaged_ones() {
  cp -r whole damaged
  # One that cannot be read may be good: no older one is taken, and nothing is removed.
  shim_at damaged checkpoint-8/ 0 1 EIO
  extra+=(-x FAULT_READS=1)
  runs 2 --max_steps 9 --save_steps 1 --save_total_limit 1 --resume_from_checkpoint auto --output_dir damaged
  extra=()
  [ $code = 3 ] && one_error 'damaged/checkpoint-8.*Input/output error' || fail "auto, unreadable: exit $code"
  [ "$(ls -d damaged/checkpoint-*)" = "$(printf 'damaged/checkpoint-4\ndamaged/checkpoint-8')" ] || fail "auto, unreadable: $(ls damaged)"
  local file
  file=$(ls damaged/checkpoint-8/*.h5)
  printf '\xff\xfe\xfd' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") / 2)) conv=notrunc 2> /dev/null
  runs 2 --max_steps 9 --resume_from_checkpoint damaged/checkpoint-8 --output_dir elsewhere
  [ $code = 3 ] && one_error 'E123 .*checkpoint-8' || fail "a damaged checkpoint by name: exit $code"
  runs 2 --max_steps 5 --resume_from_checkpoint auto --output_dir damaged
  [ $code = 0 ] && grep -q 'warning W026: .*checkpoint-8.*E123' log && grep -q '^resume .*checkpoint-4 ' log || fail "auto: exit $code"
  # A checkpoint renamed to another step is skipped too. Auxiliary files are verified like the state.
  mv damaged/checkpoint-4 damaged/checkpoint-7
  runs 2 --max_steps 5 --resume_from_checkpoint auto --output_dir damaged
  [ $code = 3 ] && grep -q 'warning W026: .*checkpoint-7.*E134' log && one_error 'E123 .*checkpoint-8' || fail "a renamed one: exit $code"
  mv damaged/checkpoint-7 damaged/checkpoint-4
  sed -i 's/gpt2/gptZ/' damaged/checkpoint-4/config.json
  runs 2 --max_steps 5 --resume_from_checkpoint damaged/checkpoint-4 --output_dir elsewhere
  [ $code = 3 ] && one_error 'E123 .*checkpoint-4/config.json' || fail "a damaged auxiliary file: exit $code"
  truncate -s 100 damaged/checkpoint-4/*.h5
  rm damaged/checkpoint-8/manifest.json
  rm -rf damaged/checkpoint-5
  runs 2 --resume_from_checkpoint auto --output_dir damaged
  [ $code = 3 ] && one_error 'no complete checkpoint' || fail "nothing whole: exit $code"
}

# A full disk, where a tmpfs can be mounted; a file size limit; a directory without write permission.
full_disks() {
  mkdir small
  if mount -t tmpfs -o size=2500k tessera-test small 2> /dev/null; then
    mounted=$work/small
    runs 2 --save_steps 2 --max_steps 40 --output_dir small/out
    [ $code = 3 ] && one_error 'small/out.*No space left' || fail "a full disk: exit $code"
    runs 2 --save_steps 2 --output_dir small/next  # the same disk, before the first step
    [ $code = 3 ] && one_error 'E140 .*small/next' && ! grep -q '^step ' log || fail "no room for a checkpoint: exit $code"
    local newest
    newest=$(ls small/out | sed -n 's/^checkpoint-\([0-9]*\)$/\1/p' | sort -n | tail -1)
    [ -n "$newest" ] && [ -z "$(ls -d small/out/*.tmp 2> /dev/null)" ] || fail "a full disk: $(ls small/out)"
    runs 3 --max_steps $((newest + 1)) --save_steps 1000 --save_strategy no --resume_from_checkpoint small/out/checkpoint-"$newest" --output_dir elsewhere2
    [ $code = 0 ] || fail "the checkpoint before the disk was full: exit $code"
    umount small && mounted=
  else
    echo "skipped: a full disk (no tmpfs can be mounted here)"
  fi
  # A file size limit on one rank, set once MPI has created its own files.
  "$mpirun" -n 2 "$tessera" "${common[@]}" --max_steps 100000 --save_steps 50 --output_dir sized > log 2>&1 < /dev/null &
  wait_for '^step 3/' log
  prlimit --fsize=102400 --pid "$(pgrep -P $! | tail -1)" || fail "no second rank"
  code=0
  wait $! || code=$?
  [ $code = 3 ] && one_error 'sized/checkpoint-[0-9]*.tmp/.*File too large' || fail "a file size limit: exit $code"
  if setpriv --reuid=65534 --clear-groups test -x "$tessera" 2> /dev/null && chmod 755 "$work"; then
    mkdir -m 555 forbidden
    code=0
    setpriv --reuid=65534 --clear-groups "$tessera" "${common[@]}" --save_steps 2 --output_dir forbidden/out > log 2>&1 || code=$?
    [ $code = 3 ] && one_error 'forbidden.*Permission denied' && ! grep -q '^step ' log || fail "a forbidden directory: exit $code"
  else
    echo "skipped: a directory that may not be written (needs setpriv)"
  fi
}

[ $# -gt 0 ] || set -- saving_and_resuming mpio_saves async_saves damaged_ones signals time_limits two_jobs stop_or_continue \
  in_the_background standing_still full_disks
for part in "$@"; do
  begin=$SECONDS
  $part
  echo "$part: good, $((SECONDS - begin)) s"
done
