#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Evaluation of several data sets, and the best checkpoint: kept, recorded, found after a resume, loaded at the end.
#   best.sh TESSERA MPIRUN
set -u
# shellcheck source=tests/system/first_failure.sh
. "$(dirname "$0")/first_failure.sh"
export XDG_CACHE_HOME=$work/user
# run OPTIONS…: into log; its exit code in $code
run() {
  code=0
  timeout 120 "$mpirun" -n 2 "$tessera" "${common[@]}" "$@" > log 2>&1 < /dev/null || code=$?
}
# figure RUN NAME STEP: of the evaluation at that step
figure() { grep "\"$2\"" "$1/logging.jsonl" | grep "\"global_step\":$3," | sed -E "s/.*\"$2\":([^,]*),.*/\1/" | tail -n 1; }
checkpoints() { (cd "$1" && ls -d checkpoint-* | sort -t- -k2 -n | tr '\n' ' '); }

tiny_model 1 16
for i in $(seq 12); do echo "line $((i * 7)) of the training text, as plain as can be"; done > near.txt
for i in $(seq 30); do echo "ZQXJ $((i * i)) WVKQ & ZQZQ"; done > far.txt
# What is learned raises the loss of the other text after some steps.
common=(train --model config.json --from_scratch --dataset train.txt --val_dataset near.txt far.txt --max_length 16 --global_batch_size 8
        --per_device_train_batch_size 2 --learning_rate 2e-2 --lr_scheduler_type constant --logging_steps 1 --max_steps 12
        --eval_steps 2 --save_steps 2 --save_total_limit 2 --metric_for_best_model far_loss --add_version false)

run --output_dir out --load_best_model_at_end
[ $code = 0 ] || fail "the run ended with $code"
expect '^eval 2/12 \| near \| loss ' log
expect '^eval 2/12 \| far \| loss ' log
expect '^eval 2/12 \| loss ' log
best=0 best_loss=1000
for step in 2 4 6 8 10 12; do
  loss=$(figure out eval_far_loss $step)
  if awk "BEGIN { exit !($loss < $best_loss) }"; then best=$step best_loss=$loss; fi
  # All targets together: weighted by their number.
  awk "BEGIN {
    d = $(figure out eval_loss $step) - ($(figure out eval_near_loss $step) * $(figure out eval_near_tokens $step) + \
      $loss * $(figure out eval_far_tokens $step)) / $(figure out eval_tokens $step)
    exit !(d < 0.000001 && d > -0.000001)
  }" ||
    fail "the loss of both data sets at step $step"
done
[ $best -gt 0 ] && [ $best -lt 10 ] || fail "the best evaluation is that of step $best: choose other data"
[ "$(checkpoints out)" = "checkpoint-$best checkpoint-12 " ] || fail "checkpoints left: $(checkpoints out)"
expect "^best      out/checkpoint-$best \| eval_far_loss .* of step $best " log
expect '"best": \{$' out/checkpoint-12/manifest.json
expect "\"global_step\": $best\$" out/checkpoint-12/manifest.json
# The exported weights are those of the best checkpoint.
"$tessera" eval --model out --dataset far.txt --max_length 16 --json > log 2>&1 || fail "eval"
[ "$(sed -nE 's/.*"loss":([^,]*),.*/\1/p' log | cut -c -8)" = "$(echo $best_loss | cut -c -8)" ] || fail "the exported model has another loss than $best_loss"

# Stopped after the best one, resumed: it is still the best, and stays. (--max_steps ends the first half; the second continues it.)
half=$((best + 2))
run --output_dir parts --max_steps $half
[ $code = 0 ] || fail "the first half ended with $code"
run --output_dir parts --load_best_model_at_end --resume_from_checkpoint auto
[ $code = 0 ] || fail "the second half ended with $code"
[ "$(checkpoints parts)" = "checkpoint-$best checkpoint-12 " ] || fail "checkpoints left after a resume: $(checkpoints parts)"
cmp out/model.safetensors parts/model.safetensors || fail "a resumed run has another best model"
# Into another directory: the best checkpoint stays where it is.
run --output_dir other --resume_from_checkpoint parts/checkpoint-$best --load_best_model_at_end
[ $code = 0 ] || fail "resuming into another directory ended with $code"
cmp out/model.safetensors other/model.safetensors || fail "a run resumed elsewhere has another best model"
expect "^best      $work/parts/checkpoint-$best " log
run --output_dir other --resume_from_checkpoint auto --load_best_model_at_end --metric_for_best_model loss
expect 'W032: .*was chosen by another metric than eval_loss' log
run --output_dir other_data --resume_from_checkpoint parts/checkpoint-$best --load_best_model_at_end --eval_max_batches 1
expect "W032: .*checkpoint-$best by eval_far_loss, was chosen on other validation data" log

# The last step was saved and not evaluated (a signal cut the evaluation short): the resume does it, and that step counts.
later=(--metric_for_best_model near_loss --learning_rate 1e-3)
run --output_dir later "${later[@]}" --max_steps 2 && run --output_dir later "${later[@]}" --max_steps 4 --eval_strategy no --resume_from_checkpoint auto
[ $code = 0 ] || fail "a run without an evaluation of its last step ended with $code"
cp -r later elsewhere
expect '"value": ' later/checkpoint-4/manifest.json
run --output_dir later "${later[@]}" --max_steps 4 --load_best_model_at_end --resume_from_checkpoint auto
expect '^best      the last step \| eval_near_loss .* of step 4$' log
[ "$(sed -nE '/"best": /,/\}/s/.*"global_step": ([0-9]+).*/\1/p' later/checkpoint-4/manifest.json)" = 4 ] || fail "checkpoint-4 does not record it"
grep -q '"best_model_checkpoint": ".*/later/checkpoint-4"' later/checkpoint-4/manifest.json || fail "the path of the best checkpoint"
"$tessera" checkpoint verify later/checkpoint-4 > log 2>&1 || fail "its manifest: $(cat log)"
run --output_dir new "${later[@]}" --max_steps 4 --load_best_model_at_end --resume_from_checkpoint elsewhere/checkpoint-4
expect '^best      the last step \| eval_near_loss .* of step 4$' log
run --output_dir none "${later[@]}" --max_steps 2 --eval_strategy no
run --output_dir none "${later[@]}" --max_steps 2 --load_best_model_at_end --resume_from_checkpoint auto
expect '^best      the last step ' log

# Without --load_best_model_at_end the last weights are exported; a limit of 1 keeps the best one too.
printf 'line 7\n\nline 12\n' > prompts.txt
run --output_dir last --save_total_limit 1 --prompt_file prompts.txt --eval_generate_steps 5 --sample_tokens 3 --sample_prompt 'of '
[ "$(grep -c '^sample    line 7' log)" = 3 ] && [ "$(grep -c '^sample    line 12' log)" = 3 ] || fail "samples at steps 5, 10 and 12"
[ "$(grep -c '^sample    of ' log)" = 1 ] || fail "--sample_prompt is for the end"
[ "$(grep -c '"prompt":"line 7","text":"line 7' last/logging.jsonl)" = 3 ] || fail "records of samples"
[ "$(checkpoints last)" = "checkpoint-$best checkpoint-12 " ] || fail "checkpoints left by a limit of 1: $(checkpoints last)"
! cmp -s out/model.safetensors last/model.safetensors || fail "the last weights are the best ones"

# By epoch.
run --output_dir epochs --max_steps -1 --num_train_epochs 2 --eval_strategy epoch --save_strategy epoch --load_best_model_at_end --metric_for_best_model token_acc
[ $code = 0 ] || fail "by epoch: $code"
[ "$(grep -c '^eval [0-9]*/[0-9]* | loss' log)" = 2 ] || fail "evaluations by epoch"
expect '^best      .* \| eval_token_acc ' log

# The saved model has the type of the one that training starts from, or --save_dtype; rounded as convert rounds.
"$tessera" convert --in out --from hf --to hf --dtype bf16 --out base > log 2>&1 || fail "convert"
sed -i 's/"model_type"/"torch_dtype": "bfloat16", "model_type"/' base/config.json
train=(train --model base --dataset train.txt --max_length 16 --global_batch_size 8 --max_steps 2 --add_version false)
for dtype in auto fp32 fp16; do
  "$mpirun" -n 2 "$tessera" "${train[@]}" --save_dtype $dtype --output_dir as-$dtype > log 2>&1 || fail "--save_dtype $dtype"
done
for dtype in auto:bf16 fp16:fp16; do
  "$tessera" convert --in as-fp32 --from hf --to hf --dtype ${dtype#*:} --out expected-${dtype#*:} > log 2>&1 || fail "convert to $dtype"
  cmp as-${dtype%:*}/model.safetensors expected-${dtype#*:}/model.safetensors || fail "--save_dtype $dtype differs from convert"
done
expect '"torch_dtype": "bfloat16"' as-auto/config.json
expect '"torch_dtype": "float32"' as-fp32/config.json

refuse() { # TEXT OPTIONS…
  run "${@:2}" --output_dir refused
  [ $code = 2 ] || fail "$* ended with $code"
  expect "$1" log
  [ ! -e refused ] || fail "$* made a directory"
}
refuse 'save_steps 3 is no multiple of --eval_steps 2' --load_best_model_at_end --save_steps 3
refuse 'save_strategy is epoch and --eval_strategy steps' --load_best_model_at_end --save_strategy epoch
refuse 'eval_steps is 0' --load_best_model_at_end --eval_steps 0
refuse 'has no prompts to continue' --eval_generate_steps 5
refuse 'no figure eval_f1 .*loss, ppl, token_acc.*far_loss' --metric_for_best_model f1
echo good
