#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden files of the Llama-like families beside this script: AdamW steps of small random Hugging Face models under PyTorch,
on the CPU, in float32. The fields are those of make_gpt2_golden.py (README.md), and what README.md says of mixtures of experts.

    python3 make_families_golden.py [NAME ...]     # needs torch, transformers 5, safetensors
"""
import copy
import json
import os
import sys
import tempfile

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, get_cosine_schedule_with_warmup
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from make_gpt2_golden import HERE, distance, token_stream, write_tokens

STEPS = 8
COMMON = dict(samples=6, tokens=23, micro_batch=2, token_file="tokens.bin", weight_decay=0.1, betas=(0.9, 0.95), eps=1e-8, warmup=2)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", rope_theta=1000000.0, factor=4.0, original_max_position_embeddings=24)

# kv heads: GQA ratios 1, 2, 4; sizes that divide nothing; `style`: the spelling of config.json; `names`: how experts are stored.
SHAPES = {
    "llama": dict(seed=21, lr=4e-3, max_grad_norm=1.15, style="v5", store=torch.float32, config=dict(
        model_type="llama", vocab_size=61, hidden_size=30, intermediate_size=46, num_hidden_layers=2, num_attention_heads=5,
        num_key_value_heads=5, max_position_embeddings=64, rms_norm_eps=1e-5, attention_bias=True, mlp_bias=True,
        rope_parameters=dict(rope_type="dynamic", rope_theta=500000.0, factor=3.0))),  # of no effect up to 64 tokens
    "llama3-rope": dict(seed=22, lr=4e-3, max_grad_norm=1.385, style="v4", store=torch.bfloat16, config=dict(
        model_type="llama", vocab_size=53, hidden_size=32, intermediate_size=42, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters=LLAMA3_ROPE)),
    "qwen2": dict(seed=23, lr=4e-3, max_grad_norm=1.6, style="v5", store=torch.bfloat16, config=dict(
        model_type="qwen2", vocab_size=59, hidden_size=36, intermediate_size=34, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=3, max_position_embeddings=48, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0))),
    "qwen3": dict(seed=24, lr=4e-3, max_grad_norm=1.7, style="v4", store=torch.float16, config=dict(
        model_type="qwen3", vocab_size=67, hidden_size=26, intermediate_size=38, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=14, max_position_embeddings=96, tie_word_embeddings=True, rope_parameters=YARN)),
    "qwen3-untied": dict(seed=25, lr=4e-3, max_grad_norm=1.615, style="v5", store=torch.bfloat16, config=dict(
        model_type="qwen3", vocab_size=43, hidden_size=28, intermediate_size=30, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, head_dim=10, max_position_embeddings=40, attention_bias=True,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    "qwen3-moe": dict(seed=26, lr=4e-3, max_grad_norm=1.2, style="v4", store=torch.bfloat16, names="disk", config=dict(
        model_type="qwen3_moe", vocab_size=47, hidden_size=22, intermediate_size=34, moe_intermediate_size=14, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=40, num_experts=6, num_experts_per_tok=2,
        norm_topk_prob=True, mlp_only_layers=[1], output_router_logits=True, router_aux_loss_coef=0.05,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    "qwen3-moe-fused": dict(seed=27, lr=4e-3, max_grad_norm=1.2, style="v5", store=torch.bfloat16, names="memory", config=dict(
        model_type="qwen3_moe", vocab_size=41, hidden_size=18, intermediate_size=26, moe_intermediate_size=10, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=10, max_position_embeddings=40, num_experts=8, num_experts_per_tok=3,
        norm_topk_prob=False, decoder_sparse_step=2, output_router_logits=False, router_aux_loss_coef=0.05,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "mixtral": dict(seed=28, lr=4e-3, max_grad_norm=1.84, style="v4", store=torch.bfloat16, names="disk", config=dict(
        model_type="mixtral", vocab_size=45, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=40, num_local_experts=5, num_experts_per_tok=2, output_router_logits=True,
        router_aux_loss_coef=0.02, rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    # Windows shorter than the 23 tokens: of every layer, of the last of three. Heads wider than H / nh, as NeMo's are narrower.
    "mistral": dict(seed=31, lr=4e-3, max_grad_norm=1.25, style="v4", store=torch.bfloat16, config=dict(
        model_type="mistral", vocab_size=57, hidden_size=28, intermediate_size=38, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=10, max_position_embeddings=64, rms_norm_eps=1e-5, sliding_window=6,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "qwen3-window": dict(seed=32, lr=4e-3, max_grad_norm=1.6, style="v5", store=torch.bfloat16, config=dict(
        model_type="qwen3", vocab_size=49, hidden_size=20, intermediate_size=34, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=40, use_sliding_window=True, sliding_window=5, max_window_layers=2,
        tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    # A part of each head is rotated, by the short factors; all of it, by the long ones, since 23 tokens are more than 16.
    "phi3": dict(seed=33, lr=4e-3, max_grad_norm=1.3, style="v4", store=torch.bfloat16, config=dict(
        model_type="phi3", vocab_size=51, hidden_size=32, intermediate_size=22, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=192, original_max_position_embeddings=64, rms_norm_eps=1e-5,
        tie_word_embeddings=True, rope_parameters=dict(
            rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75, short_factor=[1.0, 1.1, 1.3],
            long_factor=[1.0, 2.5, 7.0], original_max_position_embeddings=64))),
    "phi3-long": dict(seed=34, lr=4e-3, max_grad_norm=1.3, style="v5", store=torch.bfloat16, config=dict(
        model_type="phi3", vocab_size=43, hidden_size=24, intermediate_size=26, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=3, max_position_embeddings=48, original_max_position_embeddings=16, sliding_window=9, rope_parameters=dict(
            rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=1.0, short_factor=[1.0, 1.0, 1.2, 1.5],
            long_factor=[1.0, 1.5, 3.0, 3.5], original_max_position_embeddings=16))),
    "olmo2": dict(seed=35, lr=4e-3, max_grad_norm=2.0, style="v4", store=torch.bfloat16, config=dict(
        model_type="olmo2", vocab_size=47, hidden_size=30, intermediate_size=34, num_hidden_layers=2, num_attention_heads=5,
        num_key_value_heads=1, max_position_embeddings=64, attention_bias=True, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="default", rope_theta=500000.0))),
    "smollm3": dict(seed=36, lr=4e-3, max_grad_norm=1.4, style="v5", store=torch.bfloat16, config=dict(
        model_type="smollm3", vocab_size=53, hidden_size=32, intermediate_size=30, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, no_rope_layer_interval=2, use_sliding_window=True, sliding_window=8,
        mlp_bias=True, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=50000.0))),
    "granite": dict(seed=37, lr=4e-3, max_grad_norm=0.645, style="v4", store=torch.bfloat16, config=dict(
        model_type="granite", vocab_size=49, hidden_size=32, intermediate_size=38, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-2, attention_bias=True, mlp_bias=True,
        embedding_multiplier=6.0, residual_multiplier=0.22, attention_multiplier=0.2, logits_scaling=1.7,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    # Caps low enough to bend scores and logits; layers with a window, without, with.
    "gemma2": dict(seed=38, lr=4e-3, max_grad_norm=1.55, style="v4", store=torch.bfloat16, config=dict(
        model_type="gemma2", vocab_size=51, hidden_size=28, intermediate_size=38, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=10, max_position_embeddings=64, query_pre_attn_scalar=12, sliding_window=6,
        attn_logit_softcapping=2.0, final_logit_softcapping=5.0, tie_word_embeddings=True, attention_bias=True,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "gemma3": dict(seed=39, lr=4e-3, max_grad_norm=2.13, style="v5", store=torch.bfloat16, config=dict(
        model_type="gemma3_text", vocab_size=47, hidden_size=24, intermediate_size=34, num_hidden_layers=3, num_attention_heads=3,
        num_key_value_heads=1, head_dim=12, max_position_embeddings=64, query_pre_attn_scalar=9, sliding_window=7,
        sliding_window_pattern=2, tie_word_embeddings=True, rope_parameters=dict(
            full_attention=dict(rope_type="linear", rope_theta=100000.0, factor=4.0),
            sliding_attention=dict(rope_type="default", rope_theta=1000.0)))),
    # A limit low enough to clamp gate and up; layers with a window, without, with.
    "gpt-oss": dict(seed=40, lr=4e-3, max_grad_norm=1.18, style="v5", store=torch.bfloat16, config=dict(
        model_type="gpt_oss", vocab_size=53, hidden_size=24, intermediate_size=14, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=64, sliding_window=6, num_local_experts=5, num_experts_per_tok=2,
        swiglu_limit=0.6, output_router_logits=True, router_aux_loss_coef=0.02, rope_parameters=dict(
            rope_type="yarn", rope_theta=5000.0, factor=4.0, beta_fast=8.0, beta_slow=1.0, truncate=False,
            original_max_position_embeddings=16))),
    # Rows as long as a chunk and one shorter than floor_scale. Layers: dense, experts, dense without RoPE, experts.
    "llama4": dict(seed=41, lr=4e-3, max_grad_norm=1.2, style="v5", store=torch.bfloat16, config=dict(
        model_type="llama4_text", vocab_size=49, hidden_size=26, intermediate_size=18, intermediate_size_mlp=30, num_hidden_layers=4,
        num_attention_heads=6, num_key_value_heads=2, head_dim=10, max_position_embeddings=96, num_local_experts=5,
        num_experts_per_tok=2, interleave_moe_layer_step=2, no_rope_layer_interval=3, attention_chunk_size=23, floor_scale=24,
        output_router_logits=True, rope_parameters=LLAMA3_ROPE)),
}


def build(shape):
    keys = dict(shape["config"])
    keys["rope_parameters"] = copy.deepcopy(keys["rope_parameters"])
    config = AutoConfig.for_model(keys.pop("model_type"), **keys, initializer_range=0.1, bos_token_id=0, eos_token_id=0,
                                  pad_token_id=None, use_cache=False)
    torch.manual_seed(shape["seed"])
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").float().eval()
    with torch.no_grad():  # biases, norms and routers that a fresh model leaves at 0 and 1 take part too
        for name, p in model.named_parameters():
            if name.endswith((".bias", "_bias")):
                p.add_(0.05 * torch.randn_like(p))
            elif name.endswith(".sinks"):
                p.copy_(torch.randn_like(p))
            elif "norm" in name:
                p.add_(0.1 * torch.randn_like(p))
            elif name.endswith(("mlp.gate.weight", "mlp.router.weight", "feed_forward.router.weight")):
                p.copy_(0.3 * torch.randn_like(p))
            p.copy_(p.to(shape["store"]).float())
    return config, model


def write_config(path, shape, config):
    if shape["style"] == "v5":
        text = json.loads(config.to_json_string(use_diff=False))
        text["eos_token_id"] = [0, 1]
    else:  # as transformers 4 wrote it
        text = dict(shape["config"])
        rope = dict(text.pop("rope_parameters"))
        text["rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            text["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        if "original_max_position_embeddings" in text:
            del rope["original_max_position_embeddings"]
        text["rope_scaling"] = None if rope["rope_type"] == "default" else rope
        text.update(architectures=[type(AutoModelForCausalLM.from_config(config)).__name__], attention_dropout=0.0, bos_token_id=0,
                    eos_token_id=0, hidden_act="silu", initializer_range=0.1, torch_dtype="bfloat16",
                    transformers_version="4.46.0", use_cache=True, an_unknown_key={"kept": [1, 2]})
        text.setdefault("sliding_window", None)
        if text["model_type"].startswith("gemma"):
            text.update(hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh")
        if text["model_type"] in ("phi3", "olmo2", "gemma2"):  # whose classes have tokens for padding
            text["pad_token_id"] = None
        text.setdefault("tie_word_embeddings", False)
        text.setdefault("rms_norm_eps", 1e-6 if text["model_type"] != "mixtral" else 1e-5)
    with open(path, "w") as out:
        out.write(json.dumps(text, indent=2) + "\n")


def on_disk(model, shape):
    """Tensors under the names of files: one of each expert; for "memory" the fused ones that transformers 5 holds."""
    if shape.get("names") == "memory":
        return {n: p.detach() for n, p in model.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(os.path.join(folder, "model.safetensors"))


def per_expert(values, names):
    """{name in memory: tensor} -> {name on disk: tensor}, for the fused experts of transformers 5."""
    if names in ("gpt_oss", "llama4_text"):  # fused in files, too
        return values
    out = {}
    for name, value in values.items():
        if name.endswith("mlp.experts.gate_up_proj"):
            stem = name.removesuffix("gate_up_proj")
            for j, one in enumerate(value):
                gate, up = one.chunk(2)
                out[f"{stem}{j}.gate_proj.weight"], out[f"{stem}{j}.up_proj.weight"] = gate, up
        elif name.endswith("mlp.experts.down_proj"):
            for j, one in enumerate(value):
                out[f"{name.removesuffix('down_proj')}{j}.down_proj.weight"] = one
        else:
            out[name] = value
    if names != "mixtral":
        return out
    for a, b in ((".mlp.", ".block_sparse_moe."), (".gate_proj.", ".w1."), (".up_proj.", ".w3."), (".down_proj.", ".w2.")):
        out = {n.replace(a, b): v for n, v in out.items()}
    return out


def micro_losses(model, config, x, y):
    """Sum of the cross entropy, the balance loss of this micro-batch as Hugging Face has it, and those of the layers alone."""
    experts = getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None)
    out = model(input_ids=x, **(dict(output_router_logits=True) if experts else {}))
    ce = F.cross_entropy(out.logits.reshape(-1, out.logits.shape[-1]), y.reshape(-1), reduction="sum")
    if not experts:
        return ce, None, []
    module = sys.modules[type(model).__module__]
    balance = getattr(module, "load_balancing_loss_func", load_balancing_loss_func)
    layers = [balance((r,), experts, config.num_experts_per_tok) for r in out.router_logits]
    logits = out.router_logits[0].reshape(-1, experts)  # raw logits, not probabilities: else the softmax would be taken twice
    assert (logits.sum(-1) - 1).abs().max() > 1e-3
    aux = out.aux_loss if hasattr(module, "load_balancing_loss_func") else balance(out.router_logits, experts, config.num_experts_per_tok)
    return ce, aux, layers


def backward(model, ids, first_sample, samples, tokens, micro):
    """Adds the gradients of a step; its mean loss, balance loss and balance losses of layers. Micro-batches count by their tokens."""
    coefficient = model.config.router_aux_loss_coef if getattr(model.config, "output_router_logits", False) else 0.0
    if model.config.model_type == "llama4_text":  # whose class has no balance loss: it is measured alone
        coefficient = 0.0
    ce_sum, aux_sum, layer_sums = 0.0, 0.0, []
    for first in range(0, samples, micro):
        at = [(first_sample + first + k) * tokens for k in range(micro)]
        x = torch.tensor([ids[a: a + tokens] for a in at])
        y = torch.tensor([ids[a + 1: a + tokens + 1] for a in at])
        ce, aux, layers = micro_losses(model, model.config, x, y)
        loss = ce / (samples * tokens)
        if aux is not None:
            weight = micro / samples
            loss = loss + coefficient * weight * aux
            aux_sum += weight * aux.item()
            layer_sums = [a + weight * b.item() for a, b in zip(layer_sums or [0.0] * len(layers), layers)]
        loss.backward()
        ce_sum += ce.item()
    return dict(loss=ce_sum / (samples * tokens), aux_loss=aux_sum, aux_loss_layers=layer_sums)


def train(model, config, ids, shape):
    decays = lambda name: "bias" not in name and "norm" not in name  # as transformers' Trainer
    decayed = [p for n, p in model.named_parameters() if decays(n)]
    plain = [p for n, p in model.named_parameters() if not decays(n)]
    optimizer = torch.optim.AdamW([dict(params=decayed, weight_decay=shape["weight_decay"]), dict(params=plain, weight_decay=0.0)],
                                  lr=shape["lr"], betas=shape["betas"], eps=shape["eps"], foreach=False, fused=False)
    schedule = get_cosine_schedule_with_warmup(optimizer, shape["warmup"], STEPS)
    samples, tokens, micro = shape["samples"], shape["tokens"], shape["micro_batch"]
    family = config.model_type
    steps, norms = [], {}
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        losses = backward(model, ids, step * samples, samples, tokens, micro)
        if step == 0:
            grads = {n: p.grad.double() for n, p in model.named_parameters()}
            norms = {n: g.norm().item() for n, g in per_expert(grads, family).items()}
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), shape["max_grad_norm"], foreach=False)
        steps.append(dict(losses, grad_norm=norm.item(), learning_rate=schedule.get_last_lr()[0]))
        optimizer.step()
        schedule.step()
    final = {n: p.double().norm().item() for n, p in per_expert({n: p.detach() for n, p in model.named_parameters()}, family).items()}
    return steps, norms, final


def make(name, shape):
    shape = {**COMMON, **shape, "model": shape["config"]}
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    ids = token_stream(shape)[: STEPS * shape["samples"] * shape["tokens"] + 1]
    config, model = build(shape)
    write_config(os.path.join(folder, "config.json"), shape, config)
    write_tokens(os.path.join(folder, shape["token_file"]), ids)
    weights = {n: p.clone().to(shape["store"]).contiguous() for n, p in on_disk(model, shape).items()}
    if shape["config"].get("tie_word_embeddings") and shape["style"] == "v4":  # some files store the tied head too
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    save_file(weights, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})

    _, double_model = build(shape)
    double_model.double()
    prompt = ids[:19]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt])).logits[0, -1].tolist()
    steps, norms, final = train(model, config, ids, shape)
    double_steps, double_norms, _ = train(double_model, config, ids, shape)
    golden = dict(
        made_with=f"torch {torch.__version__}, transformers {transformers.__version__}, CPU, float32, 1 thread, eager attention",
        tokens=shape["token_file"], samples_per_step=shape["samples"], tokens_per_sample=shape["tokens"],
        micro_batch=shape["micro_batch"], steps=STEPS,
        options=dict(learning_rate=shape["lr"], lr_scheduler_type="cosine", warmup_steps=shape["warmup"], max_steps=STEPS,
                     weight_decay=shape["weight_decay"], adam_beta1=shape["betas"][0], adam_beta2=shape["betas"][1],
                     adam_epsilon=shape["eps"], max_grad_norm=shape["max_grad_norm"]),
        **{key: [s[key] for s in steps] for key in ("loss", "grad_norm", "learning_rate", "aux_loss", "aux_loss_layers")},
        gradient_norms_step_1=norms, weight_norms_final=final, prompt=prompt, prompt_logits=logits,
        distance_to_float64=dict(
            steps=distance(steps, double_steps),
            gradient_norms_step_1=max(abs(norms[n] - double_norms[n]) / (double_norms[n] or 1) for n in norms)))
    if not steps[0]["aux_loss_layers"]:
        del golden["aux_loss"], golden["aux_loss_layers"]
    with open(os.path.join(folder, "golden.json"), "w") as out:
        json.dump(golden, out, indent=1)
        out.write("\n")
    clipped = sum(s["grad_norm"] > shape["max_grad_norm"] for s in steps)
    print(name, "clipped", clipped, [round(s["grad_norm"], 2) for s in steps], "loss", steps[0]["loss"], "->", steps[-1]["loss"],
          golden["distance_to_float64"], flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for shape_name in sys.argv[1:] or SHAPES:
        make(shape_name, SHAPES[shape_name])
