# SPDX-License-Identifier: Apache-2.0
# Writes tokenizer.json and tokenizer_config.json beside this file: byte-level BPE in Qwen2's form, trained on questions.jsonl, and ChatML.
# The files beside it are of an earlier questions.jsonl, and stay: tests have its token ids.
#   pip install tokenizers==0.23.3 && python jobs/examples/chat/make_tokenizer.py
import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = pathlib.Path(__file__).resolve().parent
pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
template = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
rows = [json.loads(line) for line in (here / "questions.jsonl").read_text().splitlines()]
tokenizer = Tokenizer(models.BPE())
tokenizer.normalizer = normalizers.NFC()
tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
tokenizer.decoder = decoders.ByteLevel()
tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
trainer = trainers.BpeTrainer(vocab_size=1021, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
tokenizer.train_from_iterator([m["content"] for row in rows for m in row["messages"]] + ["system", "user", "assistant"], trainer)
tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
data = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
(here / "tokenizer.json").write_text(data.replace('],[', '],\n[').replace(',"merges":', ',\n"merges":') + "\n")
settings = {"chat_template": template, "eos_token": "<|im_end|>", "model_max_length": 256, "tokenizer_class": "Qwen2Tokenizer"}
(here / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
print(tokenizer.get_vocab_size())
