#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs tessera under plain Open MPI, on this machine or over the hosts of a hostfile.
#   RANKS=8 CORES=4 HOSTFILE=hosts jobs/templates/mpirun.sh config.yaml [--options]
set -u
config=${1:-config.yaml}
[ $# -gt 0 ] && shift
ranks=${RANKS:-2}
cores=${CORES:-1}

# Each rank is bound to CORES cores and computes with as many threads. mpirun refuses to start on a machine with fewer
# cores than RANKS x CORES: lower one of the two.
args=(-n "$ranks" --map-by "slot:PE=$cores" --bind-to core -x OMP_PROC_BIND=close -x OMP_PLACES=cores)
[ -n "${HOSTFILE:-}" ] && args+=(--hostfile "$HOSTFILE")

# Leave odls_base_sigkill_timeout at 1 s: when one rank dies, mpirun then ends the others at once. On SIGTERM, SIGHUP and
# Ctrl-C tessera launch lets the run save a checkpoint.
tessera launch "${args[@]}" -- train "$config" "$@"
rc=$?
# 2: configuration, 3: data or file system, 4: does not fit, 5: diverged, 6: communication (try again),
# 75: stopped before the time limit, with a checkpoint: continue with --resume_from_checkpoint auto.
echo "tessera ended with $rc"
exit "$rc"
