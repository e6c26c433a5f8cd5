# shellcheck shell=bash
# Sourced with the arguments TESSERA MPIRUN FOLDER_OF_TOKENIZERS by scripts that end at the first failure, in a folder of
# their own, which is removed at the end.
set -eu
# shellcheck disable=SC2034  # the scripts use them
tessera=$1 mpirun=$2 tokenizers=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CACHE_HOME=$work/user
fail() { echo "FAILED: $*"; [ ! -f log ] || tail -40 log; exit 1; }
expect() { grep -qE -- "$1" "${2:-log}" || fail "no \"$1\""; }
refuse() { # CODE WORDS ARGUMENTS ...
  local code=0
  "$tessera" "${@:3}" > log 2>&1 || code=$?
  [ $code = "$1" ] || fail "exit $code for ${*:3}"
  expect "^error: .*$2"
}
