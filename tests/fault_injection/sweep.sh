#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Saves a second checkpoint while one file system call fails on one rank: each call of each rank in turn (by the shim).
# Afterwards the job has ended by itself, with the right exit code and one line that names the file and the reason, and a
# complete checkpoint can be loaded.
#   sweep.sh MPIRUN PROGRAM SHIM RANKS SHARD_GROUP CASES [async|mpio]
# CASES: all, or how many to draw; SEED=… draws others; PART=K/N takes the K-th N-th of them, to run several at once;
# KINDS="kill EIO" takes these kinds only (errors_test.cpp has all but kill in one process).
# PROGRAM: fault_save, which only saves, or tessera: then a run resumes, trains two steps, saves, and ends.
set -u
mpirun=$1 program=$2 shim=$3 ranks=$4 group=$5 cases=$6 how=${7:-}
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
seed=${SEED:-7}
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0

cat > "$work/config.json" <<'JSON'
{"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 1, "vocab_size": 256, "n_positions": 16, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
JSON
for i in $(seq 30); do echo "line $i of the training text, as plain as can be"; done > "$work/train.txt"
train=("$program" train --model "$work/config.json" --from_scratch --dataset "$work/train.txt" --max_length 8 --global_batch_size 60 --add_version false
       --save_model false --output_dir "$work/out" --resume_from_checkpoint auto --threads 1 --quiet)
[ "${program##*/}" = tessera ] && of_users=1 || of_users=
case $how in async) of_run=(--async_save) ;; mpio) of_run=(--checkpoint_io mpio) ;; *) of_run=() ;; esac
# saves STEP [ENVIRONMENT…]: one save into $work/out, with its output in $work/log. tessera saves after 2 * STEP steps.
# Returns 124 if a rank still runs after a minute, 125 if only mpirun does: that is no fault of ours, and the case is tried again.
saves() {
  local step=$1
  shift
  local arguments=()
  for one in "$@"; do arguments+=(-x "$one"); done
  local command=("$program" save "$work/out" "$step" "$group" ${how:+"$how"})
  [ -z "$of_users" ] || command=("${train[@]}" --max_steps $((2 * step)) --save_steps 2 --save_total_limit 1 ${of_run[@]+"${of_run[@]}"}
                                 --sharding_strategy HYBRID_SHARD --shard_group_size "$group" --comm_timeout 20)
  "$mpirun" -n "$ranks" "${arguments[@]}" "${command[@]}" > "$work/log" 2>&1 < /dev/null &
  local launcher=$! alarm code
  sleep 60 &
  alarm=$!
  wait -n $launcher $alarm
  code=$?
  if kill -0 $launcher 2> /dev/null; then
    code=125
    ps -o stat=,pid=,wchan=,args= --ppid $launcher | grep -v '^Z' >> "$work/log" && code=124
    kill -9 $(pgrep -P $launcher) $launcher
  fi
  kill $alarm 2> /dev/null
  wait
  return $code
}
# Prints the newest checkpoint, 1 or 2, after loading it with one rank.
check() {
  [ -n "$of_users" ] || { "$program" check "$work/out"; return; }
  local said
  said=$("${train[@]/--quiet/--quiet=false}" --max_steps 5 --save_strategy no 2>&1) || { echo "$said"; return 1; }
  echo $(($(sed -nE 's/^resume .*checkpoint-([0-9]+) .*/\1/p' <<< "$said") / 2))
}
fail() {
  echo "FAILED: $*"
  head -30 "$work/log"
  ls -lR "$work/out"
  exit 1
}
fresh() { rm -rf "$work/out" && cp -rp "$work/base" "$work/out"; }

mkdir "$work/out"
saves 1 || fail "the first save ended with $?"
cp -rp "$work/out" "$work/base"

# One rank saves the same files as several.
if [ -z "$of_users" ] && [ "$ranks" -gt 1 ]; then
  "$mpirun" -n 1 "$program" save "$work/out" 1 1 > "$work/log" 2>&1 < /dev/null || fail "the save by one rank ended with $?"
  for file in "$work"/base/checkpoint-1/*.h5; do cmp "$file" "$work/out/checkpoint-1/${file##*/}" || fail "one rank saves other bytes"; done
fi

# Record the calls of each rank.
fresh
saves 2 LD_PRELOAD="$shim" FAULT_DIR="$work/out" FAULT_LOG="$work/calls" || fail "counting ended with $?"
newest=$(check)
[ "$newest" = 2 ] || fail "after counting: $newest"
: > "$work/cases"
for ((rank = 0; rank < ranks; ++rank)); do
  echo "rank $rank makes $(wc -l < "$work/calls.$rank") calls: $(cut -d' ' -f2 "$work/calls.$rank" | sort | uniq -c | awk '{printf "%s %s  ", $1, $2}')"
  while read -r number call _; do
    kinds="kill EIO ENOSPC"
    case $call in
      *write*) kinds+=" full short short_full" ;;
      mkdir | fallocate | open* | creat) kinds+=" full" ;;  # at other calls a full disk shows at the next of these
    esac
    for kind in $kinds; do
      case " ${KINDS:-$kinds} " in *" $kind "*) echo "$rank $number $kind $call" ;; esac
    done
  done < "$work/calls.$rank" >> "$work/cases"
done
# What is renamed into place is on stable storage: each file is synced after its last write, the directory after its last
# entry, its parent after the rename.
for ((rank = 0; rank < ranks; ++rank)); do
  [ "$how$rank" = mpio0 ] || [ "$how" != mpio ] || continue  # a rank syncs for all of its host, after they have written
  awk -v root="$work/out" -v rank="$rank" '
    function inside(path) { return path ~ ("^" root "/checkpoint-[0-9]+[.]tmp/") }
    function parent(path) { sub("/[^/]*$", "", path); return path }
    ($2 ~ /write|allocate|truncate/) && inside($3) { dirty[$3] = $2 }
    ($2 == "open" || $2 == "creat" || $2 == "unlink") && inside($3) { entries[parent($3)] = 1 }
    $2 ~ /^f(data)?sync$/ { delete dirty[$3]; delete entries[$3]; if ($3 == root) committed = 1 }
    $2 == "rename" && inside($3) { entries[parent($3)] = 1 }
    $2 == "rename" && $3 ~ /checkpoint-[0-9]+[.]tmp$/ {
      renamed = 1; committed = 0
      for (path in dirty) { print path " is not synced before the rename"; bad = 1 }
      if ($3 in entries) { print $3 " is not synced before the rename"; bad = 1 }
    }
    END {
      for (path in dirty) { print path " is not synced after " dirty[path]; bad = 1 }
      if (rank == 0 && (!renamed || !committed)) { print "the rename is not synced"; bad = 1 }
      exit bad
    }' "$work/calls.$rank" || fail "rank $rank"
done
[ "$ranks" = 1 ] || [ "$how" = mpio ] || [ "$(grep write "$work/cases" | cut -d' ' -f1 | uniq | wc -l)" -gt 1 ] || fail "one rank alone writes"
total=$(wc -l < "$work/cases")
if [ "$cases" != all ]; then
  awk -v seed="$seed" 'BEGIN { srand(seed) } { print rand() "\t" $0 }' "$work/cases" | sort -g | cut -f2- | head -n "$cases" > "$work/drawn"
  mv "$work/drawn" "$work/cases"
fi
if [ -n "${PART:-}" ]; then
  awk -v part="${PART%/*}" -v parts="${PART#*/}" 'NR % parts == part % parts' "$work/cases" > "$work/drawn"
  mv "$work/drawn" "$work/cases"
fi

done_cases=0 stuck=0
while read -r rank number kind call; do
  for _ in 1 2 3; do
    fresh
    rm -f "$work"/happened.*
    saves 2 LD_PRELOAD="$shim" FAULT_DIR="$work/out" FAULT_RANK="$rank" FAULT_AT="$number" FAULT_KIND="$kind" FAULT_LOG="$work/happened"
    code=$?
    [ "$code" = 125 ] || break
    echo "the launcher stood still after its ranks had ended, once more: $kind at call $number of rank $rank"
    stuck=$((stuck + 1))
  done
  fault=$(grep -h '^fault ' "$work/happened.$rank")
  what="$kind at call $number ($call) of rank $rank of $ranks: [$fault], exit $code"
  [ -n "$fault" ] || fail "$what: there was no such call"
  errors=$(grep -c '^error: ' "$work/log")
  newest=$(check) || fail "$what: then $newest"
  case $kind in
    kill)
      # mpirun ends the job; another rank may report that its peer is gone.
      case $code in 0 | 124 | 125) fail "$what" ;; esac
      [ "$errors" -le 1 ] || fail "$what, $errors error lines" ;;
    short)
      case "$how $code $errors $newest" in "mpio 3 1 1" | "mpio 6 1 1") ;;  # to MPI-IO a short write is an error
        *" 0 0 2") ;;
        *) fail "$what, $errors error lines, newest $newest" ;;
      esac ;;
    *)
      case $how$code in
        mpio6) [ "$errors" = 1 ] || fail "$what, $errors error lines" ;;  # the others waited in MPI-IO for the rank
        mpio3) [ "$errors" = 1 ] || fail "$what, $errors error lines" ;;  # MPI-IO does not pass on what the system says
        0 | async0 | mpio0) # A file may fail to be removed, or to close after it was synced; the text of a lock file does not matter.
          [ "$newest" = 2 ] || fail "$what, and newest is $newest"
          if [ "$kind" = ENOSPC ] || [ "$kind" = EIO ]; then
            case $fault in *" unlink "* | *" rmdir "* | *" close "* | *.h5.locktest.*) ;; *" $work/out/checkpoint-"*) fail "$what" ;; esac
          fi ;;
        3 | async3)
          words='No space left on device'
          [ "$kind" != EIO ] || words='Input/output error'
          [ "$errors" = 1 ] || fail "$what, $errors error lines"
          grep '^error: ' "$work/log" | grep -F "$work/out" | grep -qF "$words" || fail "$what: the line does not name file and reason" ;;
        *) fail "$what" ;;
      esac ;;
  esac
  done_cases=$((done_cases + 1))
done < "$work/cases"
echo "$done_cases of $total cases on $ranks ranks: good$([ "$stuck" = 0 ] || echo "; the launcher stood still $stuck times")"
[ "$done_cases" -gt 0 ]
