#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes generate.json in every golden directory beside this script: what transformers' generate continues prompts with, greedily, from
model.safetensors, on the CPU in float32.

    python3 make_generate_golden.py [DIR ...]     # needs torch, transformers, numpy

Prompts are drawn until every choice on the way is clear: `margin` is the least distance of the two largest scores of a step, over the
largest absolute score. Rows of a case have different lengths; transformers continues each alone.
"""
import json
import os
import random
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig

HERE = os.path.dirname(os.path.abspath(__file__))
LEAST_MARGIN = 2e-3
ROWS = 5


def generate(model, prompt, new_tokens, penalty, eos):
    config = GenerationConfig(do_sample=False, num_beams=1, max_new_tokens=new_tokens, repetition_penalty=penalty, eos_token_id=eos or None,
                              pad_token_id=0, output_scores=True, return_dict_in_generate=True, use_cache=True)
    ids = torch.tensor([prompt])
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    margin = 1.0
    for scores in out.scores:
        top = scores[0].topk(2).values
        margin = min(margin, float((top[0] - top[1]) / scores[0].abs().max()))
    return out.sequences[0, len(prompt):].tolist(), margin


def draw_case(model, rng, positions, new_tokens, penalty):
    """Prompts of lengths 1 … with clear and varied continuations."""
    vocab, prompts, outputs, least, tries = model.config.vocab_size, [], [], 1.0, 0
    while len(prompts) < ROWS:
        length = 1 + (len(prompts) * 3 + rng.randrange(3)) % (positions - new_tokens)
        prompt = [rng.randrange(vocab) for _ in range(length)]
        output, margin = generate(model, prompt, new_tokens, penalty, [])
        tries += 1
        assert tries < 3000, "no clear prompts"
        if margin < LEAST_MARGIN or len(set(output)) < min(3, new_tokens):
            continue
        prompts.append(prompt)
        outputs.append(output)
        least = min(least, margin)
    return prompts, outputs, least


def make(directory):
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager",
                                                 experts_implementation="eager").eval()
    model.generation_config = GenerationConfig()  # no stop token but those of the case
    rng = random.Random(sum(map(ord, os.path.basename(directory))))
    positions = min(model.config.max_position_embeddings, getattr(model.config, "attention_chunk_size", None) or 40, 40)
    new_tokens = min(12, positions // 2)
    cases = []
    for penalty in (1.0, 1.3):
        prompts, outputs, margin = draw_case(model, rng, positions, new_tokens, penalty)
        cases.append(dict(prompts=prompts, max_new_tokens=new_tokens, repetition_penalty=penalty, stop=[], outputs=outputs, margin=margin))
    # The same prompts, ended by tokens that come: a list of two.
    first = cases[0]
    stop = sorted({first["outputs"][0][1], first["outputs"][2][new_tokens // 2]})
    outputs = [generate(model, prompt, new_tokens, 1.0, stop)[0] for prompt in first["prompts"]]
    assert any(len(o) < new_tokens for o in outputs)
    cases.append(dict(first, stop=stop, outputs=outputs))
    with open(os.path.join(directory, "generate.json"), "w", encoding="ascii") as out:
        out.write('{"transformers": "%s", "cases": [\n' % transformers.__version__)
        out.write(",\n".join(json.dumps(case) for case in cases) + "\n]}\n")
    print(directory, "margins", [round(c["margin"], 4) for c in cases])


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    names = sys.argv[1:] or sorted(n for n in os.listdir(HERE) if os.path.exists(os.path.join(HERE, n, "model.safetensors")))
    for name in names:
        make(os.path.join(HERE, name))


if __name__ == "__main__":
    main()
