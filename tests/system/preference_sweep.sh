#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every loss of preferences that has figures of TRL, on 1 to 4 ranks at every ZeRO stage: TRL's figures, and the same bits at all stages; the
# same losses with LoRA and QLoRA on 3 ranks: the same bits at all stages.
#   preference_sweep.sh TESSERA MPIRUN GOLDEN EXAMPLES [RUN…]
# RUN…: of these runs alone.
# shellcheck source=tests/system/preference_figures.sh
. "$(dirname "$0")/preference_figures.sh"
# shellcheck source=tests/system/commands.sh
. "$(dirname "$0")/commands.sh"
golden=$3/preferences examples=$4
shift 4
chosen=" $* "
cp -r "$golden" model
for directory in model model/reward model/experts; do cp "$examples"/chat/tokenizer*.json $directory; done
cd model || exit 1

common=(train --stage rlhf --dataset_shuffle false --learning_rate 1e-3 --lr_scheduler_type constant --adam_beta2 0.999 --weight_decay 0
        --logging_steps 1 --max_length 256 --mixed_precision no --add_version false --cache_dir cache --global_batch_size 4 --max_steps 5
        --eval_steps 5 --save_strategy no)
# What a run logs, without times and memory.
bits() { steps "$1" | grep -E ' (loss|grad_norm|rewards/[a-z]+|logps/[a-z]+|kl|nll_loss|accuracy|margin|[a-z]+_reward|aux_loss) '; }
# at_every_stage NAME RANKS FILE OPTIONS…: the same bits at all stages; FILE: "", or the file that has TRL's figures of NAME.
at_every_stage() {
  local name=$1 ranks=$2 file=$3 stage
  shift 3
  for stage in 0 1 2 3; do
    good "$ranks" "${common[@]}" "$@" --zero_stage $stage --output_dir "stage$stage"
    [ -z "$file" ] || as_trl "$name" "stage$stage" "$file"
    [ "$(bits stage0 | wc -l)" -ge 30 ] && diff <(bits stage0) <(bits "stage$stage") > /dev/null || fail "$name: stage $stage logs others on $ranks ranks: $*"
    for weights in stage0/*model.safetensors; do
      cmp -s "$weights" "stage$stage/${weights#*/}" || fail "$name: stage $stage saves others on $ranks ranks: $*"
    done
  done
  rm -rf stage[0-3]
}

runs=0
for file in golden losses kto reward experts; do
  while read -r name _ line; do
    [ "$chosen" = "  " ] || [[ $chosen == *" $name "* ]] || continue
    read -ra options <<< "$line"
    [ $file != reward ] || options+=(--rlhf_type rm)
    [[ $line == *--model* ]] || options+=(--model .)
    rows=pairs valid=valid
    [ $file != kto ] || rows=labelled valid=labelled.valid
    [[ $line == *--dataset* ]] || options+=(--dataset "$rows.jsonl")
    [[ $line == *--val_dataset* ]] || options+=(--val_dataset "$valid.jsonl")
    for ranks in 1 2 3 4; do at_every_stage "$name" $ranks "$golden/$file.txt" "${options[@]}"; done
    runs=$((runs + 1))
    [[ $line != *--adapters* ]] || continue
    for tuner in "" "--quant_method bnb --quant_bits 4"; do
      # shellcheck disable=SC2086
      at_every_stage "$name" 3 "" "${options[@]}" --tuner_type lora $tuner
    done
  done < <(grep ' options ' "$golden/$file.txt")
done
[ $runs -gt 0 ] || fail "no run is called $chosen"

[ $failures = 0 ] && echo "preference_sweep.sh: passed, $runs losses"
exit $((failures > 0))
