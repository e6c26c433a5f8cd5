#!/bin/sh
# failure.sh MPIRUN PROGRAM HOW TRANSPORT RANKS_PER_NODE VICTIM: three ranks, one goes wrong in step 3. Checks the exit code, that
# there is one error line and what it says, how long it took, and that nobody is left.
mpirun=$1 program=$2 how=$3 transport=$4 width=$5 victim=$6
timeout_s=2
case $how in
  kill)    codes='137 6 1' most=5 lines='0 1' words='has died|^$' ;;
  throw)   codes='5' most=5 lines='1' words='loss is not finite in step 3 \[h.1\]' ;;
  stop)    codes='6' most=$((timeout_s + 2)) lines='1' words="rank $victim@.* is late: step 3, reduce h\\.1 m0.*" ;;
  stop_in) codes='6' most=$((timeout_s + 2)) lines='1' words="rank $victim@.* is late: step 3, reduce h\\.1 m0.*" ;;
  skip)    codes='6' most=$((timeout_s + 2)) lines='1' words="rank $victim@.* step 3, reduce h\\.1 m0.* issued reduce h\\.0 m0" ;;
  idle)    codes='6' most=$((timeout_s + 2)) lines='1' words="rank $victim@.* is late: step 3, reduce h\\.1 m0; it was last seen at gather h\\.1 \\(sequence 10\\)" ;;
  *) exit 2 ;;
esac
out=$(mktemp) || exit 2
trap 'rm -f "$out"' EXIT
slack=3   # start and end of mpirun itself, on a machine with other work
begin=$(date +%s.%N)
timeout -k 1 30 "$mpirun" -n 3 "$program" "$how" "$transport" "$width" "$timeout_s" "$victim" > "$out" 2>&1
code=$?
end=$(date +%s.%N)
fail() {
  echo "$how $transport by $width, victim $victim: $1" >&2
  cat "$out" >&2
  exit 1
}
case " $codes " in *" $code "*) ;; *) fail "exit code $code, wanted one of $codes" ;; esac
count=$(grep -c '^error:' "$out")
case " $lines " in *" $count "*) ;; *) fail "$count error lines" ;; esac
grep '^error:' "$out" | grep -Eqv "$words" && fail "the line does not say $words"
# stop_in begins 0.3 s late; what counts from the victim's last sign of life is the timeout and two seconds.
awk -v b="$begin" -v e="$end" -v most="$most" -v slack="$slack" 'BEGIN { exit !(e - b <= most + slack) }' \
  || fail "took $(awk -v b="$begin" -v e="$end" 'BEGIN { print e - b }') s"
printf '%s: code %d, %.1f s: ' "$how $transport by $width" "$code" "$(awk -v b="$begin" -v e="$end" 'BEGIN { print e - b }')"
grep '^error:' "$out" || echo '(only the launcher spoke)'
