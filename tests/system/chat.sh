#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Conversations: tokenize on any number of ranks, train with one loss on any number of them, truncation, refusals.
#   chat.sh TESSERA MPIRUN FOLDER_OF_TOKENIZERS
# shellcheck source=tests/system/text_commands.sh
. "$(dirname "$0")/text_commands.sh"

mkdir model
cp "$tokenizers/qwen2.tokenizer.json" model/tokenizer.json
cat > model/tokenizer_config.json <<'JSON'
{"eos_token": "<|im_end|>", "chat_template": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% if m.content == 'refuse this' %}{{ raise_exception('no such talk') }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"}
JSON
cat > model/config.json <<'JSON'
{"model_type": "gpt2", "n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": 1024, "n_positions": 128, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
JSON
mkdir data
for i in $(seq 40); do
  words=$(printf 'word%.0s ' $(seq $((i % 7 + 1))))
  echo "{\"messages\": [{\"role\": \"user\", \"content\": \"question $i\"}, {\"role\": \"assistant\", \"content\": \"$words\"}, {\"role\": \"user\", \"content\": \"and?\"}, {\"role\": \"assistant\", \"content\": \"answer $i\"}]}"
done > data/a.jsonl
{ echo '['; for i in $(seq 20); do echo "{\"instruction\": \"add\", \"input\": \"$i\", \"output\": \"$((i + i))\"},"; done
  echo '{"instruction": "say", "input": "", "output": "'"$(printf 'long %.0s' $(seq 90))"'"},'
  echo '{"instruction": "refuse this", "output": "x"}, {"instruction": 3, "output": "x"}]'; } > data/b.json

for ranks in 1 3 5; do
  "$mpirun" -n $ranks "$tessera" tokenize --model model --dataset data --out t$ranks.bin --preview 2 --system 'Be brief.' > log 2>&1 || fail "tokenize on $ranks"
  expect '^done      61 documents, .* tokens, '
  expect '^skipped   data/b.json:23: the chat template refuses the conversation: no such talk'
  expect '^skipped   data/b.json:23: "instruction" is not a string'
  expect 'warning W041: 2 rows cannot be used'
done
for ranks in 3 5; do
  for file in .bin .bin.loss .bin.documents .bin.report; do cmp t1$file t$ranks$file || fail "$file depends on the number of ranks"; done
done
expect '^document 1, [0-9]+ tokens, [0-9]+ with loss'
expect '^<.im_start.>assistant$'
expect '^⟦word word <.im_end.>$'
expect '^⟦answer 1<.im_end.>$'

# Tools that the template does not read: one warning, on any number of ranks.
for i in $(seq 30); do
  tools=$([ $((i % 3)) = 0 ] || echo '"tools": [{"type": "function", "function": {"name": "add"}}], ')
  echo "{$tools\"messages\": [{\"role\": \"user\", \"content\": \"q $i\"}, {\"role\": \"assistant\", \"content\": \"a $i\"}]}"
done > tools.jsonl
"$mpirun" -n 3 "$tessera" tokenize --model model --dataset tools.jsonl --out tools.bin > log 2>&1 || fail "tokenize tools.jsonl"
[ "$(grep -c 'warning W045: 20 conversations have "tools"' log)" = 1 ] || fail "W045: $(cat log)"
sed 's/{% for m in messages %}/{% if tools %}{{ tools[0].function.name }}{% endif %}&/' model/tokenizer_config.json > reads.json
mkdir reads && cp model/*.json reads && mv reads.json reads/tokenizer_config.json
"$tessera" tokenize --model reads --dataset tools.jsonl --out tools.bin > log 2>&1 || fail "a template with tools"
! grep -q W045 log || fail "W045 of a template that reads tools"

# Keys that nothing reads, and reasoning that the template leaves out: one warning each, on any number of ranks.
for i in $(seq 30); do
  echo "{\"id\": $i, \"messages\": [{\"role\": \"user\", \"content\": \"q $i\"}, {\"role\": \"assistant\", \"content\": \"a $i\", \"reasoning_content\": \"well\", \"train\": false}]}"
done > keys.jsonl
"$mpirun" -n 3 "$tessera" tokenize --model model --dataset keys.jsonl --out keys.bin > log 2>&1 || fail "tokenize keys.jsonl"
[ "$(grep -c 'warning W080: rows have keys that are not read: "id" (30 rows), "messages\[\].train" (30 rows)' log)" = 1 ] || fail "W080: $(cat log)"
[ "$(grep -c 'warning W045: 30 conversations have reasoning that' log)" = 1 ] || fail "W045 of reasoning: $(cat log)"
refuse 3 'the row has keys that are not read: "id".*keys.jsonl:1' tokenize --model model --dataset keys.jsonl --out keys.bin --strict true
sed 's/, "train": false//' keys.jsonl > ids.jsonl
"$tessera" tokenize --model model --dataset ids.jsonl --out keys.bin --strict true --columns '{"id": "unused"}' > log 2>&1 || fail "an unused column"

# The loss is a mean over the tokens with loss, whichever rank has them.
common=(--model model --from_scratch --max_length 96 --max_steps 3 --logging_steps 1 --add_version false --global_batch_size 6 --cache_dir cache --threads 1)
losses() { grep grad_norm "$1/logging.jsonl" | sed -E 's/.*"loss":([^,]*),"grad_norm":([^,]*),.*/\1 \2/'; }
same() { # two runs' losses and gradient norms
  paste -d ' ' <(losses "$1") <(losses "$2") | awk '{ if (($1-$3)^2 > 1e-10*$1^2 || ($2-$4)^2 > 1e-8*$2^2) exit 1; n++ } END { exit n != 3 }' ||
    fail "$1 and $2 differ: $(losses "$1") / $(losses "$2")"
}
"$tessera" train "${common[@]}" --dataset data --system 'Be brief.' --val_dataset data/a.jsonl --eval_steps 3 --per_device_train_batch_size 6 --output_dir one > log 2>&1 || fail "training"
expect 'tokens in 60 documents, .* of them with loss, each a sample: 60 of up to [0-9]+ tokens, 1 documents of more tokens left out'
expect '^eval 3/3 '
[ "$(grep -c 'warning W041' log)" = 1 ] || fail "W041 is not printed once"
for ranks in 2 3 5; do
  "$mpirun" -n $ranks "$tessera" train "${common[@]}" --dataset data --system 'Be brief.' --val_dataset data/a.jsonl --eval_steps 3 --per_device_train_batch_size 1 --output_dir r$ranks > log 2>&1 || fail "training on $ranks"
  expect 'tokens-[0-9a-f]+.bin \(found\)'
  expect '^skipped   data/b.json:23: "instruction" is not a string'
  [ "$(grep -c 'warning W041: 2 rows cannot be used' log)" = 1 ] || fail "W041 is not printed once with the tokens found"
  same one r$ranks
done
"$tessera" train "${common[@]}" --dataset t1.bin --per_device_train_batch_size 6 --output_dir bin > log 2>&1 || fail "training on .bin"
same one bin
"$mpirun" -n 2 "$tessera" train "${common[@]}" --dataset data --packing --truncation_strategy right --per_device_train_batch_size 1 --split_dataset_ratio 0.2 --output_dir packed > log 2>&1 || fail "packed training"
expect 'tokens in 47 documents, .* of them with loss, packed into 33 samples of 96, '
expect 'tokens in 14 documents, .* of them with loss, packed into 5 samples of 96, .*% full, 1 of them shortened'
"$tessera" train "${common[@]}" --dataset data/a.jsonl#10 --loss_scale last_round --output_dir some > log 2>&1 || fail "training on ten rows"
expect 'tokens in 10 documents'
[ "$(losses some)" != "$(losses one)" ] || fail "the same losses on other data"
sed 's/"role": "assistant", "content": "word/"role": "assistant", "loss_scale": 0.25, "content": "word/' data/a.jsonl > weighted.jsonl
for ranks in 1 2; do
  "$mpirun" -n $ranks "$tessera" train "${common[@]}" --dataset weighted.jsonl --val_dataset data/a.jsonl --eval_steps 3 --per_device_train_batch_size $((6 / ranks)) --output_dir w$ranks > log 2>&1 || fail "training with weights"
done
same w1 w2
"$tessera" eval --model one --dataset data/a.jsonl --max_length 96 --json > one.json 2> log || fail "eval"
expect '"tokens":[0-9]+' one.json
[ ! -e output ] || fail "eval left its cache in the working directory"
[ -n "$(find user -name 'tokens-*.bin')" ] || fail "eval has no cache of the user"

# What cannot be used.
t=(train "${common[@]}" --output_dir refused)
refuse 3 'no such talk.*data/b.json:23' "${t[@]}" --dataset data --strict true
echo '{"messages": [{"role": "user", "content": "q"}]}' > none.jsonl
refuse 3 'no row of none.jsonl can be used .*none.jsonl:1: the row has no assistant message' "${t[@]}" --dataset none.jsonl
echo '{"messages": [{"role": "wizard", "content": "q"}]}' > role.jsonl
refuse 3 'role.jsonl:1: message 1 has the role "wizard"' "${t[@]}" --dataset role.jsonl
refuse 3 'no document of the training data can be used: .* have more than max_length = 8 tokens' "${t[@]}" --dataset data/a.jsonl --max_length 8
refuse 2 'conversations need a tokenizer' "${t[@]}" --dataset data/a.jsonl --tokenizer bytes
refuse 2 'not a JSON object of strings' "${t[@]}" --dataset data/a.jsonl --columns '{3}'
echo '{"text": "plain"}' > plain.jsonl
refuse 2 '.-system is for conversations' "${t[@]}" --dataset plain.jsonl --system x
refuse 2 'no chat template or file' "${t[@]}" --dataset data --template nothing
echo '{"eos_token": "<|im_end|>"}' > model/tokenizer_config.json
refuse 3 'no chat template' "${t[@]}" --dataset data
"$tessera" "${t[@]}" --dataset data --template chatml > log 2>&1 || fail "a template of the program"

# What is used, with a warning; and options that would have no effect.
"$tessera" "${t[@]}" --dataset data --template llama3 > log 2>&1 || fail "another template"
expect 'warning W043: --template llama3 marks turns with <.start_header_id.>, <.end_header_id.>, <.eot_id.>, which the'
refuse 2 '.-loss_scale is for text, and t1.bin holds tokens already' "${t[@]}" --dataset t1.bin --loss_scale all
refuse 2 '.-columns is for text, and t1.bin' "${t[@]}" --dataset t1.bin --columns '{"a": "b"}'
echo '{"text": "plain", "prompt": "q", "completion": "a"}' > both.jsonl
"$tessera" tokenize --model model --dataset both.jsonl --out both.bin > log 2>&1 || fail "text and prompt"
expect 'warning W042: rows of both.jsonl have "text" as well as a query and a response'
"$tessera" "${t[@]}" --dataset data --template chatml --max_length 20 > log 2>&1 || fail "short samples"
expect 'warning W044: [0-9]+% of the documents of the training data \([0-9]+ of [0-9]+\) have more than max_length = 20'
{ echo 'Be'; echo 'brief.'; } > system.txt
for system in system.txt $'Be\nbrief.'; do
  "$tessera" tokenize --model model --template chatml --dataset data/a.jsonl --out "s${#system}.bin" --system "$system" > log 2>&1 || fail "--system $system"
done
cmp s10.bin s9.bin || fail "--system FILE differs from its text"
refuse 2 'there is no file none.txt' tokenize --model model --template chatml --dataset data/a.jsonl --out n.bin --system none.txt

# Validation data change nothing of training data: texts that are too long are split, conversations are left out.
for i in $(seq 8); do echo "{\"text\": \"$(printf 'long text %.0s' $(seq $((i * 20))))\"}"; done > texts.jsonl
refuse 2 'conversations are not.*--packing true' "${t[@]}" --template chatml --dataset texts.jsonl --val_dataset data/a.jsonl
"$tessera" "${t[@]}" --dataset texts.jsonl --packing true --max_length 64 > log 2>&1 || fail "packed texts"
data_of() { grep -E '^data ' "$1" | head -n 1 | cut -d '|' -f 2-; }
alone=$(data_of log)
"$tessera" "${t[@]}" --template chatml --dataset texts.jsonl --val_dataset data/a.jsonl --packing true --max_length 64 > log 2>&1 || fail "packed texts beside conversations"
if [ -z "$alone" ] || [ "$(data_of log)" != "$alone" ]; then fail "training data beside conversations: $(data_of log), not $alone"; fi
# A system message in a file has no byte order mark and no line end.
printf '\xef\xbb\xbfBe\nbrief.\r\n' > marked.txt
"$tessera" tokenize --model model --template chatml --dataset data/a.jsonl --out marked.bin --system marked.txt > log 2>&1 || fail "a marked system message"
cmp marked.bin s9.bin || fail "--system FILE with a byte order mark differs from its text"
refuse 2 'data is a directory' tokenize --model model --template chatml --dataset data/a.jsonl --out n.bin --system data
# A message that the template leaves out is counted.
cp -r model narrow
echo "{% for m in messages if m.role != 'system' %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}" > narrow/chat_template.jinja
"$tessera" tokenize --model narrow --dataset data/a.jsonl --out narrow.bin --system 'Be brief.' > log 2>&1 || fail "a template without system messages"
expect 'warning W045: 40 conversations have a message of the system, the user or a tool that the chat template leaves out'
