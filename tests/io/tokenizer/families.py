# SPDX-License-Identifier: Apache-2.0
# Small tokenizers with exactly the pipelines of the families, trained on corpus.py and the text of this tree: the real ones need a network.
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import corpus

here = pathlib.Path(__file__).resolve().parent
root = here.parents[2]

newer = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def text():
    files = sorted(root.glob("docs/**/*.md")) + [root / "README.md"]
    return [f.read_text() for f in files] + corpus.sentences * 20 + [m for m in corpus.marks if m.isprintable()] * 5 + corpus.spaces


def byte_level(pattern, merges, specials, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    if pattern:
        split = pre_tokenizers.Split(Regex(newer % pattern), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=256 + merges, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(text(), trainer)
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    return tokenizer


def gpt2():
    tokenizer = byte_level(None, 700, [])
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", normalized=True, special=True)])
    return tokenizer


def llama3():
    tokenizer = byte_level(r"\p{N}{1,3}", 700, ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    data = json.loads(tokenizer.to_str())
    data["model"]["ignore_merges"] = True
    # A token that no merge makes, as real vocabularies of this kind have: ignore_merges finds it.
    data["model"]["vocab"]["\u0120qzqzq"] = len(data["model"]["vocab"])
    for i, token in enumerate(data["added_tokens"]):
        token["id"] = len(data["model"]["vocab"]) + i
    tokenizer = Tokenizer.from_str(json.dumps(data))
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                             special_tokens=[("<|begin_of_text|>", bos)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def qwen2():
    tokenizer = byte_level(r"\p{N}", 700, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], normalizers.NFC())
    tokenizer.add_tokens([AddedToken("<think>", normalized=False, special=False)])
    return tokenizer


def qwen35():
    """Qwen3.5: marks are part of letter runs."""
    tokenizer = qwen2()
    marked = newer.replace(r"]?\p{L}+", r"]?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
    split = pre_tokenizers.Split(Regex(marked % r"\p{N}"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return tokenizer


def added():
    """Qwen's pipeline with added tokens of every flag."""
    tokenizer = byte_level(r"\p{N}", 300, ["<|endoftext|>", "<long>", "<longer>", "<longest>"], normalizers.NFC())
    tokenizer.add_special_tokens([AddedToken("<sp>", lstrip=True, rstrip=True, special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("<word>", single_word=True, normalized=False), AddedToken("\u00c5X", normalized=True),
                          AddedToken("<nor>", normalized=True, lstrip=True), AddedToken("end", single_word=True, normalized=True),
                          AddedToken("q\u0301", normalized=True, rstrip=True)])
    return tokenizer


def pieces(merges, fuse, fallback):
    """Vocabulary and merges of SentencePiece's kind: trained on words that begin with the mark, none of which joins the next."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    specials = ["<unk>", "<s>", "</s>"] + (["<0x%02X>" % b for b in range(256)] if fallback else [])
    trainer = trainers.BpeTrainer(vocab_size=len(specials) + merges + 150, limit_alphabet=150, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator([t.replace("\n", " ") for t in text()], trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if t["id"] < 3]
    data["pre_tokenizer"] = None
    vocab, merged = data["model"]["vocab"], data["model"]["merges"]
    for n in (2, 4, 8):  # runs of spaces, as in Llama's vocabulary
        vocab["\u2581" * n] = len(vocab)
        merged.append(["\u2581" * (n // 2)] * 2)
    data["model"].update(fuse_unk=fuse, byte_fallback=fallback)
    return data


def llama2():
    data = pieces(500, True, True)
    data["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
                                                        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    data["post_processor"] = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                              "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                                       {"SpecialToken": {"id": "<s>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
                              "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    return Tokenizer.from_str(json.dumps(data))


def unknowns():
    """No byte fallback: characters out of the alphabet are <unk>, one for each run of them."""
    data = pieces(300, True, False)
    data["decoder"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": False}
    return Tokenizer.from_str(json.dumps(data))


def metaspace():
    """The newer form of Llama 2's pipeline: a Metaspace pre-tokenizer in place of the normalizer."""
    data = pieces(300, False, True)
    data["normalizer"] = None
    data["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    data["decoder"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    return Tokenizer.from_str(json.dumps(data))


def neox():
    """GPT-NeoX's and Pythia's pipeline; no token for the bytes that UTF-8 never has."""
    tokenizer = byte_level(None, 300, ["<|endoftext|>", "<|padding|>"], normalizers.NFC())
    data = json.loads(tokenizer.to_str())
    alphabet = byte_alphabet()
    never = {alphabet[b] for b in (0xC0, 0xC1, *range(0xF5, 0x100))}
    kept = [token for token in sorted(data["model"]["vocab"], key=data["model"]["vocab"].get) if not never & set(token)]
    data["model"]["vocab"] = {token: i for i, token in enumerate(kept)}
    for i, token in enumerate(data["added_tokens"]):
        token["id"] = len(kept) + i
    return Tokenizer.from_str(json.dumps(data))


def byte_alphabet():
    """The character that stands for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}


def smollm2():
    tokenizer = byte_level(None, 300, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return tokenizer


def gemma():
    """Spaces become marks, so its Split by a space finds none."""
    data = pieces(400, True, True)
    data["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    data["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    data["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    return Tokenizer.from_str(json.dumps(data))


contractions = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
cased = r"[^\r\n\p{L}\p{N}]?%s*%s+%s|[^\r\n\p{L}\p{N}]?%s+%s*%s|%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
bytes_alone = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def chain(stages, merges=150, specials=("<|endoftext|>",), normalizer=None):
    """Byte-level BPE behind a Sequence as the real file has it."""
    data = json.loads(byte_level(None, merges, list(specials), None).to_str())
    data["normalizer"] = normalizer
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": stages}
    trained = Tokenizer.from_str(json.dumps(data))
    trainer = trainers.BpeTrainer(vocab_size=256 + merges, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    trained.train_from_iterator(text(), trainer)
    trained.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    return with_pairs(trained, b"\n /!.,'aAs12_$" + "\u00e9\u4e2d\u0301".encode())


def with_pairs(tokenizer, members, seed=3):
    """Before all other merges, in an order of chance, one for each pair of these bytes: otherwise few ids show where pieces end."""
    data, alphabet = json.loads(tokenizer.to_str()), byte_alphabet()
    vocab = data["model"]["vocab"]
    pairs = [(alphabet[a], alphabet[b]) for a in members for b in members]
    random.Random(seed).shuffle(pairs)
    data["model"]["merges"] = [list(p) for p in pairs] + data["model"]["merges"]
    for token in data["added_tokens"]:
        vocab.pop(token["content"], None)
    for token in [a + b for a, b in pairs if a + b not in vocab]:
        vocab[token] = len(vocab)
    for i, token in enumerate(data["added_tokens"]):
        token["id"] = len(vocab) + i
    return Tokenizer.from_str(json.dumps(data))


def o200k():
    """gpt-oss; Llama 4 has the same with Removed, inverted."""
    pattern = cased % (upper, lower, contractions, upper, lower, contractions, r"\p{N}{1,3}")
    return chain([split(pattern, "Removed", True), bytes_alone], specials=["<|startoftext|>", "<|endoftext|>", "<|return|>"])


def tekken():
    """Mistral Nemo and Small."""
    return chain([split(cased % (upper, lower, "", upper, lower, "", r"\p{N}")), bytes_alone], specials=["<unk>", "<s>", "</s>", "[INST]"])


def deepseek():
    """DeepSeek V3 and R1."""
    words = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
    stages = [split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), split(words), bytes_alone]
    return chain(stages, specials=["<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"])


def deepseek_coder():
    """DeepSeek LLM and Coder: patterns for the engine, one of which looks for the end of a line."""
    letters = "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a" \
              "\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b"
    signs = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"
    stages = [split(r"[\r\n]"), split(r"\s?[%s]+" % letters), split(r"\s?[%s]+" % signs), split(r"\s+$"), split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
              {"type": "Digits", "individual_digits": True}, bytes_alone]
    return chain(stages)


def falcon():
    """Stages behind ByteLevel see the characters that stand for bytes."""
    stages = [{"type": "Punctuation", "behavior": "Contiguous"}, dict(bytes_alone, use_regex=True), {"type": "Digits", "individual_digits": False},
              split("[0-9][0-9][0-9]")]
    return chain(stages)


def bloom():
    """A class inside a class, which other engines read otherwise."""
    return chain([split(" ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"), bytes_alone])


def starcoder2():
    return chain([{"type": "Digits", "individual_digits": True}, dict(bytes_alone, use_regex=True)])


def nfkc():
    """Command R's pipeline, by NFKC in place of NFC."""
    return chain([{"type": "Digits", "individual_digits": True}, dict(bytes_alone, use_regex=True)], normalizer={"type": "NFKC"})


def tiktoken():
    """cl100k as tiktoken spells it: possessive, and for the engine."""
    pattern = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    return chain([split(pattern), bytes_alone])


def merged():
    """Behaviors of the engine's matches, empty ones among them, and of Punctuation."""
    stages = [split(r"\d+|\b|(?=[A-Z])".replace(r"\b|", ""), "MergedWithPrevious"), split(r"[\p{Lu}\p{Pc}]", "MergedWithNext"), split(r"\W", "Contiguous", True),
              {"type": "Punctuation", "behavior": "MergedWithNext"}, {"type": "Split", "pattern": {"String": "  "}, "behavior": "MergedWithPrevious", "invert": True}, bytes_alone]
    return chain(stages)


families = {f.__name__: f for f in (gpt2, llama3, qwen2, qwen35, added, llama2, unknowns, metaspace, neox, smollm2, gemma, o200k, tekken, deepseek,
                                    deepseek_coder, falcon, bloom, starcoder2, nfkc, tiktoken, merged)}


def compact(tokenizer, merges_as_text):
    data = json.loads(tokenizer.to_str())
    if merges_as_text:
        data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
