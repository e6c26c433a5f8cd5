#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# convert, inspect, checkpoint verify and checkpoint diff on any number of ranks; refusals with one line and the right exit
# code, and no file left behind.
#   convert.sh TESSERA MPIRUN
# shellcheck source=tests/system/commands.sh
. "$(dirname "$0")/commands.sh"
sums() { (cd "$1" && sha256sum -- *); }

cat > config.json <<'JSON'
{"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 256, "n_positions": 64, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "torch_dtype": "float32", "my_own_key": [1, 2]}
JSON
for i in $(seq 100); do echo "line $i of the training text, as plain as can be"; done > train.txt
train=(train --from_scratch --dataset train.txt --max_length 16 --per_device_train_batch_size 2 --max_steps 2 --save_steps 2 --add_version false --quiet)
good 2 "${train[@]}" --model config.json --output_dir run
cp run/model.safetensors plain.safetensors

# Any number of ranks writes the same bytes, and the same weights as the run's own export. Several files.
for n in 1 2 3 5; do
  good "$n" convert --in run --to hf --out "hf$n" --max_shard_size 60KB --verify
  [ "$(sums "hf$n")" = "$(sums hf1)" ] || fail "hf$n differs from hf1"
  good "$n" convert --in "hf$n" --to native --out "native$n"
  [ "$(sums "native$n")" = "$(sums native1)" ] || fail "native$n differs from native1"
done
[ -f hf1/model.safetensors.index.json ] && [ ! -e hf1.tmp ] || fail "no index: $(ls hf1)"
cmp -s config.json hf1/config.json || fail "config.json is not byte for byte"
good 2 convert --in run/checkpoint-2 --from native --to hf --out whole --checkpoint_file_size 1MB
grep -q 'W024: --checkpoint_file_size 1MB has no effect: no checkpoint is written' log || fail "no W024: $(cat log)"
good 2 convert --in run --from hf --to native --out exported --max_shard_size 1MB
grep -q 'W024: --max_shard_size 1MB has no effect: a checkpoint is written' log || fail "no W024: $(cat log)"
good 1 checkpoint diff exported whole
cmp -s plain.safetensors whole/model.safetensors || fail "convert and the run's export differ"
good 1 checkpoint diff native1 whole
good 2 checkpoint diff native1 native5
good 3 checkpoint verify run native1

# 16-bit weights to a checkpoint and back, byte for byte. config.json has the type, and keeps unknown keys.
for dtype in bf16 fp16; do
  good 2 convert --in whole --to hf --out "$dtype" --dtype $dtype
  good 3 convert --in $dtype --to native --out "native-$dtype"
  good 2 convert --in "native-$dtype" --to hf --out "again-$dtype" --dtype $dtype
  [ "$(sums "again-$dtype")" = "$(sums $dtype)" ] || fail "$dtype does not come back"
done
grep -q '"torch_dtype": "bfloat16"' bf16/config.json && grep -q my_own_key bf16/config.json || fail "config.json of bf16: $(cat bf16/config.json)"
run 2 checkpoint diff native1 native-bf16
[ $code = 3 ] && grep -q 'elements differ, by at most' log && grep -q '^differs   auxiliary file config.json: differs' log && ! grep -q '^error' log || fail "diff of bf16: exit $code"
good 1 train --model native-bf16 --dataset train.txt --max_length 16 --per_device_train_batch_size 2 --max_steps 1 --output_dir from-native --quiet

# The output of inspect.
good 1 inspect run --stats
for words in 'step       2' 'complete   yes' 'mesh {replicate 1, shard 2}' '/model/h.1.mlp.c_fc.weight  ' '/optimizer/exp_avg/wte.weight' ' mean ' 'total      84 tensors'; do grep -qF -- "$words" log || fail "inspect run: no \"$words\""; done
good 1 inspect run/checkpoint-2/state-00001-of-00001.h5 --grep 'wte'
grep -q 'total      3 tensors' log || fail "inspect of an HDF5 file"
good 1 inspect run/checkpoint-2/state-00001-of-00001.h5 --grep '^/model/wte'
grep -q 'total      1 tensor | ' log || fail "inspect of one tensor: $(tail -1 log)"
good 1 inspect hf1 whole/model.safetensors hf1/model.safetensors.index.json --json
[ "$(grep -c '"elements": 35712' log)" = 3 ] || fail "inspect --json: $(grep elements log)"
head -c 3000 run/checkpoint-2/state-00001-of-00001.h5 > cut.h5
refused 3 E120 1 inspect cut.h5

# Damage is found and located.
cp -r native1 damaged
printf '\377' | dd of=damaged/state-00001-of-00001.h5 bs=1 seek=100001 conv=notrunc 2> /dev/null
refused 3 '1 place is damaged' 2 checkpoint verify damaged
grep -q 'damage .*E123 damaged/state-00001-of-00001.h5 .*block 0.*/model/' log || fail "verify does not name the place"
refused 3 E123 2 convert --in damaged --to hf --out never
[ ! -e never ] && [ ! -e never.tmp ] || fail "a failed conversion leaves something"
rm damaged/state-00001-of-00001.h5
refused 3 '1 place is damaged' 1 checkpoint verify damaged
cp -r native1 headless && echo x >> headless/manifest.json
refused 3 E131 2 checkpoint verify headless
cp -r run/checkpoint-2 checkpoint-7
refused 3 '1 place is damaged' 2 checkpoint verify checkpoint-7/
grep -q 'damage .*E134 checkpoint-7.* after step 7.* of step 2' log || fail "verify does not see that a checkpoint was renamed"
rm -r checkpoint-7

# convert IN OUT: to the other format, or with another dtype.
good 2 convert run/checkpoint-2 inferred
cmp -s inferred/model.safetensors whole/model.safetensors || fail "convert IN OUT of a checkpoint"
good 2 convert whole inferred-native
grep -q 'a Hugging Face model to a checkpoint' log || fail "convert IN OUT of a model"
good 2 convert whole inferred-bf16 --dtype bf16
cmp -s inferred-bf16/model.safetensors bf16/model.safetensors || fail "convert IN OUT --dtype"

# Refused before anything is written.
refused 3 E141 2 convert --in run --to hf --out whole
refused 3 E142 2 convert --in whole --to hf --out whole --force
refused 3 E142 2 convert --in whole --to native --out whole/inside
refused 2 'needs --in' 2 convert --to hf --out x
refused 2 'is a checkpoint already' 2 convert --in run --to native --out x
refused 2 'in fp32' 2 convert --in whole --to native --out x --dtype bf16
refused 3 'no checkpoint in whole' 2 convert --in whole --from native --to hf --out x
refused 3 nowhere 2 convert --in nowhere --to hf --out x
refused 2 'does not know "prove"' 2 checkpoint prove run
refused 2 'compares two paths' 1 checkpoint diff run
refused 2 'not a regular expression' 1 inspect run --grep '('
refused 3 'has no checksums' 1 checkpoint verify whole
[ ! -e x ] || fail "a refused conversion made its output"
sed 's/"n_embd": 32/"n_embd": 16/' config.json > whole/config.json
refused 3 E113 2 convert --in whole --to native --out x

# --force renames the old output. What a killed run left is replaced, a user's own folder is not.
good 2 convert --in run --to hf --out bf16 --force
grep -q '"bfloat16"' bf16.old/config.json && cmp -s plain.safetensors bf16/model.safetensors || fail "--force"
mkdir y.tmp && echo left > y.tmp/model.safetensors
good 2 convert --in run --to hf --out y
mkdir -p z.tmp/mine
refused 3 E141 2 convert --in run --to hf --out z

# A tensor larger than the memory that a rank may take, in both directions. The source is a sparse file behind its header.
mkdir large
sed 's/"vocab_size": 256/"vocab_size": 3000000/; s/"n_layer": 2/"n_layer": 1/' config.json > large/config.json
header="" at=0
tensor() {
  local bytes=$((2 * $2 * ${3:-1}))
  header+="${header:+,}\"$1\":{\"dtype\":\"BF16\",\"shape\":[$2${3:+,$3}],\"data_offsets\":[$at,$((at + bytes))]}"
  at=$((at + bytes))
}
tensor wte.weight 3000000 32; tensor wpe.weight 64 32
for name in ln_1 ln_2; do tensor h.0.$name.weight 32; tensor h.0.$name.bias 32; done
tensor h.0.attn.c_attn.weight 32 96; tensor h.0.attn.c_attn.bias 96; tensor h.0.attn.c_proj.weight 32 32; tensor h.0.attn.c_proj.bias 32
tensor h.0.mlp.c_fc.weight 32 128; tensor h.0.mlp.c_fc.bias 128; tensor h.0.mlp.c_proj.weight 128 32; tensor h.0.mlp.c_proj.bias 32
tensor ln_f.weight 32; tensor ln_f.bias 32
header="{\"__metadata__\":{\"format\":\"pt\",\"note\":\"kept\"},$header}"
size=$((${#header} + 1))
{ for shift in 0 8 16 24 32 40 48 56; do printf "\\x$(printf %02x $((size >> shift & 255)))"; done; printf "%s " "$header"; } > large/model.safetensors
truncate -s $((8 + size + at)) large/model.safetensors
# at_most MIB
at_most() { awk -v most="$1" 'match($0, /memory of a rank at most [0-9.]+ MiB/) { n = substr($0, RSTART + 25) + 0; found = n > 8 && n <= most } END { exit !found }' log; }
good 2 convert --in large --to native --out large-native
at_most 256 || fail "too much memory to native: $(grep "done" log)"
good 2 convert --in large-native --to hf --out large-back --dtype bf16
at_most 256 || fail "too much memory to safetensors: $(grep "done" log)"
[ "$(stat -c %s large-back/model.safetensors)" -ge $at ] && cmp <(tail -c $at large/model.safetensors) <(tail -c $at large-back/model.safetensors) || fail "the large model does not come back"
good 1 checkpoint verify large-native
good 1 inspect large-back --json
grep -q '"note": "kept"' log || fail "metadata do not come back from a checkpoint"

# What is only copied: five dimensions, FP8, BOOL, U32; files beside the weights, in directories too. Many threads.
mkdir -p odd/figures
cp config.json odd && echo code > odd/modeling_x.py && echo figure > odd/figures/a.txt && echo zip > odd/optimizer.pt
header='{"__metadata__":{"format":"mlx","made by":"odd"},"conv":{"dtype":"BF16","shape":[2,1,2,1,3],"data_offsets":[0,24]},"mask":{"dtype":"BOOL","shape":[4],"data_offsets":[24,28]},"eight":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[28,32]},"ids":{"dtype":"U32","shape":[3],"data_offsets":[32,44]}}'
{ size=${#header}; for shift in 0 8 16 24 32 40 48 56; do printf "\\x$(printf %02x $((size >> shift & 255)))"; done; printf '%s' "$header"; head -c 44 train.txt; } > odd/model.safetensors
good 2 convert --in odd --to hf --out copied --verify --threads 40
grep -q 'warning W090: odd: not copied.*: optimizer.pt$' log && [ ! -e copied/optimizer.pt ] || fail "optimizer.pt: $(grep W090 log)"
cmp -s odd/modeling_x.py copied/modeling_x.py && cmp -s odd/figures/a.txt copied/figures/a.txt || fail "files beside the weights: $(ls copied)"
good 1 convert --in copied --to hf --out copied2
[ "$(sums copied2 2>&1)" = "$(sums copied 2>&1)" ] || fail "a copy of a copy differs"
good 1 inspect odd copied2 --json
[ "$(grep -c '"made by": "odd"' log)" = 2 ] && [ "$(grep -c '"format": "mlx"' log)" = 2 ] || fail "metadata of the copy: $(grep -A4 metadata log)"
[ "$(grep -c '"shape": \[2, 1, 2, 1, 3\]\|F8_E4M3' log)" -ge 2 ] || fail "inspect of the copy"
refused 3 'eight" is F8_E4M3, which cannot become bf16' 1 convert --in odd --to hf --out x --dtype bf16

# Shards whose metadata differ: the first one's are kept, and the difference is said.
mkdir shards && cp config.json shards
echo '{"metadata": {"total_size": 4}, "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}' > shards/model.safetensors.index.json
for shard in a:1 b:2; do
  header='{"__metadata__":{"format":"pt","part":"'${shard%:*}'","same":"s"},"'${shard%:*}'":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'
  { printf "\\x$(printf %02x ${#header})\0\0\0\0\0\0\0%s00" "$header"; } > "shards/model-0000${shard#*:}-of-00002.safetensors"
done
good 2 convert --in shards --to hf --out joined
grep -q 'warning W071: the files of shards differ in the metadata of their headers: of "part" the first' log || fail "W071: $(cat log)"
good 1 inspect joined --json
grep -q '"part": "a"' log && grep -q '"same": "s"' log || fail "metadata of joined shards"

# Two at once: one makes the output, the other one is refused.
for round in 1 2 3; do
  one=0 two=0
  "$tessera" convert --in hf1 --to hf --out at-once --dtype bf16 > one.log 2>&1 & first=$!
  "$tessera" convert --in hf1 --to native --out at-once > two.log 2>&1 || two=$?
  wait $first || one=$?
  [ "$one $two" = "0 3" ] || [ "$one $two" = "3 0" ] || fail "round $round, two converts at once: exits $one $two"
  grep -qE "E150 another run writes there: process [0-9]+ on |E141" one.log two.log || fail "$(cat one.log two.log)"
  [ "$(ls -d at-once*)" = at-once ] && rm -r at-once || fail "left: $(ls -d at-once*)"
done

# Directories of other programs.
mkdir -p trainer/checkpoint-9 trainer/checkpoint-10 zero/global_step4
cp whole/model.safetensors bf16/config.json trainer/checkpoint-9 && cp hf1/* trainer/checkpoint-10 && echo '{}' > trainer/checkpoint-10/trainer_state.json
touch zero/zero_to_fp32.py zero/global_step4/zero_pp_rank_0_mp_rank_00_optim_states.pt
good 1 convert --in trainer --to hf --out of-trainer
cmp -s plain.safetensors of-trainer/model.safetensors && grep -q 'trainer/checkpoint-10' log || fail "the newest of a Trainer: $(cat log)"
refused 3 'python3 zero/zero_to_fp32.py zero OUT --safe_serialization' 1 convert --in zero --to hf --out x
refused 3 'a DeepSpeed checkpoint' 1 train --model zero --dataset train.txt --output_dir x
refused 3 'whose optimizer is not read. Start from its weights with --model trainer/checkpoint-10' 1 train --model whole --dataset train.txt --output_dir x --resume_from_checkpoint trainer/checkpoint-10
[ ! -e x ] || rm -r x

# Training warns of dropout in config.json, a conversion does not.
sed 's/"resid_pdrop": 0.0/"resid_pdrop": 0.1/' config.json > whole/config.json
good 1 convert --in whole --to native --out dropped
! grep -q W010 log || fail "convert speaks of dropout"
good 1 "${train[@]}" --model whole/config.json --output_dir dropping
grep -q 'warning W010: dropout is not supported: resid_pdrop = 0.1' log || fail "train does not speak of dropout"

echo "$failures failures"
[ "$failures" = 0 ]
