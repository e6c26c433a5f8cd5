#!/bin/bash
# The batch scripts of jobs/templates on stand-ins of Slurm, PBS, LSF and Flux.
#   launchers.sh TESSERA MPIRUN SOURCE_TREE
set -u
# shellcheck source=tests/system/first_failure.sh
. "$(dirname "$0")/first_failure.sh"
tree=$3

mkdir bin cluster
export CLUSTER=$work/cluster PATH=$work/bin:$PATH
for name in sinfo sbatch srun scontrol mpirun pbsnodes qsub lshosts bsub jsrun flux; do ln -s "$tree/tests/system/schedulers/stand_in.sh" "bin/$name"; done
export TESSERA=$tessera
tiny_model 1 16
printf 'model: config.json\nfrom_scratch: true\ndataset: [train.txt]\n' > run.yaml

# job CODES WANTED COMMAND…: a job whose ranks end with these codes, one start after the other, ends with WANTED.
job() {
  rm -f cluster/*
  tr ' ' '\n' <<< "$1" > cluster/codes
  local wanted=$2
  shift 2
  "$@" > log 2>&1
  code=$?
  [ ! -e cluster/refused ] || fail "refused: $(cat cluster/refused)"
  [ $code = "$wanted" ] || fail "exit $code, not $wanted: $*"
}
# started N LINE: the ranks were started N times, each as LINE says.
started() {
  [ "$(wc -l < cluster/ranks)" = "$1" ] && [ "$(grep -cxF -- "$2" cluster/ranks)" = "$1" ] || fail "not $1 times \"$2\": $(cat cluster/ranks)"
}
run=(train run.yaml --seed 7 --sample_prompt "it's \$HOME")
rest="[run.yaml] [--seed] [7] [--sample_prompt] [it's \$HOME]"

# Slurm: the arguments of the template, the two launchers, requeue on 75 and on nothing else, the signal before the limit.
small=(--nodes=2 --ntasks-per-node=2 --cpus-per-task=2)
slurm='[train] [--output_dir] [out/tessera-7] [--resume_from_checkpoint] [auto]'
job '75 75 0' 0 sbatch "${small[@]}" "$tree/jobs/templates/slurm.sh" "${run[@]:1}"
started 3 "srun: 4 ranks, 2 a node, 2 cores: $slurm $rest"
job 6 6 sbatch "${small[@]}" "$tree/jobs/templates/slurm.sh"
started 1 "srun: 4 ranks, 2 a node, 2 cores: $slurm [config.yaml]"
LAUNCHER=mpirun job '75 0' 0 sbatch "${small[@]}" "$tree/jobs/templates/slurm.sh" "${run[@]:1}"
started 2 "mpirun: 4 ranks, 2 a node, 2 cores: $slurm $rest"
LAUNCHER=jsrun job '' 2 sbatch "${small[@]}" "$tree/jobs/templates/slurm.sh"
for launcher in srun mpirun; do
  asked() { touch cluster/until_signal; LAUNCHER=$launcher sbatch "${small[@]}" "$tree/jobs/templates/slurm.sh" run.yaml; }
  job '' 0 asked
  started 2 "$launcher: 4 ranks, 2 a node, 2 cores: $slurm [run.yaml]"
  expect '^tessera ended with 75'
done

unset TESSERA
# PBS: the job submits itself again, with the same arguments and directory; without SCRIPT it says so.
pbs='[train] [--output_dir] [out/NAME] [--time_limit] [LIMIT] [--resume_from_checkpoint] [auto]'
sed 's/select=4:ncpus=64:mpiprocs=8:ompthreads=8/select=2:ncpus=4:mpiprocs=2:ompthreads=2/' "$tree/jobs/templates/pbs.sh" > pbs.sh
export TESSERA=$tessera ARGS="run.yaml --seed 7 --sample_prompt \"it's \\\$HOME\"" SCRIPT=$PWD/pbs.sh
template=${pbs/LIMIT/3h50m}
job '75 75 0' 0 qsub -v ARGS,SCRIPT,TESSERA pbs.sh
started 3 "mpirun: 4 ranks, 2 a node, 2 cores: ${template/NAME/tessera-8} $rest"
job 75 75 qsub -v TESSERA pbs.sh
started 1 "mpirun: 4 ranks, 2 a node, 2 cores: ${template/NAME/tessera-8} [config.yaml]"
expect '^not submitted again: SCRIPT.*RUN=tessera-8 continues it'
unset TESSERA ARGS
# LSF requeues itself (-Q 75), with mpirun and with jsrun.
sed 's/-n 32/-n 4/; s/ptile=8/ptile=2/; s/core(8)/core(2)/' "$tree/jobs/templates/lsf.sh" > lsf.sh
lsf='[train] [--output_dir] [out/tessera-9] [--time_limit] [LIMIT] [--resume_from_checkpoint] [auto]'
submit() { bsub < lsf.sh; }
export TESSERA=$tessera ARGS="run.yaml --seed 7 --sample_prompt \"it's \\\$HOME\"" RANKS=4 RANKS_PER_NODE=2 CORES=2
job '75 0' 0 submit
started 2 "mpirun: 4 ranks, 2 a node, 2 cores: ${lsf/LIMIT/3h50m} $rest"
unset TESSERA ARGS RANKS RANKS_PER_NODE CORES
# Flux: the job submits itself again, under its first job's name.
flux='[train] [--output_dir] [out/tessera-f1] [--time_limit] [LIMIT] [--resume_from_checkpoint] [auto]'
export GPUS=2 TESSERA=$tessera NODES=2 RANKS=4 CORES=2 GPUS_PER_RANK=1
sed 's/nodes=4/nodes=2/' "$tree/jobs/templates/flux.sh" > flux.sh
job '75 75 0' 0 flux batch flux.sh "${run[@]:1}"
started 3 "flux: 4 ranks, 2 a node, 2 cores: ${flux/LIMIT/3h50m} $rest"
unset TESSERA NODES RANKS CORES GPUS_PER_RANK
echo good
