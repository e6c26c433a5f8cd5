#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The commands of docs/fine-tuning.md: every block of `sh`, in order, with a tiny model of the same files as Qwen2.5-0.5B,
# and Slurm's commands replaced by mpirun.
#   fine_tuning.sh TESSERA MPIRUN SOURCE_TREE
set -u
# shellcheck source=tests/system/page_commands.sh
. "$(dirname "$0")/page_commands.sh"

mkdir data
# The stand-in: two small layers, the example's tokenizer and chat template, weights from one step.
mkdir seed
cp "$tree"/jobs/examples/chat/tokenizer*.json seed
sed -E 's/("hidden_size": )128/\164/; s/("intermediate_size": )384/\1128/; s/("num_hidden_layers": )4/\12/; s/("max_position_embeddings": )256/\11024/' \
  "$tree/jobs/examples/chat/config.json" > seed/config.json
head -n 60 "$tree/jobs/examples/chat/questions.jsonl" > data/train.jsonl
tail -n 20 "$tree/jobs/examples/chat/questions.jsonl" > data/validation.jsonl
tessera train --model seed --from_scratch --dataset data/train.jsonl --max_length 256 --max_steps 1 --per_device_train_batch_size 1 \
  --output_dir models/Qwen2.5-0.5B --add_version false > log 2>&1 || fail "the stand-in"
echo '{"eos_token_id": 1023}' > models/Qwen2.5-0.5B/generation_config.json

blocks fine-tuning.md
[ "$blocks" -ge 5 ] || fail "only $blocks blocks of commands in the page"
for i in $(seq "$blocks"); do run_block "$i"; done
grep -q '⟦' all.log || fail "no preview"
grep -q '^stage     sft, with its defaults learning_rate 1e-5' all.log || fail "the stage's defaults are not printed"
grep -q '2 ranks on 2 nodes' all.log || fail "Slurm's run is not on two nodes"
[ "$(cat out/tessera-7/*/STATUS 2> /dev/null)" = completed ] || fail "Slurm's run is not complete"
for file in config.json model.safetensors tokenizer.json tokenizer_config.json; do
  for model in answers merged; do [ -s "models/$model/$file" ] || fail "no $file for transformers in models/$model"; done
done
for file in adapter_config.json adapter_model.safetensors; do [ -s "out/lora/$file" ] || fail "no $file for peft"; done

# The example for a laptop, shortened: it learns.
(cd "$tree" && tessera sft jobs/examples/chat.yaml --max_steps 12 --warmup_steps 2 --output_dir "$work/chat") > log 2>&1 || fail "chat.yaml"
awk '/"grad_norm"/ { match($0, /"loss":[0-9.]+/); loss = substr($0, RSTART + 7, RLENGTH - 7); if (!n++) first = loss } END { exit !(loss < 0.9 * first) }' \
  chat/logging.jsonl || fail "chat.yaml does not learn"
grep -qE '^step 12/12 .* tok/s [0-9.]+k?, [0-9.]+k? with loss \|' log || fail "tokens processed and with loss: $(grep '^step' log)"
grep -qE '^done 12/12 .* tokens, [0-9.]+k? with loss \|' log || fail "tokens of the run: $(grep '^done' log)"
awk -F'"(loss_)?tokens_per_second":' '/"grad_norm"/ { if (!($2 + 0 > $3 + 0 && $3 + 0 > 0)) exit 1 }' chat/logging.jsonl ||
  fail "the tokens processed are more than those with loss"
tessera generate --model chat --chat --prompt "What is ZeRO?" --max_new_tokens 5 > log 2>&1 || fail "generate --chat"
echo "fine_tuning: $blocks blocks passed"
