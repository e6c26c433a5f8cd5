#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the folders wrapped/NAME beside this script: small models of text and images as transformers saves them, with what the text part
computes: logits of a prompt, the loss of a text and the gradient norms of its parameters, by their names in the text's own family.

    python3 make_wrapped_golden.py [NAME ...]     # needs torch, transformers 5, safetensors
"""
import copy
import json
import os
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.modeling_outputs import MoeCausalLMOutputWithPast

MoeCausalLMOutputWithPast.image_outputs = None  # which Llama 4's class of transformers 5.24 asks the text's output for, also without images
HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = dict(vocab_size=256, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=64, initializer_range=0.1, bos_token_id=0, eos_token_id=1, pad_token_id=None)
TOWER = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
QWEN = dict(depth=1, hidden_size=8, num_heads=2, intermediate_size=8, out_hidden_size=24)
MROPE = dict(rope_type="default", rope_theta=1e6)
MODELS = {
    "gemma3": dict(text_config=dict(TEXT, head_dim=8, query_pre_attn_scalar=8, sliding_window=5, layer_types=["sliding_attention", "full_attention"]),
                   vision_config=TOWER, mm_tokens_per_image=4),
    "mistral3": dict(text_config=dict(TEXT, model_type="mistral", head_dim=8, sliding_window=None),
                     vision_config=dict(TOWER, model_type="pixtral")),
    "qwen2_vl": dict(text_config=dict(TEXT, rope_parameters=dict(MROPE, mrope_section=[1, 1, 1])), vision_config=dict(QWEN, embed_dim=8, hidden_size=24)),
    "qwen2_5_vl": dict(text_config=dict(TEXT, rope_parameters=dict(MROPE, mrope_section=[1, 1, 1])), vision_config=QWEN),
    "qwen3_vl": dict(text_config=dict(TEXT, head_dim=8, rope_parameters=dict(MROPE, mrope_section=[2, 1, 1], mrope_interleaved=True)),
                     vision_config=dict(QWEN, deepstack_visual_indexes=[0])),
    "qwen3_vl_moe": dict(text_config=dict(TEXT, num_hidden_layers=3, head_dim=8, rope_parameters=dict(MROPE, mrope_section=[2, 1, 1], mrope_interleaved=True),
                                          num_experts=5, num_experts_per_tok=2, moe_intermediate_size=10, mlp_only_layers=[1]),
                         vision_config=dict(QWEN, deepstack_visual_indexes=[0], num_position_embeddings=16)),
    "llama4": dict(text_config=dict(TEXT, num_hidden_layers=3, head_dim=8, intermediate_size_mlp=28, num_local_experts=5, num_experts_per_tok=1,
                                    interleave_moe_layer_step=2, no_rope_layer_interval=3, use_qk_norm=False),
                   vision_config=dict(TOWER, vision_output_dim=8, projector_input_dim=8, projector_output_dim=8)),
}
FAMILY = {"gemma3": "gemma3_text", "mistral3": "mistral", "qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3",
          "qwen3_vl_moe": "qwen3_moe", "llama4": "llama4_text"}
OTHERS = ("vision_tower.", "vision_model.", "multi_modal_projector.", "visual.", "model.visual.")


def text_name(name):
    """A name in memory or in a file as the text's family has it; None: of another part."""
    for part in ("model.vision_tower.", "model.multi_modal_projector.", *OTHERS):
        if name.startswith(part):
            return None
    if name.startswith("language_model."):
        return name.removeprefix("language_model.")
    return name.replace("model.language_model.", "model.")


def same_as_family(name, config, weights, ids, logits):
    """The text part is its family's model: with plain RoPE, of the same weights, the same logits."""
    keys = copy.deepcopy(config.text_config.to_dict())
    for key in ("model_type", "architectures", "transformers_version", "dtype"):
        keys.pop(key, None)
    for key in ("mrope_section", "mrope_interleaved"):
        keys["rope_parameters"].pop(key, None)
    keys["tie_word_embeddings"] = config.tie_word_embeddings
    if name == "qwen3_vl_moe":
        keys["norm_topk_prob"] = True  # its router divides always; its files have the experts' tensors transposed
        weights = {n: t.transpose(1, 2) if ".experts." in n else t for n, t in weights.items()}
    plain = AutoModelForCausalLM.from_config(AutoConfig.for_model(FAMILY[name], **keys), attn_implementation="eager", experts_implementation="eager").float().eval()
    state = {text_name(n): t.float() for n, t in weights.items() if text_name(n)}
    missing, unexpected = plain.load_state_dict(state, strict=False)
    assert not unexpected and all(n == "lm_head.weight" for n in missing), (missing, unexpected)
    plain.tie_weights()
    with torch.no_grad():
        assert (plain(ids).logits - logits).abs().max() < 1e-5 * logits.abs().max()


def make(name, keys):
    folder = os.path.join(HERE, "wrapped", name)
    os.makedirs(folder, exist_ok=True)
    config = AutoConfig.for_model(name, **copy.deepcopy(keys))
    torch.manual_seed(11)
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for n, p in model.named_parameters():
            if "norm" in n or n.endswith("bias"):
                p.add_(0.1 * torch.randn_like(p))
            p.copy_(p.to(torch.bfloat16).float())
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)  # a copy: buffers are rounded too
    path = os.path.join(folder, "model.safetensors")
    weights = load_file(path)
    if name == "qwen3_vl_moe":  # the layout of Qwen's files, which transformers transposes as it reads
        weights = {n: t.transpose(1, 2).contiguous() if ".experts." in n else t for n, t in weights.items()}
    save_file(weights, path, metadata={"format": "pt"})
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))
    ids = torch.tensor([[(7 * i * i + 3 * i + 5) % 97 for i in range(19)]])
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
    logits = model(input_ids=ids).logits
    loss = F.cross_entropy(logits[0, :-1], ids[0, 1:])
    loss.backward()
    same_as_family(name, config, weights, ids, logits.detach())
    norms = {text_name(n): p.grad.double().norm().item() for n, p in model.named_parameters() if text_name(n) and p.grad is not None}
    golden = dict(ids=ids[0].tolist(), logits=logits[0, -1].tolist(), loss=loss.item(), gradient_norms=norms)
    with open(os.path.join(folder, "golden.json"), "w") as out:
        out.write(json.dumps(golden, indent=1) + "\n")
    print(name, loss.item(), sorted({n.split(".")[0] for n in weights}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or MODELS:
        make(name, MODELS[name])
