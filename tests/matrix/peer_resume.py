#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a peer: fourteen steps with a checkpoint after the seventh, or the last seven from that checkpoint.

    peer_resume.py SIDE whole|resumed WORKPLACE
"""
import pathlib
import sys

import torch

import common
import peers

LENGTH, BATCH, STEPS = 32, 24, 14


def main():
    side, part, place = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    rank, world = peers.start()
    trainer = peers.Trainer(side, "full", place / "model", micro=BATCH // world)
    rows = common.read_tokens(place / "train.bin", LENGTH)
    checkpoint = place / f"peer-{side}-checkpoint"
    begin = STEPS // 2 if part == "resumed" else 0
    if part == "resumed":
        trainer.load(checkpoint)
    for step in range(begin, STEPS):
        first = step * BATCH % len(rows)
        trainer.step(rows[first + rank:first + BATCH:world])
        if part == "whole" and step + 1 == STEPS // 2:
            trainer.save(checkpoint)
    weights, kept = trainer.whole(), place / f"peer-{side}-whole.pt"
    if part == "whole":
        if rank == 0:
            torch.save(weights, kept)
        peers.say({}, rank)
        return
    whole = torch.load(kept, weights_only=True)
    difference = max(float((weights[name] - whole[name]).abs().max() / whole[name].abs().max()) for name in whole)
    peers.say({"difference": f"{difference:.1e}" if difference else "the same bits"}, rank)


if __name__ == "__main__":
    main()
