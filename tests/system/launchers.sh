#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Batch scripts, the templates and what job-script prints, on stand-ins of Slurm, PBS, LSF and Flux.
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
# script FILE SCHEDULER OPTIONS…: what job-script prints
script() {
  local file=$1
  shift
  "$tessera" job-script "$@" > "$file" 2> log || fail "job-script $*"
  bash -n "$file" || fail "job-script $* prints what is no script"
}
# refused CODE PATTERN COMMAND…
refused() {
  local wanted=$1 pattern=$2
  shift 2
  code=0
  "$@" > log 2>&1 || code=$?
  [ $code = "$wanted" ] || fail "exit $code, not $wanted: $*"
  expect "$pattern"
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
script slurm.sh slurm --nodes 2 --job_name long --time_limit 90m --account physics --directive=--qos=high -- "${run[@]}"
for line in --nodes=2 --ntasks-per-node=2 --cpus-per-task=2 --time=01:30:00 --signal=B:USR1@540 --account=physics --qos=high; do
  grep -qxF -- "#SBATCH $line" slurm.sh || fail "no $line in $(cat slurm.sh)"
done
! grep -q gpus slurm.sh || fail "GPUs on a cluster without"
job '75 0' 0 sbatch slurm.sh
started 2 "srun: 4 ranks, 2 a node, 2 cores: ${slurm/tessera-7/long-7} $rest"
job 0 0 sbatch slurm.sh sft.yaml
started 1 "srun: 4 ranks, 2 a node, 2 cores: ${slurm/tessera-7/long-7} [sft.yaml]"
export GPUS=4
script slurm.sh slurm --nodes 2 --partition debug -- sft run.yaml
grep -qx '#SBATCH --gpus-per-node=4' slurm.sh && grep -qx '#SBATCH --partition=debug' slurm.sh || fail "GPUs: $(cat slurm.sh)"
job 0 0 sbatch slurm.sh
started 1 "srun: 8 ranks, 4 a node, 1 cores: $slurm [run.yaml] [--stage] [sft]"
unset GPUS
touch cluster/no_pmix
script slurm.sh slurm --nodes 2 -- "${run[@]}"
job 0 0 sbatch slurm.sh
started 1 "mpirun: 4 ranks, 2 a node, 2 cores: $slurm $rest"
script slurm.sh slurm --partition fat -- "${run[@]}"
grep -qx '#SBATCH --cpus-per-task=32' slurm.sh && grep -qx '#SBATCH --hint=nomultithread' slurm.sh || fail "hardware threads: $(cat slurm.sh)"

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
script pbs.sh pbs --nodes 2 --ranks_per_node 4 --job_name long --time_limit 1h --partition work -- "${run[@]}"
job '75 0' 0 qsub -v SCRIPT pbs.sh
limited=${pbs/LIMIT/3240s}
started 2 "mpirun: 8 ranks, 4 a node, 1 cores: ${limited/NAME/long-8} $rest"
GPUS=2 script pbs.sh pbs --nodes 2 -- "${run[@]}"
grep -qx '#PBS -l select=2:ncpus=4:mpiprocs=2:ompthreads=2:ngpus=2' pbs.sh || fail "GPUs: $(cat pbs.sh)"
GPUS=2 job 0 0 qsub pbs.sh

# LSF requeues itself (-Q 75), with mpirun and with jsrun.
sed 's/-n 32/-n 4/; s/ptile=8/ptile=2/; s/core(8)/core(2)/' "$tree/jobs/templates/lsf.sh" > lsf.sh
lsf='[train] [--output_dir] [out/tessera-9] [--time_limit] [LIMIT] [--resume_from_checkpoint] [auto]'
submit() { bsub < lsf.sh; }
export TESSERA=$tessera ARGS="run.yaml --seed 7 --sample_prompt \"it's \\\$HOME\"" RANKS=4 RANKS_PER_NODE=2 CORES=2
job '75 0' 0 submit
started 2 "mpirun: 4 ranks, 2 a node, 2 cores: ${lsf/LIMIT/3h50m} $rest"
unset TESSERA ARGS RANKS RANKS_PER_NODE CORES
script lsf.sh lsf --nodes 2 --ranks_per_node 2 --job_name long --time_limit 1h -- "${run[@]}"
job '75 0' 0 submit
limited=${lsf/LIMIT/3240s}
started 2 "mpirun: 4 ranks, 2 a node, 2 cores: ${limited/tessera-9/long-9} $rest"
export GPUS=2
for launcher in mpirun jsrun; do
  script lsf.sh lsf --nodes 2 --gpus_per_node 2 --launcher $launcher -- "${run[@]}"
  job 0 0 submit
  started 1 "$launcher: 4 ranks, 2 a node, 2 cores: ${lsf/LIMIT/13800s} $rest"
done

# Flux: the job submits itself again, under its first job's name.
flux='[train] [--output_dir] [out/tessera-f1] [--time_limit] [LIMIT] [--resume_from_checkpoint] [auto]'
export GPUS=2 TESSERA=$tessera NODES=2 RANKS=4 CORES=2 GPUS_PER_RANK=1
sed 's/nodes=4/nodes=2/' "$tree/jobs/templates/flux.sh" > flux.sh
job '75 75 0' 0 flux batch flux.sh "${run[@]:1}"
started 3 "flux: 4 ranks, 2 a node, 2 cores: ${flux/LIMIT/3h50m} $rest"
unset TESSERA NODES RANKS CORES GPUS_PER_RANK
script flux.sh flux --nodes 2 --job_name long -- "${run[@]}"
job '75 0' 0 flux batch flux.sh
limited=${flux/LIMIT/13800s}
started 2 "flux: 4 ranks, 2 a node, 2 cores: ${limited/tessera-f1/long-f1} $rest"
unset GPUS

# What does not fit is refused before it waits in a queue.
# On a machine without the scheduler, the options say what it would.
away() { PATH=$work/none "$tessera" job-script slurm "$@" -- "${run[@]}"; }
refused 2 'the scheduler does not say what its nodes have: No such file or directory \[sinfo\]. Give --cores_per_node N' away
refused 2 'whether srun has PMIx for the ranks is not known: No such file or directory \[srun\]. Give --launcher srun' \
  away --cores_per_node 4 --gpus_per_node 2
refused 0 '#SBATCH --gpus-per-node=2' away --cores_per_node 4 --gpus_per_node 2 --launcher srun
refused 2 'there are 2: partition debug \(sinfo\) \[--nodes: command line\]' "$tessera" job-script slurm --nodes 3 -- "${run[@]}"
refused 2 'the nodes of partition mixed \(sinfo\) differ: 4 cores and 0 GPUs, 8 cores and 0 GPUs' "$tessera" job-script slurm --partition mixed -- "${run[@]}"
refused 2 'there is no partition none' "$tessera" job-script slurm --partition none -- "${run[@]}"
refused 2 '8 ranks on 4 cores \[--ranks_per_node' "$tessera" job-script slurm --ranks_per_node 8 -- "${run[@]}"
refused 2 'srun does not start ranks under pbs \[--launcher' "$tessera" job-script pbs --launcher srun --ranks_per_node 2 -- "${run[@]}"
refused 2 'the sockets of a node are not known.*--ranks_per_node' "$tessera" job-script pbs -- "${run[@]}"
refused 2 'unknown option.*sede' "$tessera" job-script slurm -- train run.yaml --sede 7
refused 2 'the run computes in fp32' "$tessera" job-script slurm -- train run.yaml --reduce_dtype bf16 --mixed_precision no
refused 2 'no command train, sft or pt after --' "$tessera" job-script slurm --nodes 2 -- eval run.yaml
refused 2 'no scheduler loadleveler' "$tessera" job-script loadleveler -- "${run[@]}"
touch cluster/no_server
refused 2 'the scheduler does not say what its nodes have: Connection refused \[pbsnodes\]' "$tessera" job-script pbs --ranks_per_node 2 -- "${run[@]}"
rm bin/sinfo
refused 2 'the scheduler does not say what its nodes have: No such file or directory \[sinfo\]. Give --cores_per_node' env PATH="$work/bin" "$tessera" job-script slurm -- "${run[@]}"
script slurm.sh slurm --cores_per_node 4 --gpus_per_node 0 --ranks_per_node 2 -- "${run[@]}"
job 0 0 sbatch slurm.sh
echo good
