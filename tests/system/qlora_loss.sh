#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LoRA over nf4 and int8 learns as over bf16: the example model is trained on 200 of its conversations, then adapters on
# the other 104 for 200 steps. Their last 20 losses differ by less than 1 %.
#   qlora_loss.sh TESSERA MPIRUN SOURCE_TREE
# shellcheck source=tests/system/commands.sh
. "$(dirname "$0")/commands.sh"
tree=$3
example=$tree/jobs/examples/chat
long() { timeout 900 "$mpirun" -n 2 "$tessera" "$@" > log 2>&1 < /dev/null || fail "$* -> exit $?"; }

cp -r "$example" model && rm model/questions.jsonl
head -n 200 "$example/questions.jsonl" > first.jsonl
tail -n +201 "$example/questions.jsonl" > rest.jsonl
long sft --model model --from_scratch --dataset first.jsonl --max_length 256 --packing true --per_device_train_batch_size 1 --bf16 \
  --num_train_epochs 30 --learning_rate 3e-3 --output_dir base --add_version false
# Mean of the last 20 steps' losses.
loss() { awk '/"grad_norm"/ { match($0, /"loss":[0-9.]+/); l[n++] = substr($0, RSTART + 7, RLENGTH - 7) } END { for (i = n - 20; i < n; i++) s += l[i]; printf "%.6f", s / 20 }' "$1/logging.jsonl"; }
adapt() { # NAME OPTIONS…
  local name=$1; shift
  long sft --model base --tuner_type lora --lora_dropout 0 --dataset rest.jsonl --max_length 256 --packing true --bf16 --max_steps 200 \
    --per_device_train_batch_size 1 --learning_rate 1e-3 --logging_steps 1 --save_steps 200 --output_dir "$name" --add_version false "$@"
}
adapt bf16
adapt nf4 --quant_method bnb --quant_bits 4 --bnb_4bit_compute_dtype bfloat16
adapt int8 --quant_method bnb --quant_bits 8
for name in nf4 int8; do
  echo "LoRA over bf16 $(loss bf16), over $name $(loss $name)"
  awk -v a="$(loss $name)" -v b="$(loss bf16)" 'BEGIN { d = a / b - 1; exit !(b > 0 && d < 0.01 && d > -0.01) }' || fail "$name: more than 1 %"
done
[ $failures = 0 ] && echo "qlora_loss.sh: passed"
exit $((failures > 0))
