#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Reward models: five steps against TRL, in full and of an adapter, on 1 and 3 ranks; ZeRO stages, accumulation, a resume; a new score
# head; eval; what is refused.
#   rewards.sh TESSERA MPIRUN GOLDEN EXAMPLES SIMULATED
# SIMULATED: libraries of the simulated device; "": there is none.
# shellcheck source=tests/system/preference_figures.sh
. "$(dirname "$0")/preference_figures.sh"
# shellcheck source=tests/system/commands.sh
. "$(dirname "$0")/commands.sh"
golden=$3/preferences examples=$4 simulated=$5
expect() { grep -qE -- "$1" "$2" || fail "no \"$1\" in $2"; }
cp -r "$golden" model
for directory in model model/reward; do cp "$examples"/chat/tokenizer*.json $directory; done
cd model || exit 1

common=(--dataset_shuffle false --learning_rate 1e-3 --lr_scheduler_type constant --adam_beta2 0.999 --weight_decay 0 --logging_steps 1
        --max_length 256 --mixed_precision no --add_version false --cache_dir cache --global_batch_size 4 --max_steps 5)
valid=(--val_dataset valid.jsonl --eval_steps 5)

# Samples end to end, a score for each sequence of the row.
for ranks in 1 3; do
  good $ranks rm "${common[@]}" --model reward --dataset pairs.margin.jsonl --per_device_train_batch_size 2 "${valid[@]}" --padding_free true \
    --output_dir flat
  as_trl rm_margin flat "$golden/reward.txt"
  rm -r flat
done

while read -r run _ line; do
  read -ra options <<< "$line"
  [[ $line = *--dataset* ]] || options+=(--dataset pairs.jsonl)
  for ranks in 1 3; do
    good $ranks rm "${common[@]}" "${options[@]}" "${valid[@]}" --zero_stage 3 --output_dir "$run-$ranks"
    ! grep -q W029 log || fail "$run: $(grep W029 log)"
    as_trl "$run" "$run-$ranks" "$golden/reward.txt"
  done
done < <(grep ' options ' "$golden/reward.txt")
expect '^loss      rm \| the score head of reward-adapter' log
expect '^eval 5/5 \| loss .* \| accuracy .* \| margin .* \| min_reward .* \| mean_reward .* \| max_reward .* \| 6 pairs in' log

# What is saved: transformers' names; what reads it again has the figures of the last evaluation.
evaluate=(--dataset valid.jsonl --mixed_precision no --cache_dir cache)
expect '"Qwen2ForSequenceClassification"' rm-3/config.json
# As TRL: the tokenizer's pad, and as it has none, its eos; not the 1021 that the model had.
expect '"pad_token_id": 1023' rm-3/config.json
good 1 inspect rm-3
expect 'score.weight' log
! grep -q lm_head log || fail "a reward model with lm_head"
good 3 eval --model rm-3 "${evaluate[@]}" --json
evaluated_as rm "$golden/reward.txt"
good 1 eval --model rm-3 "${evaluate[@]}"
expect '^eval \| loss .* \| accuracy .* \| margin .* \| min_reward .* \| mean_reward .* \| max_reward .* \| 6 pairs' log
expect '"task_type": "SEQ_CLS"' rm_lora-1/adapter_config.json
expect '"score"' rm_lora-1/adapter_config.json
good 2 eval --adapters rm_lora-1 --model . "${evaluate[@]}" --json
evaluated_as rm_lora "$golden/reward.txt"
good 1 convert --merge_lora true --in . --adapters rm_lora-1 --out "$work/merged"
good 1 eval --model "$work/merged" "${evaluate[@]}" --json
evaluated_as rm_lora "$golden/reward.txt"

# A new score head on a language model; ZeRO stages, accumulation and a resume change nothing.
for stage in 0 1 2 3; do
  good 2 rm "${common[@]}" --model . --dataset pairs.jsonl --zero_stage $stage --save_steps 3 --output_dir "stage$stage"
  cmp -s stage0/model.safetensors "stage$stage/model.safetensors" || fail "stage $stage differs"
done
expect '^loss      rm \| a new score head, N\(0, 0.02\) by --seed' log
good 2 rm "${common[@]}" --model . --dataset pairs.jsonl --save_steps 3 --output_dir again --resume_from_checkpoint stage3/checkpoint-3
cmp -s stage3/model.safetensors again/model.safetensors || fail "a resumed run differs"
good 1 eval --checkpoint stage3/checkpoint-5 --dataset valid.jsonl --mixed_precision no --cache_dir cache
good 2 rm "${common[@]}" --model . --dataset pairs.jsonl --per_device_train_batch_size 2 --output_dir accumulated --reproducible true
good 2 rm "${common[@]}" --model . --dataset pairs.jsonl --per_device_train_batch_size 2 --zero_stage 0 --output_dir accumulated0 --reproducible true
cmp -s accumulated/model.safetensors accumulated0/model.safetensors || fail "accumulated steps differ"
figures_of() { steps "$1" | grep -E '^[1-5] (loss|accuracy|margin|min_reward|max_reward) '; }
paste -d' ' <(figures_of stage0) <(figures_of accumulated) | awk '{ d = $3 - $6; if ($1 " " $2 != $4 " " $5 || d > 1e-4 || d < -1e-4) bad = 1 } END { exit bad || NR != 25 }' ||
  fail "accumulation changes figures"
good 2 rm "${common[@]}" --model . --dataset pairs.jsonl --tuner_type lora --output_dir lora --metric_for_best_model accuracy "${valid[@]}" --save_steps 5
expect 'a new score head' log
good 2 rm "${common[@]}" --model . --dataset pairs.jsonl --tuner_type lora --quant_method bnb --quant_bits 4 --output_dir qlora

# The plan is that of the run.
ours=$(sed -n '/"planned"/,/}/s/.*: \([0-9]*\),*$/\1/p' stage3/run.json | awk '{ sum += $1 } END { print sum }')
good 1 plan rm --model . --world_size 2 --max_length 112 --zero_stage 3 --adam_beta2 0.999 --mixed_precision no --global_batch_size 4 --json
planned=$(sed -n '/"chosen": true/,/}/s/.*"total": \([0-9]*\).*/\1/p' log | head -1)
[ -n "$planned" ] && [ "$planned" = "$ours" ] || fail "the plan has $planned bytes, and the run planned $ours"

# On a device.
if [ -n "$simulated" ]; then
  LD_LIBRARY_PATH=$simulated good 2 rm "${common[@]}" --model reward --dataset pairs.margin.jsonl --per_device_train_batch_size 1 "${valid[@]}" \
    --backend cuda --comm mpi --output_dir device
  as_trl rm_margin device "$golden/reward.txt"
fi

# Margins that are no numbers are named.
{ head -2 pairs.margin.jsonl; head -1 pairs.jsonl | sed 's/}$/, "margin": "much"}/'; } > some.jsonl
good 1 rm "${common[@]}" --model . --dataset some.jsonl --max_steps 1 --output_dir some
expect 'some.jsonl:3: "margin" is not a number' log

refused 2 'is of a reward model, which gives an answer a score' 1 sft --model rm-1 --dataset pairs.jsonl --output_dir no
refused 2 'for --stage rlhf --rlhf_type dpo' 1 dpo --model rm-1 --dataset pairs.jsonl --output_dir no
refused 2 'for tessera generate' 1 generate --model rm-1 --prompt a
refused 2 '--beta is for' 1 rm --model . --dataset pairs.jsonl --beta 0.2
refused 2 '--ref_model is for dpo and kto' 1 rm --model . --ref_model . --dataset pairs.jsonl
refused 2 '--center_rewards_coefficient is for rm' 1 dpo --model . --dataset pairs.jsonl --center_rewards_coefficient 0.1
refused 2 '--loss_scale has no effect' 1 rm --model . --dataset pairs.jsonl --loss_scale default
refused 2 'is for language models' 1 rm --model . --dataset pairs.jsonl --sample_prompt a
refused 2 'it has no score head' 1 rm --model . --adapters adapter --dataset pairs.jsonl --output_dir no
sed 's/"LABEL_0"$/"a", "1": "b"/' reward/config.json > two.json && cp -r reward two && mv two.json two/config.json
refused 2 'classifier of 2 labels' 1 eval --model two --dataset valid.jsonl

[ $failures = 0 ] && echo "rewards.sh: passed"
exit $((failures > 0))
