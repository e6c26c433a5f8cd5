#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Flips one bit of a checkpoint at a time: `tessera checkpoint verify` must exit with 3 and name the file. A seeded sample
# over all files. damage_test.cpp does the same within one process.
#   flips.sh TESSERA MPIRUN ROUNDS      SEED=… draws other bits
set -u
tessera=$1 mpirun=$2 rounds=$3 seed=${SEED:-11}
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
fail() { echo "FAILED: $*"; [ ! -f log ] || tail -20 log; exit 1; }
cat > config.json <<'JSON'
{"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 1, "vocab_size": 256, "n_positions": 16, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
JSON
for i in $(seq 30); do echo "line $i of the training text, as plain as can be"; done > train.txt
"$mpirun" -n 2 "$tessera" train --model config.json --from_scratch --dataset train.txt --max_length 8 --global_batch_size 4 --max_steps 1 --save_steps 1 \
  --checkpoint_file_size 60KB --add_version false --save_model false --output_dir out --quiet > log 2>&1 < /dev/null || fail "the save ended with $?"
checkpoint=out/checkpoint-1
"$tessera" checkpoint verify $checkpoint > log 2>&1 || fail "whole, and verify ends with $?"
[ "$(find $checkpoint -name '*.h5' | wc -l)" -gt 1 ] || fail "one file: $(ls $checkpoint)"

# flip FILE BYTE BIT
flip() {
  local old
  old=$(od -An -tu1 -j "$2" -N 1 "$1")
  printf "\\x$(printf %02x $((old ^ 1 << $3)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
# Takes the files in turn; of a state file half of the bits are of its headers (the first 2 KiB).
files=("$checkpoint"/*)
awk -v seed="$seed" -v rounds="$rounds" 'BEGIN { srand(seed); for (i = 0; i < rounds; ++i) printf "%.9f %d\n", rand(), 8 * rand() }' > drawn
round=0
while read -r share bit; do
  file=${files[$((round % ${#files[@]}))]} size=
  size=$(stat -c %s "$file")
  case $file in *.h5) [ $((round / ${#files[@]} % 2)) = 0 ] || size=2048 ;; esac
  byte=$(awk -v share="$share" -v size="$size" 'BEGIN { printf "%d", share * size }')
  what="bit $bit of byte $byte of $file"
  flip "$file" "$byte" "$bit"
  "$tessera" checkpoint verify $checkpoint > log 2>&1
  code=$?
  [ $code = 3 ] || fail "$what: exit $code"
  [ "$(grep -c '^error: ' log)" = 1 ] && grep -qF "${file##*/}" log || fail "$what: the file is not named"
  flip "$file" "$byte" "$bit"
  round=$((round + 1))
done < drawn
"$tessera" checkpoint verify $checkpoint > log 2>&1 || fail "flipped back, and verify ends with $?"
echo "$round flips in ${#files[@]} files: found and named"
[ "$round" -gt 0 ]
