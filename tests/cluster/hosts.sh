# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the scripts of this folder, before first_failure.sh: several hosts on one machine, real enough for MPI. Each has a network, a host
# name and a /dev/shm of its own, and a link to one switch; files are the machine's. All of it is in
# namespaces of processes that this script starts, with no name outside them: it is gone when the script is, however that
# ends, and scripts do not disturb each other.
#
#   hosts_up N             hosts h1 … hN, addresses 10.0.0.1 …
#   on HOST COMMAND …      runs a command there
#   on_hosts SLOTS ARG …   mpirun, or the command in the array `start`, on h1, over all hosts with SLOTS ranks each
#   link_rate HOST RATE    caps its link in both directions (400mbit)
#   cut HOST, heal HOST    takes its link down (a partition), and up again until all hosts reach it
#   processes_of HOST      their ids, a line each, without the one that holds the host
#   processes_of_program FILE   on all hosts
#
# Needs root, iproute2 and util-linux, and a kernel that lets this process make namespaces; ends with 77 (skipped)
# otherwise.

# The script again, in namespaces whose end is the end of everything in them.
if [ -z "${TESSERA_HOSTS:-}" ]; then
  if ! why=$("$(dirname "${BASH_SOURCE[0]}")/can_make_hosts" 2>&1); then
    echo "SKIPPED: several hosts cannot be made here: $why"
    exit 77
  fi
  TESSERA_HOSTS=1 exec unshare --mount --net --pid --fork --kill-child --mount-proc bash "$0" "$@"
fi
unset TESSERA_HOSTS  # tessera reads variables that begin so

declare -A host_process=()

hosts_up() {
  local i
  hosts_folder=${work:?of first_failure.sh}/hosts
  mkdir "$hosts_folder"
  ip link set lo up
  ip link add switch type bridge
  ip link set switch up
  for i in $(seq "$1"); do echo "10.0.0.$i h$i"; done > "$hosts_folder/names"
  echo "127.0.0.1 localhost" >> "$hosts_folder/names"
  for i in $(seq "$1"); do
    # shellcheck disable=SC2016  # the inner shell expands it
    unshare --mount --uts --net --ipc bash -c '
      hostname "h$1" && mount --make-rprivate / && mount -t tmpfs shm /dev/shm && mount --bind "$2/names" /etc/hosts &&
        ip link set lo up && touch "$2/h$1" && exec sleep infinity' - "$i" "$hosts_folder" &
    until [ -e "$hosts_folder/h$i" ]; do kill -0 $! || return 1; sleep 0.02; done
    host_process[h$i]=$!
    echo "${host_process[h$i]}" > "$hosts_folder/h$i"
    ip link add "to-h$i" type veth peer name eth0 netns "${host_process[h$i]}"
    ip link set "to-h$i" master switch up
    on "h$i" ip addr add "10.0.0.$i/24" dev eth0
    on "h$i" ip link set eth0 up
  done
  # What Open MPI calls in the place of ssh: the host, then a command line.
  cat > "$hosts_folder/shell" <<SH
#!/bin/bash
host=\$1
shift
exec nsenter --target "\$(cat "$hosts_folder/\$host")" --mount --uts --net --ipc -- env -C "$PWD" bash -c "\$*"
SH
  chmod +x "$hosts_folder/shell"
}

on() {
  local host=$1
  shift
  nsenter --target "${host_process[$host]}" --mount --uts --net --ipc --wd="$PWD" -- "$@"
}

on_hosts() {
  local host slots=$1
  shift
  for host in $(printf '%s\n' "${!host_process[@]}" | sort -V); do echo "$host slots=$slots"; done > "$hosts_folder/hostfile"
  [ -n "${start+set}" ] || local start=("${mpirun:?of first_failure.sh}")
  on h1 "${start[@]}" --mca plm_rsh_agent "$hosts_folder/shell" --mca btl_tcp_if_include 10.0.0.0/24 \
    --mca oob_tcp_if_include 10.0.0.0/24 --bind-to none --hostfile "$hosts_folder/hostfile" "$@"
}

link_rate() {
  tc qdisc replace dev "to-$1" root tbf rate "$2" burst 256kb latency 50ms
  on "$1" tc qdisc replace dev eth0 root tbf rate "$2" burst 256kb latency 50ms
}

cut() { ip link set "to-$1" down; }
heal() {
  local other
  ip link set "to-$1" up
  for other in "${!host_process[@]}"; do
    [ "$other" = "$1" ] || { reaches "$1" "$other" && reaches "$other" "$1"; } || return 1
  done
}
# reaches FROM TO: waits until packets arrive (a port where nobody listens is refused).
reaches() {
  for _ in $(seq 200); do
    on "$1" ip neigh flush all 2> /dev/null
    # shellcheck disable=SC2016  # the inner shell expands it
    LC_ALL=C on "$1" timeout 1 bash -c 'exec 3<> "/dev/tcp/$0/9"' "$2" 2>&1 | grep -q refused && return
    sleep 0.05
  done
  return 1
}

processes_of() {
  local process
  for process in /proc/[0-9]*; do
    [ "${process#/proc/}" != "${host_process[$1]}" ] || continue
    [ "$process/ns/net" -ef "/proc/${host_process[$1]}/ns/net" ] && echo "${process#/proc/}"
  done
}

processes_of_program() {
  local process
  for process in /proc/[0-9]*; do [ "$process/exe" -ef "$1" ] && echo "${process#/proc/}"; done
}
