#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# HOSTS hosts with RANKS ranks each, on links of 400 Mbit/s: they have one host's losses and model, bit for bit, with each
# of the strategies. A cut link ends the run, which names the ranks beyond it; resumed afterwards, it ends with the model
# of a run that was not cut.
#   train.sh TESSERA MPIRUN HOSTS RANKS STRATEGY …
set -u
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"
# shellcheck source=tests/system/first_failure.sh
. "$(dirname "$0")/../system/first_failure.sh"
hosts=$3 ranks=$4
shift 4
world=$((hosts * ranks)) last_host=h$hosts
hosts_up "$hosts" || fail "the hosts cannot be made"
for host in "${!host_process[@]}"; do link_rate "$host" 400mbit; done

tiny_model 2 32
train=(train --model config.json --from_scratch --dataset train.txt --max_length 16 --global_batch_size 12 --per_device_train_batch_size 1
       --learning_rate 1e-2 --lr_scheduler_type constant --logging_steps 1 --add_version false --report_to none)
losses() { grep grad_norm "$1/logging.jsonl" | sed -E 's/.*"loss":([^,]*),"grad_norm":([^,]*),.*/\1 \2/'; }
one_host() { "$mpirun" -n "$world" "$tessera" "${train[@]}" "$@" > log 2>&1 || fail "one host, $*: exit $?"; }

for strategy in "$@"; do
  replicas=()
  [[ $strategy != HYBRID* ]] || replicas=(--ranks_per_node "$ranks")
  one_host --max_steps 4 --sharding_strategy "$strategy" ${replicas[@]+"${replicas[@]}"} --output_dir "one-$strategy"
  on_hosts "$ranks" -n "$world" "$tessera" "${train[@]}" --max_steps 4 --sharding_strategy "$strategy" --output_dir "all-$strategy" > log 2>&1 ||
    fail "$strategy: exit $?"
  expect "$world ranks on $hosts nodes"
  [ "$(losses "all-$strategy" | wc -l)" = 4 ] || fail "losses of $strategy"
  cmp <(losses "one-$strategy") <(losses "all-$strategy") && cmp "one-$strategy/model.safetensors" "all-$strategy/model.safetensors" ||
    fail "$strategy differs from one host"
done

# A cut link: the ranks on both sides end, and the error names those beyond it.
# tessera launch ends mpirun then.
start=("$tessera" launch)
on_hosts "$ranks" -n "$world" -- "${train[@]}" --max_steps 100000000 --save_steps 4 --save_total_limit 2 --comm_timeout 4 --output_dir cut > log 2>&1 &
until grep -q '^save checkpoint-4 ' log; do kill -0 $! || fail "it ended before a checkpoint"; sleep 0.05; done
cut "$last_host"
code=0
wait $! || code=$?
unset start
[ $code = 6 ] || fail "tessera launch: exit $code"
[ -z "$(processes_of_program "$tessera")" ] || fail "ranks go on after the cut"
expect '^tessera launch: the ranks of this host have ended, and mpirun waits for another host'
late=$(seq -f "%g@$last_host" -s ', ' $((world - ranks)) $((world - 1)))
expect "^error: \\[rank [0-9]+@h[0-9]+\\] ranks? $late (is|are) late: .*Waited --comm_timeout = 4 s"
[ "$(head -n 1 cut/STATUS)" = failed ] || fail "STATUS $(cat cut/STATUS)"
heal "$last_host"
for _ in $(seq 600); do [ -n "$(processes_of "$last_host")" ] || break; sleep 0.1; done
[ -z "$(processes_of "$last_host")" ] || fail "MPI's daemon stays on $last_host"

last=$(find cut -maxdepth 1 -name 'checkpoint-*[0-9]' | sed 's/.*-//' | sort -n | tail -n 1)
on_hosts "$ranks" -n "$world" "$tessera" "${train[@]}" --max_steps $((last + 2)) --resume_from_checkpoint auto --output_dir cut > log 2>&1 ||
  fail "the resumed run: exit $?"
expect "^resume .*checkpoint-$last "
one_host --max_steps $((last + 2)) --output_dir uncut
cmp cut/model.safetensors uncut/model.safetensors || fail "the resumed run has another model"
echo good
