#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs tessera under PBS Pro / OpenPBS. PBS passes no arguments on: those of tessera are in ARGS, in the shell's quoting.
#   ARGS='config.yaml --seed 7' SCRIPT=$PWD/jobs/templates/pbs.sh qsub -v ARGS,SCRIPT jobs/templates/pbs.sh
# `tessera job-script pbs --nodes 2 -- train config.yaml` prints this script with the figures of your cluster.
# SCRIPT is this file, for the job to submit again after 75; RUN names the output directory.
#PBS -N tessera
#PBS -l select=4:ncpus=64:mpiprocs=8:ompthreads=8
#PBS -l place=scatter:excl
#PBS -l walltime=04:00:00
#PBS -j oe
#PBS -k oed
set -u
cd "$PBS_O_WORKDIR" || exit 3
eval "set -- ${ARGS:-}"
[ $# -gt 0 ] || set -- config.yaml
tessera=${TESSERA:-tessera}
limit=${TIME_LIMIT:-3h50m} # below the walltime: the run saves a checkpoint and exits with 75
export RUN=${RUN:-$PBS_JOBNAME-${PBS_JOBID%%.*}}

# One line a rank in the node file. Open MPI built with PBS support finds the nodes by itself; other builds need the file.
ranks=$(wc -l < "$PBS_NODEFILE")
per_node=$((ranks / $(sort -u "$PBS_NODEFILE" | wc -l)))
"$tessera" launch -n "$ranks" --hostfile "$PBS_NODEFILE" --map-by "ppr:$per_node:node:PE=$OMP_NUM_THREADS" \
  --bind-to core -x OMP_PROC_BIND=close -x OMP_PLACES=cores -- \
  train --output_dir "out/$RUN" --time_limit "$limit" --resume_from_checkpoint auto "$@"
rc=$?
# 2: configuration, 3: data or file system, 4: does not fit, 5: diverged, 6: communication (try again),
# 75: stopped before the time limit, with a checkpoint.
echo "tessera ended with $rc"
if [ "$rc" -eq 75 ]; then
  if [ -n "${SCRIPT:-}" ]; then
    export ARGS=${ARGS:-} TESSERA=$tessera TIME_LIMIT=$limit
    qsub -v ARGS,RUN,SCRIPT,TESSERA,TIME_LIMIT "$SCRIPT"
  else
    echo "not submitted again: SCRIPT, this file's path, was not given; RUN=$RUN continues it"
  fi
fi
exit "$rc"
