#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Command lines and files as users of other tools write them, and what each must print.
#   habits.sh TESSERA MPIRUN EXAMPLES
# shellcheck source=tests/system/commands.sh
. "$(dirname "$0")/commands.sh"
examples=$3
export HF_HUB_CACHE=$work/hub MODELSCOPE_CACHE=$work/scope
# prints WANTED WORDS ARGUMENTS…: one process ends with WANTED and prints the words
prints() {
  local wanted=$1 words=$2; shift 2
  timeout 120 "$tessera" "$@" > log 2>&1 < /dev/null; code=$?
  [ $code = "$wanted" ] && grep -qF -- "$words" log || fail "$* -> exit $code, wanted $wanted and \"$words\""
}

for i in $(seq 30); do echo "{\"messages\": [{\"role\": \"user\", \"content\": \"Question $i\"}, {\"role\": \"assistant\", \"content\": \"Answer $i.\"}]}"; done > rows.jsonl
prints 0 '' pt --model "$examples/chat" --from_scratch --dataset rows.jsonl --max_length 64 --max_steps 1 \
  --per_device_train_batch_size 1 --output_dir base --add_version false --threads 1

# ms-swift's README: LoRA with --eval_steps and without validation data; then inference and export of the adapter.
prints 0 'W024: --eval_steps 50 has no effect: there is no validation data' sft --model base --tuner_type lora --dataset 'rows.jsonl#20' \
  --torch_dtype float32 --num_train_epochs 1 --per_device_train_batch_size 1 --per_device_eval_batch_size 1 --learning_rate 1e-4 \
  --lora_rank 8 --lora_alpha 32 --target_modules all-linear --gradient_accumulation_steps 16 --eval_steps 50 --save_steps 50 \
  --save_total_limit 2 --logging_steps 5 --max_length 64 --output_dir output --system 'You are a helpful assistant.' --warmup_ratio 0.05 \
  --dataset_num_proc 4 --dataloader_num_workers 4 --model_author swift --model_name swift-robot --add_version false --threads 1
checkpoint=$(echo output/checkpoint-*)
prints 0 "its base model is $work/base" infer --adapters "$checkpoint" --stream true --temperature 0 --max_new_tokens 4 --prompt Hello --threads 1
prints 0 '--stream true: harmless' config check --stream true
prints 0 'adapters merged in fp32' export --adapters output --merge_lora true --threads 1
[ -s output-merged/model.safetensors ] || fail "export has no default output"
prints 0 'exported' export --adapters "$checkpoint" --merge_lora true --output_dir exported --threads 1
cmp -s output-merged/model.safetensors exported/model.safetensors || fail "the checkpoint's export differs"
mv base moved
prints 3 "is $work/base: no such directory" infer --adapters "$checkpoint" --prompt Hello
prints 0 '' infer --model moved --adapters "$checkpoint" --prompt Hello --max_new_tokens 2 --threads 1
mv moved base

# Names that point to the right option.
prints 2 'Use --tuner_type lora' config check --stage sft --use_peft true
prints 2 'Use --quant_method bnb --quant_bits 4' config check --stage sft --load_in_4bit
prints 2 'Use --tuner_type lora --quant_method bnb --quant_bits 4' config check --stage sft --tuner_type qlora
prints 2 "Leave --template out for the model's own chat template" config check --stage sft --template qwen2_5
prints 2 "Leave --template out for the model's own chat template" sft --model base --dataset rows.jsonl --template qwen2_5 --output_dir no
echo 'deepspeed: {steps_per_print: 2000, zero_optimization: {stage: 2}}' > printed.yaml
prints 0 'logging_steps decides' config explain printed.yaml

# transformers 5.
printf 'model: base\ndataset: [rows.jsonl]\nfsdp: true\nfsdp_config: {version: 2, reshard_after_forward: true}\n' > fsdp.yaml
prints 0 'mapped to sharding_strategy FULL_SHARD' config check fsdp.yaml
for fsdp in --fsdp '--fsdp full_shard'; do
  # shellcheck disable=SC2086
  prints 0 'valid' config check $fsdp
done
prints 0 'checkpoint-5' sft --model base --dataset rows.jsonl --warmup_steps 0.1 --save_steps 0.5 --logging_steps 0.2 --eval_steps 0.5 \
  --split_dataset_ratio 0.2 --max_steps 10 --max_length 64 --gradient_accumulation_steps 1 --output_dir shares --add_version false --threads 1
[ "$(grep -cE '^step ' log)" = 6 ] || fail "logging_steps 0.2 of 10: $(grep '^step ' log)"  # 1, 2, 4, 6, 8, 10
[ "$(grep -cE '^eval ' log)" = 2 ] || fail "eval_steps 0.5 of 10: $(grep '^eval ' log)"
[ -d shares/checkpoint-5 ] && [ -d shares/checkpoint-10 ] || fail "save_steps 0.5 of 10: $(ls shares)"
grep -qE '^step 2/10 .* lr 1.00e-05' log || fail "warmup_steps 0.1 of 10: $(grep '^step 2' log)"
prints 0 'W024: --adam_beta1 0.8 has no effect: it is for --optim adamw' sft --model base --dataset rows.jsonl --optim sgd --adam_beta1 0.8 \
  --max_steps 1 --max_length 64 --gradient_accumulation_steps 1 --output_dir sgd --add_version false --threads 1

# LLaMA-Factory and axolotl.
cat > factory.yaml <<'YAML'
model_name_or_path: base
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
dataset_dir: data
cutoff_len: 2048
max_samples: 1000
val_size: 0.1
flash_attn: auto
quantization_bit: 4
YAML
prints 2 "another name here: " config check factory.yaml
for ours in --tuner_type --target_modules --dataset --max_length 'FILE#N' --split_dataset_ratio --quant_bits; do
  grep -qF -- "$ours" log || fail "factory.yaml: no $ours"
done
cat > axolotl.yaml <<'YAML'
base_model: base
load_in_4bit: true
adapter: qlora
lora_r: 8
lora_target_linear: true
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 512
sample_packing: true
micro_batch_size: 1
num_epochs: 4
optimizer: adamw_torch
lr_scheduler: cosine
bf16: auto
flash_attention: true
gradient_checkpointing: true
fsdp:
  - full_shard
  - auto_wrap
special_tokens:
  pad_token: x
val_set_size: 0.05
warmup_ratio: 0.1
chat_template: llama3
YAML
prints 2 'another name here: ' config check axolotl.yaml
for ours in --model '--quant_method bnb --quant_bits 4' --lora_rank '--target_modules all-linear' --dataset --max_length --packing \
  --num_train_epochs --optim --eos_token --split_dataset_ratio --template; do
  grep -qF -- "$ours" log || fail "axolotl.yaml: no $ours"
done

prints 3 'hf download --repo-type dataset tatsu-lab/alpaca' sft --model base --dataset tatsu-lab/alpaca --output_dir no --threads 1

# Conversations in a prompt file, and on a terminal.
echo '{"messages": [{"role": "user", "content": "Question 1"}, {"role": "assistant", "content": "Answer 1."}, {"role": "user", "content": "Question 2"}]}' > asked.jsonl
prints 0 '"prompt":"Question 2"' generate --model base --chat --prompt_file asked.jsonl --max_new_tokens 2 --json --threads 1
in_file=$(grep -o '"prompt_token_ids":[^]]*' log)
prints 3 'Give generate --chat' generate --model base --prompt_file asked.jsonl --threads 1
prints 3 'nothing is left to answer' generate --model base --chat --prompt_file rows.jsonl --threads 1
echo 'prompt,id' > asked.csv
prints 3 'prompts are lines of text, or JSON Lines' generate --model base --prompt_file asked.csv --threads 1
prints 2 'Use --prompt_file' infer --model base --val_dataset asked.jsonl
prints 2 'on a terminal, --chat alone is a conversation' generate --model base --chat --threads 1
if command -v script > /dev/null; then
  printf 'Question 1\n/clear\nQuestion 2\n\n/exit\n' | timeout 60 script -qec "$tessera generate --model base --chat --max_new_tokens 3 --threads 1" /dev/null > log 2>&1 ||
    fail "a conversation"
  [ "$(grep -c '^> ' log)" = 5 ] && grep -q 'chat      /clear begins anew' log || fail "a conversation: $(cat -v log)"
fi
[ -n "$in_file" ] || fail "no prompt ids"

# Help.
prints 0 'tessera launch -n 8 -- sft --model' sft --help
[ "$(grep -c '1e-5' log)" = 1 ] || fail "sft's learning rate in its help: $(grep 1e-5 log)"

[ $failures = 0 ] && echo "habits: passed" || exit 1
