#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The commands of Slurm, PBS, LSF and Flux, and mpirun, as far as the templates use them, on a cluster of two nodes with
# four cores (and $GPUS GPUs) each: links with their names point here. Each refuses what the real one refuses. Ranks are
# not started: their command goes to $CLUSTER/ranks, and they end with the next code of $CLUSTER/codes (0 at its end).
set -u
self=${0##*/}
refuse() { echo "$self: error: $*" >&2; echo "$self: $*" >> "$CLUSTER/refused"; exit 1; }
matches() { [[ $1 =~ ^($2)$ ]] || refuse "invalid value $1, not $2"; }
gpus=${GPUS:-0} nodes=2 cores=4

# ranks N PER_NODE CORES COMMAND…: what a launcher would start
ranks() {
  local n=$1 per_node=$2 each=$3 code
  shift 3
  [ $((n)) -gt 0 ] && [ $((n % per_node)) = 0 ] && [ $((n / per_node)) -le $nodes ] && [ $((per_node * each)) -le $cores ] ||
    refuse "$n ranks, $per_node a node with $each cores: the cluster has $nodes nodes of $cores cores"
  [ -x "$1" ] || [ -n "$(command -v "$1")" ] || refuse "$1: command not found"
  { printf '%s: %d ranks, %d a node, %d cores:' "$self" "$n" "$per_node" "$each"; printf ' [%s]' "${@:2}"; echo; } >> "$CLUSTER/ranks"
  if [ -e "$CLUSTER/until_signal" ]; then  # ranks that run until they are asked to stop
    rm "$CLUSTER/until_signal"
    sleep 60 &
    trap 'kill $!; exit 75' USR1
    touch "$CLUSTER/running"
    wait $!
    exit 1
  fi
  code=$(head -n 1 "$CLUSTER/codes" 2> /dev/null)
  sed -i 1d "$CLUSTER/codes" 2> /dev/null
  exit "${code:-0}"
}

# directives PREFIX FILE: the scheduler's lines, up to the first command; sets `options`
directives() {
  options=()
  local line words
  while IFS= read -r line; do
    [[ -z $line || $line == \#* ]] || break
    [[ $line == "$1 "* ]] || continue
    eval "words=(${line#"$1 "})"
    options+=("${words[@]}")
  done < "$2"
}

case $self in
  sinfo)
    case $* in
      '--noheader --exact --format=%P|%D|%c|%X|%Y|%Z|%G') exact=1 ;;
      '--noheader --format=%P|%D|%c|%X|%Y|%Z|%G') exact='' ;;
      *) refuse "unrecognized arguments $*" ;;
    esac
    gres='(null)'; [ "$gpus" = 0 ] || gres="gpu:a100:$gpus(S:0-1)"
    printf 'debug*|%s|%s|2|2|1|%s\nfat|1|128|2|32|2|(null)\n' $nodes $cores "$gres"
    # Without --exact nodes that differ are one row, with the least of each figure.
    if [ -n "$exact" ]; then printf 'mixed|1|4|2|2|1|(null)\nmixed|1|8|2|4|1|(null)\n'; else echo 'mixed|2|4+|2|2+|1|(null)'; fi ;;

  sbatch)
    given=()
    while [[ ${1:-} == -* ]]; do given+=("$1"); shift; done
    script=$1
    shift
    head -n 1 "$script" | grep -q '^#!' || refuse "This does not look like a batch script"
    directives '#SBATCH' "$script"
    name=$(basename "$script") n=1 tasks=1 each=1 warn='' requeue=0
    for option in "${options[@]}" ${given[@]+"${given[@]}"}; do
      value=${option#*=}
      case $option in
        --job-name=?*) name=$value ;;
        --nodes=*) matches "$value" '[0-9]+'; n=$value ;;
        --ntasks-per-node=*) matches "$value" '[0-9]+'; tasks=$value ;;
        --cpus-per-task=*) matches "$value" '[0-9]+'; each=$value ;;
        --gpus-per-node=*) matches "$value" '[0-9]+'; [ "$value" -le "$gpus" ] || refuse "Requested node configuration is not available" ;;
        --partition=*) matches "$value" 'debug|fat' ;;
        --account=?* | --qos=?* | --output=?*) ;;
        --hint=*) matches "$value" nomultithread ;;
        --time=*) matches "$value" '[0-9]{2,}:[0-5][0-9]:[0-5][0-9]' ;;
        --signal=*) matches "$value" 'B:USR1@[0-9]{1,5}'; warn=1 ;;
        --mem=*) matches "$value" '[0-9]+[KMGT]?' ;;
        --open-mode=*) matches "$value" 'append|truncate' ;;
        --requeue) requeue=1 ;;
        --exclusive) ;;
        *) refuse "unrecognized option '$option'" ;;
      esac
    done
    [ "$n" -le $nodes ] && [ $((tasks * each)) -le $cores ] || refuse "Requested node configuration is not available"
    spool=$CLUSTER/slurm_script
    cp "$script" "$spool"
    export SLURM_JOB_ID=7 SLURM_JOB_NAME=$name SLURM_NTASKS=$((n * tasks)) SLURM_NTASKS_PER_NODE=$tasks SLURM_CPUS_PER_TASK=$each SLURM_PROCID=0
    export STAND_IN_REQUEUE=$requeue
    while :; do
      rm -f "$CLUSTER/requeued"
      bash "$spool" "$@" &
      job=$!
      if [ -e "$CLUSTER/until_signal" ] && [ -n "$warn" ]; then
        until [ -e "$CLUSTER/running" ]; do sleep 0.05; kill -0 $job || break; done
        kill -USR1 $job
      fi
      wait $job
      code=$?
      [ -e "$CLUSTER/requeued" ] || exit $code
    done ;;

  srun)
    if [ "$*" = --mpi=list ]; then
      printf 'MPI plugin types are...\n\tnone\n\tpmi2\n' >&2
      [ -e "$CLUSTER/no_pmix" ] || printf '\tpmix\nspecific pmix plugin versions available: pmix_v4\n' >&2
      exit
    fi
    [ -n "${SLURM_JOB_ID:-}" ] || refuse "no allocation"
    while [[ $1 == -* ]]; do
      case $1 in
        --mpi=pmix) [ ! -e "$CLUSTER/no_pmix" ] || refuse "Couldn't find the specified plugin name for mpi/pmix" ;;
        --cpu-bind=cores | --kill-on-bad-exit=1) ;;
        *) refuse "unrecognized option '$1'" ;;
      esac
      shift
    done
    ranks "$SLURM_NTASKS" "$SLURM_NTASKS_PER_NODE" "${SRUN_CPUS_PER_TASK:-1}" "$@" ;;

  scontrol)
    [ "$1" = requeue ] && [ "${2:-}" = "${SLURM_JOB_ID:-}" ] && [ $# = 2 ] || refuse "Invalid job id specified: $*"
    [ "$STAND_IN_REQUEUE" = 1 ] || refuse "Requested operation is presently disabled for job $2"
    touch "$CLUSTER/requeued" ;;

  mpirun)
    n=0 per_node='' each=1
    while [[ $1 == -* ]]; do
      case $1 in
        -n) matches "$2" '[0-9]+'; n=$2; shift 2 ;;
        --map-by) matches "$2" 'ppr:[0-9]+:node:PE=[0-9]+'; per_node=${2#ppr:}; per_node=${per_node%%:*} each=${2##*=}; shift 2 ;;
        --bind-to) matches "$2" 'core|none|socket|numa'; shift 2 ;;
        --hostfile) [ "$(wc -l < "$2")" -ge "$n" ] || refuse "There are not enough slots available for $n ranks"; shift 2 ;;
        --mca) [ $# -gt 3 ] || refuse "--mca needs a name and a value"; shift 3 ;;
        -x) matches "$2" '[A-Z_]+(=.*)?'; [[ $2 == *=* || -n ${!2+set} ]] || refuse "could not find environment variable \"$2\""; shift 2 ;;
        *) refuse "unrecognized argument $1" ;;
      esac
    done
    ranks "$n" "${per_node:-$n}" "$each" "$@" ;;

  pbsnodes)
    [ "$*" = '-a -F json' ] || refuse "usage: pbsnodes -a -F json"
    [ ! -e "$CLUSTER/no_server" ] || { echo "Connection refused" >&2; exit 1; }
    echo "pbsnodes: warning: this goes to stderr" >&2
    one="{\"state\":\"free\",\"resources_available\":{\"ncpus\":$cores,\"ngpus\":$gpus,\"mem\":\"8gb\"}}"
    echo "{\"timestamp\":1,\"pbs_server\":\"s\",\"nodes\":{\"n1\":$one,\"n2\":$one}}" ;;

  qsub)
    names=''
    while [[ ${1:-} == -* ]]; do
      case $1 in
        -v) names=$2; shift 2 ;;
        *) refuse "invalid option $1" ;;
      esac
    done
    [ $# = 1 ] || refuse "usage: qsub [-v names] script"  # it passes no arguments on
    variables=()
    for name in ${names//,/ }; do
      [[ $name == *=* ]] || name=$name=${!name-}
      variables+=("$name")
    done
    if [ -n "${PBS_JOBID:-}" ]; then  # from a job: it runs when that one has ended
      printf '%s\n' "$1" > "$CLUSTER/queued"
      printf '%s\0' "${variables[@]}" > "$CLUSTER/queued.variables"
      exit
    fi
    script=$1 id=8
    while :; do
      cp "$script" "$CLUSTER/pbs_script"
      directives '#PBS' "$CLUSTER/pbs_script"
      n=0 name=$(basename "$script")
      set -- "${options[@]}"
      while [ $# -gt 0 ]; do
        case $1 in
          -N) matches "$2" '[A-Za-z0-9_.+-]{1,230}'; name=$2 ;;
          -l)
            case $2 in
              select=*)
                matches "$2" 'select=[0-9]+:ncpus=[0-9]+:mpiprocs=[0-9]+:ompthreads=[0-9]+(:ngpus=[0-9]+)?'
                IFS=':=' read -r _ n _ cpus _ procs _ threads _ cards <<< "$2"
                [ "$n" -le $nodes ] && [ "$cpus" -le $cores ] && [ "${cards:-0}" -le "$gpus" ] || refuse "insufficient resources: $2" ;;
              place=*) matches "$2" 'place=scatter(:excl)?' ;;
              walltime=*) matches "$2" 'walltime=[0-9]+:[0-5][0-9]:[0-5][0-9]' ;;
              *) refuse "Unknown resource $2" ;;
            esac ;;
          -j) matches "$2" oe ;;
          -k) matches "$2" 'oed' ;;
          -q | -A) [ -n "$2" ] ;;
          *) refuse "invalid option $1" ;;
        esac
        shift 2
      done
      : > "$CLUSTER/nodefile"
      for i in $(seq "$n"); do for _ in $(seq "$procs"); do echo "n$i" >> "$CLUSTER/nodefile"; done; done
      (cd / && env -i HOME="$HOME" PATH="$PATH" CLUSTER="$CLUSTER" GPUS="$gpus" PBS_JOBID=$id.server PBS_JOBNAME="$name" \
        PBS_O_WORKDIR="$OLDPWD" PBS_NODEFILE="$CLUSTER/nodefile" OMP_NUM_THREADS="$threads" "${variables[@]}" bash "$CLUSTER/pbs_script")
      code=$?
      [ -e "$CLUSTER/queued" ] || exit $code
      script=$(cat "$CLUSTER/queued") id=$((id + 1))
      mapfile -d '' -t variables < "$CLUSTER/queued.variables"
      rm "$CLUSTER/queued"
    done ;;

  lshosts)
    [ "$*" = -w ] || refuse "usage: lshosts -w"
    printf 'HOST_NAME type model cpuf ncpus maxmem maxswp server RESOURCES\nlogin X86_64 - - - - - No ()\n'
    for i in $(seq $nodes); do echo "n$i X86_64 Xeon 60.0 $cores 8G - Yes ()"; done ;;

  bsub)
    [ $# = 0 ] || refuse "it passes no arguments on: $*"
    script=$CLUSTER/lsf_script
    cat > "$script"
    directives '#BSUB' "$script"
    n=0 ptile=0 rerunnable=0 requeue='' nodes_only=0 name=''
    set -- "${options[@]}"
    while [ $# -gt 0 ]; do
      case $1 in
        -J | -o | -q | -P)
          [ -n "$2" ] || refuse "empty $1"
          [ "$1" != -J ] || name=$2 ;;
        -n) matches "$2" '[0-9]+'; n=$2 ;;
        -nnodes) matches "$2" '[0-9]+'; nodes_only=$2 ;;
        -R)
          matches "$2" 'span\[ptile=[0-9]+\] affinity\[core\([0-9]+\)\]'
          ptile=${2#span\[ptile=} ptile=${ptile%%]*} ;;
        -W) matches "$2" '[0-9]+:[0-5][0-9]' ;;
        -Q) requeue=$2 ;;
        -gpu) matches "$2" 'num=[0-9]+'; [ "${2#num=}" -le "$gpus" ] || refuse "Resource GPU is not available" ;;
        -x | -r) [ "$1" = -x ] || rerunnable=1; shift; continue ;;
        *) refuse "bad option $1" ;;
      esac
      shift 2
    done
    [ $((n % (ptile > 0 ? ptile : 1))) = 0 ] && [ $((ptile > 0 ? n / ptile : nodes_only)) -le $nodes ] || refuse "the cluster has $nodes nodes"
    [ -z "$requeue" ] || [ $rerunnable = 1 ] || refuse "the job cannot be requeued: -r"
    : > "$CLUSTER/hostfile"
    for i in $(seq $((ptile > 0 ? n / ptile : 0))); do for _ in $(seq $ptile); do echo "n$i" >> "$CLUSTER/hostfile"; done; done
    while :; do
      LSB_JOBID=9 LSB_JOBNAME=$name LSB_DJOB_HOSTFILE=$CLUSTER/hostfile LSB_DJOB_NUMPROC=$n bash < "$script"
      code=$?
      [ $code != "${requeue:-none}" ] || continue
      exit $code
    done ;;

  jsrun)
    n=0 per_node=0 each=0
    while [[ $1 == -* ]]; do
      case $1 in
        -n) n=$2 ;;
        -r) per_node=$2 ;;
        -a) matches "$2" 1 ;;
        -c) each=$2 ;;
        -g) matches "$2" '[0-9]+'; [ $(($2 * per_node)) -le "$gpus" ] || refuse "Resource set needs $2 GPUs" ;;
        -b) matches "$2" 'packed:[0-9]+' ;;
        -E) matches "$2" '[A-Z_]+=.*' ;;
        *) refuse "invalid option $1" ;;
      esac
      shift 2
    done
    ranks "$n" "$per_node" "$each" "$@" ;;

  flux)
    [ "$1" != --parent ] || { parent=1; shift; }
    case $1 in
      getattr) [ "$2" = jobid ] && echo "f${FLUX_STAND_IN:?no Flux instance}" ;;
      resource)
        [ "$*" = 'resource list -s up -no {nnodes} {ncores} {ngpus}' ] || refuse "unrecognized arguments: $*"
        echo "$nodes $((nodes * cores)) $((nodes * gpus))" ;;
      batch)
        shift
        script=$1
        shift
        if [ -n "${parent:-}" ]; then
          cp "$script" "$CLUSTER/queued"
          printf '%s\0' "$@" > "$CLUSTER/queued.arguments"
          printf '%s' "$RUN" > "$CLUSTER/queued.run"
          exit
        fi
        id=1
        cp "$script" "$CLUSTER/flux_script"
        while :; do
          directives '#flux:' "$CLUSTER/flux_script"
          for option in "${options[@]}"; do
            value=${option#*=}
            case $option in
              --nodes=*) [ "$value" -le $nodes ] || refuse "unsatisfiable request" ;;
              --time-limit=*) matches "$value" '[0-9.]+[smhd]?' ;;
              --job-name=?* | --output=?* | --queue=?* | --bank=?* | --exclusive) ;;
              *) refuse "unrecognized arguments: $option" ;;
            esac
          done
          FLUX_STAND_IN=$id bash "$CLUSTER/flux_script" "$@"
          code=$?
          [ -e "$CLUSTER/queued" ] || exit $code
          mv "$CLUSTER/queued" "$CLUSTER/flux_script"
          mapfile -d '' -t again < "$CLUSTER/queued.arguments"
          set -- ${again[@]+"${again[@]}"}
          RUN=$(cat "$CLUSTER/queued.run")
          export RUN
          id=$((id + 1))
        done ;;
      run)
        shift
        n=0 tasks=0 each=1
        while [[ $1 == -* ]]; do
          case $1 in
            -N) n=$2; shift 2 ;;
            -n) tasks=$2; shift 2 ;;
            -c) each=$2; shift 2 ;;
            -g) [ $(($2 * tasks)) -le $((gpus * n)) ] || refuse "unsatisfiable request"; shift 2 ;;
            -o) matches "$2" '(cpu-affinity=per-task|pmi=pmix)'; shift 2 ;;
            --env=*=*) shift ;;
            *) refuse "unrecognized arguments: $1" ;;
          esac
        done
        ranks "$tasks" $((tasks / n)) "$each" "$@" ;;
      *) refuse "unknown command $1" ;;
    esac ;;
  *) refuse "no stand-in" ;;
esac
