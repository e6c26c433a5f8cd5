#!/bin/bash
# What people look at while a run trains and after it: TensorBoard's event files.
#   reports.sh TESSERA MPIRUN
set -eu
tessera=$1 mpirun=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "FAILED: $*"; [ ! -f log ] || tail -40 log; exit 1; }

cat > config.json <<'JSON'
{"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 256, "n_positions": 64, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
JSON
for i in $(seq 300); do echo "line $i of the training text, as plain as can be"; done > train.txt
common=(train --model config.json --from_scratch --dataset train.txt --max_length 16 --global_batch_size 4 --per_device_train_batch_size 2
        --learning_rate 1e-2 --logging_steps 1 --add_version false --split_dataset_ratio 0.1 --eval_steps 2 --save_steps 2)

# One event file a start, in runs/, written by one rank; a run that is resumed appends a file that sorts after it.
"$mpirun" -n 2 "$tessera" "${common[@]}" --max_steps 4 --output_dir a --sample_prompt line --sample_tokens 4 > log 2>&1 || fail "the run ended with $?"
first=(a/runs/events.out.tfevents.*)
[ "${#first[@]}" = 1 ] || fail "${#first[@]} event files"
for tag in train/loss train/grad_norm train/learning_rate train/tokens_per_second 'train/memory(GiB)' grad_norm/h.1 grad_norm/head eval/loss args/text_summary \
  model_config/text_summary samples/0/text_summary; do
  grep -aqF "$tag" "${first[0]}" || fail "no $tag"
done
"$mpirun" -n 2 "$tessera" "${common[@]}" --max_steps 6 --output_dir a --resume_from_checkpoint auto > log 2>&1 || fail "the resumed run ended with $?"
both=(a/runs/events.out.tfevents.*)
[ "${#both[@]}" = 2 ] && [ "${both[0]}" = "${first[0]}" ] || fail "event files: ${both[*]}"

# Not wanted; elsewhere; refused; and not writable, which does not end training.
"$tessera" "${common[@]}" --max_steps 2 --output_dir b --report_to none > log 2>&1 || fail "--report_to none: $?"
[ ! -e b/runs ] || fail "--report_to none wrote b/runs"
"$tessera" "${common[@]}" --max_steps 2 --output_dir c --logging_dir events > log 2>&1 || fail "--logging_dir: $?"
[ -s "$(echo events/events.out.tfevents.*)" ] && [ ! -e c/runs ] || fail "--logging_dir"
code=0
"$tessera" "${common[@]}" --output_dir d --report_to wandb > log 2>&1 || code=$?
[ "$code" = 2 ] && grep -q '^error: --report_to wandb: not built yet' log || fail "--report_to wandb: exit $code"
touch file
"$tessera" "${common[@]}" --max_steps 4 --output_dir e --logging_dir file/events > log 2>&1 || fail "an event file that cannot be made: $?"
[ "$(grep -c '^warning W050' log)" = 1 ] && [ "$(cat e/STATUS)" = completed ] || fail "W050"
echo good
