#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# jobs/bench/figures/run over a program that stands in for tessera: what a limit leaves of a row, and of a part.
#   figures.sh SOURCE
set -u
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  echo "FAILED: $1"
  failures=$((failures + 1))
}

# Says that 16 samples fit. A step with --attention own hangs in the GEMM after its steps, gpt2 in a step, and 3B has an
# error after its steps; every other ends.
mkdir "$work/bin"
cat > "$work/bin/tessera" <<'SH'
#!/bin/bash
[ "$1" = plan ] && { echo '{"largest_micro_batch": 16}'; exit; }
echo "$*" >> "$LOG"
steps() { printf '{\n  "zero3": {\n    "step_s": 1.5,\n    "tokens_per_second": 50000.0,\n    "mfu_palm": 0.5,\n    "mfu_causal_halved": 0.45,\n    "device_bytes_in_use": 1073741824\n  }\n}\n'; }
case $* in *"--shape gpt2 "*) exec sleep 30 ;; esac
steps >&2
case $* in *"--attention own"*) exec sleep 30 ;; *"-3b "*) echo 'error: no room' >&2; exit 3 ;; esac
steps
SH
chmod +x "$work/bin/tessera"

# figures SECONDS PART…
figures() {
  local seconds=$1
  shift
  : > "$work/log"
  out=$(LOG=$work/log TESSERA=$work/bin/tessera OUT=$work/out DEVICE_BYTES=1000 PYTHON='' PART_SECONDS=$seconds LEAST_SECONDS=1 \
    timeout 60 "$source/jobs/bench/figures/run" "$@" 2>&1)
  rc=$?
}
has() { grep -qF -- "$1" <<< "$out" || fail "no \"$1\" in: $out"; }

figures 3 first
[ $rc = 0 ] || fail "exit $rc: $out"
has '| qwen2.5-1.5b | 1024 | 16 | Tessera | 50.0k | 45.0 | 50.0 | 1.0 |'
has '| qwen2.5-1.5b | 1024 | 16 | Tessera own attention, all but its last GEMM | 50.0k | 45.0 | 50.0 | 1.0 |'
has 'Tessera own attention, qwen2.5-1.5b, T 1024: cut off after'
[ "$(grep -c '| qwen2.5-1.5b | 1024' <<< "$out")" = 4 ] || fail "each row is printed at once, and in the table: $out"

figures 240 settings
for options in '--gradient_checkpointing keep_all --reduce_gradients last' '--gradient_checkpointing none --reduce_gradients each'; do
  grep -qF -- "$options" "$work/log" || fail "settings lacks $options: $(cat "$work/log")"
done
has '| Tessera keep_all last |'

SHAPES='qwen2.5-3b' figures 240 rest
[ $rc = 1 ] || fail "an error after the steps: exit $rc"
has 'error: Tessera keep_all last failed at qwen2.5-3b, T 1024'
has '| qwen2.5-3b | 1024 | 16 | Tessera keep_all last, all but its last GEMM |'

SHAPES='gpt2' figures 2 rest
has 'Tessera, gpt2, T 1024: cut off after'
if grep -q '| gpt2 | 1024' <<< "$out"; then fail "a row without a step: $out"; fi

figures 240 fsdp2
has 'FSDP2: PYTHON names no Python with PyTorch'
figures 240 no_such_part
[ $rc = 2 ] || fail "an unknown part: exit $rc"
exit $((failures > 0))
