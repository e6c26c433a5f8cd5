#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# KTO: five steps against TRL, on 1 and 3 ranks; forms of rows; the KL of accumulated micro-batches; the three references, ZeRO
# stages, a shuffled run and its resume agree to the bit; what is refused.
#   kto.sh TESSERA MPIRUN GOLDEN EXAMPLES SIMULATED
# SIMULATED: libraries of the simulated device; "": there is none.
# shellcheck source=tests/system/preference_figures.sh
. "$(dirname "$0")/preference_figures.sh"
# shellcheck source=tests/system/commands.sh
. "$(dirname "$0")/commands.sh"
golden=$3/preferences examples=$4 simulated=$5
expect() { grep -qE -- "$1" "$2" || fail "no \"$1\" in $2"; }
cp -r "$golden" model
cp "$examples"/chat/tokenizer*.json model
cd model || exit 1

common=(--stage rlhf --rlhf_type kto --model . --learning_rate 1e-3 --lr_scheduler_type constant --adam_beta2 0.999 --weight_decay 0
        --logging_steps 1 --max_length 256 --mixed_precision no --add_version false --cache_dir cache --global_batch_size 4 --max_steps 5)
in_order=(train "${common[@]}" --dataset_shuffle false)
train=("${in_order[@]}" --dataset labelled.jsonl)

while read -r run _ line; do
  read -ra options <<< "$line"
  [[ $line == *--dataset* ]] || options+=(--dataset labelled.jsonl --val_dataset labelled.valid.jsonl)
  for ranks in 1 3; do
    good $ranks "${in_order[@]}" "${options[@]}" --eval_steps 5 --zero_stage 3 --output_dir "$run-$ranks"
    ! grep -q W029 log || fail "$run: $(grep W029 log)"
    as_trl "$run" "$run-$ranks" "$golden/kto.txt"
  done
done < <(grep ' options ' "$golden/kto.txt")
expect '^eval 5/5 \| loss .* \| kl .* \| 6 answers in' log
expect '^loss      kto, beta 0.2 \| reference: ref' log

# Samples end to end have the same figures; the KL's answers are end to end too.
for ranks in 1 3; do
  good $ranks "${train[@]}" --beta 0.5 --per_device_train_batch_size 4 --padding_free true --val_dataset labelled.valid.jsonl --eval_steps 5 \
    --output_dir flat
  as_trl kto flat "$golden/kto.txt"
  rm -r flat
done

# What eval prints of a trained model is the run's last evaluation, where it has the run's groups of answers.
evaluate=(eval --rlhf_type kto --dataset labelled.valid.jsonl --max_length 256 --mixed_precision no --cache_dir cache --json)
good 3 "${evaluate[@]}" --model kto-3 --ref_model . --beta 0.5 --kl_group_size 4 --per_device_eval_batch_size 1
evaluated_as kto "$golden/kto.txt"
good 1 "${evaluate[@]}" --model . --adapters kto_lora-1 --beta 0.5 --per_device_eval_batch_size 4
evaluated_as kto_lora "$golden/kto.txt"
good 1 "${evaluate[@]}" --model apo_zero_unpaired-1 --ref_model . --loss_type apo_zero_unpaired --per_device_eval_batch_size 1
grep -q '"answers":6' log || fail "no answers in $(cat log)"
refused 2 'this one would have one answer' 1 "${evaluate[@]}" --model kto-3 --ref_model . --per_device_eval_batch_size 1
refused 2 'would be compared with itself: --rlhf_type kto' 1 "${evaluate[@]}" --model kto-3

# The KL is of the global batch: the last run above had two micro-batches on one rank, and one on each of two of the three. TRL
# does not share it over accumulation, and has another loss.
first=$(steps kto_ranks-1 | sed -n 's/^1 loss //p') apart=$(sed -n 's/^# the first loss of kto_ranks in one process.*: //p' "$golden/kto.txt")
awk -v ours="$first" -v apart="$apart" 'BEGIN { d = ours - apart; exit !(ours > 0 && (d > 1e-4 || d < -1e-4)) }' || fail "the KL of $first and $apart"

# Rows of ms-swift: the same tokens. W085: more desirable answers than others.
kto=(--beta 0.5 --per_device_train_batch_size 4)
good 1 "${in_order[@]}" "${kto[@]}" --dataset labelled.swift.jsonl --output_dir swift
diff <(losses kto-1 | grep -v eval) <(losses swift) > /dev/null || fail "rows of ms-swift are read as other samples"
expect 'warning W085: .* answers are desirable and .* undesirable: set desirable_weight to 0' log

# The reference by adapters that are switched off, by a second model, computed beforehand; with shuffled rows too.
lora=(train "${common[@]}" --dataset labelled.jsonl --beta 0.5 --per_device_train_batch_size 2 --adapters adapter)
good 2 "${lora[@]}" --output_dir shared
good 2 "${lora[@]}" --ref_model . --output_dir own
good 2 "${lora[@]}" --precompute_ref_log_probs true --output_dir known
expect '^reference log-probabilities of 40 answers computed' log
diff <(losses shared) <(losses own) > /dev/null || fail 'the reference "own" has other losses'
cmp -s shared/adapter_model.safetensors own/adapter_model.safetensors || fail '"own" trains another adapter'
# The pass beforehand has other batches: some BLAS kernels give their rows other last bits (decision 0058).
paste <(losses shared) <(losses known) |
  awk '{ d = $3 - $6; size = $3 < 0 ? -$3 : $3; if (size < 1) size = 1; if ($1 != $4 || $2 != $5 || d > 1e-5 * size || d < -1e-5 * size) bad = 1; ++n }
       END { exit bad || n < 15 }' || fail "the reference \"known\" has other losses: $(paste <(losses shared) <(losses known))"

# Token files of labels are no pairs.
tokens=$(grep -rl --include='*.bin.report' '"labelled"' cache | head -1)
refused 3 'holds answers with labels' 1 dpo --model . --dataset "${tokens%.report}" --max_length 256 --output_dir no

# On a device: labels and the KL are in its memory.
if [ -n "$simulated" ]; then
  LD_LIBRARY_PATH=$simulated good 2 "${train[@]}" --beta 0.5 --per_device_train_batch_size 4 --adapters adapter --backend cuda --comm mpi \
    --val_dataset labelled.valid.jsonl --eval_steps 5 --output_dir device
  as_trl kto_lora device "$golden/kto.txt"
fi

# ZeRO stages, and a resume in the middle of an epoch.
for stage in 0 1 2 3; do
  good 2 train "${common[@]}" --dataset labelled.jsonl --beta 0.5 --zero_stage $stage --save_steps 3 --output_dir "stage$stage"
  cmp -s stage0/model.safetensors "stage$stage/model.safetensors" || fail "stage $stage differs"
done
good 2 train "${common[@]}" --dataset labelled.jsonl --beta 0.5 --zero_stage 3 --save_steps 3 --output_dir again \
  --resume_from_checkpoint stage3/checkpoint-3 --loss_type kto
cmp -s stage3/model.safetensors again/model.safetensors || fail "a resumed run differs"
! grep -q W060 log || fail "the same run: $(grep W060 log)"

# Without options of the batch a resume has other micro-batches, and the groups of the checkpoint: also on ranks with one answer.
unbatched=(train "${common[@]:0:${#common[@]}-4}" --dataset labelled.jsonl --beta 0.5 --max_steps 5)
good 1 "${unbatched[@]}" --global_batch_size 4 --per_device_train_batch_size 4 --save_steps 3 --output_dir wide
for ranks in 1 4; do
  good $ranks "${unbatched[@]}" --output_dir "wide$ranks" --resume_from_checkpoint wide/checkpoint-3
  expect 'kept from the checkpoint.* kl_group_size 4' log
  ! grep -q W060 log || fail "kept groups: $(grep W060 log)"
  for run in wide "wide$ranks"; do steps $run | grep -E '^[45] (kl|loss) '; done |
    awk '{ if (!(($1, $2) in first)) first[$1, $2] = $3; else { d = first[$1, $2] - $3; ++n; if (d > 1e-5 || d < -1e-5) bad = 1 } }
         END { exit bad || n != 4 }' || fail "a resume on $ranks ranks has other groups: $(steps "wide$ranks" | grep ' kl ')"
done
good 1 "${unbatched[@]}" --kl_group_size 2 --output_dir other-groups --resume_from_checkpoint wide/checkpoint-3
expect 'warning W060: .*kl_group_size 4 -> 2' log

# A stop cuts the KL pass of an evaluation short.
for _ in $(seq 2000); do cat labelled.valid.jsonl; done > long.jsonl
"$tessera" "${train[@]}" --max_steps 3 --eval_steps 1 --val_dataset long.jsonl --output_dir stopped > log 2>&1 < /dev/null & run=$!
for _ in $(seq 600); do ! grep -q '^step 1/' log || break; sleep 0.1; done
sleep 0.3
kill -TERM $run
wait $run
expect '^eval 1/3 \| stopped after 0 answers: it is not recorded' log

# Rows that cannot be used are named; one label only, and a micro-batch of one answer, are refused.
{ head -4 labelled.jsonl; echo '{"prompt": "a", "completion": "b"}'; echo '{"prompt": "a", "completion": "b", "label": "perhaps"}'; } > some.jsonl
good 1 "${in_order[@]}" --dataset some.jsonl --output_dir some
expect 'some.jsonl:5: the row has no "label"' log
expect 'some.jsonl:6: "label" is not true or false' log
grep '"label": true' labelled.jsonl > wanted.jsonl
refused 3 'answers of the training data are desirable' 1 "${in_order[@]}" --dataset wanted.jsonl --output_dir no
refused 2 'this one would have one answer' 1 kto --model . --dataset labelled.jsonl --per_device_train_batch_size 1 --output_dir no
good 1 "${train[@]}" --loss_type apo_zero_unpaired --per_device_train_batch_size 1 --precompute_ref_log_probs true --output_dir one
expect '^reference log-probabilities of 20 answers computed' log
refused 2 'both weights' 1 kto --model . --dataset labelled.jsonl --desirable_weight 0 --undesirable_weight 0 --output_dir no
refused 2 'has no figure eval_rewards/margins' 1 "${train[@]}" --val_dataset wanted.jsonl --metric_for_best_model rewards/margins --output_dir no
refused 2 'the loss of one answer' 1 kto --model . --dataset labelled.jsonl --loss_scale all --output_dir no
refused 2 'is not one of --rlhf_type kto' 1 kto --model . --dataset labelled.jsonl --loss_type hinge --output_dir no
refused 2 'is not one of --rlhf_type dpo' 1 dpo --model . --dataset pairs.jsonl --loss_type kto --output_dir no

as_planned stage3 2 kto --zero_stage 3 --beta 0.5 --per_device_train_batch_size 2 --global_batch_size 4
flops() { sed -n '/"chosen": true/,$s/.*"flops_per_step": \([0-9.e+]*\).*/\1/p' log | head -1; }
with_kl=$(flops)
good 1 plan kto --model . --world_size 2 --max_length 112 --zero_stage 3 --loss_type apo_zero_unpaired --per_device_train_batch_size 2 --global_batch_size 4 --json
awk -v with_kl="$with_kl" -v without="$(flops)" 'BEGIN { exit !(without > 0 && with_kl > 1.2 * without) }' || fail "a plan without the pass of the KL"

[ $failures = 0 ] && echo "kto.sh: passed"
exit $((failures > 0))
