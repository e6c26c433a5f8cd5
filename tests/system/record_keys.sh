# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by first_failure.sh and commands.sh: at the end of a script that has passed, every key that its runs have
# written to logging.jsonl below $work is one that docs/monitoring.md lists.
pages=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../docs" && pwd)
# The names in "differs" are those of settings; an evaluation's are the same for each of its data sets.
# shellcheck disable=SC2154  # work is theirs
unlisted_keys() {
  local key keys
  keys=$(find "$work" -name logging.jsonl -exec cat {} + | sed -E 's/"differs":\{.*//' | grep -oE '"[A-Za-z_/()]+":' | sort -u | tr -d '":')
  for key in $keys; do
    case $key in
      eval_*rewards/* | eval_*logps/*) continue ;;
      eval_*m??_reward | eval_*mean_reward) key=eval_${key##*_m} && key=${key/eval_/eval_m} ;;
      eval_token_acc | eval_*_token_acc) key=eval_token_acc ;;
      eval_*_*) key=eval_${key##*_} ;;
    esac
    grep -qF "\`$key\`" "$pages/monitoring.md" || { echo "FAILED: docs/monitoring.md does not list the key $key of logging.jsonl"; return 1; }
  done
}
# shellcheck disable=SC2154
finish() {
  local code=$?
  [ $code != 0 ] || unlisted_keys || code=1
  rm -rf "$work"
  exit $code
}
