#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes wrapped/NAME/lora beside this script: adapters of the text parts of models of text and images as peft saves them, and what
the adapted model computes: logits of a prompt, the loss of a text and the gradient norms of what is trained, by the file's names.

    python3 make_wrapped_lora_golden.py [NAME ...]         # needs torch, transformers 5, peft, safetensors
    python3 make_wrapped_lora_golden.py --check BASE DIR   # peft reads the adapter DIR: it adapts what the file has, and no more
"""
import json
import os
import shutil
import sys

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

import make_wrapped_golden  # whose patch of transformers makes Llama 4 run
from make_lora_golden import key_of

HERE = os.path.dirname(os.path.abspath(__file__))
RUNS = {
    "gemma3": dict(r=2, lora_alpha=4, target_modules=r"model\.language_model\.layers\.\d+\..*_proj"),
    "mistral3": dict(r=2, lora_alpha=4, target_modules=r"model\.language_model\.layers\.\d+\.self_attn\.[qv]_proj",
                     modules_to_save=["model.language_model.norm"]),
    "qwen2_vl": dict(r=2, lora_alpha=4, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "down_proj"]),
    "qwen2_5_vl": dict(r=3, lora_alpha=6, target_modules=["lm_head", "q_proj"]),
    "qwen3_vl": dict(r=2, lora_alpha=4, target_modules=["q_proj", "gate_proj"], use_rslora=True,
                     modules_to_save=["lm_head"]),
    "llama4": dict(r=2, lora_alpha=4, target_modules=r"language_model\.model\.layers\.\d+\..*(q_proj|k_proj|gate_proj)"),
    "qwen3_vl_moe": dict(r=2, lora_alpha=4, target_modules=["q_proj", "o_proj", "up_proj"]),
}


def load_base(folder):
    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                       experts_implementation="eager").eval()


def make(name, config):
    folder = os.path.join(HERE, "wrapped", name)
    out = os.path.join(folder, "lora")
    shutil.rmtree(out, ignore_errors=True)
    torch.manual_seed(31)
    model = get_peft_model(load_base(folder), LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **config))
    with torch.no_grad():  # no branch is zero, and what is saved is not the base's
        for n, p in model.named_parameters():
            if p.requires_grad:
                p.add_(0.1 * torch.randn_like(p))
    model.save_pretrained(out)
    os.remove(os.path.join(out, "README.md"))
    path = os.path.join(out, "adapter_config.json")
    with open(path) as file:
        text = json.load(file)
    text["base_model_name_or_path"] = name
    if isinstance(text["target_modules"], list):
        text["target_modules"].sort()
    with open(path, "w") as file:
        file.write(json.dumps(text, indent=2) + "\n")
    adapted = PeftModel.from_pretrained(load_base(folder), out, is_trainable=True).eval()
    ids = torch.tensor([[(7 * i * i + 3 * i + 5) % 97 for i in range(19)]])
    logits = adapted(input_ids=ids).logits
    loss = F.cross_entropy(logits[0, :-1], ids[0, 1:])
    loss.backward()
    norms = {key_of(n): p.grad.double().norm().item() for n, p in adapted.named_parameters() if p.requires_grad}
    assert set(norms) <= set(load_file(os.path.join(out, "adapter_model.safetensors"))), name
    golden = dict(ids=ids[0].tolist(), logits=logits[0, -1].tolist(), loss=loss.item(), gradient_norms=norms)
    with open(os.path.join(out, "lora.json"), "w") as file:
        file.write(json.dumps(golden, indent=1) + "\n")
    print(name, loss.item(), len(norms), "trained", sorted(norms)[0])


def check(base, adapter):
    adapted = PeftModel.from_pretrained(load_base(base), adapter, is_trainable=True).eval()
    trained = {key_of(n): p for n, p in adapted.named_parameters() if p.requires_grad}
    stored = load_file(os.path.join(adapter, "adapter_model.safetensors"))
    assert set(trained) == set(stored), set(trained) ^ set(stored)
    assert all((trained[n] == stored[n].float()).all() for n in stored)
    ids = torch.tensor([[(7 * i * i + 3 * i + 5) % 97 for i in range(19)]])
    print("same", len(stored), "tensors; loss", F.cross_entropy(adapted(input_ids=ids).logits[0, :-1], ids[0, 1:]).item())


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if sys.argv[1:2] == ["--check"]:
        check(*sys.argv[2:4])
    else:
        for name in sys.argv[1:] or RUNS:
            make(name, RUNS[name])
