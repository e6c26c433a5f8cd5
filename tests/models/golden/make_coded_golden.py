#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the folders coded/NAME beside this script: small models whose weights are stored in MXFP4 (mxfp4, gpt-oss) and in FP8 with a
scale for each block (fp8, Qwen3; fp8-vl, Qwen3-VL with a tower in bf16), and floats.safetensors: the weights that transformers reads
from them, in bf16.

    python3 make_coded_golden.py [NAME ...]     # needs torch, transformers 5, safetensors
"""
import copy
import json
import os
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, FineGrainedFP8Config, Mxfp4Config

HERE = os.path.dirname(os.path.abspath(__file__))
COMMON = dict(vocab_size=256, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=64,
              rope_parameters=dict(rope_type="default", rope_theta=10000.0), initializer_range=0.1, bos_token_id=0, eos_token_id=1)
BLOCK = [8, 16]  # rows and columns; neither divides the other, and both divide the shapes below, as transformers needs


def kind_of(config):
    return AutoModelForImageTextToText if hasattr(config, "text_config") else AutoModelForCausalLM


def plain(model_type, folder, **more):
    config = AutoConfig.for_model(model_type, **more)
    torch.manual_seed(7)
    model = kind_of(config).from_config(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    return load_file(os.path.join(folder, "model.safetensors"))


def finish(folder, weights, quantization, loader):
    """Stores the weights and the config; then what transformers reads."""
    save_file({n: t.contiguous() for n, t in weights.items()}, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    config["quantization_config"] = quantization
    config["pad_token_id"] = None
    with open(path, "w") as file:
        file.write(json.dumps(config, indent=2) + "\n")
    kind = kind_of(AutoConfig.from_pretrained(folder))
    model = kind.from_pretrained(folder, dtype=torch.bfloat16, quantization_config=loader)
    with torch.no_grad():
        assert torch.isfinite(model(torch.tensor([[3, 1, 4, 1, 5]])).logits).all()
    floats = {n: p.detach().to(torch.bfloat16).contiguous() for n, p in model.state_dict().items() if n != "lm_head.weight" or n in weights}
    save_file(floats, os.path.join(folder, "floats.safetensors"), metadata={"format": "pt"})
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))


def make_mxfp4(folder):
    weights = plain("gpt_oss", folder, **copy.deepcopy(COMMON), hidden_size=64, intermediate_size=32, num_local_experts=3, num_experts_per_tok=2, sliding_window=8)
    for name in [n for n in weights if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, rows, columns = weights.pop(name).shape
        weights[name + "_blocks"] = torch.randint(0, 256, (experts, columns, rows // 32, 16), dtype=torch.uint8)
        weights[name + "_scales"] = torch.randint(121, 126, (experts, columns, rows // 32), dtype=torch.uint8)
    finish(folder, weights, dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                              "model.embed_tokens", "lm_head"]),
           Mxfp4Config(dequantize=True))


def make_fp8(folder):
    store_fp8(folder, plain("qwen3", folder, **copy.deepcopy(COMMON), hidden_size=64, intermediate_size=48), {})


def make_fp8_vl(folder):
    text = dict(copy.deepcopy(COMMON), hidden_size=32, intermediate_size=48)
    text["rope_parameters"].update(mrope_section=[2, 1, 1], mrope_interleaved=True)
    tower = dict(depth=1, hidden_size=8, num_heads=2, intermediate_size=8, out_hidden_size=32, num_position_embeddings=16, deepstack_visual_indexes=[0])
    weights = plain("qwen3_vl", folder, text_config=text, vision_config=tower, tie_word_embeddings=True)
    store_fp8(folder, weights, dict(modules_to_not_convert=["lm_head", "model.visual"]))


def store_fp8(folder, weights, more):
    for name in [n for n in weights if n.endswith("_proj.weight") and "visual" not in n]:
        wide = weights.pop(name).float()
        rows, columns = wide.shape
        blocks = wide.view(rows // BLOCK[0], BLOCK[0], columns // BLOCK[1], BLOCK[1])
        scales = blocks.abs().amax((1, 3)) / 448
        weights[name] = (blocks / scales[:, None, :, None]).view(rows, columns).to(torch.float8_e4m3fn)
        weights[name + "_scale_inv"] = scales
    finish(folder, weights, dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=BLOCK, **more),
           FineGrainedFP8Config(dequantize=True, weight_block_size=BLOCK, **more))


if __name__ == "__main__":
    torch.set_num_threads(1)
    makers = {"mxfp4": make_mxfp4, "fp8": make_fp8, "fp8-vl": make_fp8_vl}
    for name in sys.argv[1:] or makers:
        target = os.path.join(HERE, "coded", name)
        os.makedirs(target, exist_ok=True)
        makers[name](target)
        print(name, sorted(os.listdir(target)))
