# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced with the arguments TESSERA MPIRUN … by scripts that end at the first failure, in a folder of their own, which is
# removed at the end. A script that has passed fails if one of its runs has written a key to logging.jsonl that
# docs/monitoring.md does not list.
# shellcheck disable=SC2034  # the scripts use them
tessera=$1 mpirun=$2
work=$(mktemp -d)
# shellcheck source=tests/system/record_keys.sh
. "$(dirname "${BASH_SOURCE[0]}")/record_keys.sh"
trap finish EXIT
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
