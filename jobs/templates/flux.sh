#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs tessera under Flux.
#   flux batch jobs/templates/flux.sh config.yaml [--options]
# `tessera job-script flux --nodes 2 -- train config.yaml` prints this script with the figures of your cluster.
#flux: --job-name=tessera
#flux: --nodes=4
#flux: --exclusive
#flux: --time-limit=4h
#flux: --output=tessera-{{id}}.log
set -u
[ $# -gt 0 ] || set -- config.yaml
tessera=${TESSERA:-tessera}
nodes=${NODES:-4} ranks=${RANKS:-32} cores=${CORES:-8} gpus=${GPUS_PER_RANK:-0}
limit=${TIME_LIMIT:-3h50m} # below the job's: the run saves a checkpoint and exits with 75
export RUN=${RUN:-${JOB_NAME:-tessera}-$(flux getattr jobid)} # the job's name, as above, and its id

flux run -N "$nodes" -n "$ranks" -c "$cores" -g "$gpus" -o cpu-affinity=per-task -o pmi=pmix \
  --env=OMP_PROC_BIND=close --env=OMP_PLACES=cores \
  "$tessera" train --output_dir "out/$RUN" --time_limit "$limit" --resume_from_checkpoint auto "$@"
rc=$?
# 2: configuration, 3: data or file system, 4: does not fit, 5: diverged, 6: communication (try again),
# 75: stopped before the time limit, with a checkpoint.
echo "tessera ended with $rc"
# The job that goes on has the same output directory (RUN), since Flux passes the environment on.
[ "$rc" -eq 75 ] && flux --parent batch "$0" "$@"
exit "$rc"
