# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced with the arguments TESSERA MPIRUN by scripts that run many commands and count what fails, in a folder of their
# own, which is removed at the end.
set -u
tessera=$1 mpirun=$2
work=$(mktemp -d)
# shellcheck source=tests/system/record_keys.sh
. "$(dirname "${BASH_SOURCE[0]}")/record_keys.sh"
trap finish EXIT
cd "$work" || exit 1
export XDG_CACHE_HOME=$work/user
failures=0
fail() { echo "FAILED: $*"; [ ! -f log ] || tail -20 log; failures=$((failures + 1)); }
# run RANKS ARGUMENTS…: output into log, exit code into $code
run() { local ranks=$1; shift; timeout 120 "$mpirun" -n "$ranks" "$tessera" "$@" > log 2>&1 < /dev/null; code=$?; }
good() { run "$@"; [ $code = 0 ] || fail "$* -> exit $code"; }
# refused CODE WORDS RANKS ARGUMENTS…
refused() {
  local wanted=$1 words=$2; shift 2
  run "$@"
  [ $code = "$wanted" ] && [ "$(grep -c '^error: ' log)" = 1 ] && grep '^error: ' log | grep -qF -- "$words" || fail "$* -> exit $code, wanted $wanted and \"$words\""
}
