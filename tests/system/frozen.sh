#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Frozen parameters: which are trained, checkpoints with and without them, resuming with another number of ranks and with
# another set, convert and generate.
#   frozen.sh TESSERA MPIRUN
# shellcheck source=tests/system/commands.sh
. "$(dirname "$0")/commands.sh"
expect() { grep -qE -- "$1" "$2" || fail "no \"$1\" in $2"; }
# equal A B GREP, different A B GREP: the tensors of two models whose names match
compare() { run 1 checkpoint diff "$1/model.safetensors" "$2/model.safetensors" --grep "$3"; }
equal() { compare "$@"; [ $code = 0 ] || fail "$3 of $1 and $2 differ: exit $code"; }
different() { compare "$@"; [ $code = 3 ] || fail "$3 of $1 and $2 do not differ: exit $code"; }
data_bytes() { stat -c %s "$1/state-00001-of-00001.h5"; }

cat > config.json <<'JSON'
{"model_type": "gpt2", "n_layer": 3, "n_embd": 32, "n_head": 2, "vocab_size": 256, "n_positions": 64, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
JSON
for i in $(seq 200); do echo "line $i of the training text, as plain as can be"; done > train.txt
train=(train --dataset train.txt --max_length 16 --global_batch_size 12 --learning_rate 1e-2 --logging_steps 1 --max_steps 4 --save_steps 2
       --add_version false)
good 2 "${train[@]}" --model config.json --from_scratch --max_steps 2 --quiet --output_dir base
good 2 "${train[@]}" --model config.json --from_scratch --seed 7 --max_steps 2 --quiet --output_dir other-base

# A frozen embedding, which is the head's matrix too: the same bits at each stage; a resumed run with the same ranks, too.
for stage in 0 1 2 3; do
  good 2 "${train[@]}" --model base --freeze transformer.wte wpe --zero_stage "$stage" --output_dir "embed$stage"
  cmp -s embed0/model.safetensors "embed$stage/model.safetensors" || fail "stage $stage differs from stage 0"
done
expect '^          frozen +[0-9.]+ KiB$' log
expect '^model     gpt2 .*parameters, .* trainable \([0-9.]+ %\) \| vocabulary' log
equal base embed3 '^w[tp]e'
different base embed3 '^ln_f.weight'
good 2 "${train[@]}" --model base --freeze wte wpe --output_dir again --resume_from_checkpoint embed3/checkpoint-2
cmp -s embed3/model.safetensors again/model.safetensors || fail "a resumed run differs"
! grep -q '^resume    now' log || fail "the same set is said to have changed"
good 3 "${train[@]}" --model base --freeze wte wpe --output_dir three --resume_from_checkpoint embed3/checkpoint-2
equal base three '^w[tp]e'
good 1 inspect embed3/checkpoint-2
expect 'frozen .*2 parameters \(wte.weight, wpe.weight\)' log
! grep -q '/optimizer/exp_avg/wte.weight' log || fail "a frozen parameter has states"

# One block alone; the checkpoint as a model directory, and generating from it.
good 2 "${train[@]}" --model base --trainable_parameters h.1 --output_dir block
equal base block '^(w|ln_f|h\.[02]\.)'
different base block '^h\.1\.mlp\.c_fc\.weight'
good 3 convert --in block/checkpoint-4 --to hf --out block-hf --verify
equal block block-hf .
run 2 generate --checkpoint block/checkpoint-4 --prompt 'line 1' --max_new_tokens 9 --json; cp log from-checkpoint
run 1 generate --model block-hf --prompt 'line 1' --max_new_tokens 9 --json
[ $code = 0 ] && [ "$(grep -o '"text":.*"token_ids":\[[^]]*' log)" = "$(grep -o '"text":.*"token_ids":\[[^]]*' from-checkpoint)" ] || fail "generate differs"

# Another set: said in one line and in the log; the newly trained block starts from its stored value with zero states.
good 4 "${train[@]}" --model base --trainable h.2 --output_dir changed --resume_from_checkpoint block/checkpoint-2
expect '^resume    now trained, from zero optimizer states: h.2.ln_1.weight, h.2.ln_1.bias, h.2.attn.c_attn.weight and [0-9]+ more; now frozen: h.1.ln_1.weight, ' log
expect '"now_trained":\["h.2.ln_1.weight",.*"now_frozen":\["h.1.ln_1.weight"' changed/logging.jsonl
good 1 convert --in block/checkpoint-2 --to hf --out block-2
equal block-2 changed '^h\.1\.'
equal base changed '^(w|ln_f|h\.0\.)'
different base changed '^h\.2\.mlp\.c_fc\.weight'
good 2 "${train[@]}" --model base --output_dir all --resume_from_checkpoint block/checkpoint-2
different base all '^h\.0\.mlp\.c_fc\.weight'

# Without the frozen parameters.
good 2 "${train[@]}" --model base --trainable h.1 --save_only_trainable --output_dir small
cmp -s block/model.safetensors small/model.safetensors || fail "--save_only_trainable changes the training"
[ "$(data_bytes small/checkpoint-2)" -lt "$(data_bytes block/checkpoint-2)" ] || fail "nothing was left out"
good 3 checkpoint verify small/checkpoint-2
good 4 "${train[@]}" --model base --trainable h.1 --save_only_trainable --output_dir small4 --resume_from_checkpoint small/checkpoint-2
good 2 "${train[@]}" --model base --trainable h.1 --output_dir small2 --resume_from_checkpoint small/checkpoint-2
cmp -s small/model.safetensors small2/model.safetensors || fail "a resumed run without frozen parameters differs"
refused 3 E145 2 "${train[@]}" --model other-base --trainable h.1 --output_dir wrong --resume_from_checkpoint small/checkpoint-2
good 2 convert --in small/checkpoint-4 --to hf --out small-hf --verify
equal small small-hf .
run 3 generate --checkpoint small/checkpoint-4 --prompt 'line 1' --max_new_tokens 9 --json
[ "$(grep -o '"text":.*"token_ids":\[[^]]*' log)" = "$(grep -o '"text":.*"token_ids":\[[^]]*' from-checkpoint)" ] || fail "generate without the frozen parameters differs"
mv base moved
refused 3 'there is no base model in' 2 generate --checkpoint small/checkpoint-4 --prompt a
refused 3 'there is no base model in' 1 convert --in small/checkpoint-4 --to hf --out none
good 2 "${train[@]}" --model moved --trainable h.1 --output_dir small3 --resume_from_checkpoint small/checkpoint-2
cp -r other-base base
refused 3 E145 2 generate --checkpoint small/checkpoint-4 --prompt a
refused 3 E145 2 convert --in small/checkpoint-4 --to hf --out none
rm -r base && mv moved base

# bf16: frozen parameters are kept and saved in it.
good 2 "${train[@]}" --model base --trainable h.1 ln_f --bf16 --output_dir half
good 1 inspect half/checkpoint-4
expect '/model/wte.weight +BF16' log
expect '/model/h.1.ln_1.weight +F32' log
good 3 convert --in half/checkpoint-4 --to hf --out half-hf
equal half half-hf .
good 3 "${train[@]}" --model base --trainable h.1 ln_f --bf16 --async_save --output_dir half3 --resume_from_checkpoint half/checkpoint-2
good 2 generate --checkpoint half/checkpoint-4 --prompt 'line 1' --max_new_tokens 3
good 2 "${train[@]}" --model half/checkpoint-4 --output_dir unfrozen
good 1 plan --model base --trainable h.1
expect 'parameters, .* trainable \(' log
expect "^frozen    [0-9.]+ KiB of a rank's params, kept in fp32" log

refused 2 'Did you mean h.0, h.1 or h.2?' 1 "${train[@]}" --model base --freeze 'h.3.*' --output_dir none
refused 2 'every parameter of the model is frozen' 1 "${train[@]}" --model base --freeze '*' --output_dir none
refused 2 'none is frozen' 1 "${train[@]}" --model base --save_only_trainable --output_dir none
refused 2 'needs a base model' 1 "${train[@]}" --model config.json --from_scratch --freeze wte --save_only_trainable --output_dir none
refused 2 'are not those of' 2 "${train[@]}" --model base --freeze h.1 --save_only_trainable --output_dir none --resume_from_checkpoint block/checkpoint-2
[ $failures = 0 ] && echo good
[ $failures = 0 ]
