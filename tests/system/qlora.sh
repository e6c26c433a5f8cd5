#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# QLoRA: options, a base that is quantized here or by transformers, checkpoints with and without it on other numbers of
# ranks, generate, eval and merging; what is refused.
#   qlora.sh TESSERA MPIRUN GOLDEN
# shellcheck source=tests/system/commands.sh
. "$(dirname "$0")/commands.sh"
golden=$3
expect() { grep -qE -- "$1" "$2" || fail "no \"$1\" in $2"; }
loss() { sed -n 's/^{"loss":\([0-9.]*\),.*/\1/p' log; }
near() { awk -v a="$1" -v b="$2" -v r="$3" 'BEGIN { d = a / b - 1; exit !(a > 0 && d < r && d > -r) }' || fail "$4: $1, not $2"; }

base=$golden/qwen3 stored=$golden/qwen3/bnb-nf4 tokens=$golden/qwen3/tokens.bin
four=(--quant_method bnb --quant_bits 4) eight=(--quant_method bnb --quant_bits 8)
train=(train --dataset "$tokens" --max_length 16 --global_batch_size 4 --learning_rate 1e-2 --logging_steps 1 --max_steps 4 --save_steps 2
       --tuner_type lora --add_version false --mixed_precision no)
evaluate=(eval --dataset "$tokens" --max_length 16 --json --mixed_precision no)

# The same adapter at each stage, and over transformers' quantized model.
for stage in 0 3; do good 2 "${train[@]}" --model "$base" "${four[@]}" --zero_stage "$stage" --output_dir "run$stage"; done
cmp -s run0/adapter_model.safetensors run3/adapter_model.safetensors || fail "stages differ"
[ ! -e run3/model.safetensors ] || fail "a QLoRA run has written a model"
grep -q '"base_quantization":"nf4"' run3/adapter_model.safetensors || fail "the adapter does not say what its base was"
expect '"quantization": *"nf4"' run3/checkpoint-4/manifest.json
good 1 "${train[@]}" --model "$stored" --output_dir stored
good 1 "${train[@]}" --model "$base" "${four[@]}" --output_dir made
cmp -s stored/adapter_model.safetensors made/adapter_model.safetensors || fail "transformers' quantized model is another one"

# Resumed on another number of ranks: with the base in the checkpoint, and without.
good 2 "${train[@]}" --model "$base" "${four[@]}" --output_dir with --save_only_trainable false
for ranks in 1 3; do
  for from in run3 with; do
    good $ranks "${train[@]}" --model "$base" "${four[@]}" --output_dir "$from$ranks" --resume_from_checkpoint "$from/checkpoint-2"
    cmp -s "$from$ranks/adapter_model.safetensors" run3/adapter_model.safetensors || [ $ranks != 1 ] || fail "$from on $ranks ranks differs"
  done
done
refused 3 "is quantized, and the model's is not" 1 "${train[@]}" --model "$base" --output_dir no --resume_from_checkpoint with/checkpoint-2

# eval and generate over either base; the adapter over the base in fp32 is close.
good 1 "${evaluate[@]}" --model "$base" "${four[@]}" --adapters run3; with=$(loss)
good 2 "${evaluate[@]}" --model "$stored" --adapters run3; near "$(loss)" "$with" 1e-6 "transformers' quantized model"
good 2 "${evaluate[@]}" --checkpoint run3/checkpoint-4 "${four[@]}"; near "$(loss)" "$with" 1e-6 "the checkpoint"
good 1 "${evaluate[@]}" --model "$base" --adapters run3; near "$(loss)" "$with" 0.05 "over fp32"
good 1 eval --dataset "$tokens" --max_length 16 --model "$base" --adapters run3
expect 'quantized to nf4, and this one to none: they are not compared' log
good 1 "${evaluate[@]}" --model "$base" "${eight[@]}"; int8=$(loss)
good 2 "${evaluate[@]}" --model "$golden/qwen3/bnb-int8"; near "$(loss)" "$int8" 1e-6 "transformers' int8 model"
single=("${four[@]}" --bnb_4bit_use_double_quant false)
for of in nf4 fp4; do
  folder=$golden/qwen3/bnb-$of; [ $of = fp4 ] || folder=$folder-single
  good 1 "${evaluate[@]}" --model "$base" "${single[@]}" --bnb_4bit_quant_type $of; made=$(loss)
  good 2 "${evaluate[@]}" --model "$folder"; near "$(loss)" "$made" 1e-6 "transformers' $of without double quantization"
  good 1 "${evaluate[@]}" --model "$folder" "${four[@]}"; near "$(loss)" "$made" 1e-6 "$of, with the options that fit"
done
good 1 "${train[@]}" --model "$golden/qwen3/bnb-nf4-single" --output_dir single
grep -q '"base_quantization":"nf4_single"' single/adapter_model.safetensors || fail "the adapter does not say what its base was"
good 1 generate --model "$stored" --adapters run3 --tokenizer bytes --prompt "!" --max_new_tokens 4 --temperature 0

# Merged: into the base in bf16, and into the dequantized one.
good 2 convert --in "$stored" --adapters run3 --merge_lora true --save_dtype fp32 --out merged
! grep -q quantization_config merged/config.json || fail "a merged model says that it is quantized"
good 1 "${evaluate[@]}" --model merged; near "$(loss)" "$with" 1e-5 "merged"
good 1 convert --in "$base" --adapters run3 --merge_lora true --save_dtype bf16 --out merged16
refused 3 "E145" 1 "${evaluate[@]}" --model merged "${four[@]}" --adapters run3

# Refused by name.
refused 2 "is quantized" 1 convert --in "$stored" --to hf --dtype bf16 --out converted
refused 2 "quantized weights (nf4) are not trained" 1 train --dataset "$tokens" --model "$base" --max_length 16 "${four[@]}" --output_dir no
refused 2 "--quant_bits" 1 "${train[@]}" --model "$base" --quant_method bnb --output_dir no
refused 2 "--quant_method bnb" 1 "${train[@]}" --model "$base" --quant_bits 4 --output_dir no
refused 2 "quantized to nf4 with double quantization already" 1 "${train[@]}" --model "$stored" "${single[@]}" --output_dir no
refused 2 "--bnb_4bit_compute_dtype bfloat16, and the run computes in float32" 1 "${train[@]}" --model "$base" "${four[@]}" \
  --bnb_4bit_compute_dtype bfloat16 --output_dir no
refused 2 "quantized to nf4 with double quantization already" 1 "${train[@]}" --model "$stored" "${eight[@]}" --output_dir no
refused 2 "cannot be quantized" 1 "${train[@]}" --model "$golden/tiny" --dataset "$golden/tiny/tokens.bin" "${four[@]}" --output_dir no
cp -r "$stored" fp4
sed -i 's/"bnb_4bit_quant_type": "nf4"/"bnb_4bit_quant_type": "fp4"/' fp4/config.json
refused 3 "and the run needs fp4 [" 1 "${train[@]}" --model fp4 --output_dir no
sed -i 's/"bnb_4bit_quant_type": "fp4"/"bnb_4bit_quant_type": "int4"/' fp4/config.json
refused 2 "only nf4 and fp4 are supported" 1 "${train[@]}" --model fp4 --output_dir no

[ $failures = 0 ] && echo "qlora.sh: passed"
exit $((failures > 0))
