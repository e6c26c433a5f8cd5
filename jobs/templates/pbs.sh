#!/bin/bash
# Runs tessera under PBS Pro / OpenPBS.
#   qsub -v CONFIG=config.yaml,RUN=first,SCRIPT=$PWD/jobs/templates/pbs.sh jobs/templates/pbs.sh
#PBS -N tessera
#PBS -l select=4:ncpus=64:mpiprocs=8:ompthreads=8
#PBS -l walltime=04:00:00
#PBS -j oe
#PBS -k oed
set -u
cd "$PBS_O_WORKDIR" || exit 3
config=${CONFIG:-config.yaml}
run=${RUN:-tessera}
limit=3h50m # below the walltime: the run saves a checkpoint and exits with 75
ranks=$(wc -l < "$PBS_NODEFILE")
cores=8

# Open MPI built with PBS support finds the nodes by itself; other builds need the hostfile.
tessera launch -n "$ranks" --hostfile "$PBS_NODEFILE" --map-by "slot:PE=$cores" --bind-to core \
  -x OMP_PROC_BIND=close -x OMP_PLACES=cores -- \
  train "$config" --output_dir "out/$run" --time_limit "$limit" \
  --save_steps 500 --save_total_limit 3 --resume_from_checkpoint auto
rc=$?
# 2: configuration, 3: data or file system, 4: does not fit, 5: diverged, 6: communication (try again),
# 75: stopped before the time limit, with a checkpoint.
echo "tessera ended with $rc"
[ "$rc" -eq 75 ] && [ -n "${SCRIPT:-}" ] && qsub -v "CONFIG=$config,RUN=$run,SCRIPT=$SCRIPT" "$SCRIPT"
exit "$rc"
