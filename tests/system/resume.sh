#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Resuming: every step is in logging.jsonl once, changed settings are named, a finished run has nothing to train, a stop has a reason.
#   resume.sh TESSERA MPIRUN
set -u
# shellcheck source=tests/system/first_failure.sh
. "$(dirname "$0")/first_failure.sh"
# run OPTIONS…: into log; its exit code in $code
run() {
  code=0
  timeout 120 "$mpirun" -n 2 "$tessera" "${common[@]}" "$@" > log 2>&1 < /dev/null || code=$?
}
steps() { grep '"loss"' "$1/logging.jsonl" | sed -E 's/.*"global_step":([0-9]*),.*/\1/' | tr '\n' ' '; }

tiny_model 1 16
common=(train --model config.json --from_scratch --dataset train.txt --split_dataset_ratio 0.1 --eval_steps 2 --max_length 16 --global_batch_size 8
        --per_device_train_batch_size 2 --learning_rate 1e-2 --logging_steps 1 --max_steps 8 --save_steps 4 --add_version false)

# Resumed at step 4 of 8 steps that had all been logged, behind half a line that a killed run left.
run --output_dir out
[ $code = 0 ] || fail "the run ended with $code"
cp out/logging.jsonl first.jsonl
rm -r out/checkpoint-8
printf '{"loss":3.1' >> out/logging.jsonl
run --resume_from_checkpoint auto --output_dir out
[ $code = 0 ] || fail "resuming ended with $code"
[ "$(steps out)" = "1 2 3 4 5 6 7 8 " ] || fail "steps of the resumed log: $(steps out)"
expect '^\{"resume":"out/checkpoint-4","global_step":4\}$' out/logging.jsonl
! grep -q 'differs from the checkpoint' log || fail "equal settings are said to differ"
[ "$(grep -c '"eval_loss"' out/logging.jsonl)" = "$(grep -c '"eval_loss"' first.jsonl)" ] || fail "evaluations stand twice"

# A finished run.
cp out/model.safetensors model.safetensors
run --resume_from_checkpoint auto --output_dir out
[ $code = 0 ] || fail "resuming a finished run ended with $code"
expect "^done 8/8 \\| no step was left: the checkpoint is the run's end \\| out$" log
! grep -qE 'train_loss|^step ' log || fail "a finished run trains"
cmp -s model.safetensors out/model.safetensors || fail "a finished run's model is another one"
[ "$(steps out)" = "1 2 3 4 5 6 7 8 " ] && [ "$(grep -c '"eval_loss".*"global_step":8' out/logging.jsonl)" = 1 ] || fail "a finished run's log"

# One that would end before its checkpoint.
run --resume_from_checkpoint auto --output_dir out --max_steps 6
[ $code = 2 ] || fail "--max_steps behind the checkpoint: exit $code"
expect 'max_steps 6 is behind step 8 of out/checkpoint-8' log

# Other settings are named, in the log and in logging.jsonl.
run --resume_from_checkpoint out/checkpoint-4 --output_dir other --learning_rate 3e-3 --adam_beta2 0.95 --weight_decay 0 --lr_scheduler_type linear \
  --bf16 --global_batch_size 4
[ $code = 0 ] || fail "resuming with other settings ended with $code"
expect 'warning W060: the run differs from the checkpoint that it resumes: learning_rate 0.01 -> 0.003, lr_scheduler_type cosine -> linear, schedule_updates 8 -> 12, adam_beta2 0.999 -> 0.95, .*global_batch_size 8 -> 4, compute_dtype fp32 -> bf16$' log
expect '^resume    learning rate 0.005 -> 0.001: the schedule goes on at 8 of 12 updates \(32 samples of all runs, 4 an update\)$' log
expect '^\{"resume":"out/checkpoint-4","global_step":4,"differs":\{"learning_rate":\[0.01,0.003\],.*"compute_dtype":\["fp32","bf16"\]' other/logging.jsonl
[ "$(steps other)" = "5 6 7 8 " ] || fail "steps of another directory: $(steps other)"

# Another optimizer is refused by the states that it lacks, unless they may start at zero.
run --resume_from_checkpoint out/checkpoint-4 --output_dir sgd --optim sgd --momentum 0.9
[ $code = 2 ] || fail "another optimizer: exit $code"
expect 'the checkpoint is of another optimizer: it has exp_avg, exp_avg_sq, and sgd needs momentum_buffer' log
run --resume_from_checkpoint out/checkpoint-4 --output_dir sgd --optim sgd --momentum 0.9 --resume_only_model true
[ $code = 0 ] || fail "another optimizer with zero states ended with $code"
expect '^resume    the model alone: optimizer states start at zero' log
expect 'warning W060: .*: optim adamw -> sgd' log
[ "$(steps sgd)" = "5 6 7 8 " ] || fail "steps of another optimizer: $(steps sgd)"
expect '"optimizer_states_from": 4' sgd/checkpoint-8/manifest.json
"$tessera" inspect sgd/checkpoint-8 > log 2>&1
expect '^contains   model and optimizer state \(momentum_buffer\)' log
run --resume_from_checkpoint auto --output_dir sgd --optim sgd --momentum 0.9 --max_steps 9
[ $code = 0 ] || fail "resuming sgd ended with $code"

# Without an option for the batch, other ranks keep the checkpoint's batch and precision, and the learning rate goes on.
plain=(train --model config.json --from_scratch --dataset train.txt --max_length 16 --learning_rate 1e-2 --logging_steps 1 --max_steps 8
       --add_version false)
"$tessera" "${plain[@]}" --bf16 --save_steps 4 --output_dir one > log 2>&1 || fail "a run of one rank"
"$mpirun" -n 3 "$tessera" "${plain[@]}" --resume_from_checkpoint one/checkpoint-4 --output_dir three > log 2>&1 || fail "its resume on three"
expect '^resume    kept from the checkpoint, since no option sets others: global_batch_size 8 \(micro-batch 3 x accumulation 1 on 3 ranks\), mixed_precision bf16$' log
! grep -q 'warning W06' log || fail "an equal batch and precision are said to differ"
rates() { grep '"loss"' "$1/logging.jsonl" | grep -o '"learning_rate":[^,]*' | tail -4; }
[ "$(rates one)" = "$(rates three)" ] || fail "learning rates on three ranks: $(rates three)"

# A newest checkpoint without optimizer states is named; no older one is taken for it.
run --save_only_model --output_dir alone
[ $code = 0 ] || fail "--save_only_model: exit $code"
run --resume_from_checkpoint auto --output_dir alone
[ $code = 3 ] || fail "resuming from models alone: exit $code"
expect 'alone/checkpoint-8 has no optimizer state, only the model' log
! grep -q 'checkpoint-4' log || fail "an older checkpoint is tried"

# A stop has a reason.
endless=(--max_steps 100000000 --logging_steps 100000 --eval_steps 0)
run "${endless[@]}" --time_limit 4s --save_only_model --output_dir limited
[ $code = 75 ] || fail "the time limit: exit $code"
expect '^stopped [0-9]+/100000000 by time limit \(--time_limit 4s\) \| the checkpoint is saved' log
# With --save_only_model, too, a run that has stopped goes on.
run "${endless[@]}" --time_limit 3s --save_only_model --resume_from_checkpoint auto --output_dir limited
[ $code = 75 ] || fail "resuming what a stop has saved: exit $code"
: > log
"$mpirun" -n 2 "$tessera" "${common[@]}" --max_steps 100000000 --output_dir signalled > log 2>&1 < /dev/null &
until grep -q '^step 2/' log; do sleep 0.1; done
kill -USR1 $!
code=0
wait $! || code=$?
[ $code = 75 ] || fail "SIGUSR1: exit $code"
expect '^stopped [0-9]+/100000000 by SIGUSR1 \| the checkpoint is saved' log
echo good
