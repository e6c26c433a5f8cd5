#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes dpo/ in golden directories beside this script: ten AdamW steps of DPO on the adapter in lora/ (make_lora_golden.py) under peft
and PyTorch, on the CPU, in float32. Weights and tokens are those of the directory.

    python3 make_dpo_golden.py [DIR ...]     # needs torch, transformers 5, peft, safetensors, numpy

Samples 2k and 2k + 1 are a pair, the first one chosen. The loss is the mean over pairs of -log sigmoid(beta * ((p0 - r0) - (p1 - r1))),
p the sum of the log-probabilities of a sample's targets, r the same of the base with its adapters switched off (disable_adapter), as in
TRL's DPOTrainer. Fields are those of make_lora_golden.py, and beta. Every run is also made in float64 (distance_to_float64).
"""
import json
import os
import sys

import numpy
import peft
import torch
import torch.nn.functional as F
import transformers
from peft import PeftModel
from safetensors.torch import save_file
from transformers import get_cosine_schedule_with_warmup

from make_frozen_golden import MICRO_BATCH, OPTIONS, SAMPLES, STEPS
from make_gpt2_golden import HERE
from make_lora_golden import key_of, load_base

BETA = 0.5
RUNS = ["tiny"]


def log_probabilities(model, x, y):
    logits = model(input_ids=x).logits
    return -F.cross_entropy(logits.transpose(1, 2), y, reduction="none").sum(1)


def train(folder, golden, max_grad_norm, dtype):
    adapted = PeftModel.from_pretrained(load_base(folder), os.path.join(folder, "lora"), is_trainable=True).to(dtype).eval()
    trained = {key_of(n): p for n, p in adapted.named_parameters() if p.requires_grad}
    tokens = golden["tokens_per_sample"]
    ids = numpy.fromfile(os.path.join(folder, golden["tokens"]), dtype=numpy.uint16, offset=1024).tolist()
    optimizer = torch.optim.AdamW(trained.values(), lr=OPTIONS["learning_rate"], betas=(OPTIONS["adam_beta1"], OPTIONS["adam_beta2"]),
                                  eps=OPTIONS["adam_epsilon"], weight_decay=OPTIONS["weight_decay"], foreach=False, fused=False)
    assert all(p.dim() >= 2 for p in trained.values())
    schedule = get_cosine_schedule_with_warmup(optimizer, OPTIONS["warmup_steps"], STEPS)
    steps, gradients = [], {}
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        total, right = 0.0, 0
        for first in range(0, SAMPLES, MICRO_BATCH):
            at = [(step * SAMPLES + first + k) * tokens for k in range(MICRO_BATCH)]
            x = torch.tensor([ids[a: a + tokens] for a in at])
            y = torch.tensor([ids[a + 1: a + tokens + 1] for a in at])
            with torch.no_grad(), adapted.disable_adapter():
                reference = log_probabilities(adapted, x, y)
            ratio = log_probabilities(adapted, x, y) - reference
            margin = BETA * (ratio[0::2] - ratio[1::2])
            loss = -F.logsigmoid(margin).sum()
            (loss / (SAMPLES // 2)).backward()
            total += loss.item()
            right += (margin > 0).sum().item()
        if step == 0:
            gradients = {n: p.grad.detach().clone() for n, p in trained.items()}
        norm = torch.nn.utils.clip_grad_norm_(trained.values(), max_grad_norm, foreach=False)
        steps.append(dict(loss=total / (SAMPLES // 2), grad_norm=norm.item(), learning_rate=schedule.get_last_lr()[0], correct=right))
        optimizer.step()
        schedule.step()
    return steps, gradients, {n: p.detach().clone() for n, p in trained.items()}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or RUNS:
        folder = os.path.join(HERE, name)
        out = os.path.join(folder, "dpo")
        os.makedirs(out, exist_ok=True)
        with open(os.path.join(folder, "golden.json")) as file:
            golden = json.load(file)
        free = sorted(s["grad_norm"] for s in train(folder, golden, 1e9, torch.float32)[0])
        max_grad_norm = round((free[4] + free[5]) / 2, 3)
        steps, gradients, weights = train(folder, golden, max_grad_norm, torch.float32)
        double_steps, double_gradients, double_weights = train(folder, golden, max_grad_norm, torch.float64)
        save_file({n: t.contiguous() for n, t in gradients.items()}, os.path.join(out, "gradients.safetensors"))
        save_file({n: t.contiguous() for n, t in weights.items()}, os.path.join(out, "final.safetensors"))

        def apart(a, b):
            return max(((a[n].double() - b[n].double()).norm() / b[n].double().norm()).item() for n in a)

        result = dict(
            made_with=f"peft {peft.__version__}, torch {torch.__version__}, transformers {transformers.__version__}, CPU, float32, "
                      "1 thread, eager attention",
            samples_per_step=SAMPLES, tokens_per_sample=golden["tokens_per_sample"], micro_batch=MICRO_BATCH, tokens=golden["tokens"],
            beta=BETA, steps=STEPS, options=dict(OPTIONS, max_grad_norm=max_grad_norm),
            **{key: [s[key] for s in steps] for key in ("loss", "grad_norm", "learning_rate", "correct")},
            distance_to_float64=dict(
                steps=max(abs(a[k] - b[k]) / abs(b[k]) for a, b in zip(steps, double_steps) for k in ("loss", "grad_norm")),
                gradients_step_1=apart(gradients, double_gradients), weights_final=apart(weights, double_weights)))
        clipped = sum(s["grad_norm"] > max_grad_norm for s in steps)
        print(name, "clipped", clipped, [round(s["grad_norm"], 3) for s in steps], [round(s["loss"], 4) for s in steps],
              result["distance_to_float64"], flush=True)
        assert 0 < clipped < STEPS, "choose max_grad_norm so that some steps are clipped"
        with open(os.path.join(out, "dpo.json"), "w") as file:
            file.write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
