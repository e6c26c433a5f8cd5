#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes sgd.json, param_groups.json and adamw_8bit.json beside the GPT-2 golden runs: ten steps of the same models on the same
tokens with torch.optim.SGD, with torch.optim.AdamW whose parameter groups have other learning rates and weight decays, and with
AdamW whose moments are quantized after each step, block-wise by bitsandbytes' dynamic code.

    python3 make_optimizer_golden.py     # needs torch, safetensors, numpy, bitsandbytes; README.md has the fields

The model is written out here, without transformers; its first loss and gradients must be those of golden.json.
"""
import fnmatch
import json
import math
import os

import bitsandbytes
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
SGD = {
    "tiny": dict(lr=0.2, momentum=0.9, nesterov=True, weight_decay=0.02, max_grad_norm=2.5),
    "odd": dict(lr=0.3, momentum=0.0, nesterov=False, weight_decay=0.01, max_grad_norm=2.0),
    "text": dict(lr=0.1, momentum=0.9, nesterov=False, weight_decay=0.0, max_grad_norm=2.0),
}
# Of the groups that match a name, the last that gives a value decides it, as --param_groups does.
GROUPS = {
    "odd": dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.05, max_grad_norm=1.9, groups=[
        ("wte.weight", dict(lr_scale=0.1, weight_decay=0.0)), ("h.1.*", dict(lr_scale=2.0)),
        ("h.*.bias", dict(weight_decay=0.2)), ("h.1.attn.*", dict(lr_scale=0.5))]),
}


EIGHT_BIT = {
    "tiny": dict(lr=4e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, max_grad_norm=2.2, quantized=True),
}


class QuantizedAdamW(torch.optim.AdamW):
    """Stores the moments as codes of blocks of 256 elements of a parameter, each the nearest value of the code."""

    def step(self):
        super().step()
        for state in self.state.values():
            for key, signed in (("exp_avg", True), ("exp_avg_sq", False)):
                state[key].copy_(requantized(state[key], bitsandbytes.functional.create_dynamic_map(signed=signed)))


def requantized(x, code):
    flat, out = x.flatten(), []
    for block in flat.split(256):
        largest = block.abs().max()
        scaled = (block / largest if largest > 0 else block).double()
        nearest = (scaled[:, None] - code.double()[None]).abs().argmin(1)
        out.append(code.to(x.dtype)[nearest] * largest)
    return torch.cat(out).view_as(x)


def rates_of(run, params):
    """Learning-rate factor and weight decay of each parameter."""
    rates = {n: dict(lr_scale=1.0, weight_decay=run["weight_decay"] if p.dim() >= 2 else 0.0) for n, p in params.items()}
    for glob, values in run.get("groups", []):
        for name in fnmatch.filter(rates, glob):
            rates[name].update(values)
    return rates


def optimizer_of(run, model):
    rates = rates_of(run, model.params)
    groups = [dict(params=[p], weight_decay=rates[n]["weight_decay"], lr_scale=rates[n]["lr_scale"])
              for n, p in model.params.items()]
    if "betas" in run:
        kind = QuantizedAdamW if "quantized" in run else torch.optim.AdamW
        return kind(groups, lr=run["lr"], betas=run["betas"], eps=run["eps"], foreach=False, fused=False)
    return torch.optim.SGD(groups, lr=run["lr"], momentum=run["momentum"], nesterov=run["nesterov"], foreach=False)


def options_of(run, golden, params):
    options = dict(learning_rate=run["lr"], lr_scheduler_type="cosine", warmup_steps=golden["options"]["warmup_steps"],
                   max_steps=golden["steps"], weight_decay=run["weight_decay"], max_grad_norm=run["max_grad_norm"])
    if "betas" in run:
        options.update(adam_beta1=run["betas"][0], adam_beta2=run["betas"][1], adam_epsilon=run["eps"])
        if "quantized" in run:
            options.update(optim="adamw_8bit")
            return options
        options.update(param_groups=[glob + "".join(f" {k}={v}" for k, v in values.items()) for glob, values in run["groups"]],
                       rates=rates_of(run, params))
    else:
        options.update(optim="sgd", momentum=run["momentum"], nesterov=run["nesterov"])
    return options


def read_tokens(path):
    data = open(path, "rb").read()
    if path.endswith(".txt"):
        return list(data)
    return np.frombuffer(data[1024:], dtype="<u2").astype(int).tolist()


class Gpt2:
    """Parameters by their canonical names; the head is tied to wte."""

    def __init__(self, folder, dtype):
        config = json.load(open(os.path.join(folder, "config.json")))
        self.heads, self.layers = config["n_head"], config["n_layer"]
        stored = load_file(os.path.join(folder, "model.safetensors"))
        self.params = {n.removeprefix("transformer."): p.float().to(dtype).requires_grad_() for n, p in stored.items()
                       if n != "lm_head.weight"}

    def logits(self, ids):
        p = self.params
        (batch, tokens), width = ids.shape, p["wte.weight"].shape[1]
        norm = lambda x, name: F.layer_norm(x, (width,), p[name + ".weight"], p[name + ".bias"], 1e-5)
        linear = lambda x, name: x @ p[name + ".weight"] + p[name + ".bias"]
        split = lambda x: x.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)
        future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        x = p["wte.weight"][ids] + p["wpe.weight"][:tokens]
        for layer in range(self.layers):
            block = f"h.{layer}."
            q, k, v = map(split, linear(norm(x, block + "ln_1"), block + "attn.c_attn").split(width, dim=2))
            scores = (q @ k.transpose(2, 3) / math.sqrt(width // self.heads)).masked_fill(future, -math.inf)
            y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, width)
            x = x + linear(y, block + "attn.c_proj")
            y = F.gelu(linear(norm(x, block + "ln_2"), block + "mlp.c_fc"), approximate="tanh")
            x = x + linear(y, block + "mlp.c_proj")
        return norm(x, "ln_f") @ p["wte.weight"].T


def learning_rate(step, base, warmup, steps):
    """Linear warm-up, then cosine to zero, as transformers' get_cosine_schedule_with_warmup."""
    if step < warmup:
        return base * step / max(1, warmup)
    return base * max(0.0, 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup))))


def train(model, ids, golden, run):
    optimizer = optimizer_of(run, model)
    samples, tokens, warmup = golden["samples_per_step"], golden["tokens_per_sample"], golden["options"]["warmup_steps"]
    steps, norms = [], {}
    for step in range(golden["steps"]):
        rate = learning_rate(step, run["lr"], warmup, golden["steps"])
        for group in optimizer.param_groups:
            group["lr"] = rate * group["lr_scale"]
        first = step * samples * tokens
        x = torch.tensor([ids[first + k * tokens: first + (k + 1) * tokens] for k in range(samples)])
        y = torch.tensor([ids[first + k * tokens + 1: first + (k + 1) * tokens + 1] for k in range(samples)])
        optimizer.zero_grad()
        logits = model.logits(x)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1), reduction="sum") / y.numel()
        loss.backward()
        if step == 0:
            norms = {n: p.grad.double().norm().item() for n, p in model.params.items()}
        norm = torch.nn.utils.clip_grad_norm_(list(model.params.values()), run["max_grad_norm"])
        steps.append(dict(loss=loss.item(), grad_norm=norm.item(), learning_rate=rate))
        optimizer.step()
    adamw = isinstance(optimizer, torch.optim.AdamW)
    return steps, norms, {n: compared(n, p.detach().double(), adamw).norm().item() for n, p in model.params.items()}


def compared(name, value, adamw):
    """AdamW turns the rounding noise that is a key bias' gradient into steps of full length."""
    if not adamw or not name.endswith("attn.c_attn.bias"):
        return value
    q, _, v = value.chunk(3)
    return torch.cat([q, v])


def distance(a, b):
    return max(abs(x[k] - y[k]) / abs(y[k]) for x, y in zip(a, b) for k in ("loss", "grad_norm"))


def make(name, file_name, run):
    folder = os.path.join(HERE, name)
    golden = json.load(open(os.path.join(folder, "golden.json")))
    ids = read_tokens(os.path.join(folder, golden["tokens"]))
    model = Gpt2(folder, torch.float32)
    steps, norms, final = train(model, ids, golden, run)
    double_steps, _, _ = train(Gpt2(folder, torch.float64), ids, golden, run)
    for key in ("loss", "grad_norm"):
        assert abs(steps[0][key] - golden[key][0]) <= 1e-5 * golden[key][0], f"{name}: another model than golden.json's"
    clipped = sum(s["grad_norm"] > run["max_grad_norm"] for s in steps)
    assert 0 < clipped < len(steps), f"{name}: {clipped} of {len(steps)} steps clipped; choose max_grad_norm so that some are"
    assert all(math.isfinite(s["loss"]) for s in steps) and steps[-1]["loss"] < steps[0]["loss"]
    out = dict(
        made_with=f"torch {torch.__version__}, CPU, float32, 1 thread",
        tokens=golden["tokens"], samples_per_step=golden["samples_per_step"],
        tokens_per_sample=golden["tokens_per_sample"], steps=golden["steps"],
        options=options_of(run, golden, model.params),
        loss=[s["loss"] for s in steps], grad_norm=[s["grad_norm"] for s in steps],
        learning_rate=[s["learning_rate"] for s in steps], gradient_norms_step_1=norms, weight_norms_final=final,
        distance_to_float64=dict(steps=distance(steps, double_steps)))
    with open(os.path.join(folder, file_name), "w") as file:
        json.dump(out, file, indent=1)
        file.write("\n")
    print(name, "clipped", clipped, "loss", steps[0]["loss"], "->", steps[-1]["loss"], out["distance_to_float64"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for runs, run_file in ((SGD, "sgd.json"), (GROUPS, "param_groups.json"), (EIGHT_BIT, "adamw_8bit.json")):
        for run_name, run_options in runs.items():
            make(run_name, run_file, run_options)
