#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Preferences: five steps of each loss against TRL, on 1 and 3 ranks (of rarer ones, on 3); forms of rows; the three references, ZeRO stages and a
# resume agree to the bit; evaluation and the best checkpoint; what is refused.
#   preferences.sh TESSERA MPIRUN GOLDEN EXAMPLES SIMULATED
# SIMULATED: libraries of the simulated device; "": there is none.
# shellcheck source=tests/system/preference_figures.sh
. "$(dirname "$0")/preference_figures.sh"
# shellcheck source=tests/system/commands.sh
. "$(dirname "$0")/commands.sh"
golden=$3/preferences examples=$4 simulated=$5
expect() { grep -qE -- "$1" "$2" || fail "no \"$1\" in $2"; }
cp -r "$golden" model
for directory in model model/experts; do cp "$examples"/chat/tokenizer*.json $directory; done
cd model || exit 1

common=(--stage rlhf --model . --dataset_shuffle false --learning_rate 1e-3 --lr_scheduler_type constant --adam_beta2 0.999
        --weight_decay 0 --logging_steps 1 --max_length 256 --mixed_precision no --add_version false --cache_dir cache)
train=(train "${common[@]}" --dataset pairs.jsonl --global_batch_size 4 --max_steps 5)

while read -r run _ line; do
  read -ra options <<< "$line"
  for ranks in 1 3; do
    good $ranks "${train[@]}" "${options[@]}" --val_dataset valid.jsonl --eval_steps 5 --zero_stage 3 --output_dir "$run-$ranks"
    ! grep -q W029 log || fail "$run: $(grep W029 log)"
    as_trl "$run" "$run-$ranks" "$golden/golden.txt"
  done
done < <(grep ' options ' "$golden/golden.txt")
expect '^eval 5/5 \| loss .* \| rewards/accuracies .* \| 6 pairs in' log
expect '^loss      orpo, beta 0.3, and 1 times the cross-entropy of chosen answers' log

# The other losses of DPO and CPO.
while read -r run _ line; do
  read -ra options <<< "$line"
  good 3 "${train[@]}" "${options[@]}" --val_dataset valid.jsonl --eval_steps 5 --zero_stage 3 --output_dir "$run"
  as_trl "$run" "$run" "$golden/losses.txt"
done < <(grep ' options ' "$golden/losses.txt")

# Samples end to end have the same figures: accumulated pairs, with a frozen copy and with the reference's figures beforehand, and cross-entropy.
grep -E '^(dpo_sigmoid|dpo_lora|cpo) options ' "$golden/golden.txt" > flat.runs
while read -r run _ line; do
  read -ra options <<< "$line"
  [ "$run" != dpo_lora ] || options+=(--precompute_ref_log_probs true)
  for ranks in 1 3; do
    good $ranks "${train[@]}" "${options[@]}" --padding_free true --val_dataset valid.jsonl --eval_steps 5 --output_dir flat
    expect 'samples end to end, at most [0-9]* tokens' log
    as_trl "$run" flat "$golden/golden.txt"
    rm -r flat
  done
done < flat.runs

# Mixtures of experts, beside a dense reference, and as the reference of a dense model, whose hidden size is another.
while read -r run _ line; do
  read -ra options <<< "$line"
  [[ $line == *--dataset* ]] || options+=(--dataset pairs.jsonl --val_dataset valid.jsonl)
  for ranks in 1 2; do
    good $ranks train "${common[@]:0:2}" "${common[@]:4}" "${options[@]}" --global_batch_size 4 --max_steps 5 --eval_steps 5 --output_dir "$run-$ranks"
    as_trl "$run" "$run-$ranks" "$golden/experts.txt"
  done
done < <(grep ' options ' "$golden/experts.txt")
expect '^step 5/5 .* \| aux_loss ' log
refused 2 'reward models of mixtures of experts are not built' 1 rm --model experts --dataset pairs.jsonl

# The loss is a mean over the global batch: not the mean of micro-batches' means, which TRL has.
good 1 "${train[@]}" --rlhf_type cpo --beta 0.2 --cpo_alpha 0.5 --per_device_train_batch_size 2 --output_dir split
as_trl_first=$(sed -n 's/^# the first loss of cpo.*: //p' "$golden/golden.txt")
awk -v parts="$(steps split | sed -n 's/^1 loss //p')" -v full="$(steps cpo-1 | sed -n 's/^1 loss //p')" -v means="$as_trl_first" \
  'BEGIN { d = parts - full; e = parts - means; exit !(full > 0 && d < 1e-6 && d > -1e-6 && (e > 1e-3 || e < -1e-3)) }' ||
  fail "a loss of split batches"

# What is saved has the figures of the last evaluation, with a reference model, with adapters, and without a reference.
evaluate=(--dataset valid.jsonl --mixed_precision no --max_length 256 --cache_dir cache --json)
good 2 eval --rlhf_type dpo --beta 0.1 --model dpo_ref_model-1 --ref_model ref "${evaluate[@]}"
evaluated_as dpo_ref_model "$golden/golden.txt"
good 1 eval --rlhf_type dpo --beta 0.5 --model . --adapters dpo_lora-3 "${evaluate[@]}"
evaluated_as dpo_lora "$golden/golden.txt"
good 3 eval --rlhf_type cpo --beta 0.2 --cpo_alpha 0.5 --model cpo-1 "${evaluate[@]}"
evaluated_as cpo "$golden/golden.txt"
good 1 eval --rlhf_type dpo --beta 0.1 --model dpo_mpo --ref_model ref --loss_type sigmoid bco_pair sft --loss_weights 0.8 0.2 1 "${evaluate[@]}"
evaluated_as dpo_mpo "$golden/losses.txt"
refused 2 'would be compared with itself' 1 eval --rlhf_type dpo --model . "${evaluate[@]}"
refused 2 'it has no score head' 1 eval --rlhf_type rm --model . "${evaluate[@]}"

# A token file of pairs, made beforehand.
sigmoid=(--rlhf_type dpo --beta 0.5 --per_device_train_batch_size 2)
good 2 tokenize --rlhf_type dpo --model . --dataset pairs.jsonl --out tokens.bin --preview 2
expect '^document 2, .* with loss' log
sed 's/^{/{"margin": 0.5, /' pairs.swift.jsonl > margins.jsonl
good 1 tokenize --rlhf_type rm --model . --dataset margins.jsonl --out margins.bin --preview 4
expect '^document 4, ' log
! grep -q '^document 3, ' log || fail "a margin is shown as text"
good 1 train "${common[@]}" --global_batch_size 4 --max_steps 5 "${sigmoid[@]}" --dataset tokens.bin --output_dir tokens
diff <(losses dpo_sigmoid-1 | grep -v ^eval) <(losses tokens) > /dev/null || fail "a token file has other losses"
refused 3 'holds pairs of a chosen and a rejected answer' 1 sft --model . --dataset tokens.bin --output_dir no
for type in rm kto; do refused 3 'was made for another --rlhf_type' 1 $type --model . --dataset tokens.bin --max_length 256 --output_dir no; done

# Rows of ms-swift, and rows whose prompt is what both answers begin with: the same tokens.
for form in swift implicit; do
  good 1 train "${common[@]}" --global_batch_size 4 --max_steps 5 "${sigmoid[@]}" --dataset "pairs.$form.jsonl" --output_dir "$form"
  diff <(losses dpo_sigmoid-1 | grep -v ^eval) <(losses "$form") > /dev/null || fail "rows of the form $form"
done

# The reference by adapters that are switched off, by a second model, computed beforehand, and from the cache.
lora=("${train[@]}" "${sigmoid[@]}" --adapters adapter)
good 2 "${lora[@]}" --output_dir shared
expect 'reference: the model without its adapters' log
good 2 "${lora[@]}" --ref_model . --output_dir own
good 2 "${lora[@]}" --precompute_ref_log_probs true --output_dir known
expect '^reference log-probabilities of 40 answers computed' log
good 2 "${lora[@]}" --precompute_ref_log_probs true --output_dir cached
expect '^reference log-probabilities of 40 answers found in' log
for other in own known cached; do
  diff <(losses shared) <(losses $other) > /dev/null || fail "the reference \"$other\" has other losses"
  cmp -s shared/adapter_model.safetensors $other/adapter_model.safetensors || fail "\"$other\" trains another adapter"
done

# QLoRA: the base in 4 bits is the reference, at any stage.
qlora=("${lora[@]}" --quant_method bnb --quant_bits 4)
good 2 "${qlora[@]}" --zero_stage 3 --save_steps 5 --output_dir four
good 2 "${qlora[@]}" --zero_stage 0 --precompute_ref_log_probs true --output_dir four-known
diff <(losses four) <(losses four-known) > /dev/null || fail "the quantized base has other losses computed beforehand"
cmp -s four/adapter_model.safetensors four-known/adapter_model.safetensors || fail "QLoRA: stages differ"
! diff <(losses four) <(losses shared) > /dev/null || fail "a quantized base has the losses of the full one"

good 2 "${qlora[@]}" --zero_stage 3 --ref_model . --output_dir four-own
expect '^loss      .* \| reference: \. in nf4' log
diff <(losses four) <(losses four-own) > /dev/null || fail "a second model in 4 bits has other losses than the base in 4 bits"
good 2 "${qlora[@]}" --zero_stage 3 --ref_model . --ref_quant_bits none --output_dir four-none
! diff <(losses four) <(losses four-none) > /dev/null || fail "a reference in floats has the losses of one in 4 bits"
for from in "--model . --adapters four" "--model . --adapters four --ref_model ." "--checkpoint four/checkpoint-5"; do
  # shellcheck disable=SC2086
  good 2 eval --rlhf_type dpo --beta 0.5 $from --quant_method bnb --quant_bits 4 "${evaluate[@]}"
  sed -n 's/^\({"loss.*\),"seconds".*/\1/p' log >> evaluated
done
[ "$(grep -c loss evaluated)" = 3 ] && [ "$(sort -u evaluated | wc -l)" = 1 ] || fail "evaluations of a quantized base: $(cat evaluated)"

# A second model of another family and size, in floats, 4 and 8 bits, sharded and offloaded: as its figures computed beforehand, at any stage.
other=("${train[@]}" "${sigmoid[@]}" --ref_model experts)
for bits in none 4 8; do
  good 2 "${other[@]}" --ref_quant_bits $bits --zero_stage 3 --offload_params cpu --save_steps 3 --output_dir "other-$bits"
  good 2 "${other[@]}" --ref_quant_bits $bits --zero_stage 1 --precompute_ref_log_probs true --output_dir other-known
  diff <(losses "other-$bits") <(losses other-known) > /dev/null || fail "another model with --ref_quant_bits $bits has other losses beforehand"
  cmp -s "other-$bits/model.safetensors" other-known/model.safetensors || fail "--ref_quant_bits $bits: other weights"
  rm -r other-known
done
[ "$(for bits in none 4 8; do losses other-$bits | md5sum; done | sort -u | wc -l)" = 3 ] || fail "the reference's bits change nothing"
as_planned other-4 2 dpo --ref_model experts --ref_quant_bits 4 --zero_stage 3 --offload_params cpu --beta 0.5 --per_device_train_batch_size 2 \
  --global_batch_size 4
good 2 "${other[@]}" --zero_stage 1 --unit_strategy 'reference.*=FULL_SHARD' --output_dir other-sharded
diff <(losses other-none) <(losses other-sharded) > /dev/null || fail "a reference that is sharded alone has other losses"
as_planned other-sharded 2 dpo --ref_model experts --zero_stage 1 --unit_strategy 'reference.*=FULL_SHARD' --beta 0.5 --per_device_train_batch_size 2 \
  --global_batch_size 4
good 2 "${other[@]}" --ref_quant_bits 8 --zero_stage 3 --resume_from_checkpoint other-4/checkpoint-3 --max_steps 4 --output_dir other-bits
expect 'warning W084: the files of the reference model' log
refused 2 'the reference is the model without its adapters' 1 "${lora[@]}" --ref_quant_bits 4 --output_dir no
mkdir eight && sed 's/^{/{"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": true},/' config.json > eight/config.json
refused 2 'Use --ref_quant_bits 8' 1 "${qlora[@]}" --ref_model eight --output_dir no
refused 2 'the reference is a reward model' 1 "${train[@]}" "${sigmoid[@]}" --ref_model reward --output_dir no
refused 2 'the other types have no reference model' 1 cpo --ref_quant_bits 4 --model . --dataset pairs.jsonl

# On a device: the fields of sequences and the sums of metrics are in its memory.
if [ -n "$simulated" ]; then
  for reference in "" "--precompute_ref_log_probs true" "--padding_free true"; do
    # shellcheck disable=SC2086
    LD_LIBRARY_PATH=$simulated good 2 "${lora[@]}" $reference --backend cuda --comm mpi --val_dataset valid.jsonl --eval_steps 5 --output_dir device
    as_trl dpo_lora device "$golden/golden.txt"
    rm -r device
  done
  LD_LIBRARY_PATH=$simulated good 1 "${train[@]}" --rlhf_type cpo --beta 0.2 --cpo_alpha 0.5 --per_device_train_batch_size 2 --backend cuda \
    --output_dir device
  diff <(losses split | cut -c1-12) <(losses device | cut -c1-12) > /dev/null || fail "cross-entropy on a device"
fi

# ZeRO stages, and a resume in the middle of an epoch.
for stage in 0 1 2 3; do
  good 2 "${train[@]}" "${sigmoid[@]}" --zero_stage $stage --save_steps 3 --output_dir "stage$stage"
  cmp -s stage0/model.safetensors "stage$stage/model.safetensors" || fail "stage $stage differs"
done
! tar -cf - stage3/checkpoint-3 | grep -qa 'reference\.' || fail "a checkpoint has the reference"
good 2 "${train[@]}" "${sigmoid[@]}" --zero_stage 3 --save_steps 3 --output_dir again --resume_from_checkpoint stage3/checkpoint-3
cmp -s stage3/model.safetensors again/model.safetensors || fail "a resumed run differs"
! grep -q W084 log || fail "the same reference: $(grep W084 log)"
cp -r ref ref3 && sed '0,/"!"/s//"!!!!"/' tokenizer.json > ref3/tokenizer.json
good 2 "${train[@]}" "${sigmoid[@]}" --ref_model ref3 --max_steps 1 --output_dir other-words
expect 'warning W067: the vocabulary of ref3/tokenizer.json' log
cp -r ref ref2 && touch -d '2001-01-01' ref2/model.safetensors
good 1 "${train[@]}" "${sigmoid[@]}" --ref_model ref --save_steps 3 --max_steps 3 --output_dir first
good 1 "${train[@]}" "${sigmoid[@]}" --ref_model ref --resume_from_checkpoint first/checkpoint-3 --max_steps 4 --output_dir forward \
  --f_divergence_type forward_kl --ref_quant_bits 8
expect 'warning W060: .*f_divergence_type .*ref_quant_bits' log
good 1 "${train[@]}" "${sigmoid[@]}" --ref_model ref2 --max_steps 4 --output_dir other --resume_from_checkpoint first/checkpoint-3
expect 'warning W084: the files of the reference model' log
# The last batch of an epoch has fewer pairs, and ranks have none.
good 3 "${train[@]}" "${sigmoid[@]}" --global_batch_size 8 --max_steps 3 --output_dir partial
expect '"pairs":4,' partial/logging.jsonl

# The best checkpoint by a metric of pairs; a data set that splits off whole pairs.
good 1 "${train[@]}" "${sigmoid[@]}" --split_dataset_ratio 0.3 --eval_steps 1 --save_steps 1 --load_best_model_at_end true \
  --metric_for_best_model rewards/margins --output_dir best
expect '^best .*eval_rewards/margins' log
refused 2 'Choose one of loss, rewards/chosen' 1 "${train[@]}" --val_dataset valid.jsonl --metric_for_best_model token_acc --output_dir no

# Pairs that cannot be used are named; equal ones are counted; those that truncation leaves without an answer are left out.
{ head -3 pairs.jsonl; echo '{"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "b"}]}'
  echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "rejected_response": "b"}'
  echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'; } > some.jsonl
good 1 train "${common[@]}" "${sigmoid[@]}" --dataset some.jsonl --max_steps 1 --output_dir some
expect 'some.jsonl:4: the row has "chosen" and no "rejected"' log
expect 'some.jsonl:6: the row has no rejected answer' log
expect 'warning W075: in 1 of 4 pairs' log
good 1 "${train[@]}" "${sigmoid[@]}" --max_length 40 --truncation_strategy right --output_dir short
expect 'pairs without loss left out' log
refused 3 'can be used' 1 "${train[@]}" "${sigmoid[@]}" --max_length 4 --output_dir no
refused 3 'is a chosen and a rejected answer' 1 sft --model . --dataset pairs.jsonl --output_dir no

# Texts after one beginning: no template.
echo '{"chosen": "Question: one? Answer: yes", "rejected": "Question: one? Answer: no, never"}' > texts.jsonl
good 1 train "${common[@]}" "${sigmoid[@]}" --dataset texts.jsonl --max_steps 1 --output_dir texts

refused 2 'has no effect without --stage rlhf' 1 sft --model . --dataset pairs.jsonl --beta 0.2
refused 2 '--ref_model is for dpo and kto: the other types have no reference model' 1 rlhf --rlhf_type simpo --ref_model . --model . --dataset pairs.jsonl
refused 2 'Not built yet' 1 rlhf --rlhf_type ppo --model . --dataset pairs.jsonl
refused 2 'sorts the pairs of a micro-batch, and this one would have one' 1 dpo --loss_type sigmoid aot --per_device_train_batch_size 1 --model . --dataset pairs.jsonl
refused 2 'this one would have one' 1 dpo --loss_type aot --per_device_train_batch_size 2 --per_device_eval_batch_size 1 --model . --dataset pairs.jsonl
refused 2 'this one would have one' 1 dpo --loss_type aot --per_device_train_batch_size 4 --global_batch_size 1 --model . --dataset pairs.jsonl
printf 'stage: rlhf\nrlhf_type: dpo\nloss_type: aot\n' > aot.yaml
good 1 tokenize aot.yaml --model . --dataset pairs.jsonl --out aot.bin
refused 2 'is for other losses, and not for sft' 1 dpo --loss_type sft --f_divergence_type forward_kl --model . --dataset pairs.jsonl
refused 2 'is for other losses, and not for nca_pair' 1 dpo --loss_type nca_pair --f_divergence_type forward_kl --model . --dataset pairs.jsonl
refused 2 'is for dpo with --f_divergence_type alpha_divergence' 1 dpo --f_alpha_divergence_coef 0.3 --model . --dataset pairs.jsonl
refused 2 'has 1 weights, and --loss_type 2 losses' 1 dpo --loss_type sigmoid hinge --loss_weights 1 --model . --dataset pairs.jsonl
refused 2 'expected a number, at least 0' 1 dpo --loss_type sigmoid hinge --loss_weights 1 -1 --model . --dataset pairs.jsonl
refused 2 'names hinge twice' 1 dpo --loss_type hinge hinge --model . --dataset pairs.jsonl
refused 2 'has one loss at a time' 1 cpo --loss_type hinge ipo --model . --dataset pairs.jsonl
refused 2 'is not one of --rlhf_type dpo' 1 dpo --loss_type sigmoid kto --model . --dataset pairs.jsonl
refused 2 'is for kto' 1 dpo --desirable_weight 2 --model . --dataset pairs.jsonl
refused 2 'Use --padding_free true' 1 dpo --packing true --model . --dataset pairs.jsonl
refused 2 'is for dpo' 1 cpo --ld_alpha 0.5 --model . --dataset pairs.jsonl
refused 2 'weighs the loss of each pair' 1 dpo --use_weighting true --loss_type sigmoid sft --model . --dataset pairs.jsonl
refused 2 'weighs the loss of each pair' 1 dpo --use_weighting true --rpo_alpha 1 --model . --dataset pairs.jsonl
mkdir wider && sed 's/"vocab_size": 1024/"vocab_size": 1100/' config.json > wider/config.json
mkdir shorter && sed 's/"max_position_embeddings": 256/"max_position_embeddings": 64/' config.json > shorter/config.json
for known in true false; do
  refused 2 'the reference model of --ref_model has 64 positions' 1 dpo --ref_model shorter --model . --dataset pairs.jsonl --output_dir no \
    --precompute_ref_log_probs $known
done
refused 2 'vocabulary of 1100' 1 dpo --ref_model wider --model . --dataset pairs.jsonl --output_dir no
mkdir plain && cp config.json model.safetensors tokenizer.json plain && echo '{"eos_token": "<|im_end|>"}' > plain/tokenizer_config.json
refused 3 'there is no chat template' 1 dpo --model plain --dataset pairs.jsonl --max_length 256 --output_dir no

as_planned stage3 2 dpo --zero_stage 3 --beta 0.5 --per_device_train_batch_size 2 --global_batch_size 4

# The cross-entropy of chosen answers alone is supervised fine-tuning on them.
sed 's/, "rejected_response": .*/}/' pairs.swift.jsonl > chosen.jsonl
good 2 "${train[@]}" --rlhf_type dpo --loss_type sft --output_dir chosen
good 2 train --stage sft "${common[@]:2}" --loss_scale last_round --dataset chosen.jsonl --global_batch_size 4 --max_steps 5 --output_dir supervised
for run in chosen supervised; do steps $run | grep -E '^[1-5] (loss|grad_norm) '; done |
  awk '{ if (!(($1, $2) in first)) first[$1, $2] = $3; else { d = first[$1, $2] - $3; ++n; if (d > 1e-4 || d < -1e-4) bad = 1 } }
       END { exit bad || n != 10 }' || fail "dpo --loss_type sft is not supervised fine-tuning"

# The example: after a few steps on answers, pairs raise margin and share of right preferences on those that are held out.
cd "$work" && ln -s "$(dirname "$examples")" jobs || exit 1
good 2 sft jobs/examples/chat.yaml --max_steps 12 --warmup_steps 2 --output_dir "$work/chat"
good 2 dpo jobs/examples/dpo.yaml --model "$work/chat" --num_train_epochs 2 --eval_steps 12 --output_dir "$work/dpo" --cache_dir "$work/cache"
awk '/"eval_loss"/ { match($0, /"eval_rewards\/margins":[-0-9.e]+/); margin = substr($0, RSTART + 23, RLENGTH - 23) + 0
       match($0, /"eval_rewards\/accuracies":[-0-9.e]+/); share = substr($0, RSTART + 26, RLENGTH - 26) + 0; if (!n++) first = margin }
     END { exit !(n >= 3 && first == 0 && margin > 0.2 && share > 0.9) }' "$work/dpo/logging.jsonl" || fail "dpo.yaml does not learn"

[ $failures = 0 ] && echo "preferences.sh: passed"
exit $((failures > 0))
