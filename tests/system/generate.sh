#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# generate and eval: the same tokens and figures with 1, 2 and 3 ranks and from a checkpoint; refusals with one line and the
# right exit code.
#   generate.sh TESSERA MPIRUN GOLDEN
tessera=$1 mpirun=$2 golden=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_CACHE_HOME=$work/user
failures=0 cases=0

fail() { echo "FAILED: $1"; echo "${2:0:1500}"; failures=$((failures + 1)); }

# run RANKS ARGUMENTS…: prints stdout only
run() { local ranks=$1; shift; timeout 120 "$mpirun" -n "$ranks" "$tessera" "$@" --threads 1 2> errors < /dev/null; }

# refuse CODE WORDS RANKS ARGUMENTS…
refuse() {
  local code=$1 words=$2 ranks=$3 out rc
  shift 3
  out=$(timeout 60 "$mpirun" -n "$ranks" "$tessera" "$@" --threads 1 2>&1 < /dev/null)
  rc=$?
  cases=$((cases + 1))
  if [ "$rc" != "$code" ] || [ "$(grep -c '^error: ' <<< "$out")" != 1 ] || ! grep '^error: ' <<< "$out" | grep -qF -- "$words"; then
    fail "$* -> exit $rc (wanted $code and one line with \"$words\")" "$out"
  fi
}

# same NAME A B
same() { cases=$((cases + 1)); [ -n "$2" ] && [ "$2" = "$3" ] || fail "$1" "$2"$'\n'"$3"; }

printf '{"prompt": "line\\none"}\n\n{"text": "x, y"}\n' > more.jsonl
prompts=(--prompt 'the rank, and' --prompt own --prompt_file more.jsonl --per_device_eval_batch_size 1 --max_new_tokens 7 --mixed_precision no --json)
for model in text llama; do
  [ "$model" = text ] || prompts=(--tokenizer bytes --prompt '!' --prompt '"!' --per_device_eval_batch_size 1 --max_new_tokens 7 --mixed_precision no --json)
  one=$(run 1 generate --model "$golden/$model" "${prompts[@]}")
  same "generate $model: a line for each prompt" "$(grep -c '"token_ids":\[' <<< "$one")" "$([ "$model" = text ] && echo 4 || echo 2)"
  same "infer is generate, $model on 2 ranks" "$one" "$(run 2 infer --model "$golden/$model" "${prompts[@]}")"
  same "$model on 3 ranks by mpi" "$one" "$(run 3 generate --model "$golden/$model" --comm mpi "${prompts[@]}")"
  same "$model on 3 ranks, ZeRO-0" "$one" "$(run 3 generate --model "$golden/$model" --zero_stage 0 "${prompts[@]}")"
  [ "$model" != text ] || same "$model, matrices in parts" "$one" "$(run 2 generate --model "$golden/$model" --tensor_parallel_size 2 "${prompts[@]}")"
done
figures() { sed 's/,"seconds".*//' <<< "$1"; }
data=(--dataset "$golden/text/tokens.txt" --max_length 25 --per_device_eval_batch_size 3 --mixed_precision no --json)
one=$(figures "$(run 1 eval --model "$golden/text" "${data[@]}")")
for ranks in 2 3; do same "eval on $ranks ranks" "$one" "$(figures "$(run "$ranks" eval --model "$golden/text" "${data[@]}")")"; done
refuse 2 'max_length 25 / tensor_parallel_size 2 = 12, and 1 tokens are left' 2 eval --model "$golden/text" "${data[@]}" --tensor_parallel_size 2
rounded() { sed 's/.*"loss":\([0-9]*\.[0-9]\{4\}\).*"tokens":\([0-9]*\).*/\1 \2/' <<< "$1"; }
parts=(--dataset "$golden/text/tokens.txt" --max_length 24 --mixed_precision no --json)
same "eval, matrices in parts" "$(rounded "$(run 1 eval --model "$golden/text" "${parts[@]}")")" \
  "$(rounded "$(run 2 eval --model "$golden/text" "${parts[@]}" --tensor_parallel_size 2)")"
same "eval has what it names" "$(grep -o '"loss":[0-9.]*,"perplexity":[0-9.]*,"token_accuracy":[0-9.]*,"tokens":1900' <<< "$one" | wc -l)" 1

# Sampling: the same seed gives the same text, another seed another one.
drawn() { run "$1" generate --model "$golden/text" --prompt abc --max_new_tokens 20 --temperature 1 --top_k 50 --top_p 0.9 --seed "$2" --mixed_precision no --json; }
same "a seed on 2 ranks" "$(drawn 1 7)" "$(drawn 2 7)"
cases=$((cases + 1)); [ "$(drawn 1 7)" != "$(drawn 1 8)" ] || fail "another seed draws the same"
# Plain text: the prompt and its continuation, streamed.
cases=$((cases + 1)); run 2 generate --model "$golden/text" --prompt 'the rank, and' --max_new_tokens 3 | grep -q '^the rank, and' || fail "plain text"

# A checkpoint generates what its exported model does.
run 2 train --model "$golden/text" --dataset "$golden/text/tokens.txt" --max_length 16 --max_steps 2 --per_device_train_batch_size 2 \
  --save_steps 2 --save_dtype fp32 --mixed_precision no --output_dir out --add_version false > train.log
for ranks in 1 3; do
  same "checkpoint and directory agree on $ranks ranks" \
    "$(run "$ranks" generate --checkpoint out/checkpoint-2 --prompt 'the rank' --max_new_tokens 9 --json)" \
    "$(run "$ranks" generate --model out --prompt 'the rank' --max_new_tokens 9 --json)"
done
same "a run's directory stands for its newest checkpoint" "$(run 1 generate --checkpoint out --prompt 'the rank' --max_new_tokens 9 --json)" \
  "$(run 1 generate --checkpoint out/checkpoint-2 --prompt 'the rank' --max_new_tokens 9 --json)"
same "eval of the checkpoint" "$(figures "$(run 2 eval --checkpoint out/checkpoint-2 "${data[@]}")")" "$(figures "$(run 1 eval --model out "${data[@]}")")"

same "--model names a checkpoint" "$(run 2 generate --model out/checkpoint-2 --prompt 'the rank' --max_new_tokens 9 --json)" \
  "$(run 1 generate --checkpoint out/checkpoint-2 --prompt 'the rank' --max_new_tokens 9 --json)"

# 16 bits: equal at any number of ranks, from a checkpoint and its model, and to the evaluation of a training run.
run 2 train --model "$golden/text" --mixed_precision bf16 --dataset "$golden/text/tokens.txt" --val_dataset "$golden/text/tokens.txt" \
  --max_length 16 --max_steps 2 --per_device_train_batch_size 2 --per_device_eval_batch_size 3 --save_steps 2 --save_dtype fp32 \
  --output_dir bf16 --add_version false > train.log
valid=(--dataset "$golden/text/tokens.txt" --max_length 16 --per_device_eval_batch_size 3 --json)
loss() { grep -o "\"$1\":[0-9.]*" | sed 's/.*://'; }
trained=$(loss eval_loss < bf16/logging.jsonl)
for ranks in 1 3; do
  same "the loss in bf16 on $ranks ranks" "$(run "$ranks" eval --checkpoint bf16 --bf16 "${valid[@]}" | loss loss)" "$trained"
  same "checkpoint and directory in bf16 on $ranks ranks" \
    "$(run "$ranks" generate --checkpoint bf16 --bf16 --prompt 'the rank' --max_new_tokens 9 --json)" \
    "$(run 2 generate --model bf16 --torch_dtype bfloat16 --prompt 'the rank' --max_new_tokens 9 --json)"
done
same "the loss in fp32 is another" "$(run 1 eval --checkpoint bf16 --mixed_precision no "${valid[@]}" | loss loss | grep -c "^$trained$")" 0
same "fp16 on 1 and 2 ranks" "$(figures "$(run 1 eval --checkpoint bf16 --fp16 "${valid[@]}")")" \
  "$(figures "$(run 2 eval --checkpoint bf16 --mixed_precision fp16 "${valid[@]}")")"

# The default is the model's own type, or a checkpoint's run's: bf16 where the CPU has its instructions, else fp32; printed.
has_bf16() { ! grep -q 'has bf16 instructions' <<< "$1"; }
said=$(run 2 eval --model "$golden/text" "${valid[@]:0:6}" | grep '^precision')
cases=$((cases + 1)); grep -qE '^precision (bf16|fp32) \| default: the weights are bf16' <<< "$said" || fail "precision of eval" "$said"
own=fp32; ! has_bf16 "$said" || own=bf16
same "eval's own type" "$(run 1 eval --model "$golden/text" "${valid[@]}" | grep -o '"compute_dtype":"[^"]*"')" "\"compute_dtype\":\"$own\""
same "generate's own type" "$(run 2 generate --model "$golden/text" --prompt abc --max_new_tokens 2 | grep -o '^precision [a-z0-9]*')" "precision $own"
[ $own = fp32 ] || same "a checkpoint has the loss that its run had" "$(run 3 eval --checkpoint bf16 "${valid[@]}" | loss loss)" "$trained"

m=(--model "$golden/text")
# Prompts of standard input; one that is too long does not stop the others.
long=$(printf 'x%.0s' $(seq 40))
printf 'the rank, and\n%s\nown\n' "$long" | timeout 60 "$mpirun" -n 2 "$tessera" generate "${m[@]}" --prompt_file - --max_new_tokens 5 --json \
  --threads 1 > lines 2> errors
same "prompts of standard input" "$(grep -o '"index":[0-9]*' lines | tr '\n' ' ')" '"index":0 "index":2 '
same "a prompt that is too long" "$(grep -c 'warning W050: prompt 2 is left out' errors)" 1
cases=$((cases + 1)); [ ! -e output ] || fail "eval wrote to the working directory"
same "help" "$(run 1 help eval)" "$(run 1 eval --help)"
printf '\n \n' > blank.txt
printf '{"prompt": 3}\n' > number.jsonl
printf '{"question": "x"}\n' > other.jsonl
mkdir empty && cp "$golden/text/config.json" empty/
refuse 2 'there is nothing to continue' 2 generate "${m[@]}"
refuse 2 '--prompt: expected a value' 2 generate "${m[@]}" --prompt ''
refuse 3 'blank.txt' 2 generate "${m[@]}" --prompt_file blank.txt
refuse 3 'number.jsonl:1' 2 generate "${m[@]}" --prompt_file number.jsonl
refuse 3 'other.jsonl:1' 2 generate "${m[@]}" --prompt_file other.jsonl
refuse 2 'prompt 1 has 40 tokens, the model has 32 positions' 2 generate "${m[@]}" --prompt "$(printf 'x%.0s' $(seq 40))"
refuse 2 'Set it to at most 30' 2 generate "${m[@]}" --prompt abc --max_new_tokens 31
refuse 2 'max_new_tokens' 1 generate "${m[@]}" --prompt abc --max_new_tokens 0
refuse 2 'temperature' 1 generate "${m[@]}" --prompt abc --temperature -1
refuse 2 'top_p' 1 generate "${m[@]}" --prompt abc --top_p 1.5
refuse 2 'max_new_tokens' 1 generate "${m[@]}" --prompt abc --max_new_token 3
refuse 3 'vocabulary' 2 generate --model "$golden/tiny" --tokenizer bytes --prompt abc
refuse 2 'no tokenizer was found' 2 generate --model "$golden/tiny" --prompt abc
refuse 3 'nowhere' 2 generate --model nowhere --prompt abc
refuse 3 'model.safetensors' 2 generate --model empty --prompt abc
refuse 2 'both name a model' 2 generate "${m[@]}" --checkpoint out/checkpoint-2 --prompt abc
refuse 3 'no checkpoint in empty' 2 generate --checkpoint empty --prompt abc
refuse 4 'a rank needs' 2 generate "${m[@]}" --prompt abc --device_memory 64KiB
refuse 2 'no model is given' 2 eval --dataset "$golden/text/tokens.txt"
refuse 2 'no data to evaluate on' 2 eval "${m[@]}"
refuse 3 'nowhere.txt' 2 eval "${m[@]}" --dataset nowhere.txt
refuse 2 '33' 2 eval "${m[@]}" --dataset "$golden/text/tokens.txt" --max_length 33

# The benchmarks of generation, of element-wise kernels and of attention. No time is checked.
for bench in 'generate --shape small --bf16 true --max_new_tokens 4' 'kernels --size 64KiB --bench_repeats 1' \
    'attention --bench_repeats 1'; do
  cases=$((cases + 1))
  # shellcheck disable=SC2086
  "$tessera" bench $bench --json > bench.json || { echo "FAILED: bench $bench: exit $?"; failures=$((failures + 1)); }
  grep -qE '"(share_of_memory|copy_gb_per_s|backward_gflops)' bench.json || { echo "FAILED: bench $bench"; failures=$((failures + 1)); }
done

echo "$cases cases, $failures failures"
[ "$failures" = 0 ] && [ "$cases" -ge 30 ]
