#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# CUDA in the program and the libraries of the layers, as the loader sees it.
#   elf.sh built|none FILE…
# built: the driver and the large libraries are no NEEDED entry, so that the program starts without them. none: no trace.
set -u
mode=$1
shift
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

foreign='libcuda\.so|libcudart|libcublas|libnccl|libcudnn|libnvrtc|libnvidia'
for file in "$@"; do
  needed=$(readelf -d "$file" | grep NEEDED) || fail "$file has no NEEDED entry: is it a program?"
  found=$(grep -E "$foreign" <<< "$needed") && fail "$file needs $found"
  [ "$mode" = none ] || continue
  sections=$(readelf -SW "$file" | grep -E 'nv_fatbin|nvFatBinSegment') && fail "$file has $sections"
  # Our namespace, mangled (4cuda), and the names of the vendor's libraries.
  symbols=$({ nm -D "$file"; nm "$file" 2> /dev/null; } | grep -E '4cuda|__cuda|cuda[A-Z]|cublas|nccl[A-Z]|4nccl|cudnn[A-Z]|5cudnn' | head -5) &&
    [ -n "$symbols" ] && fail "$file has the symbols $symbols"
  strings=$(grep -aoE 'lib(cublasLt|nccl|cudnn|cuda)\.so' "$file" | head -5) && [ -n "$strings" ] && fail "$file has the text $strings"
done
if [ "$mode" = built ]; then  # or the test would find nothing for the wrong reason
  readelf -SW "$@" | grep -q nv_fatbin || grep -q 'libcublasLt' "$@" || fail "no file holds any of CUDA"
fi

# A run on the CPU opens none of these libraries.
program=$1
opened=$(LD_DEBUG=files "$program" plan --model "$(dirname "$0")/../../jobs/examples/quickstart.model.json" --max_length 64 --world_size 2 2>&1)
grep -q 'tessera_base\|libmpi' <<< "$opened" || fail "the loader does not say what it opens"
found=$(grep -E "file=($foreign)" <<< "$opened") && fail "a run on the CPU opens $found"
[ "$failures" = 0 ] && echo "as it should be: $# files, $mode"
exit $((failures > 0))
