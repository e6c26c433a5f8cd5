#!/bin/bash
# Runs tessera under Flux.
#   flux batch jobs/templates/flux.sh config.yaml [RUN]
#flux: --job-name=tessera
#flux: --nodes=4
#flux: --exclusive
#flux: --time-limit=4h
#flux: --output=tessera-{{id}}.log
set -u
config=${1:-config.yaml}
run=${2:-tessera-$(flux getattr jobid)}
nodes=4
ranks=32
cores=8

flux run -N "$nodes" -n "$ranks" -c "$cores" -o cpu-affinity=per-task -o pmi=pmix \
  --env=OMP_PROC_BIND=close --env=OMP_PLACES=cores \
  tessera train "$config" --output_dir "out/$run" --time_limit 3h50m \
  --save_steps 500 --save_total_limit 3 --resume_from_checkpoint auto
rc=$?
# 2: configuration, 3: data or file system, 4: does not fit, 5: diverged, 6: communication (try again),
# 75: stopped before the time limit, with a checkpoint.
echo "tessera ended with $rc"
[ "$rc" -eq 75 ] && flux --parent batch "$0" "$config" "$run"
exit "$rc"
