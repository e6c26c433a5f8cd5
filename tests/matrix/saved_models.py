#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Claim: what a sharded run saves is the whole model, and the same bytes whatever the sharding.

Trains {full, LoRA, QLoRA, frozen} × {ZeRO-0 to 3, hybrid} × {1, 2, 3, 8 ranks} for five steps, loads
what each saved into transformers or PEFT, and compares: the bytes of all strategies of a number of ranks; those of 2 and 8
ranks with those of one (with --reproducible, which is for powers of two: the weights of 3 ranks have a bound); each
tensor that was loaded with the file; and the loss of rows that were not trained on with what `tessera eval` prints.
"""
import json
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import common

LENGTH = 32
TUNERS = {
    "full": [],
    "LoRA": ["--tuner_type", "lora"],
    "QLoRA": ["--tuner_type", "lora", "--quant_method", "bnb", "--quant_bits", "4"],
    "frozen": ["--freeze_parameters", "model.layers.0", "model.layers.1"],
}
SHARDINGS = {f"ZeRO-{stage}": ["--zero_stage", str(stage)] for stage in range(4)}
SHARDINGS["hybrid"] = ["--sharding_strategy", "HYBRID_SHARD", "--shard_group_size", "2"]


def loss_of(model, tokens):
    """The mean loss of the next token over rows of LENGTH, as a stream of tokens is evaluated."""
    count = (len(tokens) - 1) // LENGTH * LENGTH
    with torch.no_grad():
        logits = model(input_ids=tokens[:count].reshape(-1, LENGTH)).logits
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[1:count + 1]))


def reload(place, tuner, run):
    """The model that a run has saved, as transformers and PEFT load it; and the number of tensors unlike the file."""
    directory = place.path / run
    if tuner in ("full", "frozen"):
        model, report = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)
        saved = load_file(directory / "model.safetensors")
        loaded = model.state_dict()
        wrong = len(report["missing_keys"]) + len(report["unexpected_keys"])
        return model, wrong + sum(not torch.equal(loaded[name], value) for name, value in saved.items())
    from peft import PeftModel, get_peft_model_state_dict
    base = AutoModelForCausalLM.from_pretrained(place.path / "model", dtype=torch.float32)
    model = PeftModel.from_pretrained(base, directory)
    saved = load_file(directory / "adapter_model.safetensors")
    loaded = get_peft_model_state_dict(model)
    wrong = len(set(saved) ^ set(loaded))
    return model, wrong + sum(not torch.equal(loaded[name].cpu(), saved[name]) for name in set(saved) & set(loaded))


def largest_difference(one, other):
    """Of two files' tensors, relative to the largest element of each."""
    one, other = load_file(one), load_file(other)
    return max(float((one[name] - other[name]).abs().max() / one[name].abs().max().clamp(min=1e-30)) for name in one)


def evaluated(place, tuner, run):
    model = ["--model", run] if tuner in ("full", "frozen") else ["--model", "model", "--adapters", run]
    quantized = TUNERS[tuner][2:] if tuner == "QLoRA" else []
    said = place.run(1, "eval", *model, *quantized, "--dataset", "held-out.bin", "--max_length", LENGTH, "--json").stdout
    return json.loads(next(line for line in said.splitlines() if line.startswith('{"loss"')))["loss"]


def main():
    options = common.arguments(__doc__).parse_args()
    place = common.Workplace(options)
    common.make_model(place.path / "model")
    common.make_tokens(place.path / "train.bin", LENGTH * 24 * 5)
    common.make_tokens(place.path / "held-out.bin", LENGTH * 24)
    tokens = common.read_tokens(place.path / "held-out.bin", LENGTH).flatten()
    table, failures = [], 0
    for tuner, words in TUNERS.items():
        digests, saved, differences, unlike, runs = {}, {}, [], 0, 0
        for ranks in (1, 2, 3, 8):
            for sharding, layout in SHARDINGS.items():
                if sharding == "hybrid" and ranks % 2:
                    continue
                run = f"{tuner}-{sharding}-{ranks}"
                place.run(ranks, "train", "--model", "model", "--dataset", "train.bin", "--max_length", LENGTH,
                          "--global_batch_size", 24, "--max_steps", 5, "--learning_rate", 1e-2, "--seed", 1,
                          "--reproducible", "true" if ranks != 3 else "false", "--output_dir", run, "--add_version", "false", *words, *layout)
                kind = "model" if tuner in ("full", "frozen") else "adapter_model"
                saved[ranks] = place.path / run / f"{kind}.safetensors"
                digests.setdefault(ranks, set()).add(common.digest(saved[ranks]))
                model, wrong = reload(place, tuner, run)
                unlike += wrong
                runs += 1
                if tuner != "QLoRA":  # transformers quantizes a base with kernels of a GPU
                    ours = evaluated(place, tuner, run)
                    differences.append(abs(loss_of(model, tokens) - ours) / ours)
        powers_of_two = len(digests[1] | digests[2] | digests[8])
        three = largest_difference(saved[1], saved[3])
        failures += unlike + (powers_of_two != 1) + (len(digests[3]) != 1) + (three > 1e-4)
        failures += sum(difference > 1e-5 for difference in differences)
        table.append((tuner, runs, powers_of_two, len(digests[3]), f"{three:.1e}", unlike,
                      f"{max(differences):.1e}" if differences else "not compared"))
    common.table("Saved models: Tessera", (
        "trained", "runs", "different files of 1, 2 and 8 ranks", "of 3 ranks",
        "3 ranks and 1: largest difference over the largest weight", "tensors unlike the file when loaded",
        "loss in transformers: largest relative difference"), table)
    if not options.no_peers:
        results = []
        for side in ("fsdp2", "deepspeed-1", "deepspeed-2", "deepspeed-3"):
            for tuner in ("full", "LoRA"):
                for ranks in (2, 3):
                    said = common.peer("peer_saved_models.py", ranks, side, tuner, place.path)
                    ways = [("", said["error"], "")] if "error" in said else said["ways"]
                    results += [(side, tuner, ranks, *way) for way in ways]
        common.table(f"Saved models: {common.versions('torch', 'deepspeed', 'transformers', 'peft')}", (
            "side", "trained", "ranks", "saved by", "tensors missing", "tensors unlike the trained ones"), results)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
