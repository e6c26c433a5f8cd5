#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes frozen.json in golden directories beside this script: ten AdamW steps of their models under PyTorch, on the CPU, in float32,
with some parameters frozen (requires_grad = False). Weights and tokens are those of the directory.

    python3 make_frozen_golden.py [DIR ...]     # needs torch, transformers 5, safetensors, numpy; README.md has the fields

Every run is also made in float64 from the same weights (distance_to_float64).
"""
import json
import os
import sys

import numpy
import torch
import transformers
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup

from make_families_golden import backward, per_expert
from make_gpt2_golden import HERE, distance, without_key_bias

STEPS = 10
OPTIONS = dict(learning_rate=4e-3, lr_scheduler_type="cosine", warmup_steps=2, max_steps=STEPS, weight_decay=0.1, adam_beta1=0.9,
               adam_beta2=0.95, adam_epsilon=1e-8)
SAMPLES, MICRO_BATCH = 4, 2

# By directory, by run: which parameters are frozen, as beginnings of names, and max_grad_norm, so that some steps are clipped.
# "embedding": a tied head is the same parameter, and is frozen too. "block 1": all but one block.
GPT2_BUT_1 = ["wte.", "wpe.", "h.0.", "h.2.", "h.3.", "ln_f."]
LLAMA_BUT_1 = ["model.embed_tokens.", "model.layers.0.", "model.layers.2.", "model.norm.", "lm_head."]
EMBEDDING = ["model.embed_tokens."]
RUNS = {
    "tiny": {"embedding": (["wte."], 2.0), "block 1": (GPT2_BUT_1, 1.0)},
    "text": {"block 1": (GPT2_BUT_1, 0.6)},
    "llama": {"embedding": (EMBEDDING, 1.3), "block 1": (LLAMA_BUT_1, 0.7)},
    "qwen2": {"embedding": (EMBEDDING, 1.55), "block 1": (LLAMA_BUT_1, 0.9)},
    "qwen3-untied": {"embedding": (EMBEDDING, 1.65)},
    "qwen3-moe": {"embedding": (EMBEDDING, 1.35), "block 1": (LLAMA_BUT_1, 0.68)},
    "mixtral": {"block 1": (LLAMA_BUT_1, 0.93)},
}


def canonical(name):
    return name.removeprefix("transformer.")


def load(folder, frozen, dtype):
    """The model, and its trainable parameters by name in memory. A tied head is no parameter of its own in named_parameters()."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                 experts_implementation="eager").to(dtype).eval()
    assert model.config.tie_word_embeddings == (model.get_output_embeddings().weight is model.get_input_embeddings().weight)
    for name, p in model.named_parameters():
        p.requires_grad = not canonical(name).startswith(tuple(frozen))
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    return model, trained


def norms_of(values, family):
    values = {canonical(n): without_key_bias(n, v) for n, v in per_expert(values, family).items()}
    return {n: v.norm().item() for n, v in values.items()}


def train(folder, golden, frozen, max_grad_norm, dtype):
    model, trained = load(folder, frozen, dtype)
    family, samples, tokens = model.config.model_type, SAMPLES, golden["tokens_per_sample"]
    kind = numpy.uint8 if golden["tokens"].endswith(".txt") else numpy.uint16
    ids = numpy.fromfile(os.path.join(folder, golden["tokens"]), dtype=kind, offset=0 if kind == numpy.uint8 else 1024).tolist()
    groups = [dict(params=[p for p in trained.values() if p.dim() >= 2], weight_decay=OPTIONS["weight_decay"]),
              dict(params=[p for p in trained.values() if p.dim() < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=OPTIONS["learning_rate"], betas=(OPTIONS["adam_beta1"], OPTIONS["adam_beta2"]),
                                  eps=OPTIONS["adam_epsilon"], foreach=False, fused=False)
    schedule = get_cosine_schedule_with_warmup(optimizer, OPTIONS["warmup_steps"], STEPS)
    before = {n: p.detach().clone() for n, p in model.named_parameters() if n not in trained}
    steps, gradient_norms = [], {}
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        losses = backward(model, ids, step * samples, samples, tokens, MICRO_BATCH)
        if step == 0:
            gradient_norms = {canonical(n): g.norm().item()
                              for n, g in per_expert({n: p.grad.double() for n, p in trained.items()}, family).items()}
        norm = torch.nn.utils.clip_grad_norm_(trained.values(), max_grad_norm, foreach=False)
        steps.append(dict(losses, grad_norm=norm.item(), learning_rate=schedule.get_last_lr()[0]))
        optimizer.step()
        schedule.step()
    assert all(p.grad is None and torch.equal(p, before[n]) for n, p in model.named_parameters() if n in before)
    return steps, gradient_norms, norms_of({n: p.detach().double() for n, p in trained.items()}, family)


def run(folder, golden, frozen, max_grad_norm):
    steps, norms, final = train(folder, golden, frozen, max_grad_norm, torch.float32)
    double_steps, double_norms, _ = train(folder, golden, frozen, max_grad_norm, torch.float64)
    largest = double_steps[0]["grad_norm"]
    out = dict(
        frozen=frozen, samples_per_step=SAMPLES, tokens_per_sample=golden["tokens_per_sample"], micro_batch=MICRO_BATCH,
        tokens=golden["tokens"], steps=STEPS, options=dict(OPTIONS, max_grad_norm=max_grad_norm),
        **{key: [s[key] for s in steps] for key in ("loss", "grad_norm", "learning_rate", "aux_loss", "aux_loss_layers")},
        gradient_norms_step_1=norms, weight_norms_final=final,
        distance_to_float64=dict(
            steps=distance(steps, double_steps),
            gradient_norms_step_1=max(abs(norms[n] - v) / v for n, v in double_norms.items() if v > 1e-9 * largest)))
    if not steps[0]["aux_loss_layers"]:
        del out["aux_loss"], out["aux_loss_layers"]
    clipped = sum(s["grad_norm"] > max_grad_norm for s in steps)
    print(os.path.basename(folder), frozen, "clipped", clipped, [round(s["grad_norm"], 3) for s in steps], "loss", steps[0]["loss"],
          "->", steps[-1]["loss"], out["distance_to_float64"], flush=True)
    assert 0 < clipped < STEPS, "choose max_grad_norm so that some steps are clipped"
    return out


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or RUNS:
        folder = os.path.join(HERE, name)
        with open(os.path.join(folder, "golden.json")) as file:
            golden = json.load(file)
        out = dict(made_with=f"torch {torch.__version__}, transformers {transformers.__version__}, CPU, float32, 1 thread, eager attention",
                   runs={case: run(folder, golden, *what) for case, what in RUNS[name].items()})
        with open(os.path.join(folder, "frozen.json"), "w") as file:
            file.write(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
