# SPDX-License-Identifier: Apache-2.0
# Tokenizers of published models that packages of PyPI bring, as DIR/<name>/tokenizer.json, for differences.py and compare.py.
#   pip install transformers==5.24 tokenizers==0.23.3 tiktoken sentencepiece protobuf mistral-common==1.13.1 && python tests/io/tokenizer/published.py DIR
# Vocabularies of tiktoken and Tekken, and SentencePiece's of Mistral, become a tokenizer.json by transformers' converters. The packages
# litellm, dashscope and mistral-common are downloaded, and not installed; their licences are theirs: nothing of them is kept in the tree.
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from transformers import LlamaTokenizer  # noqa: E402  (reads the variable)
from transformers.convert_slow_tokenizer import TikTokenConverter  # noqa: E402
from transformers.integrations.mistral.tokenizer import MistralConverter  # noqa: E402

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
LETTERS = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}]%s" + CONTRACTIONS + "?"
O200K = (LETTERS % ("*", "+") + "|" + LETTERS % ("+", "*") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
IN_LITELLM, IN_MISTRAL = "litellm/litellm_core_utils/tokenizers/", "mistral_common/data/"
TIKTOKEN = {  # litellm names files as tiktoken's cache does, by the hash of their address
    "cl100k": ("litellm", IN_LITELLM + "9b5ad71b2ce5302211f9c61530b329a4922fc6a4", CL100K),
    "o200k": ("litellm", IN_LITELLM + "fb374d419588a4632f3f557e76b4b70aebbca790", O200K),
    "p50k": ("litellm", IN_LITELLM + "ec7223a39ce59f226a68acc30dc1af2788490e15", GPT2),
    "qwen": ("dashscope", "dashscope/resources/qwen.tiktoken", QWEN),
}
AS_THEY_ARE = {"claude": IN_LITELLM + "anthropic_tokenizer.json", "deepseek": IN_LITELLM + "deepseek_tokenizer.json"}
TEKKEN = {"tekken": "tekken_240718.json", "tekken_2409": "tekken_240911.json"}
SENTENCEPIECE = {"mistral_v1": "tokenizer.model.v1", "mistral_v3": "mistral_instruct_tokenizer_240323.model.v3", "mistral_v7": "mistral_instruct_tokenizer_241114.model.v7"}

out = pathlib.Path(sys.argv[1])
with tempfile.TemporaryDirectory() as work:
    work = pathlib.Path(work)
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(work), "litellm", "dashscope", "mistral-common==1.13.1"], check=True)
    packages = {wheel.name.split("-")[0]: zipfile.ZipFile(wheel) for wheel in work.glob("*.whl")}

    def take(package, member, name):
        path = work / name
        path.write_bytes(packages[package].read(member))
        return str(path)

    def write(name, text):
        (out / name).mkdir(parents=True, exist_ok=True)
        (out / name / "tokenizer.json").write_text(text, encoding="utf-8")
        print(name, len(json.loads(text)["model"]["vocab"]), "tokens", flush=True)

    for name, (package, member, pattern) in TIKTOKEN.items():
        write(name, TikTokenConverter(take(package, member, name + ".tiktoken"), pattern=pattern).converted().to_str())
    for name, member in AS_THEY_ARE.items():
        write(name, packages["litellm"].read(member).decode())
    for name, member in TEKKEN.items():
        write(name, MistralConverter(take("mistral_common", IN_MISTRAL + member, "tekken.json")).converted().to_str())
    for name, member in SENTENCEPIECE.items():
        (work / name).mkdir()  # beside a tekken.json that would be read
        model = take("mistral_common", IN_MISTRAL + member, name + "/tokenizer.model")
        text = LlamaTokenizer.from_pretrained(str(pathlib.Path(model).parent)).backend_tokenizer.to_str()
        write(name, text)
        older = json.loads(text)  # as transformers 4 wrote it
        mark = "\u2581"
        older["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": mark}, {"type": "Replace", "pattern": {"String": " "}, "content": mark}]}
        older["pre_tokenizer"] = None
        write(name + "_prepend", json.dumps(older, ensure_ascii=False))
