#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch FSDP2 at the shapes of `tessera bench step`: tokens a second and MFU on one rank, for jobs/bench/figures/run.

A plain decoder: scaled_dot_product_attention, fused AdamW, torch.compile and fully_shard for each block, bf16 parameters and
fp32 reduction. If a micro-batch does not fit it is halved; the output has its size, and the kernels of attention.
"""
import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel

# Dense bf16 FLOP/s by the name that torch reports; runtime/plan/gpu_specs.cpp has more GPUs, and the sources.
PEAKS = {"NVIDIA H200": 989.5e12, "NVIDIA H100 80GB HBM3": 989.5e12, "NVIDIA H100 PCIe": 756.5e12,
         "NVIDIA A100-SXM4-40GB": 312e12, "NVIDIA A100-SXM4-80GB": 312e12, "NVIDIA B200": 2250e12}
# The backends that scaled_dot_product_attention may use: cuDNN, FlashAttention (beside Tessera's own kernels), or any.
ATTENTION = {"cudnn": [SDPBackend.CUDNN_ATTENTION], "own": [SDPBackend.FLASH_ATTENTION],
             "any": [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION,
                     SDPBackend.MATH]}
# family, layers, hidden, inner, heads, heads of K and V, head dim, vocabulary, head tied to the embedding
SHAPES = {
    "gpt2": ("gpt2", 12, 768, 3072, 12, 12, 64, 50257, True),
    "gpt2-xl": ("gpt2", 48, 1600, 6400, 25, 25, 64, 50257, True),
    "qwen2.5-0.5b": ("qwen2", 24, 896, 4864, 14, 2, 64, 151936, True),
    "qwen2.5-1.5b": ("qwen2", 28, 1536, 8960, 12, 2, 128, 151936, True),
    "qwen2.5-3b": ("qwen2", 36, 2048, 11008, 16, 2, 128, 151936, True),
    "qwen2.5-7b": ("qwen2", 28, 3584, 18944, 28, 4, 128, 152064, False),
    "small": ("gpt2", 6, 384, 1536, 6, 6, 64, 50257, True),
    "tiny": ("qwen2", 2, 64, 128, 4, 2, 16, 500, True),
}


class Norm(nn.Module):
    def __init__(self, family, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size)) if family == "gpt2" else None

    def forward(self, x):
        if self.bias is not None:
            return F.layer_norm(x, self.weight.shape, self.weight, self.bias)
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)


def rotate(x, cos, sin):
    low, high = x.chunk(2, -1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


class Block(nn.Module):
    def __init__(self, family, hidden, inner, heads, kv_heads, dim):
        super().__init__()
        gpt2 = family == "gpt2"
        self.family, self.heads, self.kv_heads, self.dim = family, heads, kv_heads, dim
        self.before, self.between = Norm(family, hidden), Norm(family, hidden)
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * dim)
        self.out = nn.Linear(heads * dim, hidden, bias=gpt2)
        self.up = nn.Linear(hidden, inner if gpt2 else 2 * inner, bias=gpt2)
        self.down = nn.Linear(inner, hidden, bias=gpt2)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        qkv = self.qkv(self.before(x)).view(batch, length, -1, self.dim).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), 1)
        if self.family != "gpt2":
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, -1))
        y = self.up(self.between(x))
        if self.family == "gpt2":
            return x + self.down(F.gelu(y, approximate="tanh"))
        gate, up = y.chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, shape, length, recompute):
        super().__init__()
        family, layers, hidden, inner, heads, kv_heads, dim, vocab, tied = shape
        self.recompute = recompute
        self.embed = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(length, hidden) if family == "gpt2" else None
        self.blocks = nn.ModuleList(Block(family, hidden, inner, heads, kv_heads, dim) for _ in range(layers))
        self.norm = Norm(family, hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        angle = torch.outer(torch.arange(length), 1e6 ** (-torch.arange(0, dim, 2) / dim))
        self.register_buffer("cos", angle.cos().to(torch.bfloat16), persistent=False)
        self.register_buffer("sin", angle.sin().to(torch.bfloat16), persistent=False)

    def forward(self, ids, targets):
        x = self.embed(ids)
        if self.positions is not None:
            x = x + self.positions.weight
        for block in self.blocks:
            inputs = (x, self.cos, self.sin)
            x = torch.utils.checkpoint.checkpoint(block, *inputs, use_reentrant=False) if self.recompute else block(*inputs)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())


def multiplying(shape):
    """Parameters that multiply: blocks and head, without biases and norms."""
    _, layers, hidden, inner, heads, kv_heads, dim, vocab, _ = shape
    up = inner if shape[0] == "gpt2" else 2 * inner
    return layers * hidden * ((heads + 2 * kv_heads) * dim + heads * dim + up + inner) + hidden * vocab


def choose_attention(args, device):
    """The backends of --attention, or any if those cannot compute this shape; and the name of the one that computes."""
    heads, kv_heads, dim = SHAPES[args.shape][4:7]
    q, k = (torch.empty(1, args.length, n, dim, dtype=torch.bfloat16, device=device, requires_grad=True).transpose(1, 2)
            for n in (heads, kv_heads))
    for word in dict.fromkeys((args.attention, "any")):
        try:
            with sdpa_kernel(ATTENTION[word]):
                choice = torch._fused_sdp_choice(q, k, k, None, 0.0, True, enable_gqa=heads != kv_heads)
            return ATTENTION[word], SDPBackend(choice).name
        except RuntimeError as error:
            print(f"warning: SDPA cannot compute by {word}: {error}", file=sys.stderr)
    sys.exit("error: SDPA has no backend for this shape")


def build(args, device):
    shape = SHAPES[args.shape]
    torch.manual_seed(1)
    with torch.device(device):
        model = Decoder(shape, args.length, args.recompute)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        if args.compile:
            block.compile()
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    fused = device.type == "cuda"
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=fused)


def train(args, device, micro):
    """Seconds of each measured step."""
    model, optimizer = build(args, device)
    vocab, seconds = SHAPES[args.shape][7], []
    data = torch.randint(vocab, (args.tokens // args.length, args.length + 1), device=device)
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for _ in range(args.steps + 2):
        wait()
        start = time.perf_counter()
        parts = data.split(micro)
        for i, part in enumerate(parts):
            model.set_requires_gradient_sync(i + 1 == len(parts))
            (model(part[:, :-1], part[:, 1:]) / len(parts)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        wait()
        seconds.append(time.perf_counter() - start)
    return seconds[2:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=524288, help="of a step")
    parser.add_argument("--micro", type=int, default=16, help="samples of a micro-batch")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--recompute", action="store_true", help="keep the inputs of blocks alone")
    parser.add_argument("--attention", choices=ATTENTION, default="any", help="backends that SDPA may use")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29511"), ("RANK", "0"), ("WORLD_SIZE", "1")):
        os.environ.setdefault(name, value)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    micro = args.micro
    backends, attention = choose_attention(args, device)
    while True:
        try:
            with sdpa_kernel(backends):
                seconds = statistics.median(train(args, device, micro))
            break
        except torch.OutOfMemoryError:
            if micro == 1:
                raise
            micro //= 2
        torch.cuda.empty_cache()  # outside the handler, which keeps the failed step's tensors
        torch.cuda.reset_peak_memory_stats()
    shape = SHAPES[args.shape]
    work = 6 * multiplying(shape) * args.tokens
    square = 12 * shape[1] * shape[4] * shape[6] * args.length * args.tokens
    peak = PEAKS.get(torch.cuda.get_device_name()) if device.type == "cuda" else None
    mfu = {} if peak is None else {"mfu_causal_halved": (work + square / 2) / seconds / peak,
                                   "mfu_palm": (work + square) / seconds / peak}
    print(json.dumps({
        "side": "FSDP2", "torch": torch.__version__, "shape": args.shape, "length": args.length, "micro": micro,
        "attention": attention, "step_s": seconds,
        "tokens_per_second": args.tokens / seconds, **mfu,
        "device_bytes_in_use": torch.cuda.max_memory_reserved() if device.type == "cuda" else 0}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
