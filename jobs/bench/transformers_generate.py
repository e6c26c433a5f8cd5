#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy generation with the cache by Tessera and by transformers on a CPU, alternately, and the ratios of their speeds.

    python3 jobs/bench/transformers_generate.py --python VENV/bin/python --tessera build/release/bin/tessera

Each round runs `tessera bench generate` and then transformers' generate on a model of the same shape with random
weights, in the same precision, with as many rows, prompt tokens, new tokens and threads. The time of a pass is that of
all new tokens but the first, divided by their number; a ratio is transformers' time over Tessera's in the same round.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
# layers, hidden, heads, vocabulary
SHAPES = {"small": (6, 384, 6, 256), "gpt2": (12, 768, 12, 50257)}


def worker(args):
    import torch
    import transformers
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    layers, hidden, heads, vocabulary = SHAPES[args.shape]
    config = transformers.GPT2Config(n_layer=layers, n_embd=hidden, n_head=heads, vocab_size=vocabulary,
                                     n_positions=1024, bos_token_id=None, eos_token_id=None)
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    model = transformers.GPT2LMHeadModel(config).to(dtype).eval()
    prompts = torch.randint(vocabulary, (args.rows, args.prompt))

    def seconds(new_tokens):
        start = time.perf_counter()
        with torch.inference_mode():
            model.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=False, use_cache=True,
                           min_new_tokens=new_tokens, max_new_tokens=new_tokens, pad_token_id=0)
        return time.perf_counter() - start

    seconds(2)
    first = min(seconds(1) for _ in range(3))
    print(json.dumps({"transformers": transformers.__version__, "torch": torch.__version__,
                      "pass_s": (seconds(args.new_tokens) - first) / (args.new_tokens - 1)}))


def run(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, **more)
    if done.returncode:
        sys.exit(f"error: {' '.join(command)} failed")
    return json.loads(done.stdout[done.stdout.index("{"):])


def drive(args):
    shared = ["--shape", args.shape, "--threads", str(args.threads)]
    ours, theirs, shares, versions = {}, {}, {}, set()
    for turn in range(args.rounds):
        for precision in args.precisions:
            report = run([args.tessera, "bench", "generate", *shared, "--per_device_eval_batch_size", str(args.rows),
                          "--max_length", str(args.prompt), "--max_new_tokens", str(args.new_tokens),
                          "--mixed_precision", "bf16" if precision == "bf16" else "no", "--json"])
            other = run([args.python, str(HERE), "--worker", *shared, "--rows", str(args.rows), "--prompt",
                         str(args.prompt), "--new_tokens", str(args.new_tokens), "--precision", precision],
                        env={**os.environ, "OMP_NUM_THREADS": str(args.threads)})
            ours.setdefault(precision, []).append(report["pass_s"])
            shares.setdefault(precision, []).append(report["share_of_memory"])
            theirs.setdefault(precision, []).append(other["pass_s"])
            versions.add(f"transformers {other['transformers']}, torch {other['torch']}")
            print(f"round {turn + 1}, {precision}: {1e3 * report['pass_s']:.1f} ms a pass, "
                  f"transformers {1e3 * other['pass_s']:.1f} ms", flush=True)
    print(f"{args.shape}, {args.rows} rows, prompts of {args.prompt}, {args.new_tokens} new tokens, {args.threads} "
          f"threads; {', '.join(sorted(versions))}; medians of {args.rounds} rounds")
    for precision in args.precisions:
        ratios = [b / a for a, b in zip(ours[precision], theirs[precision])]
        print(f"{precision}: {args.rows / statistics.median(ours[precision]):.1f} tok/s, "
              f"{100 * statistics.median(shares[precision]):.0f}% of the memory's bandwidth; transformers "
              f"{args.rows / statistics.median(theirs[precision]):.1f} tok/s; time / Tessera's "
              f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="the Python that has torch and transformers")
    parser.add_argument("--tessera", help="the program")
    parser.add_argument("--shape", choices=SHAPES, default="gpt2")
    parser.add_argument("--rows", type=int, default=1, help="prompts at once")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("--new_tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precisions", nargs="+", choices=("bf16", "fp32"), default=["bf16", "fp32"])
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--precision", choices=("bf16", "fp32"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args)
    if not args.python or not args.tessera:
        parser.error("--python and --tessera are needed")
    drive(args)


if __name__ == "__main__":
    main()
