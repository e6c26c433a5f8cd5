#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes preferences/ beside this script: five steps of TRL's trainers on pairs, on the CPU, in float32.

    python3 make_preferences_golden.py     # needs trl 1.16, transformers 5, torch, peft, datasets; numbers are TRL's

A small qwen2 with the tokenizer of jobs/examples/chat; model.safetensors is the start, ref/model.safetensors another reference,
adapter/ an adapter of PEFT whose B is 0. pairs.jsonl has the rows in TRL's form (prompt, chosen, rejected as messages); valid.jsonl
those of an evaluation after the last step; pairs.swift.jsonl and pairs.implicit.jsonl the same in ms-swift's form, and without a
prompt of its own. golden.txt: the versions, and for each run the options beside OPTIONS by Tessera's names and, for each step, TRL's
loss, grad_norm (before clipping) and metrics, a line each. What differs on purpose: CPO and ORPO append an eos behind the end of turn that the chat
template prints, which is left out here, as in TRL's DPO; ORPO's cross-entropy is over prompt and answer, and here over the answer, as
ms-swift's. Token means (cpo, simpo, orpo) are the mean over a rank's
micro-batch in TRL and over the global batch in Tessera: those runs have one micro-batch a step, where the two are the same.
"""
import importlib.metadata
import inspect
import json
import os
import random
import shutil
import tempfile
import textwrap

import datasets
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils.data import SequentialSampler
from trl import DPOConfig, DPOTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.cpo import cpo_trainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer
from trl.experimental.orpo import orpo_trainer

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "preferences")
CHAT = os.path.join(HERE, "..", "..", "..", "jobs", "examples", "chat")
STEPS, PAIRS, MICRO, VALID = 5, 4, 2, 6
# What questions.jsonl said when the rows of preferences/ were made from it: the figures are of these rows.
EARLIER_WORDS = {
    "tessera launch -n 4 -- train run.yaml": "mpirun -n 4 tessera train run.yaml",
    "without a launcher": "without mpirun",
    "is a run of one rank": "is a world of one rank",
    "On the same ranks all": "On one world all",
}
OPTIONS = {"learning_rate": 1e-3, "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8, "weight_decay": 0.0}
METRICS = ["rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected"]
RUNS = {
    "dpo_sigmoid": {"rlhf_type": "dpo", "beta": 0.5},
    "dpo_ipo": {"rlhf_type": "dpo", "loss_type": "ipo", "beta": 0.2},
    "dpo_hinge": {"rlhf_type": "dpo", "loss_type": "hinge", "beta": 0.3},
    "dpo_robust": {"rlhf_type": "dpo", "loss_type": "robust", "beta": 0.4, "label_smoothing": 0.1},
    "dpo_ref_model": {"rlhf_type": "dpo", "beta": 0.1, "ref_model": "ref"},
    "dpo_lora": {"rlhf_type": "dpo", "beta": 0.5, "adapters": "adapter"},
    "cpo": {"rlhf_type": "cpo", "beta": 0.2, "cpo_alpha": 0.5},
    "simpo": {"rlhf_type": "simpo", "beta": 2.0, "simpo_gamma": 0.7, "cpo_alpha": 0.0},
    "cpo_simpo": {"rlhf_type": "simpo", "beta": 2.0, "simpo_gamma": 1.0, "cpo_alpha": 1.0},
    "orpo": {"rlhf_type": "orpo", "beta": 0.3},
}
# TRL's mean of the micro-batches' means over tokens: the first loss is another than that of cpo.
MEAN_OF_MEANS = "cpo_mean_of_means"
# Runs whose figures in float32 are rounded by more than the 1e-5 within which ours are to be.
IN_FLOAT64 = set()


def answers_alone():
    """No second end of turn, and ORPO's cross-entropy over answers."""
    for module in (cpo_trainer, orpo_trainer):
        module.add_eos_token_if_needed = lambda eos, chosen, rejected: (chosen, rejected)
    source = textwrap.dedent(inspect.getsource(ORPOTrainer.concatenated_forward))
    changed = source.replace('labels = concatenated_batch["concatenated_input_ids"].clone()',
                             'labels = concatenated_batch["concatenated_labels"].clone()')
    assert changed != source
    scope = orpo_trainer.__dict__
    exec(changed, scope)
    ORPOTrainer.concatenated_forward = scope["concatenated_forward"]


def make_model(seed, scale):
    torch.manual_seed(seed)
    config = transformers.Qwen2Config(**json.load(open(os.path.join(FOLDER, "config.json"))))
    model = transformers.Qwen2ForCausalLM(config).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0, scale)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.05)
    return model


def make_rows(count, seed):
    """Pairs of one to three turns, some with a system message, of answers of different lengths."""
    text = open(os.path.join(CHAT, "questions.jsonl")).read()
    for now, then in EARLIER_WORDS.items():
        text = text.replace(now, then)
    questions = [json.loads(line)["messages"] for line in text.splitlines()]
    questions = [messages for messages in questions if [m["role"] for m in messages] == ["user", "assistant"]]
    pick = random.Random(seed)
    rows = []
    for k in range(count):
        asked, other, earlier = pick.sample(questions, 3)
        prompt = []
        if k % 3 == 0:
            prompt.append({"role": "system", "content": "Answer in one sentence."})
        if k % 2 == 1:
            prompt += earlier[:2]
        prompt.append(asked[0])
        rejected = other[1]["content"] if k % 4 else " ".join(other[1]["content"].split()[:3])
        rows.append({"prompt": prompt, "chosen": [asked[1]], "rejected": [{"role": "assistant", "content": rejected}]})
    return rows


def swift_row(row):
    return {"messages": row["prompt"] + row["chosen"], "rejected_response": row["rejected"][0]["content"]}


def implicit_row(row):
    return {"chosen": row["prompt"] + row["chosen"], "rejected": row["prompt"] + row["rejected"]}


def write_rows(name, rows):
    with open(os.path.join(FOLDER, name), "w") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")
    return datasets.Dataset.from_list(rows)


def train(run, data, valid, tokenizer):
    options = RUNS["cpo" if run == MEAN_OF_MEANS else run]
    kinds = str(options.get("loss_type", "sigmoid")).split()
    weights = [float(weight) for weight in options["loss_weights"].split()] if "loss_weights" in options else None
    if "rpo_alpha" in options:
        kinds, weights = [*kinds, "sft"], [1.0, options["rpo_alpha"]]
    in_parts = options["rlhf_type"] == "dpo" and not {"sft", "aot", "aot_unpaired"} & set(kinds)  # two sorted pairs are too few to tell
    micro = MICRO if in_parts or run == MEAN_OF_MEANS else PAIRS
    torch.manual_seed(0)
    dtype = torch.float64 if run in IN_FLOAT64 else torch.float32
    model = transformers.Qwen2ForCausalLM.from_pretrained(FOLDER, dtype=dtype)
    shared = dict(output_dir=tempfile.mkdtemp(), use_cpu=True, bf16=False, fp16=False, report_to=[], save_strategy="no", logging_steps=1,
                  max_steps=STEPS, per_device_train_batch_size=micro, gradient_accumulation_steps=PAIRS // micro,
                  per_device_eval_batch_size=VALID, learning_rate=OPTIONS["learning_rate"], lr_scheduler_type="constant",
                  adam_beta1=OPTIONS["adam_beta1"], adam_beta2=OPTIONS["adam_beta2"], adam_epsilon=OPTIONS["adam_epsilon"],
                  weight_decay=OPTIONS["weight_decay"], max_grad_norm=1.0, gradient_checkpointing=False, max_length=256, seed=0,
                  beta=options["beta"])
    if options["rlhf_type"] != "orpo":
        shared["label_smoothing"] = options.get("label_smoothing", 0.0)
    if options["rlhf_type"] == "dpo":
        if "adapters" in options:
            model = PeftModel.from_pretrained(model, os.path.join(FOLDER, "adapter"), is_trainable=True).to(dtype)
        ref = transformers.Qwen2ForCausalLM.from_pretrained(os.path.join(FOLDER, "ref")) if "ref_model" in options else None
        shared.update({name: options[name] for name in ("f_divergence_type", "f_alpha_divergence_coef", "ld_alpha") if name in options})
        shared["use_weighting"] = options.get("use_weighting") == "true"
        base, config, extra = DPOTrainer, DPOConfig(loss_type=kinds, loss_weights=weights, **shared), {"ref_model": ref}
    elif options["rlhf_type"] == "orpo":
        base, extra, config = ORPOTrainer, {}, ORPOConfig(**shared)
    else:
        kind = "simpo" if options["rlhf_type"] == "simpo" else options.get("loss_type", "sigmoid")
        base, extra = CPOTrainer, {}
        config = CPOConfig(loss_type=kind, cpo_alpha=options["cpo_alpha"], simpo_gamma=options.get("simpo_gamma", 0.5), **shared)

    class InOrder(base):
        def _get_train_sampler(self, dataset=None):
            return SequentialSampler(dataset if dataset is not None else self.train_dataset)

    trainer = InOrder(model=model, args=config, train_dataset=data, eval_dataset=valid, processing_class=tokenizer, **extra)
    trainer.train()
    evaluation = trainer.evaluate()
    names = METRICS + (["nll_loss"] if options["rlhf_type"] != "dpo" and options.get("cpo_alpha") != 0 else [])
    steps = [{"loss": log["loss"], "grad_norm": log["grad_norm"], **{name: log[name] for name in names}}
             for log in trainer.state.log_history if "grad_norm" in log]
    assert len(steps) == STEPS
    return {"options": options, "per_device_train_batch_size": micro, "steps": steps,
            "eval": {"loss": evaluation["eval_loss"], **{name: evaluation["eval_" + name] for name in names}}}


def write_golden(file, golden, *notes, append=False):
    """Writes the runs {name: {options, per_device_train_batch_size, steps, eval}}, a figure a line, below the versions and the notes."""
    versions = {name: importlib.metadata.version(name) for name in ("trl", "transformers", "torch", "peft")}
    with open(os.path.join(FOLDER, file), "a" if append else "w") as out:
        for note in [] if append else [", ".join(f"{name} {version}" for name, version in versions.items()), *notes]:
            out.write(f"# {note}\n")
        for run, record in golden.items():
            options = " ".join(f"--{name} {value}" for name, value in record["options"].items())
            out.write(f"{run} options --per_device_train_batch_size {record['per_device_train_batch_size']} {options}\n")
            for step, figures in [*enumerate(record["steps"], 1), ("eval", record["eval"])]:
                for name, value in figures.items():
                    out.write(f"{run} {step} {name} {value!r}\n")


def main():
    answers_alone()
    os.makedirs(os.path.join(FOLDER, "ref"), exist_ok=True)
    config = json.load(open(os.path.join(CHAT, "config.json")))
    config.update(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2)
    for folder in (FOLDER, os.path.join(FOLDER, "ref")):
        json.dump(config, open(os.path.join(folder, "config.json"), "w"), indent=1)
    for folder, seed in ((FOLDER, 1), (os.path.join(FOLDER, "ref"), 2)):
        model = make_model(seed, 0.3 if seed == 1 else 0.25)
        with tempfile.TemporaryDirectory() as out:
            model.save_pretrained(out)
            shutil.copy(os.path.join(out, "model.safetensors"), folder)
    base = transformers.Qwen2ForCausalLM.from_pretrained(FOLDER)
    torch.manual_seed(3)
    adapted = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, task_type="CAUSAL_LM",
                                              target_modules=["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"]))
    adapted.save_pretrained(os.path.join(FOLDER, "adapter"))
    for name in os.listdir(os.path.join(FOLDER, "adapter")):
        if name not in ("adapter_config.json", "adapter_model.safetensors"):
            os.remove(os.path.join(FOLDER, "adapter", name))
    described = json.load(open(os.path.join(FOLDER, "adapter", "adapter_config.json")))
    described["base_model_name_or_path"] = None
    described["target_modules"].sort()
    json.dump(described, open(os.path.join(FOLDER, "adapter", "adapter_config.json"), "w"), indent=1, sort_keys=True)
    rows = make_rows(STEPS * PAIRS, 5)
    write_rows("pairs.swift.jsonl", [swift_row(row) for row in rows])
    write_rows("pairs.implicit.jsonl", [implicit_row(row) for row in rows])
    data, valid = write_rows("pairs.jsonl", rows), write_rows("valid.jsonl", make_rows(VALID, 6))
    tokenizer = transformers.AutoTokenizer.from_pretrained(CHAT)
    tokenizer.pad_token = "<|endoftext|>"
    golden = {run: train(run, data, valid, tokenizer) for run in RUNS}
    mean_of_means = train(MEAN_OF_MEANS, data, valid, tokenizer)["steps"][0]["loss"]
    write_golden("golden.txt", golden, f"the first loss of cpo in micro-batches of {MICRO}, a mean of means: {mean_of_means!r}")


if __name__ == "__main__":
    main()
