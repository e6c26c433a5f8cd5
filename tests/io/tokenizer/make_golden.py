# SPDX-License-Identifier: Apache-2.0
# Writes the small tokenizers of families.py, and what Hugging Face's `tokenizers` makes of corpus.py with them, beside this file.
#   pip install tokenizers==0.23.3 && python tests/io/tokenizer/make_golden.py [FAMILY ...]
# A tokenizer that is there already is kept: the text that it was trained on has changed since. Remove the file to train it again.
import json
import pathlib
import random
import sys

from tokenizers import Tokenizer

import corpus
import families

here = pathlib.Path(__file__).resolve().parent
most_ids = 24  # of longer ones, count and hash


def summary(ids):
    hash = 14695981039346656037
    for i in ids:
        hash = (hash ^ i) * 1099511628211 % 2**64
    return [len(ids), "%016x" % hash]


def entry(ids):
    return ids if len(ids) <= most_ids else summary(ids)


def decoded(tokenizer, rng, texts):
    """Random ids, and ids of texts cut anywhere: with and without special tokens."""
    cases = []
    for _ in range(40):
        if rng.random() < 0.5:
            ids = [rng.randrange(tokenizer.get_vocab_size()) for _ in range(rng.randint(1, 12))]
        else:
            ids = tokenizer.encode(rng.choice(texts)).ids
            ids = ids[rng.randint(0, 3) : rng.randint(3, 16)]
        cases.append([ids] + [tokenizer.decode(ids, skip_special_tokens=skip).encode().hex() for skip in (False, True)])
    return cases


def write(name, value):
    (here / name).write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("],[", "],\n[") + "\n")


texts = corpus.golden()
write("texts.json", {"texts": [t.hex() for t in texts], "long": corpus.long_ones})
texts = [t.decode("utf-8", "replace") for t in texts]
for name, make in families.families.items():
    if sys.argv[1:] and name not in sys.argv[1:]:
        continue
    path = here / (name + ".tokenizer.json")
    if not path.exists():
        path.write_text(families.compact(make(), name in ("gpt2", "llama2")).replace('],"', '],\n"') + "\n")
    tokenizer = Tokenizer.from_file(str(path))
    rng = random.Random(5)
    write(name + ".golden.json", {
        "with": [entry(tokenizer.encode(t).ids) for t in texts],
        "without": [summary(tokenizer.encode(t, add_special_tokens=False).ids) for t in texts],
        "long": [summary(tokenizer.encode(unit * times).ids) for unit, times in corpus.long_ones],
        "decode": decoded(tokenizer, rng, texts),
    })
