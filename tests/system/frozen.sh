#!/bin/bash
# Frozen parameters: which are trained, at each stage and in bf16; the model at the end of the run; refusals.
#   frozen.sh TESSERA MPIRUN
set -u
tessera=$1 mpirun=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
fail() { echo "FAILED: $*"; [ ! -f log ] || tail -20 log; failures=$((failures + 1)); }
# run RANKS ARGUMENTS…: output into log, exit code into $code
run() { local ranks=$1; shift; timeout 120 "$mpirun" -n "$ranks" "$tessera" "$@" > log 2>&1 < /dev/null; code=$?; }
good() { run "$@"; [ $code = 0 ] || fail "$* -> exit $code"; }
# refused CODE WORDS RANKS ARGUMENTS…
refused() {
  local wanted=$1 words=$2; shift 2
  run "$@"
  [ $code = "$wanted" ] && [ "$(grep -c '^error: ' log)" = 1 ] && grep '^error: ' log | grep -qF -- "$words" || fail "$* -> exit $code, wanted $wanted and \"$words\""
}
expect() { grep -qE -- "$1" "$2" || fail "no \"$1\" in $2"; }
# equal A B GREP, different A B GREP: the tensors of two models whose names match
compare() { run 1 checkpoint diff "$1/model.safetensors" "$2/model.safetensors" --grep "$3"; }
equal() { compare "$@"; [ $code = 0 ] || fail "$3 of $1 and $2 differ: exit $code"; }
different() { compare "$@"; [ $code = 3 ] || fail "$3 of $1 and $2 do not differ: exit $code"; }

cat > config.json <<'JSON'
{"model_type": "gpt2", "n_layer": 3, "n_embd": 32, "n_head": 2, "vocab_size": 256, "n_positions": 64, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
JSON
for i in $(seq 200); do echo "line $i of the training text, as plain as can be"; done > train.txt
train=(train --dataset train.txt --max_length 16 --global_batch_size 12 --learning_rate 1e-2 --logging_steps 1 --max_steps 4 --add_version false)
good 2 "${train[@]}" --model config.json --from_scratch --max_steps 2 --save_steps 2 --quiet --output_dir base

# A frozen embedding, which is the head's matrix too: the same bits at each stage.
for stage in 0 1 2 3; do
  good 2 "${train[@]}" --model base --freeze transformer.wte wpe --zero_stage "$stage" --output_dir "embed$stage"
  cmp -s embed0/model.safetensors "embed$stage/model.safetensors" || fail "stage $stage differs from stage 0"
done
expect '^          frozen +[0-9.]+ KiB$' log
expect '^model     gpt2 .*parameters, .* trainable \([0-9.]+ %\) \| vocabulary' log
equal base embed3 '^w[tp]e'
different base embed3 '^ln_f.weight'

# One block alone, on three ranks; generating from the model of the run.
good 3 "${train[@]}" --model base --trainable_parameters h.1 --output_dir block
equal base block '^(w|ln_f|h\.[02]\.)'
different base block '^h\.1\.mlp\.c_fc\.weight'
good 2 generate --model block --prompt 'line 1' --max_new_tokens 5

# bf16: frozen parameters are kept in it. From random parameters, too.
good 2 "${train[@]}" --model base --trainable h.1 ln_f --bf16 --output_dir half
different base half '^h\.1\.mlp\.c_fc\.weight'
good 2 "${train[@]}" --model config.json --from_scratch --freeze wte --bf16 --output_dir random
good 1 plan --model base --trainable h.1
expect 'parameters, .* trainable \(' log
expect "^frozen    [0-9.]+ KiB of a rank's params, kept in fp32" log

refused 2 'Did you mean h.0, h.1 or h.2?' 1 "${train[@]}" --model base --freeze 'h.3.*' --output_dir none
refused 2 'every parameter of the model is frozen' 1 "${train[@]}" --model base --freeze '*' --output_dir none
refused 2 'are not built yet' 2 "${train[@]}" --model base --freeze wte --save_steps 2 --output_dir none
refused 2 'are not built yet' 2 "${train[@]}" --model base --freeze wte --resume_from_checkpoint base/checkpoint-2 --output_dir none
refused 2 'cannot be read from a checkpoint yet' 2 "${train[@]}" --model base/checkpoint-2 --freeze wte --output_dir none
[ $failures = 0 ] && echo good
[ $failures = 0 ]
