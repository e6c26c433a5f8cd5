# SPDX-License-Identifier: Apache-2.0
"""What the scripts of this folder share: running the program, reading what it logs, and tables."""
import argparse
import hashlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent / "jobs" / "examples"


def arguments(description):
    """The options that all scripts take."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--tessera", default="build/release/bin/tessera", help="the program")
    parser.add_argument("--work", help="a folder for models and runs; one that is removed at the end if none is named")
    parser.add_argument("--no-peers", action="store_true", help="runs Tessera alone")
    return parser


class Workplace:
    """A folder with a model to train, and the program to train it."""

    def __init__(self, options):
        self.tessera = str(pathlib.Path(options.tessera).resolve())
        self.temporary = None if options.work else tempfile.TemporaryDirectory()
        self.path = pathlib.Path(options.work or self.temporary.name).resolve()
        self.path.mkdir(parents=True, exist_ok=True)

    def run(self, ranks, *words, check=True):
        """`tessera launch -n RANKS -- WORDS`; returns the finished process with its output as text."""
        done = subprocess.run([self.tessera, "launch", "-n", str(ranks), "--", *map(str, words)], cwd=self.path,
                              env=mpi_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if check and done.returncode:
            sys.exit(f"error: {' '.join(done.args)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done

    def steps(self, run):
        """The records of a run's optimizer steps."""
        lines = (self.path / run / "logging.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if "grad_norm" in record]


def mpi_environment():
    """More ranks than cores, and root in a container, are meant."""
    return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}


def make_model(to, tokenizer=None, **changes):
    """A small random Qwen2 in fp32, as transformers saves it."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM
    torch.manual_seed(7)
    shape = dict(vocab_size=512, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=False, bos_token_id=None,
                 eos_token_id=None)
    Qwen2ForCausalLM(Qwen2Config(**{**shape, **changes})).save_pretrained(to)
    for file in tokenizer or ():
        (to / file.name).write_bytes(file.read_bytes())


def make_tokens(to, count, vocabulary=512):
    """`count` tokens with something to learn, in a token file of llm.c's form. Returns them."""
    import numpy
    generator = numpy.random.default_rng(3)
    phrases = generator.integers(0, vocabulary, (40, 12))
    text = numpy.concatenate([phrases[i] for i in generator.integers(0, 40, count // 12 + 1)])[:count]
    header = numpy.zeros(256, "<i4")
    header[:3] = 20240520, 1, count
    pathlib.Path(to).write_bytes(header.tobytes() + text.astype("<u2").tobytes())
    return text


def read_tokens(path, length):
    """The rows of such a file, of `length` tokens, as a tensor."""
    import numpy
    import torch
    tokens = numpy.frombuffer(pathlib.Path(path).read_bytes()[1024:], "<u2").astype(numpy.int64)
    return torch.from_numpy(tokens).reshape(-1, length)


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def peer(script, ranks, *words):
    """Runs a script of PyTorch on `ranks` processes of this host. Returns rank 0's last line as JSON, or what failed as
    {"error": …}."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks_of = [subprocess.Popen(
        [sys.executable, str(HERE / script), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank),
                        "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
                        "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}) for rank in range(ranks)]
    ended = []
    for rank in ranks_of:
        try:
            ended.append(rank.communicate(timeout=900))
        except subprocess.TimeoutExpired:
            for other in ranks_of:
                other.kill()
            ended.append(rank.communicate())
    if any(rank.returncode for rank in ranks_of):
        said = [line for _, errors in ended for line in errors.strip().splitlines()[-1:]]
        return {"error": (said or ["no message"])[0][:160]}
    return json.loads(ended[0][0].strip().splitlines()[-1])


def versions(*names):
    """"torch 2.9.0, peft 0.18.0", of what is installed."""
    from importlib.metadata import PackageNotFoundError, version
    found = []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} (not installed)")
    return ", ".join(found)


def table(title, head, rows):
    """Prints a table as Markdown."""
    print(f"\n### {title}\n\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    sys.stdout.flush()
