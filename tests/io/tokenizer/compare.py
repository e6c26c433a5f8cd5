# SPDX-License-Identifier: Apache-2.0
# Speed of `tessera bench tokenizer` beside Hugging Face's `tokenizers`, one core, the same documents, alternately in one run.
#   pip install tokenizers==0.23.3 && python tests/io/tokenizer/compare.py build/release/bin/tessera DIR/tokenizer.json FILE.txt|FILE.jsonl ...
# Prints megabytes a second of processor time (wall time beside it), and the ratio. Fails if the numbers of tokens differ.
import json
import os
import subprocess
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402  (reads the variables)

program, path, files = sys.argv[1], sys.argv[2], sys.argv[3:]
documents = []
for name in files:
    with open(name, newline="", encoding="utf-8", errors="replace") as f:
        documents += [json.loads(line)["text"] for line in f if line.strip()] if name.endswith(".jsonl") else [f.read()]
size = sum(len(d.encode()) for d in documents)


def theirs(call):
    tokenizer = Tokenizer.from_file(path)  # with an empty memory each time, as the other side
    wall, cpu = time.perf_counter(), time.process_time()
    tokens = sum(len(e.ids) for e in call(tokenizer))
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "tokens": tokens}


def ours():
    line = [program, "bench", "tokenizer", "--tokenizer", path, "--bench_repeats", "3", "--json", "--dataset"] + files
    found = json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout)
    return {"wall": found["best_s"], "cpu": found["best_cpu_s"], "tokens": found["tokens"]}


sides = {"tessera": ours, "tokenizers encode_batch": lambda: theirs(lambda t: t.encode_batch(documents)),
         "tokenizers encode_batch_fast": lambda: theirs(lambda t: t.encode_batch_fast(documents))}
best = {}
for _ in range(3):
    for name, side in sides.items():
        found = side()
        before = best.setdefault(name, found)
        best[name] = {k: min(before[k], found[k]) for k in found}
assert len({b["tokens"] for b in best.values()}) == 1, best
print("%d documents, %.2f MB, %d tokens" % (len(documents), size / 1e6, best["tessera"]["tokens"]))
for name, b in best.items():
    print("%-30s %8.2f MB/s (wall %8.2f) | tessera is %.1f times as fast" % (name, size / b["cpu"] / 1e6, size / b["wall"] / 1e6, b["cpu"] / best["tessera"]["cpu"]))
