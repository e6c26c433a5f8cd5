#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes altered.json beside this script: of the models in the folders here, with one key of config.json altered at a time, three logits
of transformers, or "error" where it refuses. Keys are those of the file and of transformers' class of the config, also in objects. Each
is altered, and then each is null; behind them are keys of all classes.

    python3 make_altered_golden.py     # needs torch, transformers 5, safetensors
"""
import copy
import json
import os
import shutil
import tempfile

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.utils import logging

import make_wrapped_golden  # whose patch of transformers makes Llama 4 run

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = ["tiny", "llama", "llama3-rope", "mistral", "qwen2", "qwen3", "qwen3-window", "qwen3-moe", "mixtral", "phi3", "olmo2", "smollm3",
           "granite", "gemma2", "gemma3", "gpt-oss", "llama4",
           *(os.path.join("wrapped", name) for name in sorted(os.listdir(os.path.join(HERE, "wrapped"))))]
LEFT_OUT = ("model_type", "architectures", "transformers_version", "dtype", "torch_dtype", "_name_or_path", "id2label", "label2id",
            "vision_config", "chunk_size_feed_forward", "problem_type", "output_hidden_states", "output_attentions", "return_dict",
            "is_encoder_decoder")
TYPES = {"full_attention": "sliding_attention", "sliding_attention": "full_attention", "chunked_attention": "full_attention"}
NAMED = {"hidden_act": "gelu", "hidden_activation": "gelu", "activation_function": "relu", "rope_type": "default", "type": "default"}
ABSENT = {"sliding_window": 4, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 2.0, "n_inner": 40, "mlp_only_layers": [0],
          "num_key_value_heads": 1, "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "pad_token_id": 3, "bos_token_id": 3,
          "eos_token_id": 3, "layer_types": "sliding_attention", "partial_rotary_factor": 0.5, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}}


def altered(key, value, config):
    """Another value of the key, or None where there is none to try."""
    if value is None:
        other = ABSENT.get(key)
        return [other] * config["num_hidden_layers"] if key == "layer_types" else other
    if key in NAMED:
        return NAMED[key] if value != NAMED[key] else None
    if key == "layer_types":
        return [TYPES[t] for t in value]
    if key == "no_rope_layers":
        return [1 - x for x in value]
    if key == "mlp_only_layers":
        return [] if value else [0]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value - 1 if key in ("num_hidden_layers", "n_layer") else value + 1
    if isinstance(value, float):
        return value * 1.5 if value != 0 else 0.5
    if isinstance(value, list) and value and all(isinstance(x, (int, float)) for x in value):
        return [x * 1.5 if isinstance(x, float) else x + 1 for x in value]
    return None


def alterations(config, full, path=()):
    for key in sorted({*config, *full}):
        if key in LEFT_OUT or key.startswith("_"):
            continue
        value = config.get(key, full.get(key))
        if isinstance(value, dict):
            if key in config:  # objects that the file has
                yield from alterations(config[key], full.get(key) if key == "text_config" else {}, (*path, key))
            continue
        other = altered(key, value, config)
        if other is not None:
            yield (*path, key), other


def nulls(config, full):
    """Every key of the model, or of its text, as null; and what transformers reads in all or some classes."""
    path = ("text_config",) if "text_config" in config else ()
    text, of = (config["text_config"], full["text_config"]) if path else (config, full)
    for key in sorted({*text, *of, "layer_types"}):
        if key not in (*LEFT_OUT, "use_cache") and not key.startswith(("_", "summary_")) and not key.endswith("_token_id"):
            yield (*path, key), None
    for rope in ("rope_parameters", "rope_scaling"):
        for key, value in text.get(rope, {}).items() if isinstance(text.get(rope), dict) else ():
            yield (*path, rope, key), None
            if isinstance(value, dict):
                yield from (((*path, rope, key, inner), None) for inner in value)
    yield from (((*path, "is_causal"), value) for value in (None, False, True))
    yield (*path, "per_layer_config"), {"0": {"rms_norm_eps": 0.5}}
    yield (*path, "per_layer_config"), {}
    if config["model_type"] != "gpt2":
        yield (*path, "layer_types"), []
    if "query_pre_attn_scalar" in of:
        yield (*path, "query_pre_attn_scalar"), 0.5
    if path:
        yield ("is_causal",), False
        yield ("tie_word_embeddings",), None


def logits_of(folder, config, ids):
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    kind = AutoModelForImageTextToText if "text_config" in config else AutoModelForCausalLM
    try:
        model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, -1]
    except Exception as error:  # whatever it is that transformers does not take
        return "error"
    return [float(f"{logits[i].item():.6g}") for i in (0, len(logits) // 2, len(logits) - 1)]


def main():
    torch.set_num_threads(1)
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    everything = {}
    for name in FOLDERS:
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(HERE, name)
            shutil.copy(os.path.join(source, "model.safetensors"), folder)
            with open(os.path.join(source, "config.json")) as file:
                config = json.load(file)
            full = AutoConfig.from_pretrained(source).to_dict()
            ids = torch.tensor([[(7 * i * i + 3 * i + 5) % config.get("text_config", config)["vocab_size"] for i in range(15)]])
            rows = [[None, None, logits_of(folder, config, ids)]]
            assert rows[0][2] != "error", name
            for path, value in (*alterations(config, full), *nulls(config, full)):
                other = copy.deepcopy(config)
                at = other
                for key in path[:-1]:
                    at = at[key]
                at[path[-1]] = value
                rows.append([".".join(path), value, logits_of(folder, other, ids)])
            everything[name] = rows
            print(name, len(rows), sum(row[2] == "error" for row in rows), "errors", sum(row[2] != "error" and row[2] != rows[0][2] for row in rows), "differ", flush=True)
    with open(os.path.join(HERE, "altered.json"), "w") as file:
        file.write("{\n" + ",\n".join(json.dumps(name) + ": [\n" + ",\n".join(json.dumps(row) for row in rows) + "]" for name, rows in everything.items()) + "\n}\n")


if __name__ == "__main__":
    main()
