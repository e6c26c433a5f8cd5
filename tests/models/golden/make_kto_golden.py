#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes preferences/kto.txt beside this script: five steps of TRL's KTO trainer on labelled answers, on the CPU, in float32.

    python3 make_kto_golden.py     # after make_preferences_golden.py, whose model, reference and adapter it takes

labelled.jsonl has the rows in TRL's form (prompt, completion, label), labelled.swift.jsonl in ms-swift's; labelled.valid.jsonl those
of an evaluation after the last step. kto.txt is written as golden.txt. The run kto_ranks is of two processes with a micro-batch of two
each: TRL shares the KL over them. It does not share it over accumulation: the first loss of that run with one process and two
micro-batches is another one, and is noted.
"""
import importlib.metadata
import json
import os
import random
import subprocess
import sys
import tempfile

import torch
import transformers
from peft import PeftModel
from trl import KTOConfig, KTOTrainer

import make_preferences_golden as shared

FOLDER, STEPS, ROWS, VALID = shared.FOLDER, shared.STEPS, 4, 6
RUNS = {
    "kto": {"rlhf_type": "kto", "beta": 0.5},
    "kto_weights": {"rlhf_type": "kto", "beta": 0.2, "desirable_weight": 1.5, "undesirable_weight": 0.7, "ref_model": "ref"},
    "kto_lora": {"rlhf_type": "kto", "beta": 0.5, "adapters": "adapter"},
    "kto_pairs": {"rlhf_type": "kto", "beta": 0.3, "dataset": "pairs.jsonl", "val_dataset": "valid.jsonl"},
    "apo_zero_unpaired": {"rlhf_type": "kto", "loss_type": "apo_zero_unpaired", "beta": 0.3, "ref_model": "ref"},
    "kto_ranks": {"rlhf_type": "kto", "beta": 0.2, "ref_model": "ref"},
}
METRICS = ["rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen", "logps/rejected", "kl"]


def labelled_rows(count, seed):
    pick = random.Random(seed)
    rows = []
    for row in shared.make_rows(count, seed):
        label = pick.random() < 0.6
        rows.append({"prompt": row["prompt"], "completion": row["chosen" if label else "rejected"], "label": label})
    return rows


def read(name):
    return shared.datasets.Dataset.from_list([json.loads(line) for line in open(os.path.join(FOLDER, name))])


def train(run, micro, accumulation, processes=1):
    options = RUNS[run]
    tokenizer = transformers.AutoTokenizer.from_pretrained(shared.CHAT)
    tokenizer.pad_token = "<|endoftext|>"
    torch.manual_seed(0)
    model = transformers.Qwen2ForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    if "adapters" in options:
        model = PeftModel.from_pretrained(model, os.path.join(FOLDER, "adapter"), is_trainable=True)
    ref = transformers.Qwen2ForCausalLM.from_pretrained(os.path.join(FOLDER, "ref")) if "ref_model" in options else None
    config = KTOConfig(output_dir=tempfile.mkdtemp(), use_cpu=True, bf16=False, fp16=False, report_to=[], save_strategy="no", logging_steps=1,
                       max_steps=STEPS, per_device_train_batch_size=micro, gradient_accumulation_steps=accumulation,
                       per_device_eval_batch_size=(VALID if options.get("val_dataset") is None else 2 * VALID) // processes,
                       learning_rate=shared.OPTIONS["learning_rate"], lr_scheduler_type="constant",
                       adam_beta1=shared.OPTIONS["adam_beta1"], adam_beta2=shared.OPTIONS["adam_beta2"],
                       adam_epsilon=shared.OPTIONS["adam_epsilon"], weight_decay=shared.OPTIONS["weight_decay"], max_grad_norm=1.0,
                       gradient_checkpointing=False, max_length=256, seed=0, train_sampling_strategy="sequential",
                       beta=options["beta"], loss_type=options.get("loss_type", "kto"),
                       desirable_weight=options.get("desirable_weight", 1.0), undesirable_weight=options.get("undesirable_weight", 1.0))
    trainer = KTOTrainer(model=model, ref_model=ref, args=config, train_dataset=read(options.get("dataset", "labelled.jsonl")),
                         eval_dataset=read(options.get("val_dataset", "labelled.valid.jsonl")), processing_class=tokenizer)
    trainer.train()
    evaluation = trainer.evaluate()
    steps = [{"loss": log["loss"], "grad_norm": log["grad_norm"], **{name: log[name] for name in METRICS if name in log}}
             for log in trainer.state.log_history if "grad_norm" in log]
    assert len(steps) == STEPS
    figures = {"loss": evaluation["eval_loss"]}
    figures.update({name: evaluation["eval_" + name] for name in METRICS if "eval_" + name in evaluation})
    if options.get("loss_type") == "apo_zero_unpaired":  # it has no KL, and logs 0
        for step in [*steps, figures]:
            step.pop("kl")
    return {"options": options, "per_device_train_batch_size": micro, "steps": steps, "eval": figures}


def in_processes(run, micro, processes):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "record.json")
        subprocess.run([sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", __file__, run, str(micro), out],
                       check=True)
        return json.load(open(out))


def main():
    if len(sys.argv) > 1:  # one of several processes
        record = train(sys.argv[1], int(sys.argv[2]), 1, processes=int(os.environ["WORLD_SIZE"]))
        if os.environ["RANK"] == "0":
            json.dump(record, open(sys.argv[3], "w"))
        return
    rows = labelled_rows(STEPS * ROWS, 7)
    shared.write_rows("labelled.jsonl", rows)
    shared.write_rows("labelled.swift.jsonl", [{"messages": row["prompt"] + row["completion"], "label": row["label"]} for row in rows])
    shared.write_rows("labelled.valid.jsonl", labelled_rows(VALID, 8))
    golden = {run: in_processes(run, 2, 2) if run == "kto_ranks" else train(run, ROWS, 1) for run in RUNS}
    accumulated = train("kto_ranks", 2, 2)["steps"][0]["loss"]
    versions = {name: importlib.metadata.version(name) for name in ("trl", "transformers", "torch", "peft")}
    with open(os.path.join(FOLDER, "kto.txt"), "w") as out:
        out.write("# " + ", ".join(f"{name} {version}" for name, version in versions.items()) + "\n")
        out.write(f"# the first loss of kto_ranks in one process, whose micro-batches do not share the KL: {accumulated!r}\n")
        for run, record in golden.items():
            options = " ".join(f"--{name} {value}" for name, value in record["options"].items())
            out.write(f"{run} options --per_device_train_batch_size {record['per_device_train_batch_size']} {options}\n")
            for step, figures in [*enumerate(record["steps"], 1), ("eval", record["eval"])]:
                for name, value in figures.items():
                    out.write(f"{run} {step} {name} {value!r}\n")


if __name__ == "__main__":
    main()
