#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs tessera under IBM LSF. bsub passes no arguments on: those of tessera are in ARGS, in the shell's quoting.
#   ARGS='config.yaml --seed 7' bsub < jobs/templates/lsf.sh
# `tessera job-script lsf --nodes 2 -- train config.yaml` prints this script with the figures of your cluster.
# With jsrun (LAUNCHER=jsrun; Spectrum LSF with CSM) the job asks for nodes: #BSUB -nnodes 4 in place of -n, -R and -x.
#BSUB -J tessera
#BSUB -n 32
#BSUB -R "span[ptile=8] affinity[core(8)]"
#BSUB -x
#BSUB -W 4:00
#BSUB -r
#BSUB -Q "75"
#BSUB -o tessera-%J.log
set -u
eval "set -- ${ARGS:-}"
[ $# -gt 0 ] || set -- config.yaml
tessera=${TESSERA:-tessera}
launcher=${LAUNCHER:-mpirun}
ranks=${RANKS:-32} per_node=${RANKS_PER_NODE:-8} cores=${CORES:-8} # as in the lines above
gpus=${GPUS_PER_RANK:-0}                                           # for jsrun
limit=${TIME_LIMIT:-3h50m} # below -W: the run saves a checkpoint and exits with 75

# -Q: LSF requeues a job that exits with 75, under the same job id, and so with the same output directory.
run=(train --output_dir "out/$LSB_JOBNAME-$LSB_JOBID" --time_limit "$limit" --resume_from_checkpoint auto "$@")
case $launcher in
  mpirun) # Open MPI built with LSF support finds the hosts by itself; other builds need the file and blaunch.
    "$tessera" launch -n "$ranks" --hostfile "$LSB_DJOB_HOSTFILE" --mca plm_rsh_agent blaunch \
      --map-by "ppr:$per_node:node:PE=$cores" --bind-to core -x OMP_PROC_BIND=close -x OMP_PLACES=cores -- "${run[@]}" ;;
  jsrun) # resource sets of one rank, packed so that a rank's cores are adjacent
    jsrun -n "$ranks" -r "$per_node" -a 1 -c "$cores" -g "$gpus" -b "packed:$cores" \
      -E OMP_PROC_BIND=close -E OMP_PLACES=cores "$tessera" "${run[@]}" ;;
  *) echo "LAUNCHER=$launcher: expected mpirun or jsrun" >&2; exit 2 ;;
esac
rc=$?
# 2: configuration, 3: data or file system, 4: does not fit, 5: diverged, 6: communication (try again),
# 75: stopped before the time limit, with a checkpoint.
echo "tessera ended with $rc"
exit "$rc"
