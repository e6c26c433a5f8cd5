#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The commands of docs/first-hour.md, with fewer and smaller steps; the run that the reader stops gets SIGTERM for Ctrl-C.
#   first_hour.sh TESSERA MPIRUN SOURCE_TREE
set -u
# shellcheck source=tests/system/page_commands.sh
. "$(dirname "$0")/page_commands.sh"
ln -s "$tree/docs" docs
ln -s "$tree/README.md" README.md
blocks first-hour.md
[ "$blocks" -ge 8 ] || fail "only $blocks blocks of commands in the page"

export TESSERA_GLOBAL_BATCH_SIZE=4 TESSERA_PER_DEVICE_TRAIN_BATCH_SIZE=2 TESSERA_LOGGING_STEPS=1 TESSERA_SAMPLE_TOKENS=3
stopped=
for i in $(seq "$blocks"); do
  export TESSERA_MAX_STEPS=$((${stopped:-3} + 3))
  if grep -q 'press Ctrl-C' "block$i"; then
    TESSERA_MAX_STEPS=100000000 bash -e "block$i" > log 2>&1 < /dev/null &
    run=$!
    trap 'kill -KILL "$(cat pid)" $run 2> /dev/null; rm -rf "$work"' EXIT
    until grep -q '^step 3/' log; do kill -0 $run 2> /dev/null || fail "block $i ended early"; sleep 0.1; done
    kill -TERM "$(cat pid)"
    wait $run
    code=$?
    trap 'rm -rf "$work"' EXIT
    [ $code = 75 ] || fail "block $i, stopped, does not exit with 75"
    stopped=$(sed -nE 's/^stopped ([0-9]+).*/\1/p' log)
    [ -s "out/stopped/checkpoint-$stopped/manifest.json" ] || fail "no checkpoint of step $stopped"
  else
    run_block "$i"
  fi
done
[ -n "$stopped" ] || fail "the page stops no run"
expect "^resumed? .*checkpoint-$stopped" all.log
expect "^done $((stopped + 3))/$((stopped + 3)) " all.log
expect '^fits .*: yes \| largest micro-batch that fits: 36$' all.log
expect '30.22 GiB of 74.51 GiB' all.log
expect '^eval \| loss' all.log
expect '2 ranks on 2 nodes' all.log
for file in out/first/report.html out/compare.html models/first/{config.json,model.safetensors,tokenizer.json,tokenizer_config.json}; do
  [ -s "$file" ] || fail "no $file"
done
[ "$(head -n 1 out/tessera-7/*/STATUS)" = completed ] || fail "Slurm's run is not complete"
echo "first_hour: $blocks blocks passed"
