#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Claim: the memory that `tessera plan` names is the memory that a run takes.

Trains a model of 28 million parameters under each strategy on 1, 2, 3 and 4 ranks: what was planned and what was
allocated, to the byte, and the growth of the largest rank's process (PSS, of which the allocated memory is a part). The
peers are PyTorch's FSDP2 and DDP with the same model and rows.
"""
import json
import re
import sys

import common

LENGTH = 128
SHARDINGS = [(f"ZeRO-{stage}", ["--zero_stage", stage], (1, 2, 3, 4)) for stage in range(4)]
SHARDINGS.append(("hybrid", ["--sharding_strategy", "HYBRID_SHARD", "--shard_group_size", 2], (2, 4)))


def main():
    options = common.arguments(__doc__).parse_args()
    place = common.Workplace(options)
    common.make_model(place.path / "model", hidden_size=512, intermediate_size=1408, num_hidden_layers=6, vocab_size=8192)
    common.make_tokens(place.path / "train.bin", LENGTH * 64)
    rows, failures = [], 0
    for sharding, words, worlds in SHARDINGS:
        for ranks in worlds:
            run = f"{sharding}-{ranks}"
            said = place.run(ranks, "train", "--model", "model", "--dataset", "train.bin", "--max_length", LENGTH,
                             "--per_device_train_batch_size", 2, "--max_steps", 3, "--save_steps", 0, "--output_dir", run,
                             "--add_version", "false", *words).stdout
            memory = json.loads((place.path / run / "run.json").read_text())["memory"]
            planned, measured = (sum(memory[kind].values()) for kind in ("planned", "measured"))
            other = re.search(r"\| other (\S+) (\S+) \(PSS - arena", said)
            grown = measured / 2**20 + float(other[1]) * {"B": 2**-20, "KiB": 2**-10, "MiB": 1, "GiB": 2**10}[other[2]]
            rows.append((sharding, ranks, f"{planned:,}", f"{measured:,}", f"{grown:.0f} MiB"))
            failures += memory["planned"] != memory["measured"]
    common.table("Planned and measured memory of a rank: Tessera",
                 ("strategy", "ranks", "planned, bytes", "allocated, bytes", "the process grew by"), rows)
    if not options.no_peers:
        rows = []
        for side in ("ddp", "fsdp2"):
            for ranks in (1, 2, 4):
                result = common.peer("peer_planned_memory.py", ranks, side, place.path)
                rows.append((side, ranks, result.get("grown", result.get("error"))))
        common.table(f"Memory of a rank: {common.versions('torch')}", ("side", "ranks", "the process grew by"), rows)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
