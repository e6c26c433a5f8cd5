#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes lora/merged.safetensors in golden directories beside this script: some weights of the model into which peft has merged the
adapter (merge_and_unload), on the CPU, in float32, from adapter_model.safetensors.

    python3 make_merged_golden.py     # needs torch, transformers 5, peft, safetensors
"""
import os

import torch
from peft import PeftModel
from safetensors.torch import save_file

from make_gpt2_golden import HERE
from make_lora_golden import load_base

# By directory: the module of which every weight is stored, under the names of the model's file.
MODULES = {"tiny": "h.1.attn.", "qwen2": "model.layers.1."}


def main():
    torch.set_num_threads(1)
    for name, module in MODULES.items():
        folder = os.path.join(HERE, name)
        merged = PeftModel.from_pretrained(load_base(folder), os.path.join(folder, "lora")).merge_and_unload()
        weights = {n.removeprefix("transformer."): t.detach().contiguous().clone() for n, t in merged.state_dict().items()}
        save_file({n: t for n, t in weights.items() if n.startswith(module)}, os.path.join(folder, "lora", "merged.safetensors"))


if __name__ == "__main__":
    main()
