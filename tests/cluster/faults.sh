#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts with a rank each share a directory whose file system has no locks. At one call of a save (by the shim) a rank
# stops; then its host dies (kill), or its link is cut (cut). The other host's rank ends by itself, and a run there resumes
# from a complete checkpoint. After a cut the stopped rank goes on once that run has ended: it ends too, and changes nothing
# in the directory.
#   faults.sh TESSERA MPIRUN SHIM CASES
# CASES: all, or how many to draw; SEED=… draws others; KINDS="kill cut" takes these kinds only; ONLY='^cut 0 61 ' those
# that match: kind, rank, number, call.
set -u
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"
# shellcheck source=tests/system/first_failure.sh
. "$(dirname "$0")/../system/first_failure.sh"
shim=$3 cases=$4
hosts_up 2 || fail "the hosts cannot be made"

tiny_model 1 16
train=(train --model config.json --from_scratch --dataset train.txt --max_length 8 --global_batch_size 4 --per_device_train_batch_size 1
       --learning_rate 1e-2 --lr_scheduler_type constant --logging_steps 1 --add_version false --report_to none --threads 1
       --save_steps 2 --save_total_limit 1 --save_model false --resume_from_checkpoint auto --comm_timeout 4 --output_dir out)
directory=$(realpath .)/out
without_locks=(-x "LD_PRELOAD=$shim" -x FAULT_NO_LOCKS=1)
# both ENVIRONMENT… : a run on both hosts that saves checkpoint-4 and removes checkpoint-2
both() {
  local one settings=("${without_locks[@]}" -x "FAULT_DIR=$directory" -x FAULT_AFTER=checkpoint-4.tmp)
  for one in "$@"; do settings+=(-x "$one"); done
  on_hosts 1 -n 2 "${settings[@]}" "$tessera" "${train[@]}" --max_steps 4
}
ranks_on() {
  local process
  for process in $(processes_of "$1"); do [ "/proc/$process/exe" -ef "$tessera" ] && echo "$process"; done
}
# gone HOST: its ranks have ended
gone() {
  for _ in $(seq 900); do [ -n "$(ranks_on "$1")" ] || return 0; sleep 0.1; done
  return 1
}
state() { (cd out && find . -path './checkpoint-*' -o -name STATUS -o -name logging.jsonl | sort | while read -r file; do
  echo "$file"; [ ! -f "$file" ] || sha256sum "$file"; done); }
clean_up() {
  local one process
  for one in h1 h2; do
    for process in $(processes_of "$one"); do kill -KILL "$process" 2> /dev/null; done
  done
  heal "$host" || fail "$host stays cut off"
  wait "$launcher" 2> /dev/null
}

"$mpirun" -n 2 "$tessera" "${train[@]}" --max_steps 2 > log 2>&1 || fail "the first run: exit $?"
cp -rp out base
both "FAULT_LOG=$work/calls" > log 2>&1 || fail "counting: exit $?"
for rank in 0 1; do
  [ -s "calls.$rank" ] || fail "rank $rank makes no call"
  sed -E "s/^([0-9]+) ([a-z0-9_]+) .*/$rank \1 \2/" "calls.$rank" | while read -r case; do
    for kind in ${KINDS:-kill cut}; do echo "$kind $case"; done
  done
done > cases
[ -z "${ONLY:-}" ] || { grep -E -- "$ONLY" cases > chosen; mv chosen cases; }
total=$(wc -l < cases)
[ "$total" -gt 0 ] || fail "no case"
if [ "$cases" != all ]; then  # the layout's mkdir and the commit's renames by rank 0 are always among them
  awk -v seed="${SEED:-7}" 'BEGIN { srand(seed) } { print ($1 == "cut" && $2 == 0 && $4 ~ /rename|mkdir/ ? 0 : 1) + rand() "\t" $0 }' cases |
    sort -g | sed 's/^[^\t]*\t//' | head -n "$cases" > drawn
  mv drawn cases
fi

while read -r kind rank number call <&3; do
  what="$kind at call $number ($call) of rank $rank"
  host=h$((rank + 1)) other=h$((2 - rank))
  rm -rf out happened.*
  cp -rp base out
  both FAULT_RANK="$rank" FAULT_AT="$number" FAULT_KIND=stop "FAULT_LOG=$work/happened" > log 2>&1 < /dev/null &
  launcher=$!
  until grep -q '^fault ' "happened.$rank" 2> /dev/null; do kill -0 $launcher 2> /dev/null || fail "$what: there was no such call"; sleep 0.05; done
  stopped=$(ranks_on "$host")
  [ -n "$stopped" ] || fail "$what: no rank on $host"
  if [ "$kind" = kill ]; then
    cut "$host"  # a host that loses its power says nothing
    for process in $(processes_of "$host"); do kill -KILL "$process"; done
  else
    cut "$host"
  fi
  gone "$other" || fail "$what: the rank on $other goes on"
  on "$other" "$mpirun" -n 1 "${without_locks[@]}" "$tessera" "${train[@]}" --max_steps 8 > resumed 2>&1 || { cat resumed; fail "$what: the resumed run: exit $?"; }
  grep -qE '^resume .*checkpoint-[24] ' resumed || { cat resumed; fail "$what: nothing was resumed"; }
  state > before
  if [ "$kind" = cut ]; then
    kill -CONT "$stopped"
    gone "$host" || fail "$what: the rank on $host goes on"
    state | diff before - > changes || { cat changes; fail "$what: the rank that was cut off has changed the directory"; }
  fi
  [ "$(grep -c '^./checkpoint-[0-9]*$' before)" = 1 ] && grep -q '^./checkpoint-8$' before || fail "$what: $(cat before)"
  [ "$(head -n 1 out/STATUS)" = completed ] || fail "$what: STATUS $(cat out/STATUS)"
  clean_up
  echo "$what: good"
done 3< cases
echo "$(wc -l < cases) of $total cases: good"
