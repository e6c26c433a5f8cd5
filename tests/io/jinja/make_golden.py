# SPDX-License-Identifier: Apache-2.0
"""Makes chats.golden.json: the templates in templates/ applied by transformers to conversations drawn at random.

python make_golden.py [COUNT]: A conversation is a line of words, as chat_template_test.cpp reads them: S, U, A, T and the
number of a text for a message; after A, rN for reasoning, cN and xN for calls; g: generation prompt; nN: the first N tools;
k0, k1: enable_thinking; o: the content is a list of parts. An output is kept as the FNV-1a hash of its text and its
generation spans, after "!" if the template raised an exception, whose message is hashed then.
"""
import datetime
import json
import os
import random
import sys

from transformers.utils import chat_template_utils

here = os.path.dirname(os.path.abspath(__file__))
texts = [
    "You are a helper.", "Hi!", "  What is 2 + 2?\n", "4", "It is **4**.\n\nReally.", "héllo wörld 日本 🙂", "", "<think>\nHm.\n</think>\n\nYes.",
    "a\tb \"quoted\" 'single' \\ back", "{\"temperature\": 21.5}", "<tool_response>\nx\n</tool_response>", "Write a poem.\r\nTwo lines.",
    "<|im_end|> is a token", "Line one\n    indented\n\n", "Ünïcode ﬁ ß İ", "1, 2, 3", "<think>a</think>b</think>c",
]
parameters = {"type": "object", "required": ["city"], "properties": {
    "city": {"type": "string", "description": "Où? \"here\""}, "days": {"type": "array", "items": {"type": "integer"}},
    "unit": {"enum": ["C", "F"]}, "more": {"type": ["string", "null"]}, "deep": {"type": "object", "properties": {"x": {"type": "number"}}}}}
tools = [
    {"type": "function", "function": {"name": "weather", "description": "Weather of a city.\nIn °C.", "parameters": parameters}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}, "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "array"}, "b": {"type": "number", "default": 1e-7}}}}},
]
calls = [
    {"type": "function", "id": "abcdefghi", "function": {"name": "weather", "arguments": {"city": "Zürich", "days": [1, 2], "deep": {"x": 0.5, "y": None}}}},
    {"type": "function", "id": "123456789", "function": {"name": "now", "arguments": {}}},
    {"type": "function", "id": "short", "function": {"name": "add", "arguments": "{\"a\": []}"}},
]
special_tokens = {"bos_token": "<s>", "eos_token": "</s>"}


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime(2024, 7, 26, 12, 0, 0)


chat_template_utils.datetime = Fixed


def draw(random):
    words = [f"S{random.randrange(len(texts))}"] if random.random() < 0.5 else []
    text = lambda: random.randrange(len(texts))
    for _ in range(random.randrange(1, 5)):
        words.append(f"U{text()}")
        if random.random() < 0.25:
            for _ in range(random.randrange(1, 3)):
                words.append(f"A{random.choice([6, 6, text()])}" + f"c{random.randrange(3)}" + (f"x{random.randrange(3)}" if random.random() < 0.3 else ""))
                words += [f"T{text()}" for _ in range(random.randrange(1, 3))]
        words.append(f"A{text()}" + (f"r{text()}" if random.random() < 0.3 else ""))
    if random.random() < 0.4:
        words.pop()
    if random.random() < 0.1:
        words.insert(random.randrange(len(words)), f"{random.choice('SUAT')}{text()}")
    flags = (["g"] if random.random() < 0.5 else []) + ([f"n{random.randrange(1, 4)}"] if random.random() < 0.35 else [])
    flags += ([f"k{random.randrange(2)}"] if random.random() < 0.3 else []) + (["o"] if random.random() < 0.1 else [])
    return " ".join(flags + words)


def conversation(line):
    out = {"messages": [], "tools": None, "add_generation_prompt": False, "variables": {}}
    parts = False
    for word in line.split():
        if word == "g":
            out["add_generation_prompt"] = True
        elif word == "o":
            parts = True
        elif word[0] == "n":
            out["tools"] = tools[:int(word[1:])]
        elif word[0] == "k":
            out["variables"]["enable_thinking"] = word == "k1"
        else:
            role = {"S": "system", "U": "user", "A": "assistant", "T": "tool"}[word[0]]
            rest, message = word[1:], {"role": role}
            marks = [i for i, c in enumerate(rest) if not c.isdigit()] + [len(rest)]
            content = texts[int(rest[:marks[0]])]
            message["content"] = [{"type": "text", "text": content}] if parts and role == "user" else content
            for begin, end in zip(marks, marks[1:]):
                number = int(rest[begin + 1:end])
                if rest[begin] == "r":
                    message["reasoning_content"] = texts[number]
                else:
                    message.setdefault("tool_calls", []).append(calls[number])
            out["messages"].append(message)
    return out


def fnv(text):
    value = 0xcbf29ce484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return f"{value:016x}"


def output(template, chat):
    """The text, or "!" and the message of raise_exception; None if Python itself refuses."""
    compiled = chat_template_utils._compile_jinja_template(template)
    messages = chat_template_utils._alias_reasoning_fields([{k: v for k, v in m.items() if v is not None} for m in chat["messages"]])
    try:
        text, spans = chat_template_utils._render_with_assistant_indices(
            compiled, messages, chat["tools"], None, chat["add_generation_prompt"], **{**special_tokens, **chat["variables"]})
    except chat_template_utils.jinja2.exceptions.TemplateError as error:
        if type(error) is chat_template_utils.jinja2.exceptions.TemplateError:
            return "!" + str(error)
        return None
    except TypeError:
        return None
    return text + "".join(f";{begin},{end}" for begin, end in spans)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 700
    source = random.Random(1)
    names = sorted(f[:-6] for f in os.listdir(os.path.join(here, "templates")))
    golden = {"texts": texts, "tools": tools, "calls": calls, "special_tokens": special_tokens, "conversations": [], "outputs": {n: [] for n in names}, "full": {}}
    templates = {n: open(os.path.join(here, "templates", n + ".jinja"), newline="").read() for n in names}
    golden["conversations"] = [draw(source) for _ in range(count)]
    for name in names:
        for i, line in enumerate(golden["conversations"]):
            text = output(templates[name], conversation(line))
            golden["outputs"][name].append("?" if text is None else ("!" if text.startswith("!") else "") + fnv(text))
            if i == 7:
                golden["full"][name] = text
        kinds = [o[0] if o[0] in "?!" else "text" for o in golden["outputs"][name]]
        print(name, {k: kinds.count(k) for k in set(kinds)})
    with open(os.path.join(here, "chats.golden.json"), "w") as file:
        parts = [f" {json.dumps(k)}: " + (json.dumps(v, indent=0) if k == "conversations" else "{\n" + ",\n".join(f"  {json.dumps(n)}: {json.dumps(o)}" for n, o in v.items()) + "\n }" if k == "outputs" else json.dumps(v)) for k, v in golden.items()]
        file.write("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main()
