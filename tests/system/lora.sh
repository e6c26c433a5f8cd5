#!/bin/bash
# LoRA: an adapter of PEFT is read, trained, saved and applied; checkpoints hold the adapter alone; another base, another
# shape and targets that match nothing are refused before step 1.
#   lora.sh TESSERA MPIRUN GOLDEN
set -u
tessera=$1 mpirun=$2 golden=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
fail() { echo "FAILED: $*"; [ ! -f log ] || tail -20 log; failures=$((failures + 1)); }
run() { local ranks=$1; shift; timeout 120 "$mpirun" -n "$ranks" "$tessera" "$@" > log 2>&1 < /dev/null; code=$?; }
good() { run "$@"; [ $code = 0 ] || fail "$* -> exit $code"; }
refused() {
  local wanted=$1 words=$2; shift 2
  run "$@"
  [ $code = "$wanted" ] && [ "$(grep -c '^error: ' log)" = 1 ] && grep '^error: ' log | grep -qF -- "$words" || fail "$* -> exit $code, wanted $wanted and \"$words\""
}
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
good 2 convert --in run3/checkpoint-4 --merge_lora true --out merged2
refused 2 "is no model of its own" 1 convert --in run3/checkpoint-4 --to hf --out no
cmp -s merged/model.safetensors merged2/model.safetensors || fail "the checkpoint's merge differs"
good 1 "${evaluate[@]}" --model merged
awk -v a="$(loss)" -v b="$with" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-5 && d > -1e-5) }' || fail "merged: $(loss), not $with"
refused 2 "needs an adapter" 1 convert --in "$base" --merge_lora true --out no
refused 3 "E141" 1 convert --in "$base" --adapters run3 --merge_lora true --out merged

# PEFT's directory is continued.
good 2 "${train[@]}" --adapters "$base/lora" --output_dir continued --lora_dropout 0
good 1 "${train[@]}" --adapters continued --max_steps 1 --save_steps 0 --output_dir longer

# Refused before step 1.
refused 2 "expected an integer of at least 1" 1 "${train[@]}" --tuner_type lora --lora_rank 0 --output_dir no
refused 2 'no Linear of the model matches "c_attn"' 2 "${train[@]}" --tuner_type lora --target_modules c_attn --output_dir no
refused 2 "tied" 1 "${train[@]}" --model "$golden/qwen2" --adapters "$base/lora" --output_dir no
refused 3 "is an adapter of another model" 1 "${train[@]}" --adapters "$golden/mixtral/lora" --output_dir other-model
refused 3 "E145" 1 "${train[@]}" --model "$golden/qwen3" --adapters run3 --output_dir other-base
refused 3 "adapter_config.json" 2 "${train[@]}" --adapters "$base" --output_dir no
mkdir other; cp "$base/config.json" other/
good 1 "${train[@]}" --tuner_type full --output_dir full
cp full/model.safetensors other/
refused 3 "E145" 2 "${evaluate[@]}" --model other --adapters run3
[ ! -e no ] || fail "a refused run has made its directory"
sed 's/"r": 8/"r": 4/' run3/adapter_config.json > config.tmp
mkdir shapes && cp run3/adapter_model.safetensors shapes/ && mv config.tmp shapes/adapter_config.json
refused 3 "E113" 2 "${evaluate[@]}" --model "$base" --adapters shapes

[ $failures = 0 ] && echo "lora.sh: passed"
exit $((failures > 0))
