# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced with the arguments TESSERA MPIRUN SOURCE_TREE by scripts that run the commands of a page of docs as they are
# printed, in a folder of their own: every block of `sh`, in order, with Slurm's commands replaced by mpirun.
tree=$3
# shellcheck source=tests/system/first_failure.sh
. "$(dirname "${BASH_SOURCE[0]}")/first_failure.sh"

mkdir bin models
ln -s "$tree/jobs" jobs
cat > bin/tessera <<SH
#!/bin/bash
[ -n "\${OMPI_COMM_WORLD_RANK:-}" ] || echo \$\$ > "$work/pid"  # of a command of the page, not of its ranks
exec "$tessera" "\$@"
SH
cat > bin/mpirun <<SH
#!/bin/bash
exec "$mpirun" "\$@"
SH
# srun [OPTIONS] COMMAND…: two ranks, each on a node of its own
cat > bin/srun <<SH
#!/bin/bash
while [[ \$1 == --* ]]; do shift; done
exec "$mpirun" -n 2 "\$@" --ranks_per_node 1
SH
cat > bin/sbatch <<SH
#!/bin/bash
while [[ \$1 == --* ]]; do shift; done
SLURM_CPUS_PER_TASK=1 SLURM_JOB_NAME=tessera SLURM_JOB_ID=7 bash "\$@"
SH
cat > bin/scontrol <<SH
#!/bin/bash
echo "scontrol \$*: no job asks for it here" >&2
exit 1
SH
chmod +x bin/*
export PATH=$work/bin:$PATH TESSERA_THREADS=1

# blocks PAGE: writes block1, block2, … and their number to $blocks.
blocks() {
  awk '/^```/ { inside = ($0 == "```sh"); if (inside) n++; next } inside { print > ("block" n) }' "$tree/docs/$1"
  # shellcheck disable=SC2034
  blocks=$(find . -maxdepth 1 -name 'block*' | wc -l)
}
# run_block N
run_block() {
  bash -e "block$1" > log 2>&1 < /dev/null || fail "block $1: $(cat "block$1")"
  ! grep -q '^error' log || fail "block $1 prints an error"
  cat log >> all.log
}
