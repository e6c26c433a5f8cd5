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
# as_trl RUN DIRECTORY GOLDEN: every figure of the file GOLDEN within 1e-5 of its size, and no reward nor log-probability that it lacks.
# TRL's rewards and KL are differences of fp32 sums of about -150, whose steps are 1.5e-5.
as_trl() {
  steps "$2" > figures
  awk -v run="$1" 'NR == FNR { value[$1 " " $2] = $3; next } $1 == run && $2 != "options" {
      ++n; key = $2 " " $3; there[key]; at[$2]; d = value[key] - $4; size = $4 < 0 ? -$4 : $4; least = $3 ~ /^(rewards|kl)/ ? 2 : 1
      if (size < least) size = least
      if (!(key in value) || d > 1e-5 * size || d < -1e-5 * size) { print run, key, value[key], "and not", $4; bad = 1 } }
      END { for (key in value) { split(key, part, " ")
              if (part[1] in at && part[2] ~ /^(rewards\/(chosen|rejected|margins)|logps\/)/ && !(key in there)) { print run, key, value[key], "and not there"; bad = 1 } }
            exit bad || n < 30 }' figures "$3" > differences || fail "$1: $(head -5 differences)"
}
# evaluated_as RUN GOLDEN: the object that tessera eval --json has left in log has the run's figures of the file GOLDEN.
evaluated_as() {
  tr ',{}' '\n\n\n' < log | sed -nE 's/^"([a-z_/]+)":([-0-9.e]+)$/\1 \2/p' > figures
  awk -v run="$1" 'NR == FNR { value[$1] = $2; next } $1 == run && $2 == "eval" { ++n; d = value[$3] - $4; size = $4 < 0 ? -$4 : $4; if (size < 1) size = 1
           if (!($3 in value) || d > 2e-5 * size || d < -2e-5 * size) bad = 1 }
       END { exit bad || n < 6 }' figures "$2" || fail "$1: eval prints $(cat figures)"
}
losses() { steps "$1" | grep -E ' (loss|grad_norm|rewards/margins|logps/chosen) '; }
# as_planned DIRECTORY RANKS COMMAND OPTIONS…: tessera plan has the memory that the run in DIRECTORY planned, in bytes;
# its longest row of at most 112 tokens is its max_length.
as_planned() {
  local directory=$1 ranks=$2 command=$3 ours planned
  shift 3
  good 1 plan "$command" --model . --world_size "$ranks" --max_length 112 --adam_beta2 0.999 --mixed_precision no "$@" --json
  planned=$(sed -n '/"chosen": true/,/}/s/.*"total": \([0-9]*\).*/\1/p' log | head -1)
  ours=$(sed -n '/"planned"/,/}/s/.*: \([0-9]*\),*$/\1/p' "$directory/run.json" | awk '{ sum += $1 } END { print sum }')
  [ -n "$planned" ] && [ "$planned" = "$ours" ] || fail "the plan has $planned bytes, and the run planned $ours"
}
