#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A save by MPI-IO (--checkpoint_io mpio) has the bytes of a direct one, at 1, 2 and 3 ranks; the HDF5 library and h5dump
# read its tensors. A rank that stops in it ends the run, which says where.
#   mpio.sh MPIRUN FAULT_SAVE HDF5_READ SHIM
set -u
mpirun=$1 save=$2 hdf5_read=$3 shim=$4
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
fail() { echo "FAILED: $*"; cat log; exit 1; }
for ranks in 1 2 3; do
  for how in direct mpio; do
    mkdir -p $how/$ranks
    timeout -k 2 60 "$mpirun" -n $ranks "$save" save "$work/$how/$ranks" 3 $ranks $how > log 2>&1 < /dev/null || fail "$how by $ranks: exit $?"
    (cd $how/$ranks/checkpoint-3 && sha256sum -- *.h5) > $how.$ranks
  done
  cmp direct.1 mpio.$ranks && cmp direct.1 direct.$ranks || fail "$ranks ranks write other bytes"
  "$save" check "$work/mpio/$ranks" > log 2>&1 || fail "the reader"
  "$hdf5_read" mpio/$ranks/checkpoint-3 3 > tensors 2> log || { cat tensors; fail "H5Dread"; }
done
[ "$(wc -l < tensors)" -gt 20 ] || fail "H5Dread read $(wc -l < tensors) tensors"
if command -v h5dump > /dev/null; then
  while read -r path; do
    rm -f dumped
    for file in mpio/3/checkpoint-3/*.h5; do h5dump -d "$path" -b LE -o dumped "$file" > log 2>&1 && break; done
    "$hdf5_read" mpio/3/checkpoint-3 3 "$path" | cmp - dumped || fail "h5dump of $path"
  done < tensors
else
  echo "skipped: h5dump (Debian: hdf5-tools)"
fi

# fault_save waits 20 s for a rank.
mkdir stopped
timeout -k 2 60 "$mpirun" -n 2 -x LD_PRELOAD="$shim" -x FAULT_DIR="$work/stopped" -x FAULT_WITH=checkpoint-3.tmp/state -x FAULT_RANK=1 -x FAULT_AT=1 \
  -x FAULT_KIND=stop "$save" save "$work/stopped" 3 2 mpio > log 2>&1 < /dev/null
code=$?
[ $code = 6 ] && [ "$(grep -c '^error: ' log)" = 1 ] && grep -q '^error: .*rank 1@.* is late: .*(MPI-IO)' log || fail "a rank that stops: exit $code"
ls stopped/checkpoint-3 2> /dev/null && fail "a checkpoint of a save that was cut off"
echo good
