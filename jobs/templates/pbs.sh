#!/bin/bash
# tessera under PBS Pro / OpenPBS.
#   qsub -v CONFIG=config.yaml jobs/templates/pbs.sh
#PBS -N tessera
#PBS -l select=4:ncpus=64:mpiprocs=8:ompthreads=8
#PBS -l walltime=04:00:00
#PBS -j oe
#PBS -k oed
set -u
cd "$PBS_O_WORKDIR" || exit 3
config=${CONFIG:-config.yaml}
ranks=$(wc -l < "$PBS_NODEFILE")
cores=8

# An Open MPI that was built with PBS support finds the nodes itself; the hostfile serves the others.
mpiexec -n "$ranks" --hostfile "$PBS_NODEFILE" --map-by "slot:PE=$cores" --bind-to core \
  -x OMP_PROC_BIND=close -x OMP_PLACES=cores \
  tessera train "$config" --output_dir "out/tessera-${PBS_JOBID%%.*}"
rc=$?
# 2: configuration, 3: data or file system, 4: does not fit, 5: diverged, 6: communication (worth another try).
echo "tessera ended with $rc"
exit "$rc"
