#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Other model families: trains a mixture of experts, exports it in several files with its auxiliary files, and trains on from
# there with other strategies, to equal losses. Models of transformers as a checkpoint and back. Plans of released models.
# Errors of damaged model directories.
#   families.sh TESSERA MPIRUN GOLDEN
set -eu
# shellcheck source=tests/system/first_failure.sh
. "$(dirname "$0")/first_failure.sh"
golden=$3

mkdir moe
cat > moe/config.json <<'JSON'
{"model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 24, "intermediate_size": 20, "num_attention_heads": 4, "num_key_value_heads": 2,
 "vocab_size": 256, "max_position_embeddings": 64, "num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": true,
 "router_aux_loss_coef": 0.02, "torch_dtype": "bfloat16", "our_own_key": {"kept": [1, 2.5]}, "eos_token_id": [1, 2]}
JSON
echo '{"tokens": 1}' > moe/tokenizer.json
echo '{"top_k": 3}' > moe/generation_config.json
for i in $(seq 300); do echo "line $i of the training text, as plain as can be"; done > train.txt
common=(--dataset train.txt --tokenizer bytes --max_length 16 --global_batch_size 6 --per_device_train_batch_size 2 --learning_rate 1e-2 --logging_steps 1 --add_version false)

"$mpirun" -n 2 "$tessera" train --model moe --from_scratch "${common[@]}" --max_steps 4 --max_shard_size 30000 --output_dir a > log 2>&1 || fail "the run ended with $?"
[ "$(grep -cE '^step .* \| aux_loss 2\.[0-9]+ \| grad_norm' log)" = 4 ] || fail "aux_loss in step lines"
expect '"aux_loss":2\.[0-9]+,"aux_loss_layers":\[2\.[0-9]+,2\.[0-9]+\]' a/logging.jsonl
[ -s a/model.safetensors.index.json ] && [ -s a/model-00001-of-00004.safetensors ] && [ ! -e a/model.safetensors ] || fail "shards: $(ls a)"
cmp moe/tokenizer.json a/tokenizer.json && cmp moe/generation_config.json a/generation_config.json || fail "companions"
tr -d ' \n' < a/config.json > flat
expect '"torch_dtype":"float32","our_own_key":\{"kept":\[1,2\.5\]\}' flat
awk '/^          plan /{p=$0; sub(/^ *plan */, "", p)} /^          measured/{m=$0; sub(/^ *measured */, "", m)} END{exit !(length(m) > 10 && index(p, m) == 1)}' log || fail "measured memory is not the plan's"

losses() { grep grad_norm "$1/logging.jsonl" | sed -E 's/.*"loss":([^,]*),"grad_norm":([^,]*),.*"aux_loss":([^,]*),.*/\1 \2 \3/'; }
for stage in 0 3; do
  "$mpirun" -n 2 "$tessera" train --model a "${common[@]}" --max_steps 3 --zero_stage $stage --output_dir "s$stage" > log 2>&1 || fail "stage $stage ended with $?"
done
"$mpirun" -n 2 "$tessera" train --model a "${common[@]}" --max_steps 3 --expert_units block --gradient_checkpointing full --output_dir block > log 2>&1 || fail "block ended with $?"
"$mpirun" -n 2 "$tessera" train --model a "${common[@]}" --max_steps 3 --blocks_per_unit 2 --output_dir two > log 2>&1 || fail "two blocks a unit ended with $?"
expect '\| 4 units' log
for other in s3 block two; do
  [ "$(losses s0)" = "$(losses $other)" ] || fail "the losses of $other differ"
  cmp s0/model.safetensors $other/model.safetensors || fail "the model of $other differs"
done

# The bf16 of the files is exact in a checkpoint, and comes back; a tied head that is stored twice comes back once.
for family in granite gemma2 gemma3 gpt-oss llama4; do
  "$mpirun" -n 2 "$tessera" convert --in "$golden/$family" --to native --out $family > log 2>&1 || fail "$family to a checkpoint ended with $?"
  "$mpirun" -n 2 "$tessera" convert --in $family --to hf --out $family-hf --dtype bf16 > log 2>&1 || fail "$family back ended with $?"
  [ $family = gemma2 ] || cmp "$golden/$family/model.safetensors" $family-hf/model.safetensors || fail "$family is not what it was"
done
"$tessera" checkpoint diff "$golden/gemma2" gemma2-hf > log 2>&1 || true
[ "$(grep -c ^differs log)" = 1 ] && grep -q 'lm_head.weight: only in A' log && grep -q 'different 0 of the 47 tensors' log || fail "gemma2 is not what it was"

# Weights in codes: as bf16 the bytes of what transformers reads; trained and saved as floats.
for method in mxfp4 fp8; do
  coded=$golden/coded/$method
  "$mpirun" -n 2 "$tessera" convert --in "$coded" --to hf --dtype bf16 --out $method-hf > log 2>&1 || fail "$method to bf16 ended with $?"
  cmp "$coded/floats.safetensors" $method-hf/model.safetensors || fail "$method is not what transformers reads"
  ! grep -q quantization_config $method-hf/config.json || fail "quantization_config of $method"
  code=0; "$tessera" convert --in "$coded" --to native --out $method-native > log 2>&1 || code=$?
  [ $code = 2 ] || fail "exit $code"
  expect 'has weights of '$method', which are not converted to a checkpoint directly .*Convert it --to hf --dtype bf16 first' log
  "$mpirun" -n 2 "$tessera" train --model "$coded" "${common[@]}" --max_steps 2 --output_dir $method-run > log 2>&1 || fail "training of $method ended with $?"
  expect "weights of $method are read as floats, and saved as floats" log
  ! grep -q quantization_config $method-run/config.json || fail "quantization_config of the trained $method"
done
# Of a text part too; the tower stays as it is.
"$mpirun" -n 2 "$tessera" convert --in "$golden/coded/fp8-vl" --to hf --dtype bf16 --out fp8-vl-hf > log 2>&1 || fail "a text part in FP8 to bf16 ended with $?"
"$tessera" checkpoint diff "$golden/coded/fp8-vl/floats.safetensors" fp8-vl-hf/model.safetensors > log 2>&1 || fail "a text part in FP8 is not what transformers reads"
expect 'equal     40 tensors, every element' log
# bf16 holds each value of MXFP4, and not of FP8.
"$mpirun" -n 2 "$tessera" train --model mxfp4-hf "${common[@]}" --max_steps 2 --output_dir mxfp4-again > log 2>&1 || fail "training of the converted model ended with $?"
cmp mxfp4-run/model.safetensors mxfp4-again/model.safetensors || fail "MXFP4 and its bf16 give other models"

# The text part of models of text and images: their names and other tensors stay. The token of images of this mistral3 is a newline.
for command in "train ${common[*]} --max_steps 1 --output_dir none --model" "generate --tokenizer bytes --prompt line --model"; do
  code=0
  # shellcheck disable=SC2086
  "$tessera" $command "$golden/wrapped/mistral3" > log 2>&1 || code=$?
  [ $code = 2 ] || fail "exit $code of $command"
  expect 'each byte is a token, and token 10 stands for an image' log
done
cp -r "$golden/wrapped" wrapped
sed -i 's/"image_token_index": 10/"image_token_index": 300/' wrapped/mistral3/config.json
for name in gemma3 llama4 mistral3 qwen2_5_vl qwen3_vl qwen3_vl_moe; do
  "$mpirun" -n 3 "$tessera" train --model "wrapped/$name" "${common[@]}" --max_steps 2 --global_batch_size 3 --per_device_train_batch_size 1 \
    --save_steps 2 --save_dtype bfloat16 --output_dir $name-run > log 2>&1 || fail "training of $name ended with $?"
  expect "the text part of $name is trained; other tensors are copied to the saved model" log
  "$mpirun" -n 2 "$tessera" convert --in $name-run/checkpoint-2 --to hf --dtype bf16 --out $name-converted > log 2>&1 || fail "a checkpoint of $name to a model ended with $?"
  cmp $name-run/model.safetensors $name-converted/model.safetensors || fail "the model of a checkpoint of $name is not the run's"
  "$tessera" checkpoint diff "$golden/wrapped/$name" $name-converted > log 2>&1 || true
  ! grep -q 'only in' log || fail "tensors of $name"
  ! grep -qE '^differs.*(vision_tower|vision_model|visual|multi_modal)' log || fail "other tensors of $name"
  grep -qE '^differs.*q_proj' log || fail "$name was not trained"
  "$tessera" train --model $name-converted "${common[@]}" --max_steps 1 --output_dir $name-again > log 2>&1 || fail "training of the saved $name ended with $?"
done
cp -r "$golden/wrapped/gemma3" moved
"$tessera" train --model moved "${common[@]}" --max_steps 1 --save_steps 1 --output_dir moved-run > log 2>&1 || fail "training ended with $?"
# Another text in the directory changes nothing, another tower is refused: the first tensor is the text's, the last one the tower's.
header=$(od -An -t u8 -N 8 moved/model.safetensors)
another_byte() { printf '\100' | dd of=moved/model.safetensors bs=1 seek="$1" conv=notrunc status=none; }
another_byte $((header + 9))
"$mpirun" -n 2 "$tessera" convert --in moved-run/checkpoint-1 --to hf --dtype bf16 --out moved-text > log 2>&1 || fail "a model with another text ended with $?"
cmp moved-run/model.safetensors moved-text/model.safetensors || fail "the text is not the checkpoint's"
another_byte $(($(stat -c %s moved/model.safetensors) - 1))
for command in "convert --to hf --out none --in" "train --model moved ${common[*]} --max_steps 2 --output_dir refused-run --resume_from_checkpoint"; do
  code=0
  # shellcheck disable=SC2086
  "$mpirun" -n 2 "$tessera" $command moved-run/checkpoint-1 > log 2>&1 || code=$?
  [ $code = 3 ] || fail "exit $code of $command"
  expect 'E145 the tensors beside the text part in .*moved are not those that .*/checkpoint-1 was trained beside' log
done
mv moved elsewhere
code=0; "$tessera" convert --in moved-run/checkpoint-1 --to hf --out none > log 2>&1 || code=$?
[ $code = 3 ] || fail "exit $code"
expect 'without its other tensors, and the model that these are of is not in .*/moved. Put the model that it was trained from there' log
# Adapters of a text part: a resumed run is the run continued; a checkpoint as an adapter, and merged, with the other tensors.
lora=(--model "$golden/wrapped/gemma3" "${common[@]}" --tuner_type lora --lora_rank 2 --target_modules q_proj down_proj --save_steps 2 --max_steps 4)
"$mpirun" -n 2 "$tessera" train "${lora[@]}" --output_dir wrapped-lora > log 2>&1 || fail "adapters of a text part ended with $?"
expect 'the text part of gemma3 gets adapters' log
"$mpirun" -n 2 "$tessera" train "${lora[@]}" --resume_from_checkpoint wrapped-lora/checkpoint-2 --zero_stage 1 --output_dir wrapped-resumed > log 2>&1 || fail "resuming ended with $?"
cmp wrapped-lora/adapter_model.safetensors wrapped-resumed/adapter_model.safetensors || fail "a resumed run has another adapter"
"$tessera" convert --in wrapped-lora/checkpoint-2 --to hf --out wrapped-adapter > log 2>&1 || fail "an adapter of a checkpoint ended with $?"
expect '"model.language_model.layers.0.self_attn.q_proj"' wrapped-adapter/adapter_config.json
for adapter in wrapped-lora wrapped-lora/checkpoint-4; do
  "$mpirun" -n 2 "$tessera" convert --in "$golden/wrapped/gemma3" --adapters $adapter --merge_lora true --out "merged-${adapter//\//-}" > log 2>&1 || fail "merging $adapter ended with $?"
done
"$tessera" checkpoint diff "$golden/wrapped/gemma3" merged-wrapped-lora > log 2>&1 || true
! grep -q 'only in' log && [ "$(grep -c ^differs log)" = 4 ] || fail "tensors of the merged gemma3"
cmp merged-wrapped-lora/model.safetensors merged-wrapped-lora-checkpoint-4/model.safetensors || fail "a checkpoint has another adapter"
code=0; "$tessera" convert --in wrapped-lora/checkpoint-4 --merge_lora true --out none > log 2>&1 || code=$?
[ $code = 2 ] || fail "exit $code"
expect 'Give the base model with --in, and the checkpoint with --adapters' log
code=0; "$tessera" convert --in "$golden/wrapped/gemma3" --to native --out wrapped-native > log 2>&1 || code=$?
[ $code = 2 ] || fail "exit $code"
expect 'is a model of text and images, and a checkpoint has its text part alone' log

for shape in llama-4-scout gpt-oss-20b gemma3-1b qwen3-30b-a3b mixtral-8x7b llama-3.2-1b qwen2.5-7b qwen3-0.6b; do
  "$tessera" plan --shape $shape --world_size 8 --max_length 512 --per_device_train_batch_size 1 > log 2>&1 || fail "plan of $shape"
  expect '^\* ZeRO-3' log
done
"$tessera" plan --shape qwen3-30b-a3b --world_size 8 --max_length 512 --per_device_train_batch_size 1 --blocks_per_unit 5 --print_schedule > log 2>&1 || fail "plan of units"
expect '^units     22 \| the largest: layers.0-4.experts, ' log
expect '^gather +layers.45-47.experts +s20 ' log
cat > large.json <<'JSON'
{"model_type": "llama", "num_hidden_layers": 80, "hidden_size": 16384, "intermediate_size": 53248, "num_attention_heads": 128, "num_key_value_heads": 8,
 "vocab_size": 128256, "max_position_embeddings": 4096}
JSON
"$tessera" plan --model large.json --world_size 64 --max_length 512 --per_device_train_batch_size 1 --wrap_policy NO_WRAP > log 2>&1 || fail "plan of one unit"
expect '^  ZeRO-0 .*not possible: a shard of unit model has [0-9]+ elements, more than' log
expect '^\* ZeRO-3' log
"$tessera" plan --model a --world_size 2 > log 2>&1 || fail "plan of a directory"

refused() { code=0; "$tessera" train "${common[@]}" "${@:2}" --output_dir none > log 2>&1 || code=$?; [ $code != 0 ] && [ "$(grep -c '^error: ' log)" = 1 ] || fail "exit $code"; expect "$1" log; }
sed -i 's/model-00002-of/..\/model-00002-of/' a/model.safetensors.index.json
refused 'E110 ' --model a
sed 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' moe/config.json > s0/config.json
refused 'E112 .*missing: "model.layers.2.input_layernorm.weight"' --model s0
sed 's/"intermediate_size": 20/"intermediate_size": 21/' moe/config.json > s0/config.json
refused 'E113 .* is \[20, 24\], not \[21, 24\]' --model s0
sed 's/"model_type"/"attention_multiplier": 16, "model_type"/' moe/config.json > s0/config.json
refused '"attention_multiplier"' --model s0
echo good
