#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Nobody watches a long run: checkpoints by time, room for the model, a run that was killed, saves that fail while it stops.
#   unattended.sh TESSERA MPIRUN SHIM
set -u
# shellcheck source=tests/system/first_failure.sh
. "$(dirname "$0")/first_failure.sh"
shim=$3
wait_for() { until grep -qE -- "$1" log; do kill -0 $! || fail "it ended before \"$1\""; sleep 0.05; done; }
# run N OPTIONS…: a run that has to end with N.
run() {
  local wanted=$1
  shift
  code=0
  timeout 120 "$tessera" "${common[@]}" "$@" > log 2>&1 < /dev/null || code=$?
  [ $code = "$wanted" ] || fail "exit $code, not $wanted: $*"
}

tiny_model 1 16
common=(train --model config.json --from_scratch --dataset train.txt --max_length 16 --global_batch_size 8 --per_device_train_batch_size 2
        --logging_steps 1 --max_steps 8 --add_version false)
endless=(--max_steps 100000000)

# Without --save_steps a checkpoint is saved as time passes, and the newest two stay; not where saves by steps were turned off.
run 0 --output_dir plain
expect '^save      every 00:30:00 \(--save_every\), the newest 2 stay' log
[ -z "$(ls -d plain/checkpoint-* 2> /dev/null)" ] || fail "a short run saved: $(ls plain)"
for off in '--save_steps 0' '--save_strategy no' '--save_every 0'; do
  # shellcheck disable=SC2086  # an option and its value
  run 0 $off --output_dir plain
  ! grep -q '^save ' log || fail "$off saves"
done
"$mpirun" -n 2 "$tessera" "${common[@]}" "${endless[@]}" --save_every 0.3s --output_dir timed > log 2>&1 < /dev/null &
for _ in $(seq 600); do [ "$(grep -ac '^save checkpoint-' log)" -lt 4 ] || break; sleep 0.1; done
kill -USR1 $!
code=0
wait $! || code=$?
[ $code = 75 ] || fail "saves by time: exit $code"
left=$(find timed -maxdepth 1 -name 'checkpoint-*' | wc -l)
[ "$left" = 2 ] || [ "$left" = 3 ] || fail "$left checkpoints are left"  # the last one is saved while the run stops

# A run whose processes were all killed: the next start says so, and removes what it had not finished.
"$tessera" "${common[@]}" "${endless[@]}" --save_steps 5 --save_total_limit 1 --add_version true --output_dir killed > log 2>&1 < /dev/null &
wait_for '^save checkpoint-10 '
kill -KILL $!
wait $! 2> /dev/null
first=$(find killed -maxdepth 1 -name 'v0-*')
[ "$(cat "$first/STATUS")" = running ] || fail "STATUS $(cat "$first/STATUS")"
mkdir "$first/checkpoint-7000.tmp"
run 0 --add_version true --output_dir killed
expect "^earlier   the run in $first was killed: its STATUS was running, and nobody holds its lock \\| last checkpoint: $first/checkpoint-[0-9]+$" log
expect '^killed: nobody holds its lock \| last checkpoint' "$first/STATUS"
[ "$(head -n 1 "$first/STATUS")" = failed ] && [ ! -e "$first/checkpoint-7000.tmp" ] || fail "it is not cleaned up"
run 0 --add_version true --output_dir killed
! grep -q '^earlier' log || fail "it is said twice"

# The final model: no room for it is found before step 1; one that cannot be written is kept as a checkpoint.
sed 's/"n_embd": 16/"n_embd": 256/; s/"n_layer": 1/"n_layer": 2/' config.json > large.json
code=0
(ulimit -f 5000; run 3 --model large.json --checkpoint_file_size 1MiB --max_steps 1 --output_dir small) || exit 1
expect '^error: the model was not written: .*model.safetensors.* \[it is kept in small/checkpoint-1\]. tessera convert --in small/checkpoint-1 --to hf' log
"$tessera" convert --in small/checkpoint-1 --to hf --out small/model > log 2>&1 || fail "the kept model cannot be converted"
mkdir disk
if mount -t tmpfs -o size=1m tessera-test disk 2> /dev/null; then
  code=0
  timeout 60 "$tessera" "${common[@]}" --model large.json --output_dir disk/out > log 2>&1 || code=$?
  umount disk
  [ $code = 3 ] || fail "no room for the model: exit $code"
  expect '^error: E140 the final model needs .* are free' log
  ! grep -q '^step ' log || fail "it trains without room for its model"
else
  echo "not tried: a small disk (no tmpfs can be mounted here)"
fi

# Processes that another launcher than MPI's started would each train alone.
code=0
WORLD_SIZE=4 RANK=0 "$tessera" "${common[@]}" --output_dir torchrun > log 2>&1 || code=$?
[ $code = 2 ] && [ ! -e torchrun ] || fail "torchrun: exit $code"
expect '^error: 4 ranks were started, but not by MPI: this one is alone \[WORLD_SIZE=4, RANK=0\]' log

# A background save fails while the run is told to stop: the last step is saved all the same.
: > log
yes 'the training text, as plain as can be' | head -n 12000 > long.txt  # a step of about two seconds
fault=(-x "LD_PRELOAD=$shim" -x "FAULT_DIR=$PWD/out" -x FAULT_WITH=checkpoint-1.tmp/state -x FAULT_RANK=1 -x FAULT_AT=5 -x FAULT_KIND=EIO)
"$mpirun" -n 2 "${fault[@]}" "$tessera" "${common[@]}" "${endless[@]}" --dataset long.txt --global_batch_size 24000 --save_steps 1 --async_save --output_dir out > log 2>&1 < /dev/null &
wait_for '^step 1/'
kill -USR1 $!
code=0
wait $! || code=$?
[ $code = 75 ] && [ -s out/checkpoint-2/manifest.json ] || fail "a failed save forfeits the last one: exit $code"
expect 'warning W027: checkpoint-1 was not saved, the last step is saved: .*Input/output error' log

# `auto` takes no older checkpoint for one that the file system cannot read.
run 0 --save_steps 4 --output_dir unreadable
mkdir unreadable/checkpoint-9 unreadable/checkpoint-9/manifest.json
run 3 --max_steps 9 --resume_from_checkpoint auto --output_dir unreadable
expect '^error: cannot read .*checkpoint-9/manifest.json.* An older checkpoint is not taken for it' log
echo good
