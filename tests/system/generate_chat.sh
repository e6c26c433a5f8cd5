#!/bin/bash
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

rm model/tokenizer_config.json
run 2 generate --model model --chat --prompt Hello > /dev/null
code=$?
[ $code = 3 ] && [ "$(grep -c '^error: ' errors)" = 1 ] && grep -q 'chat template' errors || fail "no template: exit $code: $(cat errors)"

[ $failures = 0 ] && echo "generate_chat: passed" || exit 1
