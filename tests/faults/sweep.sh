#!/bin/bash
# Saves a second checkpoint while one call on the file system goes wrong on one rank: each call of each rank in turn, as the shim lets it.
# Afterwards: the job has ended by itself, with the right exit code and one line that names the file and the reason, and a whole checkpoint loads.
#   sweep.sh MPIRUN FAULTS_SAVE SHIM RANKS SHARD_GROUP CASES [async]      CASES: all, or how many to draw; SEED=… chooses which
set -u
mpirun=$1 program=$2 shim=$3 ranks=$4 group=$5 cases=$6 async=${7:-}
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
seed=${SEED:-7}
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0

# saves STEP [ENVIRONMENT…]: one save into $work/out; its output goes to $work/log.
saves() {
  local step=$1
  shift
  local arguments=()
  for one in "$@"; do arguments+=(-x "$one"); done
  # shellcheck disable=SC2086
  timeout -k 2 60 "$mpirun" -n "$ranks" "${arguments[@]}" "$program" save "$work/out" "$step" "$group" $async > "$work/log" 2>&1 < /dev/null
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
mv "$work/out" "$work/base"

# Which calls there are, by rank.
fresh
saves 2 LD_PRELOAD="$shim" FAULT_DIR="$work/out" FAULT_LOG="$work/calls" || fail "counting ended with $?"
[ "$("$program" check "$work/out")" = 2 ] || fail "after counting"
: > "$work/cases"
for ((rank = 0; rank < ranks; ++rank)); do
  echo "rank $rank makes $(wc -l < "$work/calls.$rank") calls: $(cut -d' ' -f2 "$work/calls.$rank" | sort | uniq -c | awk '{printf "%s %s  ", $1, $2}')"
  while read -r number call _; do
    for kind in kill ENOSPC EIO full; do echo "$rank $number $kind $call"; done
    case $call in *write*) for kind in short short_full; do echo "$rank $number $kind $call"; done ;; esac
  done < "$work/calls.$rank" >> "$work/cases"
done
for ((rank = 0; rank < ranks; ++rank)); do [ "$(grep -c "^$rank .*write" "$work/cases")" -gt 0 ] || fail "rank $rank writes nothing"; done
total=$(wc -l < "$work/cases")
if [ "$cases" != all ]; then
  awk -v seed="$seed" 'BEGIN { srand(seed) } { print rand() "\t" $0 }' "$work/cases" | sort -g | cut -f2- | head -n "$cases" > "$work/drawn"
  mv "$work/drawn" "$work/cases"
fi

done_cases=0
while read -r rank number kind call; do
  fresh
  rm -f "$work"/happened.*
  saves 2 LD_PRELOAD="$shim" FAULT_DIR="$work/out" FAULT_RANK="$rank" FAULT_AT="$number" FAULT_KIND="$kind" FAULT_LOG="$work/happened"
  code=$?
  fault=$(grep -h '^fault ' "$work/happened.$rank")
  what="$kind at call $number ($call) of rank $rank of $ranks: [$fault], exit $code"
  [ -n "$fault" ] || fail "$what: there was no such call"
  errors=$(grep -c '^error: ' "$work/log")
  newest=$("$program" check "$work/out") || fail "$what: then $newest"
  case $kind in
    kill)
      # The launcher ends the job; a survivor may say that its peer is gone.
      case $code in 0 | 124) fail "$what" ;; esac
      [ "$errors" -le 1 ] || fail "$what, $errors error lines" ;;
    short) [ "$code $errors $newest" = "0 0 2" ] || fail "$what, $errors error lines, newest $newest" ;;
    *)
      case $code in
        0) # Only what is taken away may stay, and what is on stable storage may fail to close.
          [ "$newest" = 2 ] || fail "$what, and newest is $newest"
          if [ "$kind" = ENOSPC ] || [ "$kind" = EIO ]; then
            case $fault in *" unlink "* | *" rmdir "* | *" close "*) ;; *) fail "$what" ;; esac
          fi ;;
        3)
          words='No space left on device'
          [ "$kind" != EIO ] || words='Input/output error'
          [ "$errors" = 1 ] || fail "$what, $errors error lines"
          grep '^error: ' "$work/log" | grep -F "$work/out" | grep -qF "$words" || fail "$what: the line does not name file and reason" ;;
        *) fail "$what" ;;
      esac ;;
  esac
  done_cases=$((done_cases + 1))
done < "$work/cases"
echo "$done_cases of $total cases on $ranks ranks: good"
[ "$done_cases" -gt 0 ]
