#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes lora/ in golden directories beside this script: an adapter as peft saves it, and ten AdamW steps of it under peft and PyTorch,
on the CPU, in float32, dropout 0. Weights and tokens are those of the directory.

    python3 make_lora_golden.py [DIR ...]     # needs torch, transformers 5, peft, safetensors, numpy; README.md has the fields

Every run is also made in float64 from the same weights (distance_to_float64).
"""
import json
import os
import shutil
import sys

import numpy
import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup

from make_families_golden import backward
from make_frozen_golden import MICRO_BATCH, OPTIONS, SAMPLES, STEPS
from make_gpt2_golden import HERE, distance

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
# By directory: the adapter. max_grad_norm is the median of the norms without clipping, so that about half of the steps are clipped.
RUNS = {
    "tiny": dict(r=3, lora_alpha=6, target_modules=["c_attn", "c_proj", "c_fc"]),
    "llama": dict(r=2, lora_alpha=3, target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
                  bias="lora_only", modules_to_save=["lm_head"]),
    "qwen2": dict(r=4, lora_alpha=4, target_modules="all-linear", use_rslora=True),
    "qwen3": dict(r=2, lora_alpha=4, target_modules=r"model\.layers\.\d+\.(self_attn\.[qv]_proj|mlp\.(up|down)_proj)"),
    "qwen3-moe": dict(r=2, lora_alpha=4, target_modules=ATTENTION),
    "mixtral": dict(r=2, lora_alpha=4, target_modules=ATTENTION),
    "mistral": dict(r=2, lora_alpha=4, target_modules=[*ATTENTION, "gate_proj", "down_proj"]),
    "phi3": dict(r=2, lora_alpha=4, target_modules=["qkv_proj", "o_proj", "gate_up_proj"]),
    "olmo2": dict(r=2, lora_alpha=4, target_modules=[*ATTENTION, "up_proj"]),
    "smollm3": dict(r=2, lora_alpha=4, target_modules="all-linear"),
    "gemma2": dict(r=2, lora_alpha=4, target_modules=[*ATTENTION, "embed_tokens", "gate_proj"]),
    "gemma3": dict(r=2, lora_alpha=4, target_modules="all-linear"),
    "gpt-oss": dict(r=2, lora_alpha=4, target_modules="all-linear"),
    "llama4": dict(r=2, lora_alpha=4, target_modules=[*ATTENTION, "gate_proj", "up_proj", "down_proj"]),
    "granite": dict(r=2, lora_alpha=4, target_modules=[*ATTENTION, "lm_head", "embed_tokens", "up_proj"]),
    "qwen3-untied": dict(r=3, lora_alpha=5, target_modules=["lm_head", "embed_tokens", "q_proj", "down_proj"]),
    "llama3-rope": dict(r=2, lora_alpha=4, target_modules=["lm_head", "o_proj"]),  # a tied head
    "qwen3-moe-fused": dict(r=2, lora_alpha=4, target_modules=["q_proj", "gate"]),  # a router
}


def load_base(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")


def make_adapter(folder, out, config):
    torch.manual_seed(31)
    model = get_peft_model(load_base(folder), LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **config))
    with torch.no_grad():  # B too, so that every gradient of the first step is of some size
        for name, p in model.named_parameters():
            if "lora_B" in name or "lora_embedding_A" in name:
                p.copy_(0.1 * torch.randn_like(p))
    model.save_pretrained(out)
    os.remove(os.path.join(out, "README.md"))
    path = os.path.join(out, "adapter_config.json")
    with open(path) as file:
        text = json.load(file)
    text["base_model_name_or_path"] = os.path.basename(folder)
    with open(path, "w") as file:
        file.write(json.dumps(text, indent=2) + "\n")


def key_of(name):
    return name.replace(".modules_to_save.default", "").replace(".default", "")


def train(folder, out, golden, max_grad_norm, dtype):
    adapted = PeftModel.from_pretrained(load_base(folder), out, is_trainable=True).to(dtype).eval()
    model = adapted.get_base_model()
    trained = {key_of(n): p for n, p in adapted.named_parameters() if p.requires_grad}
    samples, tokens = SAMPLES, golden["tokens_per_sample"]
    ids = numpy.fromfile(os.path.join(folder, golden["tokens"]), dtype=numpy.uint16, offset=1024).tolist()
    groups = [dict(params=[p for p in trained.values() if p.dim() >= 2], weight_decay=OPTIONS["weight_decay"]),
              dict(params=[p for p in trained.values() if p.dim() < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=OPTIONS["learning_rate"], betas=(OPTIONS["adam_beta1"], OPTIONS["adam_beta2"]),
                                  eps=OPTIONS["adam_epsilon"], foreach=False, fused=False)
    schedule = get_cosine_schedule_with_warmup(optimizer, OPTIONS["warmup_steps"], STEPS)
    steps, gradients = [], {}
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        losses = backward(model, ids, step * samples, samples, tokens, MICRO_BATCH)
        if step == 0:
            gradients = {n: p.grad.detach().clone() for n, p in trained.items()}
        norm = torch.nn.utils.clip_grad_norm_(trained.values(), max_grad_norm, foreach=False)
        steps.append(dict(losses, grad_norm=norm.item(), learning_rate=schedule.get_last_lr()[0]))
        optimizer.step()
        schedule.step()
    prompt = torch.tensor([ids[:9]])
    logits = adapted(input_ids=prompt).logits[0, -1].detach()
    return steps, gradients, {n: p.detach().clone() for n, p in trained.items()}, prompt[0].tolist(), logits


def make(name, out, config):
    """Writes the directory `out`; the prompt and its logits."""
    folder = os.path.join(HERE, name)
    shutil.rmtree(out, ignore_errors=True)
    with open(os.path.join(folder, "golden.json")) as file:
        golden = json.load(file)
    make_adapter(folder, out, config)
    free = sorted(s["grad_norm"] for s in train(folder, out, golden, 1e9, torch.float32)[0])
    max_grad_norm = round((free[4] + free[5]) / 2, 3)
    steps, gradients, weights, prompt, logits = train(folder, out, golden, max_grad_norm, torch.float32)
    double_steps, double_gradients, double_weights, _, _ = train(folder, out, golden, max_grad_norm, torch.float64)
    save_file({n: t.contiguous() for n, t in gradients.items()}, os.path.join(out, "gradients.safetensors"))
    save_file({n: t.contiguous() for n, t in weights.items()}, os.path.join(out, "final.safetensors"))

    def apart(a, b):
        return max(((a[n].double() - b[n].double()).norm() / b[n].double().norm()).item() for n in a)

    result = dict(
        made_with=f"peft {peft.__version__}, torch {torch.__version__}, transformers {transformers.__version__}, CPU, float32, "
                  "1 thread, eager attention",
        samples_per_step=SAMPLES, tokens_per_sample=golden["tokens_per_sample"], micro_batch=MICRO_BATCH, tokens=golden["tokens"],
        steps=STEPS, options=dict(OPTIONS, max_grad_norm=max_grad_norm),
        **{key: [s[key] for s in steps] for key in ("loss", "grad_norm", "learning_rate", "aux_loss", "aux_loss_layers")},
        prompt=prompt, prompt_logits=logits.tolist(),
        distance_to_float64=dict(steps=distance(steps, double_steps), gradients_step_1=apart(gradients, double_gradients),
                                 weights_final=apart(weights, double_weights)))
    if not steps[0]["aux_loss_layers"]:
        del result["aux_loss"], result["aux_loss_layers"]
    clipped = sum(s["grad_norm"] > max_grad_norm for s in steps)
    print(name, "clipped", clipped, [round(s["grad_norm"], 3) for s in steps], "loss", steps[0]["loss"], "->", steps[-1]["loss"],
          result["distance_to_float64"], flush=True)
    assert 0 < clipped < STEPS, "choose max_grad_norm so that some steps are clipped"
    with open(os.path.join(out, "lora.json"), "w") as file:
        file.write(json.dumps(result, indent=1) + "\n")
    return prompt, logits


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or RUNS:
        make(name, os.path.join(HERE, name, "lora"), RUNS[name])


if __name__ == "__main__":
    main()
