#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Signals: where ranks get them alone, and under `tessera launch`, the step is finished and saved; mpirun alone leaves time for
# a message only.
#   stop.sh TESSERA MPIRUN
set -u
# shellcheck source=tests/system/first_failure.sh
. "$(dirname "$0")/first_failure.sh"
PATH=$(dirname "$mpirun"):$PATH

tiny_model 1 16
train=(train --model config.json --from_scratch --dataset train.txt --max_length 16 --global_batch_size 8 --per_device_train_batch_size 2
       --logging_steps 1 --max_steps 100000000 --add_version false)
yes 'the training text, as plain as can be' | head -n 170000 > long.txt
long=(--dataset long.txt --global_batch_size 400000)  # a step of many seconds

# ended N WORD LINE…: the run's exit code, the first word of its STATUS, lines of its log.
ended() {
  local wanted=$1 word=$2 line
  shift 2
  code=0
  wait "$run" || code=$?
  [ "$code $(head -n 1 out/STATUS)" = "$wanted $word" ] || fail "exit $code, STATUS $(cat out/STATUS), not $wanted and $word"
  for line; do expect "$line" log; done
}
# begin COMMAND…: the run, in $run, once its log has a line of the pattern $until.
begin() {
  rm -rf out
  : > log
  "$@" --output_dir out > log 2>&1 < /dev/null &
  run=$!
  until grep -qE "${until:-^step 3/}" log; do kill -0 $run || fail "it ended early"; sleep 0.05; done
}

# A lone rank: its first signal is a request, a second one ends it. (A script's background jobs ignore SIGINT.)
for name in TERM HUP; do
  begin "$tessera" "${train[@]}"
  kill -$name $run
  ended 75 preempted "^SIG$name: the step is finished, a checkpoint saved" "^stopped [0-9]+/100000000 by SIG$name \\| the checkpoint is saved"
  step=$(sed -nE 's/^stopped ([0-9]+).*/\1/p' log)
  [ -s "out/checkpoint-$step/manifest.json" ] || fail "no checkpoint of step $step"
done
until='^parallel' begin "$tessera" "${train[@]}" "${long[@]}"
sleep 0.5
kill -TERM $run
kill -TERM $run  # at once: the same request
sleep 0.5
kill -0 $run || fail "two signals at once ended it"
kill -TERM $run
ended 143 failed '^ended by SIGTERM \| last checkpoint: none'
expect '^by SIGTERM \| last checkpoint: none$' out/STATUS

# A signal or a time limit cuts evaluations and samples short, and they are not recorded. (Evaluating long.txt takes minutes.)
# After the last step the checkpoint is saved, and the next start evaluates.
cut_short() {
  local line=$1 begin=$SECONDS
  shift
  "$@" || fail "$*"
  ended 75 preempted "$line"
  [ $((SECONDS - begin)) -le 15 ] || fail "it took $((SECONDS - begin)) s: $*"
  if grep -qE 'eval_loss|"samples"' out/logging.jsonl; then fail "recorded: $(grep -E 'eval_loss|samples' out/logging.jsonl)"; fi
}
stop_after() { sleep "$1"; kill -TERM $run; }
evaluates=(--val_dataset long.txt --metric_for_best_model loss --save_steps 3)
begin "$tessera" launch -n 2 -- "${train[@]}" "${evaluates[@]}" --eval_steps 3
cut_short '^stopped 3/100000000 by SIGUSR1 \| the checkpoint is saved' stop_after 0.5
expect '^eval 3/100000000 \| stopped after [0-9]+ tokens: it is not recorded'
expect '^save checkpoint-3 ' && ! grep -q '| best ' log || fail "an evaluation that was cut short has a best checkpoint"
! grep -q 'Forwarding signal' log || fail "$(cat log)"
echo 'a prompt' > prompts.txt
begin "$tessera" "${train[@]}" --prompt_file prompts.txt --eval_generate_steps 3 --sample_tokens 1000000
cut_short '^stopped 3/100000000 by SIGTERM \| the checkpoint is saved' stop_after 0.5
until='^parallel' begin "$tessera" "${train[@]}" "${evaluates[@]}" --eval_on_start true
cut_short '^stopped 0/100000000 by SIGTERM \| no step was done, there is nothing to save' stop_after 2
begin "$tessera" "${train[@]}" "${evaluates[@]}" --eval_steps 3 --time_limit 5s
cut_short '^stopped 3/100000000 by time limit \(--time_limit 5s\) \| the checkpoint is saved' true
begin "$tessera" "${train[@]}" --val_dataset long.txt --eval_steps 100 --max_steps 3
cut_short '^stopped 3/3 by SIGTERM \| the checkpoint is saved' stop_after 0.5
"$tessera" "${train[@]}" --output_dir out --val_dataset train.txt --eval_steps 100 --max_steps 3 --resume_from_checkpoint auto > log 2>&1 < /dev/null ||
  fail "the run after it: exit $?"
expect '^eval 3/3 ' && expect '^done 3/3 '

# mpirun ends its ranks within a second: STATUS, and rank 0 once, say so, and which checkpoint is the last. (To a pipe: it
# may drop what its ranks print into a file in that second.) On a busy machine rank 0 may be killed before it has run
# again, so that it may be silent.
piped() { exec "$@" > >(cat > log) 2>&1; }
for name in TERM HUP; do
  for attempt in 1 2 3 4 5; do
    until='^save checkpoint-5' begin piped "$mpirun" -n 2 "$tessera" "${train[@]}" --save_steps 5 --save_total_limit 1
    kill -$name $run
    code=0
    wait $run || code=$?
    [ $code != 0 ] && [ $code != 75 ] || fail "mpirun and SIG$name: exit $code"
    for _ in $(seq 30); do grep -q '^ended by' log && break; sleep 0.1; done
    last=$(sed -nE '2s/^by SIGTERM \| last checkpoint: (\S+)$/\1/p' out/STATUS)
    [ "$(head -n 1 out/STATUS)" = failed ] && [ -s "$last/manifest.json" ] || fail "STATUS $(cat out/STATUS)"
    said=$(grep -c '^ended by' log)
    [ "$said" = 0 ] || break
  done
  [ "$said" = 1 ] || fail "mpirun and SIG$name: $said lines in attempt $attempt"
  expect "^ended by SIGTERM: mpirun was told to end, .* \\| last checkpoint: $last \\| continue with " log
done

# tessera launch: SIGUSR2 saves, the first signal stops with a checkpoint, the second ends the run.
for name in TERM HUP; do
  begin "$tessera" launch -n 2 -- "${train[@]}"
  kill -USR2 $run
  until grep -q '^save checkpoint' log; do sleep 0.05; done
  kill -$name $run
  ended 75 preempted "^tessera launch: SIG$name: the run finishes its step" '^stopped [0-9]+/100000000 by SIGUSR1 \| the checkpoint is saved'
done
until='^parallel' begin "$tessera" launch -n 2 -- "${train[@]}" "${long[@]}"
sleep 0.5
kill -TERM $run
sleep 0.5
kill -TERM $run
ended 143 failed '^tessera launch: SIGTERM: ending the run$'
expect '^by SIGTERM \| last checkpoint: none$' out/STATUS
# A signal before the ranks have begun: nothing is lost, and the job may be started again.
for delay in 0.02 0.1; do
  rm -rf out
  "$tessera" launch -n 2 -- "${train[@]}" --output_dir out > log 2>&1 < /dev/null &
  sleep $delay
  kill -TERM $!
  code=0
  wait $! || code=$?
  [ $code = 75 ] || [ $code = 143 ] || fail "after ${delay} s: exit $code"
done
# Its end is mpirun's end, and that of the ranks.
begin "$tessera" launch -n 2 -- "${train[@]}"
kill -KILL $run
wait $run 2> /dev/null
for _ in $(seq 100); do grep -q '^failed' out/STATUS && break; sleep 0.1; done
expect '^by SIGTERM \| last checkpoint: none' out/STATUS

# Ctrl-C on a terminal. (A shell that waits would get it too, and dash ends with it.)
command -v script > /dev/null || { echo "no script(1)"; exit 1; }
rm -rf out
: > log
# shellcheck disable=SC2094  # the log is read while it is written
(until grep -q '^step 3/' log; do sleep 0.05; done; printf '\003'; sleep 3) |
  script -qec "exec $tessera launch -n 2 -- ${train[*]} --output_dir out" /dev/null > log 2>&1
code=$?
[ "$code $(head -n 1 out/STATUS)" = "75 preempted" ] || fail "Ctrl-C: exit $code"
expect 'tessera launch: SIGINT: the run finishes its step' log  # behind the echo of ^C

# Exit codes pass; what is wrong is said.
check() {
  local wanted=$1 words=$2
  shift 2
  code=0
  "$@" > log 2>&1 < /dev/null || code=$?
  [ "$code" = "$wanted" ] || fail "exit $code, not $wanted: $*"
  expect "$words" log
}
check 2 'error: .*zero_stage' "$tessera" launch -n 2 -- "${train[@]}" --zero_stage 7
[ "$(wc -l < log)" = 1 ] || fail "more than the error"
check 1 'There are not enough slots available' env OMPI_MCA_rmaps_base_oversubscribe=0 "$tessera" launch -H localhost:1 -n 2 -- "${train[@]}"
check 2 'error: launch: no command for the ranks' "$tessera" launch -n 2 train x.yaml
check 2 'error: launch: "trian" is not a command' "$tessera" launch -n 2 -- trian x.yaml
check 2 'error: launch: no command for the ranks' "$tessera" launch -n 2 -- "$tessera"
check 2 'error: launch: "/bin/true" is not a command' "$tessera" launch -n 2 -- /bin/true train x.yaml
for word in tessera "$tessera"; do check 2 'error: .*zero_stage' "$tessera" launch -n 2 -- "$word" "${train[@]}" --zero_stage 7; done
check 2 'error: mpirun cannot be started' env PATH=/nonexistent "$tessera" launch -n 2 -- "${train[@]}"
check 2 'error: launch: this process was itself started by a launcher \(OMPI_COMM_WORLD_SIZE\)' \
  env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$tessera" launch -n 2 -- "${train[@]}"
check 0 '^  --help' "$tessera" launch --help

# One rank has all cores, unless the user binds; NPROC_PER_NODE counts ranks.
unbound=(env -u OMPI_MCA_hwloc_base_binding_policy)
check 0 '^binding .*rank 0 on ([0-9]+) of \1 core' "${unbound[@]}" "$tessera" launch -n 1 -- "${train[@]}" --max_steps 1 --output_dir bound
cores=$(sed -nE 's/^binding .* of ([0-9]+) core.*/\1/p' log)
if [ "$cores" -gt 1 ]; then
  check 0 '^binding .*rank 0 on 1 of ' "${unbound[@]}" "$tessera" launch -n 1 --bind-to core -- "${train[@]}" --max_steps 1 --output_dir bound
fi
[ "$cores" -le 2 ] || expect 'W064: the ranks on .* may run on 1 of '
check 0 "W066: .* has $cores cores? for $((cores + 1)) ranks" \
  "${unbound[@]}" "$tessera" launch -n $((cores + 1)) -- train --model config.json --from_scratch --dataset train.txt --max_length 16 --max_steps 1 \
  --per_device_train_batch_size 1 --output_dir crowded
check 0 '"world": *2' "${unbound[@]}" NPROC_PER_NODE=2 bash -c '"$@" > ranks 2>&1 && cat counted/run.json' _ "$tessera" launch -- "${train[@]}" --max_steps 1 --output_dir counted
check 0 'W065: NPROC_PER_NODE=2 starts no ranks here' env NPROC_PER_NODE=2 "$tessera" "${train[@]}" --max_steps 1 --output_dir alone
check 2 'error: launch: NPROC_PER_NODE=gpu: expected the number of ranks' env NPROC_PER_NODE=gpu "$tessera" launch -- "${train[@]}"
echo good
