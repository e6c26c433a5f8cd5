# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced with the arguments TESSERA MPIRUN … by scripts that end at the first failure, in a folder of their own, which is
# removed at the end. A script that has passed fails if one of its runs has written a key to logging.jsonl that
# docs/monitoring.md does not list.
# shellcheck disable=SC2034  # the scripts use them
tessera=$1 mpirun=$2
pages=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../docs" && pwd)
work=$(mktemp -d)
finish() {
  local code=$?
  [ $code != 0 ] || unlisted_keys || code=1
  rm -rf "$work"
  exit $code
}
trap finish EXIT
# The names in "differs" are those of settings; an evaluation's are the same for each of its data sets.
unlisted_keys() {
  local key keys
  keys=$(find "$work" -name logging.jsonl -exec cat {} + | sed -E 's/"differs":\{.*//' | grep -oE '"[A-Za-z_/()]+":' | sort -u | tr -d '":')
  for key in $keys; do
    case $key in
      eval_*rewards/* | eval_*logps/*) continue ;;
      eval_token_acc | eval_*_token_acc) key=eval_token_acc ;;
      eval_*_*) key=eval_${key##*_} ;;
    esac
    grep -qF "\`$key\`" "$pages/monitoring.md" || { echo "FAILED: docs/monitoring.md does not list the key $key of logging.jsonl"; return 1; }
  done
}
cd "$work" || exit 1
fail() { echo "FAILED: $*"; [ ! -f log ] || tail -40 log; exit 1; }
# expect PATTERN [FILE]
expect() { grep -qE -- "$1" "${2:-log}" || fail "no \"$1\" in ${2:-log}"; }
# tiny_model LAYERS WIDTH: writes config.json, and train.txt.
tiny_model() {
  cat > config.json <<JSON
{"model_type": "gpt2", "n_layer": $1, "n_embd": $2, "n_head": 2, "vocab_size": 256, "n_positions": 64, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
JSON
  for i in $(seq 300); do echo "line $i of the training text, as plain as can be"; done > train.txt
}
