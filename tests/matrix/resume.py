#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Claim: seven steps and a resume of seven are fourteen steps, in the middle of an epoch and on another number of ranks.

Trains fourteen steps of global batch 24 (an epoch has ten), saving after the seventh; resumes from there on other numbers
of ranks and at other stages; and compares what both save, byte for byte with --reproducible. LoRA has its dropout.
"""
import shutil
import sys

import common

LENGTH = 32
CASES = [(1, 0, 1, 0), (2, 3, 2, 3), (4, 3, 2, 3), (2, 1, 8, 3), (8, 3, 1, 0), (1, 0, 4, 2)]  # ranks, stage, then again
PEERS = [("fsdp2", 2, 2), ("fsdp2", 4, 2), ("fsdp2", 2, 3), ("deepspeed-3", 2, 2), ("deepspeed-3", 4, 2)]


def main():
    options = common.arguments(__doc__).parse_args()
    place = common.Workplace(options)
    common.make_model(place.path / "model")
    common.make_tokens(place.path / "train.bin", LENGTH * 240)
    rows, failures = [], 0
    for tuner, words in (("full", []), ("LoRA", ["--tuner_type", "lora"])):
        kind = "model" if tuner == "full" else "adapter_model"
        for ranks, stage, other_ranks, other_stage in CASES:
            def train(n, zero, run, *more):
                shutil.rmtree(place.path / run, ignore_errors=True)
                place.run(n, "train", "--model", "model", "--dataset", "train.bin", "--max_length", LENGTH,
                          "--global_batch_size", 24, "--max_steps", 14, "--save_steps", 7, "--learning_rate", 1e-2,
                          "--seed", 1, "--reproducible", "true", "--zero_stage", zero, "--output_dir", run,
                          "--add_version", "false", *words, *more)
                return common.digest(place.path / run / f"{kind}.safetensors")
            whole = train(ranks, stage, "whole")
            resumed = train(other_ranks, other_stage, "resumed", "--resume_from_checkpoint", "whole/checkpoint-7")
            failures += whole != resumed
            rows.append((tuner, f"{ranks} ranks, ZeRO-{stage}", f"{other_ranks} ranks, ZeRO-{other_stage}",
                         "the same bytes" if whole == resumed else "DIFFERENT"))
    common.table("Seven steps and a resume: Tessera", ("trained", "first seven", "next seven", "saved model"), rows)
    if not options.no_peers:
        rows = []
        for side, ranks, other_ranks in PEERS:
            result = common.peer("peer_resume.py", ranks, side, "whole", place.path)
            if "error" not in result:
                result = common.peer("peer_resume.py", other_ranks, side, "resumed", place.path)
            rows.append((side, ranks, other_ranks, result.get("difference", result.get("error"))))
        common.table(f"Seven steps and a resume: {common.versions('torch', 'deepspeed')}", (
            "side", "ranks", "ranks after the resume", "largest difference over the largest weight"), rows)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
