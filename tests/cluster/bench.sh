#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The benchmarks that need several hosts, on two of them. No time is checked.
#   bench.sh TESSERA MPIRUN
set -u
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"
# shellcheck source=tests/system/first_failure.sh
. "$(dirname "$0")/../system/first_failure.sh"
hosts_up 2 || fail "the hosts cannot be made"

on_hosts 2 -n 4 "$tessera" bench collectives --bench_bytes 1MiB --bench_repeats 2 > log 2>&1 || fail "bench collectives: exit $?"
expect '^all_reduce .* ms .* ms .*x  .* %, MPI .* %'
expect '^raw socket .* MB/s between hosts, .* has to send 512'
tiny_model 2 32
on_hosts 2 -n 4 "$tessera" bench strategies --model config.json --from_scratch --max_length 16 \
  --per_device_train_batch_size 1 --bench_steps 2 > log 2>&1 || fail "bench strategies: exit $?"
expect '^FULL_SHARD / HYBRID_SHARD '
"$mpirun" -n 2 "$tessera" bench strategies --model config.json --from_scratch --max_length 16 > log 2>&1
[ $? = 2 ] || fail "one host is not refused"
expect '^error: bench strategies compares on several hosts'
echo good
