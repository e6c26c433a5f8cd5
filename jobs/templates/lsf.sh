#!/bin/bash
# Runs tessera under IBM LSF with jsrun (Spectrum MPI or Open MPI): resource sets of 8 cores, one rank each.
#   CONFIG=config.yaml bsub < jobs/templates/lsf.sh
#BSUB -J tessera
#BSUB -nnodes 4
#BSUB -W 4:00
#BSUB -r
#BSUB -Q "75"
#BSUB -o tessera-%J.log
set -u
config=${CONFIG:-config.yaml}
sets=16
cores=8

# -Q: LSF requeues a job that exits with 75, under the same job id.
# -n resource sets, -a ranks and -c cores in each, packed so that a rank's cores are adjacent.
jsrun -n "$sets" -a 1 -c "$cores" -b "packed:$cores" -E OMP_PROC_BIND=close -E OMP_PLACES=cores \
  tessera train "$config" --output_dir "out/tessera-$LSB_JOBID" --time_limit 3h50m \
  --save_steps 500 --save_total_limit 3 --resume_from_checkpoint auto
rc=$?
# 2: configuration, 3: data or file system, 4: does not fit, 5: diverged, 6: communication (try again),
# 75: stopped before the time limit, with a checkpoint.
echo "tessera ended with $rc"
exit "$rc"
