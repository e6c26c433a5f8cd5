#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes weighted.json in golden directories beside this script: ten AdamW steps of their models under PyTorch, on the CPU, in float32,
where every token has a weight by which its loss as a target is multiplied. Weights and tokens are those of the directory.

    python3 make_weighted_golden.py [DIR ...]     # needs torch, transformers 5, safetensors, numpy; README.md has the fields

Every run is also made in float64 from the same weights (distance_to_float64).
"""
import json
import os
import sys

import numpy
import torch
import torch.nn.functional as F
from transformers import get_cosine_schedule_with_warmup

from make_families_golden import per_expert
from make_frozen_golden import MICRO_BATCH, OPTIONS, SAMPLES, STEPS, canonical, load, norms_of
from make_gpt2_golden import HERE, distance

MAX_GRAD_NORM = {"tiny": 2.5, "qwen2": 2.3}
LOSS_WEIGHTS = [1.0, 0.5, 0.0, 2.0, 1.0, 0.1, 1.75]  # of token i: element i modulo 7


def train(folder, golden, max_grad_norm, dtype):
    model, trained = load(folder, ["no parameter is frozen"], dtype)
    family, tokens = model.config.model_type, golden["tokens_per_sample"]
    kind = numpy.uint8 if golden["tokens"].endswith(".txt") else numpy.uint16
    ids = torch.tensor(numpy.fromfile(os.path.join(folder, golden["tokens"]), dtype=kind,
                                      offset=0 if kind == numpy.uint8 else 1024).astype(int))
    groups = [dict(params=[p for p in trained.values() if p.dim() >= 2], weight_decay=OPTIONS["weight_decay"]),
              dict(params=[p for p in trained.values() if p.dim() < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=OPTIONS["learning_rate"], betas=(OPTIONS["adam_beta1"], OPTIONS["adam_beta2"]),
                                  eps=OPTIONS["adam_epsilon"], foreach=False, fused=False)
    schedule = get_cosine_schedule_with_warmup(optimizer, OPTIONS["warmup_steps"], STEPS)
    steps, first_norms = [], {}
    for step in range(STEPS):
        begins = [(step * SAMPLES + k) * tokens for k in range(SAMPLES)]
        x = torch.stack([ids[b:b + tokens] for b in begins])
        at = torch.stack([torch.arange(b + 1, b + tokens + 1) for b in begins])
        y, w = ids[at], torch.tensor(LOSS_WEIGHTS, dtype=dtype)[at % len(LOSS_WEIGHTS)]
        optimizer.zero_grad()
        logits = model(input_ids=x).logits
        losses = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none")
        loss = (losses * w.flatten()).sum() / y.numel()  # over the number of targets, not over the sum of weights
        loss.backward()
        if step == 0:
            grads = per_expert({n: p.grad.double() for n, p in trained.items()}, family)
            first_norms = {canonical(n): g.norm().item() for n, g in grads.items()}
        norm = torch.nn.utils.clip_grad_norm_(list(trained.values()), max_grad_norm)
        two = logits.topk(2).values
        steps.append(dict(loss=loss.item(), grad_norm=norm.item(), learning_rate=schedule.get_last_lr()[0],
                          correct=int((logits.argmax(-1) == y).sum()), margin=(two[..., 0] - two[..., 1]).min().item()))
        optimizer.step()
        schedule.step()
    return steps, first_norms, norms_of({n: p.detach().double() for n, p in trained.items()}, family)


def make(name):
    folder = os.path.join(HERE, name)
    golden = json.load(open(os.path.join(folder, "golden.json")))
    limit = MAX_GRAD_NORM[name]
    steps, norms, final = train(folder, golden, limit, torch.float32)
    double_steps, _, _ = train(folder, golden, limit, torch.float64)
    print(name, [round(s["grad_norm"], 3) for s in steps], "correct", [s["correct"] for s in steps], "margin", min(s["margin"] for s in steps))
    clipped = sum(s["grad_norm"] > limit for s in steps)
    assert 0 < clipped < STEPS, f"{name}: {clipped} of {STEPS} steps clipped; choose MAX_GRAD_NORM so that some are"
    assert [s["correct"] for s in steps] == [s["correct"] for s in double_steps], f"{name}: two logits are too close"
    out = dict(
        made_with=f"torch {torch.__version__}, CPU, float32, 1 thread",
        tokens=golden["tokens"], samples_per_step=SAMPLES, micro_batch=MICRO_BATCH,
        tokens_per_sample=golden["tokens_per_sample"], steps=STEPS, options=OPTIONS | dict(max_grad_norm=limit),
        loss_weights=LOSS_WEIGHTS, loss=[s["loss"] for s in steps], correct=[s["correct"] for s in steps],
        grad_norm=[s["grad_norm"] for s in steps], learning_rate=[s["learning_rate"] for s in steps],
        gradient_norms_step_1=norms, weight_norms_final=final, distance_to_float64=dict(steps=distance(steps, double_steps)))
    with open(os.path.join(folder, "weighted.json"), "w") as file:
        json.dump(out, file, indent=1)
        file.write("\n")
    print(name, "clipped", clipped, "loss", steps[0]["loss"], "->", steps[-1]["loss"], out["distance_to_float64"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MAX_GRAD_NORM:
        make(name)
