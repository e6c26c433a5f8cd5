#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Claim: loss and gradient do not depend on accumulation, padding, packing or the number of ranks.

Five optimizer steps of fine-tuning, each over the same 24 conversations of different lengths, in every layout of the
batch and with ranks that share rows or matrices; the largest relative difference of loss and gradient norm to one rank with one micro-batch. The peer is TRL, which
logs loss and gradient norm too.
"""
import json
import shutil
import sys

import common

ROWS, STEPS = 24, 5
LAYOUTS = [  # name, ranks, options
    ("24 rows at once", 1, ["--per_device_train_batch_size", 24]),
    ("24 micro-batches of one row", 1, ["--per_device_train_batch_size", 1]),
    ("5 micro-batches of five rows, the last of four", 1, ["--per_device_train_batch_size", 5]),
    ("2 ranks, ZeRO-3", 2, ["--per_device_train_batch_size", 4]),
    ("3 ranks, ZeRO-2", 3, ["--per_device_train_batch_size", 4, "--zero_stage", 2]),
    ("8 ranks, ZeRO-3", 8, ["--per_device_train_batch_size", 2]),
    ("rows laid end to end without padding", 2, ["--per_device_train_batch_size", 4, "--padding_free", "true"]),
    ("packed", 1, ["--per_device_train_batch_size", 2, "--packing", "true"]),
    ("packed, 3 ranks", 3, ["--per_device_train_batch_size", 1, "--packing", "true"]),
    ("two ranks share each row", 2, ["--per_device_train_batch_size", 4, "--context_parallel_size", 2]),
    ("two ranks share each matrix", 2, ["--per_device_train_batch_size", 4, "--tensor_parallel_size", 2]),
    ("four ranks share rows and matrices", 4, ["--per_device_train_batch_size", 4, "--context_parallel_size", 2,
                                               "--tensor_parallel_size", 2]),
]
PEERS = [("24 rows at once", 1, {}), ("24 micro-batches of one row", 1, {"per_device_train_batch_size": 1,
                                                                         "gradient_accumulation_steps": 24}),
         ("2 ranks", 2, {"per_device_train_batch_size": 12}), ("3 ranks", 3, {"per_device_train_batch_size": 8}),
         ("2 ranks, 12 micro-batches of one row", 2, {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 12}),
         ("packed", 1, {"packing": True, "per_device_train_batch_size": 64})]


def difference(records, reference, key):
    return max(abs(a[key] - b[key]) / abs(b[key]) for a, b in zip(records, reference))


def main():
    options = common.arguments(__doc__).parse_args()
    place = common.Workplace(options)
    chat = common.EXAMPLES / "chat"
    vocabulary = json.loads((chat / "config.json").read_text())["vocab_size"]
    common.make_model(place.path / "model", [chat / "tokenizer.json", chat / "tokenizer_config.json"],
                      vocab_size=vocabulary)
    rows = sorted((chat / "questions.jsonl").read_text().splitlines(), key=len)[::4][:ROWS]  # short to long
    (place.path / "rows.jsonl").write_text("\n".join(rows) + "\n")
    table, reference, failures = [], None, 0
    for name, ranks, words in LAYOUTS:
        def train(batch, steps):
            shutil.rmtree(place.path / "run", ignore_errors=True)
            return place.run(ranks, "sft", "--model", "model", "--dataset", "rows.jsonl", "--max_length", 128, "--max_steps",
                             steps, "--global_batch_size", batch, "--learning_rate", 1e-3, "--logging_steps", 1, "--seed", 1,
                             "--output_dir", "run", "--add_version", "false", *words).stdout
        batch = ROWS
        if "--packing" in words:  # samples that the rows make
            batch = int(train(1, 1).split(" samples of ")[0].split()[-1])
        train(batch, STEPS)
        records = place.steps("run")
        reference = reference or records
        loss, norm = (difference(records, reference, key) for key in ("loss", "grad_norm"))
        failures += len(records) != STEPS or loss > 1e-5 or norm > 1e-4
        table.append((name, f"{loss:.1e}", f"{norm:.1e}"))
    common.table("One batch in every layout: Tessera", ("layout", "loss", "gradient norm"), table)
    if not options.no_peers:
        table, reference = [], None
        for name, ranks, words in PEERS:
            result = common.peer("peer_batch_layout.py", ranks, place.path, json.dumps(words))
            if "error" in result:
                table.append((name, result["error"], ""))
                continue
            reference = reference or result["steps"]
            table.append((name, *(f"{difference(result['steps'], reference, key):.1e}" for key in ("loss", "grad_norm"))))
        common.table(f"One batch in every layout: {common.versions('trl', 'transformers', 'torch')}",
                     ("layout", "loss", "gradient norm"), table)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
