#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What train refuses, under mpirun: one "error:" line from one rank, the right exit code, nothing written.
#   refusals.sh TESSERA MPIRUN quick|full
set -u
tessera=$1 mpirun=$2 suite=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0 cases=0

cat > config.json <<'JSON'
{"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 256, "n_positions": 64, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
JSON
mkdir model && cp config.json model/
mkdir -p runs/v0-a runs/v1-b && cp config.json runs/v0-a/ && cp config.json runs/v1-b/
for i in $(seq 400); do echo "line $i of the training text, as plain as can be"; done > train.txt
: > empty.txt
head -c 20000 /dev/urandom > garbage.txt
printf 'PAR1xxxxxxxxxxxxxxxxPAR1' > data.parquet
{ head -c 400 train.txt; printf '\0\0\0'; head -c 400 train.txt; } > nul.txt
echo '{"text": "good"}' > bad.jsonl; echo 'no json' >> bad.jsonl
printf '\xc8\x87\x34\x01\x01\x00\x00\x00\xff\xff\x00\x00' > short.bin
sed 's/"vocab_size": 256/"vocab_size": 64/' config.json > narrow.json
sed 's/"n_layer": 2/"n_layer": 2000000000/' config.json > absurd.json
sed 's/"n_head": 2/"n_head": "two"/' config.json > wordy.json
echo '{"model_type": "gpt2", "n_layer": ' > broken.json
printf 'seed: 1\n  max_length: [\n' > broken.yaml
echo 'max_lenght: 12' > misspelt.yaml
touch file

base="--model config.json --from_scratch --dataset train.txt --max_length 16 --per_device_train_batch_size 2 --max_steps 2"

# refuse CODE WORDS RANKS ARGUMENTS…
refuse() {
  local code=$1 words=$2 ranks=$3 out rc errors
  shift 3
  rm -rf out
  out=$(timeout 60 "$mpirun" -n "$ranks" "$tessera" "$@" --output_dir out 2>&1 < /dev/null)
  rc=$?
  errors=$(grep -c '^error: ' <<< "$out")
  cases=$((cases + 1))
  if [ "$rc" != "$code" ] || [ "$errors" != 1 ] || ! grep '^error: ' <<< "$out" | grep -qiF -- "$words" || [ -e out ]; then
    echo "FAILED: $* -> exit $rc (wanted $code), $errors error lines (wanted 1 with \"$words\"), out: $(ls out 2> /dev/null)"
    echo "$out" | head -20
    failures=$((failures + 1))
  fi
}

# shellcheck disable=SC2086
quick() {
  refuse 2 zero_stage 2 train $base --zero_stag 3
  refuse 2 'global_batch_size 7 != micro 2 x accumulation 5 x ranks 2' 2 train $base --global_batch_size 7 --gradient_accumulation_steps 5
  refuse 3 empty.txt 2 train $base --dataset empty.txt
}

# shellcheck disable=SC2086
full() {
  refuse 2 'shard_group_size' 3 train $base --shard_group_size 2
  refuse 2 'power of two' 3 train $base --reproducible
  refuse 2 'power of two from 4KiB to 4MiB' 2 train $base --checkpoint_alignment 12KiB
  refuse 2 'it does not write asynchronously' 2 train $base --checkpoint_io mpio --async_save
  refuse 2 '64' 2 train $base --max_length 65
  refuse 3 garbage.txt 2 train $base --dataset garbage.txt
  refuse 3 nul.txt 2 train $base --dataset nul.txt
  refuse 3 parquet 2 train $base --dataset data.parquet
  refuse 3 bad.jsonl:2 2 train $base --dataset bad.jsonl --strict true
  refuse 3 short.bin 2 train $base --dataset short.bin
  refuse 3 nowhere.txt 2 train $base --dataset nowhere.txt
  refuse 3 'vocabulary' 2 train $base --model narrow.json --tokenizer bytes
  refuse 2 n_layer 2 train $base --model absurd.json
  refuse 2 n_head 2 train $base --model wordy.json
  refuse 2 broken.json 2 train $base --model broken.json
  refuse 3 nowhere 2 train $base --model nowhere
  refuse 3 'holds runs and no config.json [--model]. Use --model runs/v1-b' 1 train $base --model runs
  refuse 2 broken.yaml 2 train broken.yaml $base
  refuse 2 'misspelt.yaml:1' 2 train misspelt.yaml $base
  refuse 3 model.safetensors 2 train --model model --dataset train.txt --max_length 16
  refuse 2 'mixed_precision' 2 train $base --mixed_precision fp8
  refuse 2 'computes in bf16' 2 train $base --bf16 --reduce_dtype fp16
  refuse 2 'fp16 alone needs' 2 train $base --bf16 --loss_scale_window 10
  refuse 3 'No such file' 2 train $base --resume_from_checkpoint nowhere/checkpoint-3
  CUDA_VISIBLE_DEVICES="" refuse 2 'backend cuda' 2 train $base --backend cuda
  refuse 2 '--comm nccl ' 2 train $base --comm nccl
  refuse 2 zero 2 train $base --zero_stage 2 --fsdp full_shard
  refuse 4 'a rank needs' 2 train $base --device_memory 64KiB
  refuse 3 'one sample takes' 2 train --model config.json --from_scratch --max_length 16 --dataset short.txt
  refuse 3 nowhere.txt 2 train $base --val_dataset nowhere.txt
  refuse 3 '[--val_dataset]' 2 train $base --val_dataset short.txt
  refuse 3 'no configuration file nowhere.yaml' 2 train nowhere.yaml $base
  refuse 2 'dataset_shuffle maybe: expected true or false' 2 train $base --dataset_shuffle maybe
  refuse 2 'expected a number of units' 2 train $base --forward_prefetch BACKWARD_PRE
  refuse 2 'no rank 2' 2 train $base --profile_steps 1:1 --profile_ranks 2
}

printf 'short' > short.txt
"$suite"

# An output directory that cannot be created is an error before the first step.
if [ "$suite" = full ]; then
  # shellcheck disable=SC2086
  out=$(timeout 60 "$mpirun" -n 2 "$tessera" train $base --output_dir file/out 2>&1 < /dev/null)
  rc=$?
  cases=$((cases + 1))
  if [ $rc != 3 ] || [ "$(grep -c '^error: ' <<< "$out")" != 1 ] || grep -q '^step ' <<< "$out"; then
    echo "FAILED: output directory below a file -> exit $rc"; echo "$out" | head -20
    failures=$((failures + 1))
  fi
  # What is wrong with model, data, prompts, output directory and memory is told at once.
  # together CODE "WORDS WORDS …" ARGUMENTS…: as many lines as words
  together() {
    local code=$1 out rc word
    local -a words
    read -r -a words <<< "$2"
    shift 2
    out=$(timeout 60 "$mpirun" -n 2 "$tessera" "$@" 2>&1 < /dev/null)
    rc=$?
    cases=$((cases + 1))
    if [ $rc != "$code" ] || [ "$(grep -c '^error: ' <<< "$out")" != ${#words[@]} ]; then
      echo "FAILED: $* -> exit $rc (wanted $code and ${#words[@]} lines)"; echo "$out" | head -20
      failures=$((failures + 1))
    fi
    for word in "${words[@]}"; do
      grep '^error: ' <<< "$out" | grep -qF -- "$word" || { echo "FAILED: $*: no $word"; failures=$((failures + 1)); }
    done
  }
  # shellcheck disable=SC2086
  together 3 "nowhere/model nowhere.txt gone.txt file/out" train $base --model nowhere/model.json --dataset nowhere.txt gone.txt --output_dir file/out
  # shellcheck disable=SC2086
  together 4 "needs file/out" train $base --device_memory 64KiB --output_dir file/out
  # shellcheck disable=SC2086
  together 3 "nowhere.txt" train $base --val_dataset nowhere.txt --device_memory 64KiB --output_dir out
  # shellcheck disable=SC2086
  together 2 "profile_ranks needs" train $base --profile_steps 1:1 --profile_ranks 2 --device_memory 64KiB --output_dir out
  together 2 "no_model reduce_gradients packing_strategy" train --model no_model --dataset train.txt --reproducible true \
    --reduce_gradients last --packing_strategy binpack --output_dir out
  together 3 "model.safetensors nowhere.txt gone.txt" eval --model model --dataset nowhere.txt gone.txt
  together 3 "no_model evaluate" eval --model no_model
  together 3 "no_model nowhere.txt --system" generate --model no_model --prompt_file nowhere.txt --system text
  together 3 "model.safetensors continue" generate --model model

  # A learning rate at which the weights diverge: exit 5 on every rank, STATUS failed, no model.
  rm -rf out
  # shellcheck disable=SC2086
  out=$(timeout 120 "$mpirun" -n 2 "$tessera" train $base --max_steps 60 --learning_rate 1e30 --max_grad_norm 0 --output_dir out --add_version false 2>&1 < /dev/null)
  rc=$?
  cases=$((cases + 1))
  if [ $rc != 5 ] || [ "$(grep -c '^error: ' <<< "$out")" != 1 ] || [ "$(head -n 1 out/STATUS)" != failed ] || ! sed -n 2p out/STATUS | grep -q "not finite" || [ -e out/model.safetensors ]; then
    echo "FAILED: divergence -> exit $rc, STATUS $(cat out/STATUS)"; echo "$out" | tail -20
    failures=$((failures + 1))
  fi
fi

echo "$cases cases, $failures failures"
[ "$failures" = 0 ] && [ "$cases" -ge 3 ]
