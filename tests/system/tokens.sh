#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Text: tokenize on any number of ranks, train on text with its token cache, train on bytes, refusals.
#   tokens.sh TESSERA MPIRUN FOLDER_OF_TOKENIZERS
# shellcheck source=tests/system/text_commands.sh
. "$(dirname "$0")/text_commands.sh"

mkdir model
cp "$tokenizers/llama3.tokenizer.json" model/tokenizer.json
echo '{"eos_token": {"content": "<|end_of_text|>"}}' > model/tokenizer_config.json
cat > model/config.json <<'JSON'
{"model_type": "gpt2", "n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": 1024, "n_positions": 64, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
JSON
for i in $(seq 60000); do echo "line $i of the text: as plain as can be, and longer than a part"; done > long.txt
for i in $(seq 300); do echo "{\"text\": \"document $i\\nin two lines\"}"; done > short.jsonl

for ranks in 1 3; do
  "$mpirun" -n $ranks "$tessera" tokenize --model model --dataset long.txt short.jsonl --out t$ranks.bin --preview 1 > log 2>&1 || fail "tokenize on $ranks"
  expect '^done      301 documents, .* tokens, .* \| uint16 \| '
done
cmp t1.bin t3.bin || fail "the bytes depend on the number of ranks"
expect '^document 1, [0-9]+ tokens: 957:<\|begin_of_text\|> '

# Ended by a signal: an error, and no file is left.
for i in $(seq 8); do cat long.txt; done > longer.txt
"$tessera" tokenize --model model --dataset longer.txt --out stopped.bin > log 2>&1 & stopped=$!
for i in $(seq 2000); do compgen -G 'stopped.bin.*.tmp' > /dev/null && break; sleep 0.01; done
kill -TERM $stopped; code=0; wait $stopped || code=$?
[ "$code" = 75 ] || fail "SIGTERM while tokenizing: exit $code"
expect '^error: stopped by SIGTERM while '
[ -z "$(ls -d stopped.bin* 2> /dev/null)" ] || fail "left: $(ls -d stopped.bin*)"
rm longer.txt

# The same tokens from a .bin file, made at start, or found in the cache. A sample is text.
common=(--model model --from_scratch --max_length 16 --max_steps 3 --logging_steps 1 --add_version false --per_device_train_batch_size 2 --dataset_shuffle false)
losses() { grep grad_norm "$1/logging.jsonl" | sed -E 's/.*"loss":([^,]*),"grad_norm":([^,]*),.*/\1 \2/'; }
"$mpirun" -n 2 "$tessera" train "${common[@]}" --dataset t1.bin --output_dir bin > log 2>&1 || fail "training on .bin"
"$mpirun" -n 2 "$tessera" train "${common[@]}" --dataset long.txt short.jsonl --output_dir made --cache_dir cache --sample_prompt "line 1" --sample_tokens 3 > log 2>&1 || fail "training on text"
expect '^tokens    cache/tokens-[0-9a-f]{16}\.bin \(made in '
expect '^sample    <\|begin_of_text\|>line 1'
"$mpirun" -n 2 "$tessera" train "${common[@]}" --dataset long.txt short.jsonl --output_dir found --cache_dir cache > log 2>&1 || fail "training from the cache"
expect '^tokens    cache/tokens-[0-9a-f]{16}\.bin \(found\)'
cmp t1.bin cache/tokens-*.bin || fail "the cache holds other tokens"
for run in made found; do cmp <(losses bin) <(losses $run) || fail "losses of $run"; done
[ "$(losses bin | wc -l)" = 3 ] || fail "losses"
code=0
"$mpirun" -n 2 "$tessera" train "${common[@]}" --dataset long.txt --output_dir late --cache_dir late_cache --time_limit 0.001s > log 2>&1 || code=$?
[ "$code" = 75 ] || fail "tokenizing beyond the time limit"
expect '^stopped by time limit \(--time_limit 0.001s\) while tokenizing'
[ -z "$(ls late_cache)" ] || fail "left: $(ls late_cache)"
echo one more >> long.txt
"$tessera" train "${common[@]}" --dataset long.txt short.jsonl --output_dir changed --cache_dir cache > log 2>&1 || fail "training on changed text"
expect '\(made in '

# Packed: the same documents from text, from the file beside the tokens, or by the token that ends a document.
[ -s t1.bin.documents ] && cmp t1.bin.documents t3.bin.documents || fail "documents beside the tokens"
head -n 20 long.txt > some.txt
"$mpirun" -n 2 "$tessera" tokenize --model model --dataset short.jsonl some.txt --out beside.bin > log 2>&1 || fail "tokenize"
cp beside.bin plain.bin
packed=("${common[@]}" --packing --save_steps 2)
for data in "text:short.jsonl some.txt" beside:beside.bin ended:plain.bin; do
  "$mpirun" -n 2 "$tessera" train "${packed[@]}" --dataset ${data#*:} --output_dir "packed-${data%%:*}" > log 2>&1 || fail "packed training on $data"
  expect '^data      train: .* tokens in 301 documents, packed into [0-9]+ samples of 16, [0-9.]+% full, [0-9]+ of them split'
  cmp <(losses packed-text) <(losses "packed-${data%%:*}") || fail "packed losses of $data"
done
# The index of samples is made once, and again if it is damaged.
index=$(echo packed-beside/cache/packed-*.index)
[ "$(stat -c %s $index)" -gt $((16 * 301)) ] || fail "no index of samples"
before=$(stat -c %i.%Y $index); cp $index kept.index
"$tessera" train "${packed[@]}" --dataset beside.bin --output_dir packed-again --cache_dir packed-beside/cache > log 2>&1 || fail "packed training again"
[ "$(stat -c %i.%Y $index)" = "$before" ] || fail "the index was made again"
truncate -s -8 $index
"$mpirun" -n 2 "$tessera" train "${packed[@]}" --dataset beside.bin --output_dir packed-damaged --cache_dir packed-beside/cache > log 2>&1 || fail "packed training with a damaged index"
cmp $index kept.index || fail "a damaged index"
[ "$(echo packed-beside/cache/*)" = $index ] || fail "other files in the cache"
cmp <(losses packed-text) <(losses packed-damaged) || fail "packed losses with an index found"
"$tessera" train "${common[@]}" --dataset plain.bin --output_dir apart > log 2>&1 || fail "training on the same, not packed"
! cmp -s <(losses packed-text) <(losses apart) || fail "packing changed nothing"
expect 'binpack' packed-text/checkpoint-2/manifest.json
refuse 2 'packing "binpack" \(now "none"\)' train "${common[@]}" --dataset beside.bin --output_dir packed-beside --resume_from_checkpoint auto
"$mpirun" -n 1 "$tessera" eval --model packed-text --dataset short.jsonl --max_length 60 --packing --threads 1 --json > one.json 2> log || fail "packed eval"
for ranks in 2 3; do
  "$mpirun" -n $ranks "$tessera" eval --model packed-text --dataset short.jsonl --max_length 60 --packing --threads 1 --json > more.json 2> log || fail "packed eval on $ranks"
  cmp <(sed 's/"seconds".*//' one.json) <(sed 's/"seconds".*//' more.json) || fail "packed eval depends on ranks"
done
plan() { "$tessera" plan --model model --world_size 2 --max_length 16 --per_device_train_batch_size 2 --json "$@" | tr -d ' \n' | grep -o '"buffers":[0-9]*' | head -1 | cut -d: -f2; }
# Positions take 2 x 16 x 4 bytes; the plan rounds each buffer up to pages.
[ $(($(plan --packing) - $(plan))) = "$(getconf PAGE_SIZE)" ] || fail "plan does not count positions"
refuse 2 'has no effect without --packing' train "${common[@]}" --dataset t1.bin --packing_strategy sequential
refuse 2 'bigram counts pairs of tokens across the documents' train "${packed[@]}" --dataset t1.bin --val_dataset t1.bin --baseline bigram
refuse 2 'needs to know where the documents' train "${packed[@]}" --dataset plain.bin --eos_token none
refuse 3 'holds no token 959' train "${packed[@]}" --dataset plain.bin --eos_token '<|eot_id|>'
head -c 40 beside.bin.documents > plain.bin.documents
refuse 3 'does not say where the documents' train "${packed[@]}" --dataset plain.bin

# Shares of token files: of samples, or with --packing of documents; a function of the seed on any number of ranks.
"$tessera" tokenize --model model --dataset some.txt --out small.bin > log 2>&1 || fail "tokenize"
mixed=(--model model --from_scratch --max_length 16 --max_steps 3 --logging_steps 1 --add_version false --threads 1 --dataset_shuffle true --dataset beside.bin:0.5 small.bin#7)
for samples in plain packing; do
  options=("${mixed[@]}"); [ $samples = plain ] || options+=(--packing)
  "$tessera" train "${options[@]}" --per_device_train_batch_size 2 --gradient_accumulation_steps 2 --output_dir mixed-$samples-1 > log 2>&1 || fail "mixed training, $samples"
  [ $samples = plain ] || expect ' in 158 documents, packed into '
  "$mpirun" -n 2 "$tessera" train "${options[@]}" --per_device_train_batch_size 2 --output_dir mixed-$samples-2 > log 2>&1 || fail "mixed training on 2 ranks, $samples"
  cmp <(losses mixed-$samples-1) <(losses mixed-$samples-2) || fail "losses of mixed $samples depend on ranks"
  "$tessera" train "${options[@]}" --per_device_train_batch_size 2 --gradient_accumulation_steps 2 --data_seed 5 --output_dir mixed-$samples-3 > log 2>&1 || fail "mixed training with another seed"
  ! cmp -s <(losses mixed-$samples-1) <(losses mixed-$samples-3) || fail "the seed changes nothing of mixed $samples"
done
refuse 2 'does not go with FILE#N or FILE:SHARE of token files' train "${mixed[@]}" --split_dataset_ratio 0.1 --output_dir none

# A share of documents that are too few tokens for one sample of the stream; close shares have an index each.
wide=("${common[@]/16/60}" --packing --cache_dir shares)
for rows in 2 10; do
  head -n $rows short.jsonl > few.jsonl
  "$tessera" tokenize --model model --dataset few.jsonl --out few$rows.bin > log 2>&1 || fail "tokenize"
done
refuse 3 'one sample takes max_length \+ 1 = 61' train "${common[@]/16/60}" --dataset few2.bin:0.5 --output_dir none
for share in 2.bin:0.5/1 10.bin:0.3/3 10.bin:0.4/4; do
  "$tessera" train "${wide[@]}" --dataset few${share%/*} --output_dir shares-${share#*/} > log 2>&1 || fail "training on few${share%/*}"
  expect " in ${share#*/} documents, packed into "
done
# Megatron's index is in the key of that of samples.
cp "$tokenizers"/../golden/megatron/u8.{bin,idx} .
for time in 2020-01-01 2021-01-01; do
  touch -d $time u8.idx
  "$tessera" train "${common[@]}" --packing --cache_dir megatron --dataset 'u8.*' --output_dir megatron-run > log 2>&1 || fail "training on Megatron's files"
  expect ' 13 tokens in 4 documents, packed into '
done
[ "$(find megatron -name 'packed-*.index' | wc -l)" = 2 ] || fail "an index of samples is of another .idx"

# --dry_run prints the plan of the run itself: texts as one stream have no padding to leave out.
dry() { "$tessera" train "${common[@]}" --tokenizer bytes --dataset long.txt --dry_run "$@" 2>&1 | grep '^\* '; }
[ -n "$(dry)" ] && cmp <(dry) <(dry --padding_free) || fail "--dry_run --padding_free plans another run"

# Ids are checked as batches are loaded: the rank that meets a wrong one ends the run, and says where it is.
{ printf '\x88\xd8\x34\x01\x01\0\0\0\xe0\x93\x04\0'; head -c $((1012 + 2 * 70000)) /dev/zero; printf '\xff\xff'; head -c $((2 * 229999)) /dev/zero; } > wrong.bin
code=0
"$mpirun" -n 2 "$tessera" train --model model --from_scratch --max_length 64 --per_device_train_batch_size 64 --logging_steps 1 --dataset_shuffle false --dataset wrong.bin --output_dir wrong > log 2>&1 || code=$?
[ $code = 3 ] || fail "exit $code for a wrong id"
expect "^error: \\[rank 1@[^ ]*\\] token 70000 \(byte 141024 of the file\) has id 65535, but the last id of the model's vocabulary is 1023 \[wrong.bin\]"
[ "$(grep -c ^error: log)" = 1 ] || fail "not one error line"
expect '^step +8/' || fail "the run did not begin"
# Those of validation data are all checked at start, and the baseline reads the training data once the model is written.
cut=(--from_scratch --model model --max_length 64 --per_device_train_batch_size 2 --max_steps 2 --dataset_shuffle false)
code=0
"$mpirun" -n 2 "$tessera" train "${cut[@]}" --dataset t1.bin --val_dataset wrong.bin --output_dir none > log 2>&1 || code=$?
[ $code = 3 ] || fail "exit $code for a wrong id of the validation data"
expect '^error: .*token 70000 .*has id 65535'
[ ! -e none ] || fail "a run with a wrong id of the validation data began"
code=0
"$tessera" train "${cut[@]}" --dataset wrong.bin --split_dataset_ratio 0.1 --baseline bigram --output_dir late --add_version false > log 2>&1 || code=$?
[ $code = 3 ] || fail "exit $code for a wrong id that the baseline meets"
expect '^error: .*token 70000 .*has id 65535'
[ -e late/model.safetensors ] || fail "the baseline cost the model"

# Bytes: where asked for, and from then on with that model, whatever tokenizer lies beside it.
"$tessera" train "${common[@]}" --tokenizer bytes --dataset short.jsonl --output_dir bytes > log 2>&1 || fail "training on bytes"
! grep -q '^tokens ' log || fail "bytes were tokenized"
mkdir bare && cp model/config.json bare
refuse 2 'no tokenizer was found' train "${common[@]}" --model bare --dataset short.jsonl
touch bare/tokenizer.model
refuse 2 'AutoTokenizer.from_pretrained\("bare"\).save_pretrained\("bare"\)' train "${common[@]}" --model bare --dataset short.jsonl
[ -e bytes/tokenizer.json ] || fail "the model's files are not copied"
"$tessera" train "${common[@]}" --model bytes --dataset short.jsonl --output_dir again > log 2>&1 || fail "training on"
! grep -q '^tokens ' log || fail "auto is not bytes for a model of bytes"
rm bare/tokenizer.model

# Files of every kind: what is left out is said, compressed files are read, and bytes that are not UTF-8 are counted in
# every run, also when the tokens are in the cache.
mkdir kinds && gzip -c short.jsonl > kinds/a.jsonl.gz && cp short.jsonl kinds/b,c.jsonl && echo PAR1 > kinds/d.parquet
printf '{"text": "caf\351"}\n' > kinds/e.ndjson && for _ in 1 2 3 4 5 6 7; do cat short.jsonl >> kinds/e.ndjson; done
for how in made found; do
  "$tessera" train "${common[@]}" --dataset kinds --output_dir kinds-run > log 2>&1 || fail "training on a directory"
  expect "^tokens .*\\($how"
  expect '^left out *kinds/d.parquet: a Parquet file'
  expect 'W070.* 1 files'
  expect 'W040.* 1 byte sequences'
done
"$tessera" train "${common[@]}" --dataset kinds/a.jsonl.gz,kinds/b,c.jsonl --output_dir commas > log 2>&1 || fail "a name with a comma"
refuse 3 'kinds/d.parquet' train "${common[@]}" --dataset kinds --strict true
refuse 3 'not UTF-8 \[kinds/e.ndjson:1\]' train "${common[@]}" --dataset kinds/e.ndjson --strict true
head -c 100 kinds/a.jsonl.gz > kinds/cut.gz
refuse 3 'kinds/cut.gz cannot be decompressed: it is truncated' tokenize --model model --dataset kinds/cut.gz --out x.bin
# What tokenize has decompressed is removed, also when it fails; what another run has decompressed is not.
mkdir packed
refuse 3 'kinds/cut.gz cannot be decompressed' tokenize --model model --dataset kinds/a.jsonl.gz kinds/cut.gz --out packed/x.bin
[ -z "$(ls packed)" ] || fail "a failed tokenize left $(ls packed)"
"$tessera" train "${common[@]}" --dataset kinds/a.jsonl.gz --cache_dir packed --output_dir packed-run > log 2>&1 || fail "training on gzip"
"$tessera" tokenize --model model --dataset kinds/a.jsonl.gz --out packed/y.bin > log 2>&1 || fail "tokenizing gzip"
ls packed/decompressed-*.data > log 2>&1 || fail "tokenize removed what a run had decompressed"
{ cat short.jsonl; echo '{"text": "odd", "number": NaN}'; } > odd.jsonl
"$tessera" tokenize --model model --dataset odd.jsonl --out odd.bin > log 2>&1 || fail "tokenizing NaN"
refuse 3 'rows with 1 lone surrogates, NaN or Infinity \[odd.bin\]' train "${common[@]}" --dataset odd.bin --strict true
refuse 2 'long.txt is plain text, and supervised fine-tuning is learned from rows' train "${common[@]}" --stage sft --dataset long.txt

refuse 2 'needs --out' tokenize --model model --dataset long.txt
refuse 2 'ends in \.bin' tokenize --model model --dataset long.txt --out x.txt
refuse 2 'no tokenizer was found' tokenize --model bare --dataset long.txt --out x.bin
refuse 2 'no token nonesuch' tokenize --model model --dataset long.txt --out x.bin --eos_token nonesuch
refuse 2 'does not name the token that ends a document' tokenize --tokenizer "$tokenizers/gpt2.tokenizer.json" --dataset long.txt --out x.bin
refuse 3 'holds tokens already' tokenize --model model --dataset t1.bin --out x.bin
refuse 2 'no tokenizer.json at bare' train "${common[@]}" --tokenizer bare --dataset short.jsonl
sed -i 's/"type":"NFC"/"type":"NFKC"/; s/"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false/"Whitespace"/' model/tokenizer.json
refuse 3 'is "Whitespace", which is not supported' train "${common[@]}" --dataset short.jsonl
[ ! -e x.bin ] || fail "a refused run wrote a file"
echo "tokens: all good"
