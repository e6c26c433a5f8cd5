#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# States on the host: the same models and losses as without, at every stage; what must fit falls; other tools' words.
#   offload.sh TESSERA MPIRUN
# shellcheck source=tests/system/commands.sh
. "$(dirname "$0")/commands.sh"
expect() { grep -qE -- "$1" "$2" || fail "no \"$1\" in $2"; }

cat > config.json <<'JSON'
{"model_type": "gpt2", "n_layer": 3, "n_embd": 64, "n_head": 2, "vocab_size": 256, "n_positions": 64, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
JSON
for i in $(seq 200); do echo "line $i of the training text, as plain as can be"; done > train.txt
train=(train --model config.json --from_scratch --dataset train.txt --max_length 16 --global_batch_size 12 --learning_rate 1e-2
       --logging_steps 1 --max_steps 3 --add_version false --mixed_precision bf16 --gradient_checkpointing none)
losses() { grep -o '"loss":[^,]*' "$1/logging.jsonl"; }
same() {
  cmp -s "$1/model.safetensors" "$2/model.safetensors" || fail "the models of $1 and $2 differ"
  [ "$(losses "$1")" = "$(losses "$2")" ] || fail "the losses of $1 and $2 differ"
}

for stage in 0 2 3; do
  good 2 "${train[@]}" --zero_stage "$stage" --output_dir "resident$stage"
  good 2 "${train[@]}" --zero_stage "$stage" --offload_optimizer cpu --output_dir "optimizer$stage"
  same "resident$stage" "optimizer$stage"
done
expect 'W035' log
expect '^          on host ' log
good 2 "${train[@]}" --deepspeed zero3_offload --output_dir params
same resident3 params

# Activations: the same, with what blocks keep in host memory.
for form in full none; do
  good 2 "${train[@]}" --zero_stage 2 --gradient_checkpointing $form --offload_activations --output_dir "activations_$form"
  same resident2 "activations_$form"
done
expect 'fetched .* stored .* a step' log

# A checkpoint of one is a checkpoint of the other.
good 2 "${train[@]}" --zero_stage 3 --cpu_offload --save_steps 2 --output_dir saved
good 2 "${train[@]}" --zero_stage 3 --resume_from_checkpoint saved/checkpoint-2 --output_dir resumed
cmp -s resident3/model.safetensors resumed/model.safetensors || fail "a resumed run differs"

# What must fit: the resident run does not, with its optimizer on the host it does.
tiers=$("$tessera" plan --model config.json --world_size 2 --max_length 16 --global_batch_size 12 --mixed_precision bf16 \
  --gradient_checkpointing none --zero_stage 3 --json | tr -d ' \n' | grep -o '"tiers":\[.*\]' | grep -o '"computing":[0-9]*' | cut -d: -f2)
mapfile -t needed <<< "$tiers"
[ ${#needed[@]} -ge 3 ] && [ "${needed[0]}" -gt "${needed[1]}" ] || fail "tiers: $tiers"
budget=${needed[1]}
refused 4 '--device_memory' 2 "${train[@]}" --zero_stage 3 --device_memory "$budget" --output_dir refused
good 2 "${train[@]}" --zero_stage 3 --device_memory "$budget" --offload_optimizer cpu --output_dir fits
same resident3 fits

# What cannot be.
refused 2 'each rank keeps the full parameters' 2 "${train[@]}" --zero_stage 2 --offload_params cpu --output_dir no
refused 2 'moves the optimizer too' 2 "${train[@]}" --zero_stage 3 --offload_params cpu --offload_optimizer none --output_dir no

[ $failures = 0 ] && echo good
[ $failures = 0 ]
