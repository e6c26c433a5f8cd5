# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced with the arguments TESSERA MPIRUN FOLDER_OF_TOKENIZERS by scripts of text and conversations that end at the first
# failure.
set -eu
# shellcheck source=tests/system/first_failure.sh
. "$(dirname "${BASH_SOURCE[0]}")/first_failure.sh"
# shellcheck disable=SC2034  # the scripts use it
tokenizers=$3
export XDG_CACHE_HOME=$work/user
refuse() { # CODE WORDS ARGUMENTS ...
  local code=0
  "$tessera" "${@:3}" > log 2>&1 || code=$?
  [ $code = "$1" ] || fail "exit $code for ${*:3}"
  expect "^error: .*$2"
}
