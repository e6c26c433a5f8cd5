# SPDX-License-Identifier: Apache-2.0
# Ids and decoded texts of the pipelines of families.py, beside Hugging Face's `tokenizers`, on texts made by seed and on real ones.
#   pip install tokenizers==0.23.3 && python tests/io/tokenizer/differences.py PROGRAM [--texts N] [--real DIR ...] [--most_real N] [--only NAME ...] [--published DIR]
# PROGRAM is the target tokenizer_differences (differences.cpp). Every tokenizer.json of the folder is compared, and those of families.py that it lacks. Exits with 1 if any differs.
# --published: those that published.py wrote there, in their place.
import argparse
import gettext
import gzip
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import zlib

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402  (reads the variable)

import corpus  # noqa: E402
import families  # noqa: E402

here = pathlib.Path(__file__).resolve().parent
arguments = argparse.ArgumentParser()
arguments.add_argument("program")
arguments.add_argument("--texts", type=int, default=5000, help="texts made by seed, for each tokenizer")
arguments.add_argument("--real", nargs="*", default=[str(families.root)], help="folders whose text files, also .gz and .mo, are cut into texts")
arguments.add_argument("--most_real", type=int, default=5000, help="of these, for each tokenizer")
arguments.add_argument("--most_of_file", type=int, default=10)
arguments.add_argument("--only", nargs="*")
arguments.add_argument("--published", type=pathlib.Path)
arguments.add_argument("--seed", type=int, default=1)
given = arguments.parse_args()


def text_of(path):
    """Of a translation catalog (.mo) its messages; nothing of a binary file."""
    try:
        if path.suffix == ".mo":
            with path.open("rb") as catalog:
                return "\n".join(m for m in gettext.GNUTranslations(catalog)._catalog.values() if isinstance(m, str))
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            content = file.read(1 << 20)
    except (OSError, EOFError, ValueError, LookupError, zlib.error):  # damaged, or of another form
        return ""
    return "" if b"\0" in content else content.decode("utf-8", "replace")


def real_texts(rng):
    folders = [sorted(f for f in pathlib.Path(d).rglob("*") if f.is_file() and "/." not in f"/{f.relative_to(d)}") for d in given.real]
    for files in folders:
        rng.shuffle(files)
    texts = []
    for f in filter(None, itertools.chain.from_iterable(itertools.zip_longest(*folders))):  # of each folder as many
        text, most = text_of(f), min(given.most_real, len(texts) + given.most_of_file)
        while text and len(texts) < most:
            size = int(2 ** rng.uniform(4, 13))
            texts.append(text[:size])
            text = text[size * rng.randint(1, 8):]
        if len(texts) >= given.most_real:
            break
    return texts


def found_by(program, path, texts):
    lines = "".join(t.encode().hex() + "\n" for t in texts)
    done = subprocess.run([program, path], input=lines, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        ids, _, text = line.partition("|")
        yield ([int(i) for i in ids.split()], bytes.fromhex(text.strip()).decode()) if _ else (line, "")


def steps_of(path):
    node = json.loads(path.read_text())["pre_tokenizer"] or {}
    return node.get("pretokenizers", [node])


different = 0
rng = random.Random(given.seed)
real = real_texts(rng)
known = sorted(p.name for p in given.published.iterdir()) if given.published else families.families
for name in given.only or known:
    path = given.published / name / "tokenizer.json" if given.published else here / (name + ".tokenizer.json")
    with tempfile.TemporaryDirectory() as folder:
        if not path.exists():
            path = pathlib.Path(folder) / "tokenizer.json"
            path.write_text(families.compact(families.families[name](), False))
        tokenizer = Tokenizer.from_file(str(path))
        if not given.published and any(s.get("type") == "ByteLevel" for s in steps_of(path)):  # where pieces end shows in every other id
            joined = families.with_pairs(Tokenizer.from_file(str(path)), [b for b in range(256) if b not in (0xC0, 0xC1, *range(0xF5, 0x100))])
            path = pathlib.Path(folder) / "joined.json"
            path.write_text(families.compact(joined, False))
            tokenizer = joined
        texts = [t.decode("utf-8", "replace") for t in corpus.golden()] + [corpus.random_text(rng) for _ in range(given.texts)] + real
        wrong = 0
        for text, (ids, back) in zip(texts, found_by(given.program, str(path), texts), strict=True):
            expected = tokenizer.encode(text, add_special_tokens=False).ids
            # Added tokens decode to their spelling here, also where all of it could stand for bytes.
            if ids != expected or (name != "added" and back != tokenizer.decode(expected, skip_special_tokens=False)):
                wrong += 1
                if wrong <= 3:
                    print("  %r\n    %s\n    %s" % (text[:200], expected[:40], ids[:40] if isinstance(ids, list) else ids))
    print("%-18s %6d texts, %d differ" % (name, len(texts), wrong), flush=True)
    different += wrong
sys.exit(different > 0)
