#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes lora-experts/ in golden directories beside this script: as lora/ (make_lora_golden.py), with adapters on the projections of
experts.

    python3 make_lora_experts_golden.py [DIR ...]     # needs torch, transformers 5, peft, safetensors, numpy

Each expert is three Linears, as in transformers 4: transformers 5 has fused parameters, on which an adapter of PEFT's is another one
(gate and up share A). So the experts are made Linears here, PEFT's conversion of such adapters is left out in training, and the names in
files are those of transformers 4. Then peft reads each adapter into the model that transformers 5 makes, and must give the same logits.
"""
import os
import re
import sys

import torch
from peft import PeftModel
from peft.utils import transformers_weight_conversion as conversion
from safetensors.torch import load_file, save_file

import make_lora_golden as lora
from make_gpt2_golden import HERE

RUNS = {
    "qwen3-moe": dict(r=2, lora_alpha=3, target_modules=r"model\.layers\.\d+\.(mlp\.experts\.(\d+\.)?(gate|up|down)_proj|self_attn\.q_proj)"),
    "mixtral": dict(r=3, lora_alpha=6, target_modules=["w1", "w2", "w3", "v_proj"]),
    "qwen3-moe-fused": dict(r=2, lora_alpha=4, target_modules=["experts.%d.down_proj" % e for e in range(8)]),
}
load_fused = lora.load_base


class Expert(torch.nn.Module):
    def __init__(self, names, gate_up, down):
        super().__init__()
        gate, up = gate_up.chunk(2)
        self.names = names
        for name, weight in zip(names, (gate, up, down)):
            linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
            linear.weight = torch.nn.Parameter(weight.detach().clone())
            setattr(self, name, linear)

    def forward(self, x):
        gate, up, down = (getattr(self, name) for name in self.names)
        return down(torch.nn.functional.silu(gate(x)) * up(x))


class Experts(torch.nn.ModuleList):
    def forward(self, x, top_k_index, top_k_weights):
        y = torch.zeros_like(x)
        for e, expert in enumerate(self):
            token, choice = torch.where(top_k_index == e)
            y.index_add_(0, token, expert(x[token]) * top_k_weights[token, choice, None])
        return y


def load_linears(folder):
    model = load_fused(folder)
    names = ("w1", "w3", "w2") if model.config.model_type == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    for layer in model.model.layers:
        if hasattr(layer.mlp, "experts"):
            fused = layer.mlp.experts
            layer.mlp.experts = Experts(Expert(names, a, b) for a, b in zip(fused.gate_up_proj, fused.down_proj))
    return model


def named_as_in_transformers_4(name):
    return re.sub(r"\.mlp(\.experts\.\d+\.w\d\.)", r".block_sparse_moe\1", lora_key(name))


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or RUNS:
        out = os.path.join(HERE, name, "lora-experts")
        convert = conversion.convert_peft_config_for_transformers, conversion.convert_peft_adapter_state_dict_for_transformers
        conversion.convert_peft_config_for_transformers = lambda *a, **k: None
        conversion.convert_peft_adapter_state_dict_for_transformers = lambda *a, adapter_state_dict, **k: adapter_state_dict
        lora.load_base, lora.key_of = load_linears, named_as_in_transformers_4
        prompt, logits = lora.make(name, out, RUNS[name])
        conversion.convert_peft_config_for_transformers, conversion.convert_peft_adapter_state_dict_for_transformers = convert
        path = os.path.join(out, "adapter_model.safetensors")
        save_file({named_as_in_transformers_4(n): t for n, t in load_file(path).items()}, path, metadata={"format": "pt"})
        first = load_file(path)
        save_file(load_file(os.path.join(out, "final.safetensors")), path, metadata={"format": "pt"})
        with torch.no_grad():
            fused = PeftModel.from_pretrained(load_fused(os.path.join(HERE, name)), out)
            found = fused(input_ids=torch.tensor([prompt])).logits[0, -1]
            base = fused.get_base_model()
            with fused.disable_adapter():
                without = base(input_ids=torch.tensor([prompt])).logits[0, -1]
        save_file(first, path, metadata={"format": "pt"})
        size = logits.abs().max()
        print(name, "peft reads it: logits apart", ((found - logits).abs().max() / size).item(), "of those without an adapter",
              ((without - logits).abs().max() / size).item(), flush=True)
        assert (found - logits).abs().max() < 2e-6 * size and (without - logits).abs().max() > 1e-3 * size


lora_key = lora.key_of
if __name__ == "__main__":
    main()
