#!/bin/bash
# Runs tessera under Slurm. Start with one rank per NUMA domain or socket, and its cores as threads.
#   sbatch jobs/templates/slurm.sh config.yaml
#SBATCH --job-name=tessera
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --signal=USR1@300
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -u
config=${1:-config.yaml}

# Since Slurm 22.05 srun does not inherit --cpus-per-task. tessera takes its threads from the CPU mask that srun sets.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
export OMP_PROC_BIND=close OMP_PLACES=cores

# Five minutes before the time limit Slurm sends SIGUSR1: tessera saves a checkpoint and exits with 75. A requeued job
# keeps its id, and so its output directory, where it finds the checkpoint. --kill-on-bad-exit ends all ranks when one
# fails.
srun --mpi=pmix --cpu-bind=cores --kill-on-bad-exit=1 \
  tessera train "$config" --output_dir "out/$SLURM_JOB_NAME-$SLURM_JOB_ID" \
  --save_steps 500 --save_total_limit 3 --resume_from_checkpoint auto
rc=$?
# 2: configuration, 3: data or file system, 4: does not fit, 5: diverged, 6: communication (try again),
# 75: stopped before the time limit, with a checkpoint.
echo "tessera ended with $rc"
[ "$rc" -eq 75 ] && scontrol requeue "$SLURM_JOB_ID"
exit "$rc"
