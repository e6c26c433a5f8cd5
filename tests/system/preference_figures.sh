#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What scripts of preference training share: figures of a run, and whether they are TRL's.

# steps DIRECTORY: "step name value" of every figure of a run, and of its evaluation.
steps() {
  sed -n 's/^{"loss"/{"global_loss"/; s/^{"eval_loss"/{"eval_global_loss"/; /"global_step"/p' "$1/logging.jsonl" |
    awk '{ match($0, /"global_step":[0-9]+/); step = substr($0, RSTART + 14, RLENGTH - 14); if ($0 ~ /"eval_global_loss"/) step = "eval"
           gsub(/[{}"]/, ""); n = split($0, field, ","); for (i = 1; i <= n; ++i) { split(field[i], pair, ":"); sub(/^eval_/, "", pair[1])
             sub(/^global_loss/, "loss", pair[1]); print step, pair[1], pair[2] } }'
}
# as_trl RUN DIRECTORY GOLDEN: every figure of the file GOLDEN within 1e-5 of its size.
as_trl() {
  steps "$2" > figures
  awk -v run="$1" 'NR == FNR { value[$1 " " $2] = $3; next } $1 == run && $2 != "options" {
      ++n; key = $2 " " $3; d = value[key] - $4; size = $4 < 0 ? -$4 : $4; if (size < 1) size = 1
      if (!(key in value) || d > 1e-5 * size || d < -1e-5 * size) { print run, key, value[key], "and not", $4; bad = 1 } }
      END { exit bad || n < 30 }' figures "$3" > differences || fail "$1: $(head -5 differences)"
}
losses() { steps "$1" | grep -E ' (loss|grad_norm|rewards/margins|logps/chosen) '; }
