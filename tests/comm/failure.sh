#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# failure.sh MPIRUN PROGRAM RANKS KIND TRANSPORT RANKS_PER_NODE VICTIM [in_time]: ranks, one of which fails in step 3.
# Checks the exit code, that there is one error line and what it says; `in_time`: also that the job ends within two
# seconds of the timeout, which only an idle machine can promise.
mpirun=$1 program=$2 ranks=$3 kind=$4 transport=$5 width=$6 victim=$7 in_time=${8:-}
timeout_s=2
codes=6 lines=1
case $kind in work*) timeout_s=4 ;; esac
most=$((timeout_s + 2)) at='step 3, reduce h\.1 m0'
case $kind in
  kill)           codes='137 6 1' lines='0 1' most=5 text='has died|^$' ;;
  throw)          codes=5 most=5 text='loss is not finite in step 3 \[h.1\]' ;;
  agree)          codes=3 most=5 text="rank $victim cannot write \\[out/checkpoint-3\\]" ;;
  stop | stop_in) text="rank $victim@.* is late: $at.*" ;;
  skip)           text="rank $victim@.* $at.* issued reduce h\\.0 m0" ;;
  idle)           text="rank $victim@.* is late: $at; it was last seen at gather h\\.1 \\(sequence 10\\)" ;;
  work)           codes=0 lines=0 text='^$' ;;
  work_idle)      text="rank $victim@.* is late: $at; it was last seen at gather h\\.1 \\(sequence 10\\).*" ;;
  split)          text="rank $victim@.* is late: creating a communicator \(MPI_Comm_split\)" ;;
  hang_split)     text='creating a communicator \(MPI_Comm_split\) has not ended|is late: creating a communicator' ;;
  hang_window)    text='creating shared memory has not ended|is late: creating shared memory' ;;
  *) exit 2 ;;
esac
out=$(mktemp) || exit 2
trap 'rm -f "$out"' EXIT
slack=3  # start and end of mpirun itself
begin=$(date +%s.%N)
timeout -k 1 30 "$mpirun" -n "$ranks" "$program" "$kind" "$transport" "$width" "$timeout_s" "$victim" > "$out" 2>&1
code=$?
took=$(awk -v b="$begin" -v e="$(date +%s.%N)" 'BEGIN { printf "%.1f", e - b }')
fail() {
  echo "$kind $transport by $width, $ranks ranks, victim $victim: $1" >&2
  cat "$out" >&2
  exit 1
}
case " $codes " in *" $code "*) ;; *) fail "exit code $code, expected one of $codes" ;; esac
count=$(grep -c '^error:' "$out")
case " $lines " in *" $count "*) ;; *) fail "$count error lines" ;; esac
grep '^error:' "$out" | grep -Eqv "$text" && fail "the line does not say $text"
case $kind in work*) grep -q 'the work is done' "$out" || fail "it ended during the work" ;; esac
# stop_in begins 0.3 s late; the timeout counts from the victim's last sign of life.
if [ -n "$in_time" ]; then
  awk -v took="$took" -v most="$most" -v slack="$slack" 'BEGIN { exit !(took <= most + slack) }' || fail "took $took s"
fi
echo "$kind $transport by $width, $ranks ranks: code $code, $took s: $(grep '^error:' "$out" || echo '(no error line but of mpirun)')"
