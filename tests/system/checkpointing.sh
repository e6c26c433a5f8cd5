#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --gradient_checkpointing none, keep_all, selective, full and auto: the same model bit for bit, planned = measured
# memory, and what auto chooses for a given --device_memory, in the head of the run and in the plan.
#   checkpointing.sh TESSERA MPIRUN
# shellcheck source=tests/system/commands.sh
. "$(dirname "$0")/commands.sh"
expect() { grep -qE -- "$1" "$2" || fail "no \"$1\" in $2"; }

for i in $(seq 200); do echo "line $i of the training text, as plain as can be"; done > train.txt
shape=(--shape small --max_length 64 --per_device_train_batch_size 2 --zero_stage 3)
train=(train "${shape[@]}" --from_scratch --dataset train.txt --max_steps 2 --global_batch_size 4 --add_version false)

for form in none keep_all selective full; do
  good 2 "${train[@]}" --gradient_checkpointing $form --output_dir "$form"
  ! grep -q W029 log || fail "memory of $form is not as planned"
  ! grep -q '^recompute' log || fail "$form is said to be chosen"
  cmp -s none/model.safetensors "$form/model.safetensors" || fail "$form gives other bits than none"
done

# Nobody set it: the fastest form that fits, which is printed, for a fine-tuning too; the plan says what the run does.
lines() { grep -E '^(precision|recompute) ' log | sed 's/ | [^|]*\(may use\|unknown\)[^|]*//'; }
good 2 "${train[@]}" --save_steps 2 --output_dir default
expect '^recompute keep_all, chosen by --gradient_checkpointing auto .* \| saves no memory$' log
expect '^precision fp32 \| master weights and optimizer state fp32 \| default: from scratch on CPUs$' log
said=$(lines)
good 1 plan "${shape[@]}" --world_size 2 --global_batch_size 4
[ -n "$said" ] && [ "$said" = "$(lines)" ] || fail "the run says: $said; the plan: $(lines)"
good 1 plan --model default --stage sft --max_length 64
expect '^recompute keep_all, chosen by --gradient_checkpointing auto ' log
expect '^precision fp32 .* \| default: the weights are fp32$' log

# A run that is resumed keeps what its checkpoint's run was told, if it is not told again.
good 2 "${train[@]}" --gradient_checkpointing selective --bf16 --save_steps 1 --output_dir told
good 2 "${train[@]}" --resume_from_checkpoint told/checkpoint-1 --output_dir resumed
expect '^precision bf16, .* \| kept from told/checkpoint-1$' log
expect '"value": "selective"' resumed/args.json
! grep -qE '^recompute|differs from the checkpoint' log || fail "a resumed run has other defaults"
cmp -s told/model.safetensors resumed/model.safetensors || fail "a resumed run of the defaults gives other bits"
good 1 plan "${shape[@]}" --world_size 2 --resume_from_checkpoint told
expect '^precision bf16, .* \| kept from told/checkpoint-[0-9]+$' log
expect '^\* selective ' log
good 2 "${train[@]}" --resume_from_checkpoint told/checkpoint-1 --mixed_precision no --output_dir asked
expect '^precision fp32 .* \| --mixed_precision: command line$' log
expect 'differs from the checkpoint that it resumes: .*compute_dtype bf16 -> fp32' log

# needed FORM: bytes that the plan says a rank needs
plan=(plan "${shape[@]}" --world_size 2 --json)
needed() { sed -n "/\"name\": \"$1\",/,/}/s/.*\"memory_needed\": \([0-9]*\),.*/\1/p" plan.json; }
run 1 "${plan[@]}"; cp log plan.json
last=0
for form in full selective none keep_all; do
  [ "$(needed $form)" -gt "$last" ] || fail "no order of memory"
  last=$(needed $form)
done
for form in keep_all none selective full; do
  run 1 "${plan[@]}" --gradient_checkpointing auto --device_memory "$(needed $form)"
  [ $code = 0 ] || fail "$form does not fit in what it needs: exit $code"
  tr -d '\n' < log | grep -qE "\"name\": \"$form\", *\"chosen\": true" || fail "auto does not plan $form"
  good 2 "${train[@]}" --gradient_checkpointing auto --device_memory "$(needed $form)" --output_dir "auto-$form"
  expect "^recompute $form, chosen by --gradient_checkpointing auto \| keep_all needs .*, none needs .*, selective needs .* more FLOPs, full needs .* more FLOPs \| a rank may use .* \| saves ($([ $form != keep_all ] || echo no memory)|[0-9.]+ [A-Za-z]+ a rank)" log
  cmp -s none/model.safetensors "auto-$form/model.safetensors" || fail "auto, $form, gives other bits than none"
done
run 2 "${train[@]}" --gradient_checkpointing auto --device_memory $(($(needed full) - 1)) --output_dir small
[ $code = 4 ] || fail "less than full needs: exit $code"
