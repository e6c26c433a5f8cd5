#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# generate --chat: a prompt becomes a user's message by the model's chat template.
#   generate_chat.sh TESSERA MPIRUN EXAMPLES
set -u
tessera=$1 mpirun=$2 examples=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
# run RANKS ARGUMENTS…: prints stdout, and stderr to errors
run() { local ranks=$1; shift; timeout 120 "$mpirun" -n "$ranks" "$tessera" "$@" --threads 1 2> errors < /dev/null; }

printf '{"text": "<|im_start|>user\\nHello<|im_end|>\\n<|im_start|>assistant\\nHi!<|im_end|>\\n"}\n%.0s' {1..40} > rows.jsonl
run 2 train --model "$examples/chat" --from_scratch --dataset rows.jsonl --max_length 32 --packing true --max_steps 1 \
  --output_dir model --add_version false --quiet || fail "train: $(cat errors)"

ids() { grep -o '"prompt_token_ids":\[[0-9,]*\]' <<< "$1"; }
chat=$(run 2 generate --model model --chat --prompt Hello --prompt 'Hello' --max_new_tokens 4 --json)
[ "$(wc -l <<< "$chat")" = 2 ] || fail "not two answers: $chat $(cat errors)"
plain=$(run 1 generate --model model --prompt $'<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n' --max_new_tokens 4 --json)
[ -n "$(ids "$plain")" ] && [ "$(ids "$chat" | head -n 1)" = "$(ids "$plain")" ] || fail "ids of --chat: $chat, $plain"
grep -q '"prompt":"Hello"' <<< "$chat" || fail "the prompt is not the user's: $chat"
run 1 generate --model model --chat --prompt Hello --max_new_tokens 2 | grep -q '^Hello$' || fail "the prompt is not a line of its own"

# A system message, as a text or in a file.
echo 'Be brief.' > system.txt
plain=$(run 1 generate --model model --prompt $'<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n' --max_new_tokens 4 --json)
for system in 'Be brief.' system.txt; do
  chat=$(run 2 generate --model model --chat --system "$system" --prompt Hello --max_new_tokens 4 --json)
  [ -n "$(ids "$plain")" ] && [ "$(ids "$chat")" = "$(ids "$plain")" ] || fail "ids with --system $system: $chat, $plain $(cat errors)"
done
echo '{"prompt": "Hello", "system": "Be brief."}' > row.jsonl
chat=$(run 2 generate --model model --chat --system 'Be long.' --prompt_file row.jsonl --max_new_tokens 4 --json)
[ "$(ids "$chat")" = "$(ids "$plain")" ] || fail "a row's system message: $chat, $plain $(cat errors)"
run 1 generate --model model --prompt_file row.jsonl > /dev/null && fail "a row's system message without --chat"
grep -q 'has a "system" message.*row.jsonl:1' errors || fail "a row's system message without --chat: $(cat errors)"
run 1 generate --model model --system 'Be brief.' --prompt Hello > /dev/null
code=$?
[ $code = 2 ] && grep -q 'Add --chat' errors || fail "--system without --chat: exit $code: $(cat errors)"
echo 'system: Be brief.' > run.yaml
plain=$(run 1 generate --model model --prompt Hello --max_new_tokens 4 --json)
[ -n "$(ids "$plain")" ] && [ "$(ids "$(run 1 generate run.yaml --model model --prompt Hello --max_new_tokens 4 --json)")" = "$(ids "$plain")" ] ||
  fail "system: in a file: $(cat errors)"

# A model that answers with the end of the turn stops there, though its eos_token_id is another token, as in base models.
printf '{"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi!"}]}\n%.0s' {1..40} > chat.jsonl
run 2 train --model "$examples/chat" --from_scratch --dataset chat.jsonl --max_length 32 --packing true --max_steps 60 \
  --learning_rate 1e-2 --output_dir answers --add_version false --quiet || fail "train: $(cat errors)"
sed -i 's/"eos_token_id": *[0-9]*/"eos_token_id": 7/' answers/*config.json
answer=$(run 1 generate --model answers --chat --prompt Hello --max_new_tokens 20 --json)
grep -q '"text":"Hi!"' <<< "$answer" && grep -q '"finish_reason":"stop"' <<< "$answer" || fail "end of a turn: $answer"

# A run on conversations adds the end of a turn to the ids that end a text, and its samples are answers.
cp -r "$examples/chat" base
sed -i 's/"eos_token_id": *[0-9]*/"eos_token_id": 7/' base/config.json
echo Hello > prompts.txt
run 2 train --model base --from_scratch --dataset chat.jsonl --max_length 64 --max_steps 2 --prompt_file prompts.txt \
  --eval_generate_steps 2 --sample_tokens 3 --output_dir stops --add_version false > log || fail "train: $(cat errors)"
tr -d ' \n' < stops/generation_config.json | grep -q '"eos_token_id":\[7,[0-9]*\]' || fail "eos: $(cat stops/generation_config.json)"
grep -q '^sample    <|im_start|>user' log || fail "samples: $(grep '^sample' log)"
grep -q 'each a sample: [0-9]* of up to [0-9]* tokens' log || fail "padding: $(grep '^data' log)"

rm model/tokenizer_config.json
run 2 generate --model model --chat --prompt Hello > /dev/null
code=$?
[ $code = 3 ] && [ "$(grep -c '^error: ' errors)" = 1 ] && grep -q 'chat template' errors || fail "no template: exit $code: $(cat errors)"

[ $failures = 0 ] && echo "generate_chat: passed" || exit 1
