# SPDX-License-Identifier: Apache-2.0
# Makes official.safetensors with the official writer (pip: safetensors, torch). Tests read the file; they need no Python.
# Run in this folder: python make_golden.py
import torch
from safetensors.torch import save_file

tensors = {
    "h.0.ln_1.weight": torch.arange(5, dtype=torch.float32) / 3,
    "wte.weight": (torch.arange(12, dtype=torch.float32).reshape(4, 3) - 6).to(torch.bfloat16),
    "a.half": torch.tensor([1.0, -2.5, 65504.0, 6e-8, float("inf"), -0.0], dtype=torch.float16),
    "z.double": torch.tensor([[0.1], [1e-300]], dtype=torch.float64),
    "counts": torch.tensor([3, -4], dtype=torch.int64),
    "counts.32": torch.tensor([7], dtype=torch.int32),
    "mask": torch.tensor([1, 2, 3], dtype=torch.uint8),
    "empty": torch.zeros(0, 4),
    "scalar": torch.tensor(2.5),
    'odd "name" é\\': torch.tensor([1.0]),
}
save_file(tensors, "official.safetensors", metadata={"format": "pt"})
