#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LoRA: an adapter of PEFT is read, trained, saved and applied; checkpoints hold the adapter alone; another base, another
# shape and targets that match nothing are refused before step 1.
#   lora.sh TESSERA MPIRUN GOLDEN
# shellcheck source=tests/system/commands.sh
. "$(dirname "$0")/commands.sh"
golden=$3
expect() { grep -qE -- "$1" "$2" || fail "no \"$1\" in $2"; }
loss() { sed -n 's/^{"loss":\([0-9.]*\),.*/\1/p' log; }

base=$golden/llama tokens=$golden/llama/tokens.bin
train=(train --dataset "$tokens" --model "$base" --max_length 16 --global_batch_size 4 --learning_rate 1e-2 --logging_steps 1 --max_steps 4
       --save_steps 2 --add_version false)
evaluate=(eval --dataset "$tokens" --max_length 16 --json)

# The same bits at each stage, and after a resume; the run's directory has an adapter and no model.
for stage in 0 3; do good 2 "${train[@]}" --tuner_type lora --zero_stage "$stage" --output_dir "run$stage"; done
cmp -s run0/adapter_model.safetensors run3/adapter_model.safetensors || fail "stages differ"
expect '^model     llama .*trainable \([0-9.]+ %\)' log
[ ! -e run3/model.safetensors ] && [ ! -e run3/config.json ] || fail "a LoRA run has written a model"
good 2 "${train[@]}" --tuner_type lora --output_dir again --resume_from_checkpoint run3/checkpoint-2
cmp -s run3/adapter_model.safetensors again/adapter_model.safetensors || fail "a resumed run differs"
expect '^resume .*87.75 KiB read' log  # 7488 parameters of the adapter with two moments

# The adapter, the checkpoint that has it, and any number of ranks: one loss, which is not the base's.
good 1 "${evaluate[@]}" --model "$base"; without=$(loss)
good 1 "${evaluate[@]}" --model "$base" --adapters run3; with=$(loss)
good 2 "${evaluate[@]}" --checkpoint run3/checkpoint-4
[ -n "$with" ] && [ "$(loss)" = "$with" ] && [ "$with" != "$without" ] || fail "losses $without, $with, $(loss)"

# Merged weights have the loss of the adapter; from the directory, and from the checkpoint.
good 1 convert --in "$base" --adapters run3 --merge_lora true --out merged
! grep -q W071 log || fail "metadata that are not there: $(grep W071 log)"
good 2 convert --in run3/checkpoint-4 --merge_lora true --out merged2
# Metadata of the base's headers are of the weights before the merge.
cp -r "$base" noted
size=$(od -An -t u8 -N 8 "$base/model.safetensors")
header=$(tail -c +9 "$base/model.safetensors" | head -c "$size" | sed 's/"format":"pt"/"format":"pt","note":"n"/')
{ printf "\\x$(printf %02x $((${#header} & 255)))\\x$(printf %02x $((${#header} >> 8)))\0\0\0\0\0\0%s" "$header"; tail -c +$((9 + size)) "$base/model.safetensors"; } > noted/model.safetensors
good 2 convert --in noted --adapters run3 --merge_lora true --out merged3
expect 'warning W071: the metadata of .* in noted are of the model before the merge, and are left out: "note"' log
cmp -s merged/model.safetensors merged3/model.safetensors || fail "metadata change a merge"
cmp -s merged/model.safetensors merged2/model.safetensors || fail "the checkpoint's merge differs"
good 1 "${evaluate[@]}" --model merged
awk -v a="$(loss)" -v b="$with" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-5 && d > -1e-5) }' || fail "merged: $(loss), not $with"
refused 2 "needs an adapter" 1 convert --in "$base" --merge_lora true --out no
refused 3 "E141" 1 convert --in "$base" --adapters run3 --merge_lora true --out merged

# Merged in fp32 as PEFT merges, and rounded once.
for model in tiny qwen2; do
  for type in auto fp32 bf16; do
    good 2 convert --in "$golden/$model" --adapters "$golden/$model/lora" --merge_lora true --save_dtype $type --out "$model-$type"
  done
  run 1 checkpoint diff "$model-fp32" "$golden/$model/lora/merged.safetensors" --grep '^h\.1\.attn|layers\.1\.' --json
  [ $code = 0 ] || [ $code = 3 ] || fail "diff of $model -> exit $code"
  awk -F: '/"max_absolute"/ && $2 + 0 > 1e-7 { bad = 1 } /"only_[ab]": \[$/ { bad = 1 } END { exit bad }' log || fail "$model: not PEFT's weights"
  good 1 convert --in "$model-fp32" --to hf --dtype bf16 --out "$model-rounded"
  cmp -s "$model-rounded/model.safetensors" "$model-bf16/model.safetensors" || fail "$model: bf16 is not fp32 rounded once"
done
cmp -s qwen2-auto/model.safetensors qwen2-bf16/model.safetensors || fail "auto is not the type of the model"
cmp -s tiny-auto/model.safetensors tiny-fp32/model.safetensors || fail "auto is not the type of the model"
refused 2 "Keep one of the two" 1 convert --in "$base" --adapters run3 --merge_lora true --dtype bf16 --save_dtype fp16 --out no

# A checkpoint becomes the directory that the run's end writes; --adapters takes it too.
good 2 convert --in run3/checkpoint-4 --to hf --out peft --verify
for file in adapter_model.safetensors adapter_config.json; do cmp -s run3/$file peft/$file || fail "$file of the checkpoint differs"; done
[ ! -e peft/config.json ] || fail "an adapter's directory has a config.json"
mkdir unfinished && cp -r run3/checkpoint-4 unfinished/
for adapter in peft run3/checkpoint-4 unfinished; do
  good 2 "${evaluate[@]}" --model "$base" --adapters $adapter
  [ "$(loss)" = "$with" ] || fail "--adapters $adapter: loss $(loss), not $with"
done
good 1 generate --model "$base" --adapters run3/checkpoint-4 --tokenizer bytes --prompt 12 --max_new_tokens 2
for adapter in run3 run3/checkpoint-4; do
  good 2 "${train[@]}" --adapters $adapter --lora_dropout 0 --save_steps 0 --output_dir "from-${adapter##*/}"
done
cmp -s from-run3/adapter_model.safetensors from-checkpoint-4/adapter_model.safetensors || fail "training continues otherwise"
good 2 "${train[@]}" --tuner_type lora --save_only_trainable false --output_dir everything
cmp -s everything/adapter_model.safetensors run3/adapter_model.safetensors || fail "checkpoints change the run"
good 1 convert --in everything/checkpoint-4 --to hf --out peft-everything
good 1 checkpoint diff peft-everything/adapter_model.safetensors run3/adapter_model.safetensors
good 1 "${evaluate[@]}" --model "$base" --adapters everything/checkpoint-4
[ "$(loss)" = "$with" ] || fail "a checkpoint with the base: loss $(loss), not $with"

# The best checkpoint is loaded at the end: the directory has its adapter.
good 2 "${train[@]}" --tuner_type lora --learning_rate 0.3 --lr_scheduler_type constant --save_steps 1 --eval_steps 1 --val_dataset "$tokens" \
  --load_best_model_at_end true --output_dir best
best=$(sed -n 's|^eval \([0-9]*\)/4 . loss \([0-9.]*\) .*|\2 \1|p' log | sort -n | head -n 1 | cut -d ' ' -f 2)
[ "$best" != 4 ] || fail "the last checkpoint is the best one: this checks nothing"
expect "^best      best/checkpoint-$best .* of step $best " log
for step in "$best" 4; do good 1 convert --in "best/checkpoint-$step" --to hf --out "best-$step"; done
cmp -s best/adapter_model.safetensors "best-$best/adapter_model.safetensors" || fail "the adapter at the end is not the best one"
! cmp -s best/adapter_model.safetensors best-4/adapter_model.safetensors || fail "the last adapter is at the end"

# A head's and an embedding's adapter: merged if they have weights of their own. PEFT's file has these weights, which
# must be the base's.
untied=(eval --dataset "$golden/qwen3-untied/tokens.bin" --max_length 16 --json --mixed_precision no)
good 2 "${untied[@]}" --model "$golden/qwen3-untied" --adapters "$golden/qwen3-untied/lora"; with_head=$(loss)
good 1 convert --in "$golden/qwen3-untied" --adapters "$golden/qwen3-untied/lora" --merge_lora true --save_dtype fp32 --out merged-head
good 1 "${untied[@]}" --model merged-head
awk -v a="$(loss)" -v b="$with_head" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-5 && d > -1e-5) }' || fail "merged head: $(loss), not $with_head"
refused 2 "tie_word_embeddings" 1 convert --in "$golden/llama3-rope" --adapters "$golden/llama3-rope/lora" --merge_lora true --out no
mkdir other-head && cp "$golden/qwen3-untied/config.json" other-head/ && cp merged-head/model.safetensors other-head/
refused 3 "E114" 2 "${untied[@]}" --model other-head --adapters "$golden/qwen3-untied/lora"
good 2 train --dataset "$golden/qwen3-untied/tokens.bin" --model "$golden/qwen3-untied" --max_length 16 --global_batch_size 4 --max_steps 1 \
  --add_version false --tuner_type lora --target_modules lm_head embed_tokens all-linear --mixed_precision bf16 --output_dir head

# PEFT's directory is continued.
good 2 "${train[@]}" --adapters "$base/lora" --output_dir continued --lora_dropout 0
good 1 "${train[@]}" --adapters continued --max_steps 1 --save_steps 0 --output_dir longer

# A resume needs the same adapters.
resume=("${train[@]}" --resume_from_checkpoint run3/checkpoint-2 --output_dir resumed)
refused 2 "is of a LoRA run, and this run trains the model in full" 2 "${resume[@]}"
refused 2 "lora_rank 4 and not 8" 1 "${resume[@]}" --tuner_type lora --lora_rank 4
refused 2 "lora_alpha 8 and not 32" 1 "${resume[@]}" --tuner_type lora --lora_alpha 8
refused 2 "other modules with adapters" 1 "${resume[@]}" --tuner_type lora --target_modules q_proj

mkdir bad && sed 's/"r": 8/"r": "8"/' run3/adapter_config.json > bad/adapter_config.json && cp run3/adapter_model.safetensors bad/

# Refused before step 1.
refused 3 "--adapters run3" 1 generate --model run3 --prompt a
refused 2 "[target_regex]" 1 "${train[@]}" --tuner_type lora --target_regex q_proj --output_dir no
refused 3 "bad/adapter_config.json: r is" 1 "${evaluate[@]}" --model "$base" --adapters bad
refused 2 "expected an integer of at least 1" 1 "${train[@]}" --tuner_type lora --lora_rank 0 --output_dir no
refused 2 'no Linear of the model matches "c_attn"' 2 "${train[@]}" --tuner_type lora --target_modules c_attn --output_dir no
refused 2 "tied" 1 "${train[@]}" --model "$golden/qwen2" --adapters "$base/lora" --output_dir no
refused 3 "is an adapter of another model" 1 "${train[@]}" --adapters "$golden/mixtral/lora" --output_dir other-model
refused 3 "E145" 1 "${train[@]}" --model "$golden/qwen3" --mixed_precision no --adapters run3 --output_dir other-base
refused 3 "adapter_config.json" 2 "${train[@]}" --adapters "$base" --output_dir no
mkdir other; cp "$base/config.json" other/
good 1 "${train[@]}" --tuner_type full --output_dir full
cp full/model.safetensors other/
refused 3 "E145" 2 "${evaluate[@]}" --model other --adapters run3
refused 3 "is no checkpoint of a LoRA run" 1 "${evaluate[@]}" --model "$base" --adapters full
refused 2 "is not of a LoRA run" 1 "${train[@]}" --tuner_type lora --resume_from_checkpoint full --output_dir resumed
for adapter in run3/checkpoint-4 everything/checkpoint-4; do
  refused 3 "E145" 2 "${evaluate[@]}" --model other --adapters $adapter
done
[ ! -e no ] || fail "a refused run has made its directory"
sed 's/"r": 8/"r": 4/' run3/adapter_config.json > config.tmp
mkdir shapes && cp run3/adapter_model.safetensors shapes/ && mv config.tmp shapes/adapter_config.json
refused 3 "E113" 2 "${evaluate[@]}" --model "$base" --adapters shapes

[ $failures = 0 ] && echo "lora.sh: passed"
exit $((failures > 0))
