#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes qwen3/bnb-nf4, bnb-nf4-single (without double quantization), bnb-fp4 (the same, as load_in_4bit alone has it) and bnb-int8, models
that transformers has quantized with bitsandbytes and saved, and qwen3/qlora: ten AdamW steps of an adapter under peft over bnb-nf4's weights (nn.Linear4bit), on the CPU, computed in float32.

    python3 make_qlora_golden.py     # needs torch, transformers 5, peft, bitsandbytes, safetensors, numpy; README.md has the fields

bitsandbytes' native functions for CPUs sum the mean of absmax in float32 and approximate the codes of absmax. So that other programs can be
compared bit by bit, both are replaced: the mean is exact and rounded once, and the codes are those of its portable function.
"""
import json
import os
import shutil

import torch
from bitsandbytes import functional as bnb
from safetensors import safe_open
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

import make_lora_golden
from make_gpt2_golden import HERE

BASE = os.path.join(HERE, "qwen3")


def portable(blocks, code):
    """bitsandbytes/backends/default/ops.py, quantize_blockwise."""
    bounds = (code[:-1] + code[1:]) / 2
    scaled = [torch.clamp(b * (1.0 / b.abs().max().clamp(min=1e-38)), -1, 1) for b in blocks]
    return torch.bucketize(torch.cat(scaled), bounds).to(torch.uint8), torch.stack([b.abs().max() for b in blocks])


def load_quantized(folder):
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                bnb_4bit_compute_dtype=torch.float32)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", quantization_config=config,
                                                 device_map="cpu")
    with safe_open(os.path.join(folder, "model.safetensors"), "pt") as file:
        for name, module in model.named_modules():
            state = getattr(getattr(module, "weight", None), "quant_state", None)
            if state is None:
                continue
            module.support_avx512bf16_for_cpu = False  # else its forward computes in bfloat16
            packed, plain = bnb.quantize_4bit(file.get_tensor(name + ".weight").float(), quant_type="nf4", compress_statistics=False)
            assert torch.equal(packed.flatten(), module.weight.data.flatten())
            state.offset = plain.absmax.double().mean().float()
            state.absmax, state.state2.absmax = portable((plain.absmax - state.offset).split(256), state.state2.code)
    return model


def load_single(folder, kind):
    """Without double quantization; of embeddings and the head nothing is quantized."""
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=False,
                                bnb_4bit_compute_dtype=torch.float32)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, quantization_config=config, device_map="cpu")


def save_quantized(name, model):
    out = os.path.join(BASE, name)
    shutil.rmtree(out, ignore_errors=True)
    model.save_pretrained(out)
    for extra in ("generation_config.json", "README.md"):
        if os.path.exists(os.path.join(out, extra)):
            os.remove(os.path.join(out, extra))


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    save_quantized("bnb-nf4", load_quantized(BASE))
    save_quantized("bnb-nf4-single", load_single(BASE, "nf4"))
    save_quantized("bnb-fp4", load_single(BASE, "fp4"))
    save_quantized("bnb-int8", AutoModelForCausalLM.from_pretrained(
        BASE, dtype=torch.float32, quantization_config=BitsAndBytesConfig(load_in_8bit=True), device_map="cpu"))
    make_lora_golden.load_base = load_quantized
    adapter = dict(r=2, lora_alpha=4, target_modules="all-linear")
    out, folder = os.path.join(BASE, "qlora"), BASE
    shutil.rmtree(out, ignore_errors=True)
    with open(os.path.join(folder, "golden.json")) as file:
        golden = json.load(file)
    make_lora_golden.make_adapter(folder, out, adapter)
    free = sorted(s["grad_norm"] for s in make_lora_golden.train(folder, out, golden, 1e9, torch.float32)[0])
    limit = round((free[4] + free[5]) / 2, 3)
    steps, gradients, weights, prompt, logits = make_lora_golden.train(folder, out, golden, limit, torch.float32)
    for name, tensors in (("gradients", gradients), ("final", weights)):
        make_lora_golden.save_file({n: t.contiguous() for n, t in tensors.items()}, os.path.join(out, name + ".safetensors"))
    result = dict(
        made_with=f"peft {make_lora_golden.peft.__version__}, bitsandbytes nf4, torch {torch.__version__}, CPU, float32, 1 thread",
        samples_per_step=make_lora_golden.SAMPLES, tokens_per_sample=golden["tokens_per_sample"], micro_batch=make_lora_golden.MICRO_BATCH,
        tokens=golden["tokens"], steps=make_lora_golden.STEPS, options=dict(make_lora_golden.OPTIONS, max_grad_norm=limit),
        **{key: [s[key] for s in steps] for key in ("loss", "grad_norm", "learning_rate")}, prompt=prompt, prompt_logits=logits.tolist())
    print("loss", [s["loss"] for s in steps])
    with open(os.path.join(out, "lora.json"), "w") as file:
        file.write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
