#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Training runs: their output and files, training on from a run's model, equal losses of all strategies, planned memory.
#   runs.sh TESSERA MPIRUN
set -eu
# shellcheck source=tests/system/first_failure.sh
. "$(dirname "$0")/first_failure.sh"

tiny_model 2 32
common=(--model config.json --from_scratch --dataset train.txt --max_length 16 --global_batch_size 10 --per_device_train_batch_size 2
        --learning_rate 1e-2 --logging_steps 1 --max_steps 8 --add_version false)

# Threads that wait for one another spin shortly, unless the environment says how long. (Nothing is printed without OpenMP.)
spins() { env OMP_DISPLAY_ENV=verbose "$@" "$tessera" --version 2>&1 | sed -nE "s/.*GOMP_SPINCOUNT = '([0-9]+)'.*/\1/p" | tail -n 1; }
if [ -n "$(spins)" ]; then
  [ "$(spins) $(spins OMP_WAIT_POLICY=passive) $(spins GOMP_SPINCOUNT=7)" = "1000 0 7" ] || fail "OpenMP's threads spin $(spins) times"
fi

# Many options at once, on three ranks, with short micro-batches.
"$mpirun" -n 3 "$tessera" train "${common[@]}" --split_dataset_ratio 0.1 --eval_steps 4 --baseline bigram --sample_prompt "line " --sample_tokens 20 \
  --profile_steps 3:4 --output_dir a > log 2>&1 || fail "the run ended with $?"
[ "$(cat a/STATUS)" = completed ] || fail "STATUS $(cat a/STATUS)"
[ "$(grep -c '^step ' log)" = 8 ] || fail "step lines"
[ "$(grep -c '^eval ' log)" = 2 ] || fail "eval lines"
for words in '^tessera [0-9]' '^model ' '^data ' '^parallel  ZeRO-3' '^batch     global 10 < micro 2 x accumulation 2 x ranks 3' '^baseline bigram' '^sample    line ' \
  '^step 8/8 \| loss [0-9.]+ \| grad_norm [0-9.]+ \| lr .* \| tok/s .* \| mfu .*% \| mem .*iB/.*% \| data .*% comm .*% \| [0-9:]+<00:00:00' \
  '^done 8/8 \| train_loss [0-9.]+ \| 1.3k tokens \| '; do
  expect "$words" log
done
[ "$(sed -n '/^step 1/q;p' log | wc -l)" -le 40 ] || fail "the start-up block is long"
[ "$(tail -1 log | cut -c1-5)" = "done " ] || fail "the last line"
for file in args.json run.json logging.jsonl config.json model.safetensors trace/rank-00000.json trace/rank-00002.json; do
  [ -s "a/$file" ] || fail "no $file"
done
cmp config.json a/config.json || fail "config.json is not byte for byte"
expect '"source": "command line"' a/args.json

# Measured memory equals planned memory.
awk '/^          plan /{p=$0; sub(/^ *plan */, "", p)} /^          measured/{m=$0; sub(/^ *measured */, "", m)} END{exit !(length(m) > 10 && index(p, m) == 1)}' log || fail "measured memory is not the plan's"

# Training on from its model: every ZeRO stage has the same losses, digit for digit.
losses() { grep grad_norm "$1/logging.jsonl" | sed -E 's/.*"loss":([^,]*),"grad_norm":([^,]*),.*/\1 \2/'; }
for stage in 0 1 2 3; do
  "$mpirun" -n 2 "$tessera" train --model a --dataset train.txt --max_length 16 --global_batch_size 10 --per_device_train_batch_size 2 --logging_steps 1 \
    --max_steps 3 --add_version false --zero_stage $stage --output_dir "s$stage" > log 2>&1 || fail "stage $stage ended with $?"
  losses "s$stage" > "losses$stage"
  [ "$(wc -l < "losses$stage")" = 3 ] || fail "losses of stage $stage"
  cmp losses0 "losses$stage" || fail "stage $stage differs from stage 0"
  cmp s0/model.safetensors "s$stage/model.safetensors" || fail "the model of stage $stage differs"
done

# bf16: equal losses of the stages, and memory as planned. fp16: begins with skipped steps; a run that is stopped and resumed,
# loss scale included, has the losses of one that is not.
half=("${common[@]}" --lr_scheduler_type constant)
for stage in 0 3; do
  "$mpirun" -n 2 "$tessera" train "${half[@]}" --bf16 --reduce_dtype bf16 --max_steps 3 --zero_stage $stage --output_dir "b$stage" > log 2>&1 || fail "bf16 ended with $?"
  losses "b$stage" > "losses$stage"
  expect '^precision bf16, gradients reduced in bf16' log
  awk '/^          plan /{p=$0; sub(/^ *plan */, "", p)} /^          measured/{m=$0; sub(/^ *measured */, "", m)} END{exit !(length(m) > 10 && index(p, m) == 1)}' log || fail "bf16: measured memory is not the plan's"
done
cmp losses0 losses3 || fail "bf16: stage 3 differs from stage 0"
half+=(--mixed_precision fp16 --initial_scale_power 24 --loss_scale_window 3)
"$mpirun" -n 2 "$tessera" train "${half[@]}" --output_dir h > log 2>&1 || fail "fp16 ended with $?"
expect '^step 1/8 .* scale 1.67772e\+07 overflow: step skipped' log
expect '"skipped":0,"skipped_steps":[1-9]' h/logging.jsonl
"$mpirun" -n 2 "$tessera" train "${half[@]}" --max_steps 4 --save_steps 4 --output_dir h4 > log 2>&1 || fail "the first half ended with $?"
"$mpirun" -n 2 "$tessera" train "${half[@]}" --resume_from_checkpoint h4/checkpoint-4 --output_dir h8 > log 2>&1 || fail "the second half ended with $?"
cmp <(losses h | tail -4) <(losses h8) || fail "fp16: the resumed run differs"
cmp h/model.safetensors h8/model.safetensors || fail "fp16: the resumed run's model differs"

# A run ended by the end of what reads its output has STATUS failed. A file size limit is an error that names the file.
endless=("${common[@]}" --max_steps 1000000)
rm -rf ended
(set +e; "$tessera" train "${endless[@]}" --output_dir ended 2> log; echo $? > code) | grep -m 1 '^step' > reader || fail "no step"
[ "$(cat code) $(head -n 1 ended/STATUS)" = "141 failed" ] || fail "without a reader: exit $(cat code), STATUS $(cat ended/STATUS)"

rm -rf ended
sed 's/"n_embd": 32/"n_embd": 256/' config.json > large.json
code=0
(ulimit -f 5000; "$tessera" train "${common[@]}" --model large.json --max_steps 1 --output_dir ended > log 2>&1) || code=$?
[ "$code $(head -n 1 ended/STATUS)" = "3 failed" ] && [ "$(grep -c '^error: .*model.safetensors' log)" = 1 ] && [ ! -e ended/model.tmp ] ||
  fail "a file size limit: exit $code, STATUS $(cat ended/STATUS)"

# Each run gets a version directory of its own.
for _ in 1 2; do "$tessera" train "${common[@]}" --add_version true --output_dir v --max_steps 1 --quiet > log 2>&1 || fail "versions"; done
[ "$(find v -maxdepth 1 -name 'v0-*' | wc -l)$(find v -maxdepth 1 -name 'v1-*' | wc -l)" = 11 ] || fail "versions: $(ls v)"
! grep -v '^warning W059' log || fail "--quiet speaks"  # W059: of this machine's OpenBLAS

# Without a version directory, a run that replaces a completed one says so before it does.
for replaced in 0 1; do
  "$tessera" train "${common[@]}" --output_dir same --max_steps 1 --quiet > log 2>&1 || fail "same: exit $?"
  [ "$(grep -c "^warning W031: same contains a completed run" log)$(grep -vc "^warning W059" log)" = "$replaced$replaced" ] || fail "replaced: $replaced"
done
before=$(cksum < same/logging.jsonl)
code=0
"$tessera" train "${common[@]}" --output_dir same --max_steps 1 --werror > log 2>&1 || code=$?
[ "$code $(cat same/STATUS) $(cksum < same/logging.jsonl)" = "2 completed $before" ] || fail "--werror: exit $code"

# A learning rate that destroys the model is a warning; a model whose loss is not a number ends eval with 5.
"$tessera" train "${common[@]}" --output_dir ruined --max_steps 20 --learning_rate 3 > log 2>&1 || fail "a large learning rate: exit $?"
expect '^warning W062: the loss did not fall' log
expect '"warning":62|W062' ruined/logging.jsonl
! "$tessera" train "${common[@]}" --output_dir fine --max_steps 20 2>&1 | grep -q 'W062' || fail "a loss that falls is said not to"
printf '\0\0\300\177' | dd of=fine/model.safetensors bs=1 seek=$(($(stat -c %s fine/model.safetensors) - 4)) conv=notrunc status=none
for json in false true; do
  code=0
  "$tessera" eval --model fine --dataset train.txt --max_length 16 --json $json > log 2>&1 || code=$?
  [ $code = 5 ] || fail "a loss of NaN: exit $code"
  expect '^error: the loss is -?nan' log
done
expect '^\{"loss":"NaN",' log
echo good
