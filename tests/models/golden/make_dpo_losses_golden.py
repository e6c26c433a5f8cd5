#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes preferences/losses.txt beside this script, as golden.txt: the other losses of TRL's DPO and CPO trainers.

    python3 make_dpo_losses_golden.py     # after make_preferences_golden.py, whose model, reference and rows it takes
"""
import importlib.metadata
import json
import os

import transformers

import make_preferences_golden as shared

DPO = {"rlhf_type": "dpo", "ref_model": "ref"}
RUNS = {
    "dpo_exo_pair": {**DPO, "loss_type": "exo_pair", "beta": 0.2, "label_smoothing": 0.05},
    "dpo_nca_pair": {**DPO, "loss_type": "nca_pair", "beta": 0.1},
    "dpo_bco_pair": {**DPO, "loss_type": "bco_pair", "beta": 0.1},
    "dpo_sppo_hard": {**DPO, "loss_type": "sppo_hard", "beta": 0.1},
    "dpo_apo_zero": {**DPO, "loss_type": "apo_zero", "beta": 0.1},
    "dpo_apo_down": {**DPO, "loss_type": "apo_down", "beta": 0.1},
    "dpo_discopop": {**DPO, "loss_type": "discopop", "beta": 0.02},
    "dpo_sigmoid_norm": {**DPO, "loss_type": "sigmoid_norm", "beta": 2.0},
    "cpo_hinge": {"rlhf_type": "cpo", "loss_type": "hinge", "beta": 0.2, "cpo_alpha": 0.5},
    "cpo_ipo": {"rlhf_type": "cpo", "loss_type": "ipo", "beta": 0.3, "cpo_alpha": 0.5},
    "cpo_label_smoothing": {"rlhf_type": "cpo", "beta": 0.2, "cpo_alpha": 0.5, "label_smoothing": 0.1},
}


def read(name):
    return shared.datasets.Dataset.from_list([json.loads(line) for line in open(os.path.join(shared.FOLDER, name))])


def main():
    shared.answers_alone()
    shared.RUNS.update(RUNS)
    tokenizer = transformers.AutoTokenizer.from_pretrained(shared.CHAT)
    tokenizer.pad_token = "<|endoftext|>"
    versions = {name: importlib.metadata.version(name) for name in ("trl", "transformers", "torch", "peft")}
    with open(os.path.join(shared.FOLDER, "losses.txt"), "w") as out:
        out.write("# " + ", ".join(f"{name} {version}" for name, version in versions.items()) + "\n")
        for run in RUNS:
            record = shared.train(run, read("pairs.jsonl"), read("valid.jsonl"), tokenizer)
            options = " ".join(f"--{name} {value}" for name, value in record["options"].items())
            out.write(f"{run} options --per_device_train_batch_size {record['per_device_train_batch_size']} {options}\n")
            for step, figures in [*enumerate(record["steps"], 1), ("eval", record["eval"])]:
                for name, value in figures.items():
                    out.write(f"{run} {step} {name} {value!r}\n")


if __name__ == "__main__":
    main()
