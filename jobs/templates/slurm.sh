#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs tessera under Slurm: a checkpoint before the time limit, requeued, and continued from it.
#   sbatch [sbatch's options] jobs/templates/slurm.sh config.yaml [--options]
# `tessera job-script slurm --nodes 2 -- train config.yaml` prints this script with the figures of your cluster.
# Start with a rank a GPU; on CPUs with a rank a socket or NUMA domain, and its cores as threads.
#SBATCH --job-name=tessera
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@300
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -u
[ $# -gt 0 ] || set -- config.yaml
tessera=${TESSERA:-tessera}
launcher=${LAUNCHER:-srun} # mpirun: where `srun --mpi=list` has no pmix

export OMP_PROC_BIND=close OMP_PLACES=cores
# Since Slurm 22.05 srun does not inherit --cpus-per-task. tessera takes its threads from the CPU mask that srun sets.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
# A requeued job keeps its id, and so its output directory, where it finds the checkpoint.
run=(train --output_dir "out/$SLURM_JOB_NAME-$SLURM_JOB_ID" --resume_from_checkpoint auto "$@")
case $launcher in
  # --kill-on-bad-exit ends all ranks when one fails.
  srun) srun --mpi=pmix --cpu-bind=cores --kill-on-bad-exit=1 "$tessera" "${run[@]}" & ;;
  mpirun)
    "$tessera" launch -n "$SLURM_NTASKS" --map-by "ppr:$SLURM_NTASKS_PER_NODE:node:PE=$SLURM_CPUS_PER_TASK" \
      --bind-to core -x OMP_PROC_BIND -x OMP_PLACES -- "${run[@]}" & ;;
  *) echo "LAUNCHER=$launcher: expected srun or mpirun" >&2; exit 2 ;;
esac
ranks=$! asked=0
# Before the time limit (--signal) Slurm sends SIGUSR1 to this script: the run saves a checkpoint and exits with 75.
trap 'asked=1; kill -USR1 "$ranks"' USR1
wait "$ranks"
rc=$?
if [ "$asked" -eq 1 ]; then # the signal ended the wait
  wait "$ranks"
  rc=$?
fi
# 2: configuration, 3: data or file system, 4: does not fit, 5: diverged, 6: communication (try again),
# 75: stopped before the time limit, with a checkpoint.
echo "tessera ended with $rc"
[ "$rc" -eq 75 ] && scontrol requeue "$SLURM_JOB_ID"
exit "$rc"
