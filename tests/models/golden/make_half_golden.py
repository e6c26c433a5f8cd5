#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes half.json beside this script: loss and gradient norms of the first step of golden runs, under PyTorch on the CPU with weights,
activations and gradients in bf16 or fp16 (loss in fp32), and in fp32 from the same rounded weights.

    python3 make_half_golden.py [NAME ...]     # needs torch, transformers 5, safetensors; reads the folders of the other golden scripts

With names, entries of others stay.
"""
import json
import os
import sys

import numpy
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = ["tiny", "llama", "qwen2", "qwen3-untied", "granite", "gemma2", "gemma3", "gpt-oss", "llama4"]
# Every expert computes every token: a router in 16 bits may choose others, and then nothing can be compared.
SETTINGS = {name: dict(num_experts_per_tok=5, output_router_logits=False) for name in ("gpt-oss", "llama4")}
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def load(folder, rounded, dtype):
    config = AutoConfig.from_pretrained(folder, **SETTINGS.get(os.path.basename(folder), {}))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").float().eval()
    state = {k: v.float() for k, v in load_file(os.path.join(folder, "model.safetensors")).items()}
    own = model.state_dict()
    fits = {k if k in own else "transformer." + k: v for k, v in state.items()}
    missing, unexpected = model.load_state_dict(fits, strict=False)
    assert not unexpected and all(k == "lm_head.weight" for k in missing), (missing, unexpected)
    model.tie_weights()
    return model.to(rounded).to(dtype)


def first_step(folder, golden, rounded, dtype):
    model = load(folder, rounded, dtype)
    tokens = numpy.fromfile(os.path.join(folder, golden["tokens"]), dtype=numpy.uint16, offset=1024).astype(numpy.int64)
    rows, length = golden["samples_per_step"], golden["tokens_per_sample"]
    x = torch.tensor(tokens[: rows * length]).view(rows, length)
    y = torch.tensor(tokens[1 : rows * length + 1]).view(rows, length)
    logits = model(input_ids=x, use_cache=False).logits.float()
    loss = F.cross_entropy(logits.view(rows * length, -1), y.view(-1))
    loss.backward()
    norms = {n.removeprefix("transformer."): p.grad.double().norm().item() for n, p in model.named_parameters()}
    return {"loss": loss.item(), "gradient_norms": norms}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    made_with = {"made_with": f"torch {torch.__version__}, transformers {transformers.__version__}, CPU, 1 thread, eager attention"}
    path, out = os.path.join(HERE, "half.json"), {}
    if len(sys.argv) > 1:
        with open(path) as file:
            out = json.load(file)
    for name in sys.argv[1:] or NAMES:
        folder = os.path.join(HERE, name)
        with open(os.path.join(folder, "golden.json")) as file:
            golden = json.load(file)
        out[name] = dict(made_with, config=SETTINGS[name]) if name in SETTINGS else dict(made_with)
        for half in ("bf16", "fp16"):
            out[name][half] = first_step(folder, golden, TYPES[half], TYPES[half])
            out[name][half + "_weights_in_fp32"] = first_step(folder, golden, TYPES[half], torch.float32)
        print(name, {k: v["loss"] for k, v in out[name].items() if isinstance(v, dict) and "loss" in v})
    with open(path, "w") as file:
        file.write(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
