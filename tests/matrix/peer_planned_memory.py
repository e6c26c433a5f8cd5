#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a peer: by how much its process grew with three steps on the rows of planned_memory.py.

    peer_planned_memory.py SIDE WORKPLACE
"""
import pathlib
import sys
import threading
import time

import torch
import torch.distributed as dist

import common
import peers


def resident():
    """Bytes of this process; shared pages count by their share (PSS)."""
    for line in pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024


def main():
    side, place = sys.argv[1], pathlib.Path(sys.argv[2])
    rank, world = peers.start()
    rows = common.read_tokens(place / "train.bin", 128)
    before, most, running = resident(), [0], True

    def watch():
        while running:
            most[0] = max(most[0], resident())
            time.sleep(0.02)

    trainer = peers.Trainer(side, "full", place / "model")
    watcher = threading.Thread(target=watch)
    watcher.start()
    for step in range(3):
        first = (step * world + rank) * 2
        trainer.step(rows[first:first + 2])
    running = False
    watcher.join()
    grown = torch.tensor([float(most[0] - before)])
    dist.all_reduce(grown, op=dist.ReduceOp.MAX)
    peers.say({"grown": f"{float(grown) / 2**20:.0f} MiB"}, rank)


if __name__ == "__main__":
    main()
