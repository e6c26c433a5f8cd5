#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the GPT-2 golden files beside this script: ten AdamW steps of a Hugging Face GPT-2 under PyTorch, on the CPU, in float32.

    python3 make_gpt2_golden.py          # needs torch, transformers, safetensors, numpy; README.md has the fields

Every shape is also run in float64 from the same weights; the largest relative distance between the two runs is stored, so that
whoever compares knows how much of a tolerance the reference itself uses up.
"""
import json
import math
import os
import struct

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, get_cosine_schedule_with_warmup

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 10

# What differs: widths, how names and tokens are stored, and the spelling of config.json (v4: the Hub's own file; v5: transformers 5).
SHAPES = {
    "tiny": dict(
        seed=11, samples=4, tokens=13, token_file="tokens.bin", config_style="v5", prefix="", store=torch.float32,
        model=dict(vocab_size=67, n_positions=16, n_embd=48, n_layer=2, n_head=3, n_inner=None),
        lr=4e-3, warmup=3, weight_decay=0.1, max_grad_norm=2.2, betas=(0.9, 0.95), eps=1e-8),
    "odd": dict(
        seed=12, samples=6, tokens=29, token_file="tokens.bin", config_style="v4", prefix="transformer.", store=torch.float32,
        model=dict(vocab_size=101, n_positions=41, n_embd=50, n_layer=3, n_head=5, n_inner=114),
        lr=3e-3, warmup=2, weight_decay=0.05, max_grad_norm=1.9, betas=(0.9, 0.999), eps=1e-8),
    "text": dict(
        seed=13, samples=6, tokens=32, token_file="tokens.txt", config_style="v5", prefix="transformer.", store=torch.bfloat16,
        model=dict(vocab_size=256, n_positions=32, n_embd=52, n_layer=4, n_head=4, n_inner=None),
        lr=2e-3, warmup=4, weight_decay=0.1, max_grad_norm=2.1, betas=(0.9, 0.95), eps=1e-8),
}


def token_stream(shape):
    """A stream with something to learn: a congruence with a few irregularities; for "text", words from a short list."""
    count = STEPS * shape["samples"] * shape["tokens"] + 1
    if shape["token_file"].endswith(".txt"):
        words = "the shard gathers what the rank owns and a step ends when every unit has reduced its gradient ; so be it .".split()
        text, k = "", 0
        while len(text) < count:
            k = (k * 1103515245 + 12345) % (1 << 31)
            text += words[(k >> 16) % len(words)] + ("\n" if (k >> 8) % 11 == 0 else " ")
        return list(text[:count].encode("ascii"))
    vocab, ids, k = shape["model"]["vocab_size"], [1], 7
    while len(ids) < count:
        k = (k * 1103515245 + 12345) % (1 << 31)
        ids.append((ids[-1] * 5 + 3) % vocab if (k >> 16) % 4 else (k >> 9) % vocab)
    return ids


def write_tokens(path, ids):
    with open(path, "wb") as out:
        if path.endswith(".txt"):
            out.write(bytes(ids))
        else:  # llm.c: 256 int32 of header, then uint16
            out.write(struct.pack("<3i", 20240520, 1, len(ids)) + bytes(4 * 253))
            out.write(np.asarray(ids, dtype="<u2").tobytes())


def build(shape):
    config = GPT2Config(**shape["model"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.06,
                        bos_token_id=0, eos_token_id=0, use_cache=False)
    torch.manual_seed(shape["seed"])
    model = GPT2LMHeadModel._from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():  # biases and norms that a fresh model leaves at 0 and 1 take part too
        for name, p in model.named_parameters():
            if name.endswith(".bias"):
                p.add_(0.03 * torch.randn_like(p))
            elif ".ln_" in name:
                p.add_(0.1 * torch.randn_like(p))
            p.copy_(p.to(shape["store"]).float())
    return config, model


def write_config(path, shape, config):
    if shape["config_style"] == "v5":
        text = config.to_json_string(use_diff=False)
    else:
        text = json.dumps({
            "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.0, "bos_token_id": 0,
            "embd_pdrop": 0.0, "eos_token_id": 0, "initializer_range": 0.06, "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
            "n_ctx": shape["model"]["n_positions"], **shape["model"], "resid_pdrop": 0.0, "summary_activation": None,
            "summary_first_dropout": 0.1, "summary_proj_to_labels": True, "summary_type": "cls_index",
            "summary_use_proj": True, "torch_dtype": "float32"}, indent=2) + "\n"
    with open(path, "w") as out:
        out.write(text)


def train(model, ids, shape):
    """Loss, gradient norm and learning rate of every step, and the gradient norms by tensor of the first."""
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([dict(params=decayed, weight_decay=shape["weight_decay"]), dict(params=plain, weight_decay=0.0)],
                                  lr=shape["lr"], betas=shape["betas"], eps=shape["eps"], foreach=False, fused=False)
    schedule = get_cosine_schedule_with_warmup(optimizer, shape["warmup"], STEPS)
    samples, tokens = shape["samples"], shape["tokens"]
    steps, norms = [], {}
    for step in range(STEPS):
        first = step * samples * tokens
        x = torch.tensor([ids[first + k * tokens: first + (k + 1) * tokens] for k in range(samples)])
        y = torch.tensor([ids[first + k * tokens + 1: first + (k + 1) * tokens + 1] for k in range(samples)])
        optimizer.zero_grad(set_to_none=True)
        logits = model(input_ids=x).logits
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1), reduction="sum") / y.numel()
        loss.backward()
        if step == 0:
            norms = {n.removeprefix("transformer."): p.grad.double().norm().item() for n, p in model.named_parameters()}
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), shape["max_grad_norm"], foreach=False)
        steps.append(dict(loss=loss.item(), grad_norm=norm.item(), learning_rate=schedule.get_last_lr()[0]))
        optimizer.step()
        schedule.step()
    final = {n.removeprefix("transformer."): without_key_bias(n, p.detach().double()).norm().item()
             for n, p in model.named_parameters()}
    return steps, norms, final


def without_key_bias(name, value):
    """Softmax takes no notice of a key bias: its gradient is rounding error alone, which AdamW turns into steps of full length."""
    if not name.endswith("attn.c_attn.bias"):
        return value
    q, _, v = value.chunk(3)
    return torch.cat([q, v])


def distance(a, b):
    return max(abs(x[k] - y[k]) / abs(y[k]) for x, y in zip(a, b) for k in ("loss", "grad_norm"))


def make(name, shape):
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    ids = token_stream(shape)
    config, model = build(shape)
    write_config(os.path.join(folder, "config.json"), shape, config)
    write_tokens(os.path.join(folder, shape["token_file"]), ids)
    weights = {shape["prefix"] + n.removeprefix("transformer."): p.detach().clone().to(shape["store"]).contiguous()
               for n, p in model.named_parameters()}
    save_file(weights, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})

    _, double_model = build(shape)
    double_model.double()
    prompt = ids[:7]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt])).logits[0, -1].tolist()
    steps, norms, final = train(model, ids, shape)
    double_steps, double_norms, _ = train(double_model, ids, shape)
    golden = dict(
        made_with=f"torch {torch.__version__}, transformers {transformers.__version__}, CPU, float32, 1 thread, eager attention",
        tokens=shape["token_file"], samples_per_step=shape["samples"], tokens_per_sample=shape["tokens"], steps=STEPS,
        options=dict(learning_rate=shape["lr"], lr_scheduler_type="cosine", warmup_steps=shape["warmup"], max_steps=STEPS,
                     weight_decay=shape["weight_decay"], adam_beta1=shape["betas"][0], adam_beta2=shape["betas"][1],
                     adam_epsilon=shape["eps"], max_grad_norm=shape["max_grad_norm"]),
        loss=[s["loss"] for s in steps], grad_norm=[s["grad_norm"] for s in steps],
        learning_rate=[s["learning_rate"] for s in steps], gradient_norms_step_1=norms, weight_norms_final=final,
        prompt=prompt, prompt_logits=logits,
        distance_to_float64=dict(
            steps=distance(steps, double_steps),
            gradient_norms_step_1=max(abs(norms[n] - double_norms[n]) / (double_norms[n] or 1) for n in norms
                                      if double_norms[n] > 1e-9 * double_steps[0]["grad_norm"])))
    with open(os.path.join(folder, "golden.json"), "w") as out:
        json.dump(golden, out, indent=1)
        out.write("\n")
    clipped = sum(s["grad_norm"] > shape["max_grad_norm"] for s in steps)
    assert 0 < clipped < STEPS, f"{name}: {clipped} of {STEPS} steps clipped; choose max_grad_norm so that some are"
    assert all(math.isfinite(s["loss"]) for s in steps) and steps[-1]["loss"] < steps[0]["loss"]
    print(name, "clipped", clipped, "loss", steps[0]["loss"], "->", steps[-1]["loss"], golden["distance_to_float64"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for shape_name, shape_options in SHAPES.items():
        make(shape_name, shape_options)
