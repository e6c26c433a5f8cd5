#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The binding of ranks, as doctor, the head of a run and warnings say it. hwloc is told that each CPU of this machine is a
# package with a NUMA node of its own; what ranks are bound to is asked of the kernel.
#   binding.sh TESSERA MPIRUN SOURCE_TREE
set -u
# shellcheck source=tests/system/first_failure.sh
. "$(dirname "$0")/first_failure.sh"

mapfile -t cpus < <(taskset -cp $$ | sed 's/.*: //' | tr , '\n' | while IFS=- read -r a b; do seq "$a" "${b:-$a}"; done)
[ ${#cpus[@]} -ge 2 ] || { echo "skipped: one CPU"; exit 77; }
a=${cpus[0]} b=${cpus[1]} all=$(($(nproc --all) > b ? $(nproc --all) : b + 1))

# on CPUS CPUS ARGUMENTS…: two ranks, bound to these CPUs; output in log, exit code in $code.
on() {
  local first=$1 second=$2 machine=(HWLOC_SYNTHETIC="pack:$all numa:1 core:1 pu:1" HWLOC_THISSYSTEM="${this:-1}")
  shift 2
  "$mpirun" --bind-to none -n 1 taskset -c "$first" env "${machine[@]}" "$tessera" "$@" : \
    -n 1 taskset -c "$second" env "${machine[@]}" "$tessera" "$@" > log 2>&1
  code=$?
}
expect_not() { ! grep -qE -- "$1" log || fail "\"$1\" in log"; }

on "$a" "$b" doctor
[ $code = 0 ] || fail "exit $code"
expect "^binding +rank 0 on .*: CPU $a, 1 thread; 1 of $all cores, package $a \(of $all\), NUMA node $a \(of $all\)$"
expect "^binding +rank 1 on .*: CPU $b, 1 thread; 1 of $all cores, package $b \(of $all\), NUMA node $b \(of $all\)$"
expect_not 'W05[45]'

on "$a" "$a,$b" doctor
expect 'warning W054: rank 1 may run on several NUMA nodes .*mpirun --map-by ppr:1:numa:PE=1 --bind-to core'
on "$a,$b" "$a,$b" doctor --json
expect 'warning W054: ranks 0-1 may run'
expect "\"rank 1 on .*packages ${a}[-,]${b} \(of $all\), NUMA nodes ${a}[-,]${b} \(of $all\)\""
on "$b" "$b" doctor
expect "warning W055: ranks 0-1 on .* have cores in common, and $((all - 1)) of the host's $all cores are used by no rank"
this=0 on "$a,$b" "$b" doctor
expect '^binding +rank 0 on .*; not known: .*HWLOC_THISSYSTEM=1'
expect_not 'W05[45]'

# OpenMP binds threads, and leaves the main thread and those that it starts all cores of the rank.
export OMP_NUM_THREADS=2 OMP_PROC_BIND=true OMP_PLACES=threads
HWLOC_SYNTHETIC="pack:$all numa:1 core:1 pu:1" HWLOC_THISSYSTEM=1 taskset -c "$a,$b" "$tessera" doctor > log 2>&1 || fail "exit $?"
expect "^binding +rank 0 on .*: CPUs ${a}[-,]${b}, 2 threads; 2 of $all cores, .*, 1 thread bound to core $b$"
HWLOC_SYNTHETIC="pack:$all numa:1 core:1 pu:1" HWLOC_THISSYSTEM=1 OMP_PLACES="{$b}" "$tessera" doctor > log 2>&1 || fail "exit $?"
expect "^binding +rank 0 on .*: CPU $b, 1 thread; 1 of $all cores, "
unset OMP_PROC_BIND OMP_PLACES
export OMP_NUM_THREADS=1

# A run says it in its head, and warns once.
tiny_model 1 16
run=(train --model config.json --from_scratch --dataset train.txt --max_length 16 --max_steps 2 --eval_strategy no)
on "$a" "$b" "${run[@]}" --output_dir bound
[ $code = 0 ] || fail "exit $code"
expect "^binding   rank 0 on 1 of $all cores, package $a \(of $all\), NUMA node $a \(of $all\) \| every rank within one NUMA node$"
expect_not W054
on "$a,$b" "$b" "${run[@]}" --output_dir free
[ $code = 0 ] || fail "exit $code"
expect "^binding   rank 0 on 2 of $all cores, .* \| 1 of 2 ranks on several packages or NUMA nodes$"
[ "$(grep -c W054 log)" = 1 ] || fail "W054 $(grep -c W054 log) times"
on "$a,$b" "$b" "${run[@]}" --output_dir refused --werror
[ $code = 2 ] || fail "--werror: exit $code"
OMP_PROC_BIND=true OMP_PLACES=threads on "$a,$b" "$a,$b" "${run[@]}" --threads 2 --output_dir threads
expect 'warning W056: OpenMP binds threads of ranks 0-1 on .* to the same cores'

# The script for mpirun, which sets OMP_PROC_BIND and OMP_PLACES, gives a rank as many threads as cores.
cat > run.yaml <<YAML
model: config.json
from_scratch: true
dataset: [train.txt]
max_length: 16
max_steps: 2
eval_strategy: no
output_dir: script
YAML
ln -s "$tessera" tessera
cores=$(lscpu -p=CPU,CORE | grep -v '^#' | awk -F, -v allowed=" ${cpus[*]} " 'index(allowed, " " $1 " ") { print $2 }' | sort -u | wc -l)
if [ "$cores" -ge 2 ]; then  # cores may have two CPUs
  PATH=$work:$(dirname "$mpirun"):$PATH RANKS=1 CORES=2 bash "$3/jobs/templates/mpirun.sh" run.yaml > log 2>&1 || fail "exit $?"
  expect '^compute .*\| [2-9] threads per rank, rank 0 on CPUs '
  expect '^binding   rank 0 on 2 of .*, [1-9] threads? bound to cores? '
fi
echo "binding: good"
