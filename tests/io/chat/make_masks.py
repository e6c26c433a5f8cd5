# SPDX-License-Identifier: Apache-2.0
"""Writes masks.golden.json: ids and loss masks of conversations by transformers.

The templates here mark answers with {% generation %}, and transformers gives the mask. The test uses the same templates
without these marks. Run with transformers 5 in this directory.
"""
import datetime
import json
import re

from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils


class Fixed(datetime.datetime):
    """The day that the program has in rows of training data."""
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime(2024, 7, 26, 12, 0, 0)


chat_template_utils.datetime = Fixed

CHATML_TOOLS = """
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}{{- "\\n" + (tool | tojson) }}{%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- elif default_system %}
    {{- '<|im_start|>system\\n' + default_system + '<|im_end|>\\n' }}
{%- endif %}"""

CALLS = """
        {%- for tool_call in message.tool_calls or [] %}
            {%- if (loop.first and message.content) or not loop.first %}{{- '\\n' }}{%- endif %}
            {{- '<tool_call>\\n{"name": "' + tool_call.function.name + '", "arguments": ' }}
            {{- tool_call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}"""

TOOL_TURNS = """
    {%- elif message.role == "tool" %}
        {%- if loop.first or messages[loop.index0 - 1].role != "tool" %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != "tool" %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

TEMPLATES = {
    "qwen2.5": "{%- set default_system = 'You are a helpful assistant.' %}" + CHATML_TOOLS + """
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>assistant\\n' }}{%- generation %}{{- message.content }}""" + CALLS + """
        {{- '<|im_end|>\\n' }}{%- endgeneration %}""" + TOOL_TURNS,
    "qwen3": CHATML_TOOLS + """
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" %}
        {%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning) and not reasoning %}
            {{- '<think>\\n\\n</think>\\n\\n' }}
        {%- endif %}
        {%- generation %}
        {%- if loop.index0 > ns.last_query_index and reasoning %}
            {{- '<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}{{- content }}{%- endif %}""" + CALLS + """
        {{- '<|im_end|>\\n' }}{%- endgeneration %}""" + TOOL_TURNS,
    "llama3": """{{- bos_token }}
{%- set date_string = strftime_now("%d %b %Y") if strftime_now is defined and false else "26 Jul 2024" %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system_message = "" %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: " + date_string + "\\n\\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{- message['content'] | trim + '<|eot_id|>' }}{%- endgeneration %}
    {%- else %}{{- message['content'] | trim + '<|eot_id|>' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}""",
    "mistral": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}{%- set loop_messages = messages[1:] %}
{%- else %}{%- set loop_messages = messages %}{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) %}
        {{- raise_exception("conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif %}
    {%- if message["role"] == "user" %}
        {%- if loop.last or loop.index0 == loop_messages|length - 2 and system_message is defined %}
            {{- "[INST] " + (system_message + "\\n\\n" if system_message is defined else "") + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- else %}{{- " " }}{%- generation %}{{- message["content"] | trim + eos_token }}{%- endgeneration %}{%- endif %}
{%- endfor %}""",
    "gemma": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' %}{%- set loop_messages = messages[1:] %}
{%- else %}{%- set first_user_prefix = "" %}{%- set loop_messages = messages %}{%- endif %}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception("Conversation roles must alternate") }}{%- endif %}
    {%- if message['role'] == 'assistant' %}{%- set role = "model" %}{%- else %}{%- set role = message['role'] %}{%- endif %}
    {{- '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if role == "model" %}{%- generation %}{{- message['content'] | trim + '<end_of_turn>\\n' }}{%- endgeneration %}
    {%- else %}{{- message['content'] | trim + '<end_of_turn>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{%- endif %}""",
    "phi": """{%- for message in messages %}
    {%- if message['role'] == 'system' and message['content'] %}{{- '<|system|>\\n' + message['content'] + '<|end|>\\n' }}
    {%- elif message['role'] == 'user' %}{{- '<|user|>\\n' + message['content'] + '<|end|>\\n' }}
    {%- elif message['role'] == 'assistant' %}{{- '<|assistant|>\\n' }}
        {%- generation %}{{- message['content'] + '<|end|>\\n' }}{%- endgeneration %}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- endif %}""",
    "deepseek": """{%- set ns = namespace(system_prompt='') %}
{%- for message in messages %}{%- if message['role'] == 'system' %}{%- set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}
{{- bos_token }}{{- ns.system_prompt }}
{%- for message in messages %}
    {%- if message['role'] == 'user' %}{{- '<｜User｜>' + message['content'] }}{%- endif %}
    {%- if message['role'] == 'assistant' %}
        {%- set content = message['content'] %}
        {%- if '</think>' in content %}{%- set content = content.split('</think>')[-1] %}{%- endif %}
        {{- '<｜Assistant｜>' }}{%- generation %}{{- content + '<｜end▁of▁sentence｜>' }}{%- endgeneration %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<｜Assistant｜><think>\\n' }}{%- endif %}""",
}
# With conversations of their own (MORE_ROWS), by one tokenizer each.
MORE_TEMPLATES = {
    "granite": """{%- if messages[0].role == 'system' %}
    {%- set instruction = messages[0].content %}{%- set rest = messages[1:] %}
{%- else %}
    {%- set instruction = "Today: " + strftime_now('%B %d, %Y') + ". You answer." %}{%- set rest = messages %}
    {%- if tools and documents %}{%- set instruction = instruction + " Call tools, and keep to the documents." %}
    {%- elif tools %}{%- set instruction = instruction + " Call tools." %}
    {%- elif documents %}{%- set instruction = instruction + " Keep to the documents." %}
    {%- elif thinking %}{%- set instruction = instruction + "\nThink in <think>, answer in <response>." %}{%- endif %}
    {%- if controls and 'citations' in controls %}{%- set instruction = instruction + '\nCite.' %}{%- endif %}
{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + instruction + '<|end_of_text|>
' }}
{%- if tools %}
    {{- '<|start_of_role|>available_tools<|end_of_role|>' + tools | tojson(indent=4) + '<|end_of_text|>\n' }}
{%- endif %}
{%- for document in documents or [] %}
    {{- '<|start_of_role|>document {"document_id": "' + document['doc_id'] | string + '"}<|end_of_role|>\n' }}
    {{- document['text'] + '<|end_of_text|>\n' }}
{%- endfor %}
{%- for message in rest %}
    {%- set name = 'tool_response' if message.role == 'tool' else message.role %}
    {{- '<|start_of_role|>' + name + '<|end_of_role|>' }}
    {%- if message.role == 'assistant' %}{%- generation %}
        {{- message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '<|tool_call|>[' if loop.first else ', ' }}{{- call.function | tojson }}{{- ']' if loop.last }}
        {%- endfor %}{{- '<|end_of_text|>\n' }}{%- endgeneration %}
    {%- else %}{{- message.content + '<|end_of_text|>\n' }}{%- endif %}
    {%- if loop.last and add_generation_prompt %}
        {{- '<|start_of_role|>assistant' + (' ' + controls | tojson if controls else '') + '<|end_of_role|>' }}
    {%- endif %}
{%- endfor %}""",
    "smollm3": """{%- if enable_thinking is not defined -%}{%- set enable_thinking = true -%}{%- endif -%}
{%- set mode = "/think" if enable_thinking else "/no_think" -%}
{{- "<|im_start|>system\n" -}}
{%- if messages[0].role == "system" -%}
    {%- set given = messages[0].content -%}
    {%- if "/no_think" in given -%}{%- set mode = "/no_think" -%}
    {%- elif "/think" in given -%}{%- set mode = "/think" -%}{%- endif -%}
    {%- set wish = given.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{%- if given is defined and "/system_override" in given -%}
    {{- wish.replace("/system_override", "").rstrip() + "<|im_end|>\n" -}}
{%- else -%}
    {{- "## Metadata\n\nToday: " + strftime_now("%d %B %Y") + "\nMode: " + mode + "\n\n## Wishes\n\n" -}}
    {{- (wish or "Answer.") + "\n\n" -}}
    {%- if xml_tools or python_tools or tools -%}
        {{- "### Tools\n\n" -}}
        {%- set xml = namespace(text="<tools>\n") -%}
        {%- for tool in xml_tools or tools or [] -%}
            {%- set xml.text = xml.text ~ (tool | string) ~ "\n" -%}
        {%- endfor -%}
        {{- xml.text + "</tools>\n\n" -}}
        {%- if python_tools -%}{{- "<code>\n" + python_tools | join("\n") + "\n</code>\n\n" -}}{%- endif -%}
    {%- endif -%}
    {{- "<|im_end|>\n" -}}
{%- endif -%}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}{{ "<|im_start|>user\n" + content + "<|im_end|>\n" }}
    {%- elif message.role == "assistant" -%}
        {{ "<|im_start|>assistant\n" + ("<think>\n\n</think>\n" if mode == "/no_think" else "") }}
        {%- generation %}{{- content.lstrip("\n") + "<|im_end|>\n" }}{%- endgeneration %}
    {%- elif message.role == "tool" -%}{{ "<|im_start|>user\n" + content + "<|im_end|>\n" }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ "<|im_start|>assistant\n" + ("<think>\n\n</think>\n" if mode == "/no_think" else "") }}
{%- endif -%}""",
    # One token begins a text and ends an answer; a new line only where something follows.
    "olmo2": """{{ bos_token }}{% for message in messages %}
{% if message['role'] in ['system', 'user'] %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '\n' }}
{%- else %}{{ '<|assistant|>\n' }}{%- generation %}{{ message['content'] + bos_token }}{%- endgeneration %}
{%- if not loop.last %}{{ '\n' }}{%- endif %}{% endif %}
{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}""",
    "llama4": """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- macro header(role) %}{{- '<|header_start|>' + role + '<|header_end|>\n\n' }}{%- endmacro %}
{%- macro listed() %}
    {{- 'Answer with a call: {"name": name, "parameters": object}.\n\n' }}
    {%- for tool in tools %}{{- tool | tojson(indent=4) + '\n\n' }}{%- endfor %}
{%- endmacro %}
{%- if messages[0]['role'] == 'system' %}
    {%- set instruction = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
    {{- header('system') + ('Environment: ipython\n' if tools is not none else '') }}
    {%- if tools is not none and not tools_in_user_message %}{{- listed() }}{%- endif %}
    {{- instruction + '<|eot|>' }}
{%- endif %}
{%- if tools_in_user_message and tools is not none %}
    {{- header('user') + listed() + messages[0]['content'] | trim + '<|eot|>' }}{%- set messages = messages[1:] %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' or message.role == 'ipython' %}
        {{- header('ipython') + message.content | tojson + '<|eom|>' }}
    {%- elif message.role == 'assistant' %}
        {{- header('assistant') }}{%- generation %}
        {%- if message['content'] is string %}{{- message['content'] }}{%- endif %}
        {%- for call in message.tool_calls if call.function is defined %}
            {{- '{"name": "' + call.function.name + '", "parameters": ' + call.function.arguments | tojson + '}' }}
        {%- endfor %}{{- '<|eot|>' }}{%- endgeneration %}
    {%- else %}{{- header(message['role']) + message['content'] + '<|eot|>' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- header('assistant') }}{%- endif %}""",
}
TEMPLATES_OF_ALL = {**TEMPLATES, **MORE_TEMPLATES}
PLAIN = {name: re.sub(r"\{%-? (end)?generation %\}", "", text) for name, text in TEMPLATES_OF_ALL.items()}
SPECIAL = {"qwen2": {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"},
           "llama3": {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"},
           "metaspace": {"bos_token": "<s>", "eos_token": "</s>"}}


def user(text):
    return {"role": "user", "content": text}


def bot(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


Q, A = "How many ranks?\nSay it.", "Four ranks, of  course! Übung 漢字 123."
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": "é"}}}
TOOL = {"type": "function", "function": {"name": "add", "description": "adds"}}

# (row, the messages that it means, tools)
ROWS = [
    ({"messages": [user(Q), bot(A)]}, [user(Q), bot(A)], None),
    ({"conversations": [{"from": "human", "value": Q}, {"from": "gpt", "value": A}], "system": "Be brief."},
     [system("Be brief."), user(Q), bot(A)], None),
    ({"conversation": [{"human": Q, "assistant": A}, {"human": "And?", "assistant": "No."}]},
     [user(Q), bot(A), user("And?"), bot("No.")], None),
    ({"query": Q, "response": A, "history": [["x", " y \n"], ["z", "w"]], "system": "s"},
     [system("s"), user("x"), bot(" y \n"), user("z"), bot("w"), user(Q), bot(A)], None),
    ({"instruction": "Add", "input": "1 and 2", "output": "3"}, [user("Add\n1 and 2"), bot("3")], None),
    ({"prompt": Q, "completion": A}, [user(Q), bot(A)], None),
    ({"prompt": [user(Q)], "completion": [bot(A)]}, [user(Q), bot(A)], None),
    ({"messages": [user("a"), bot("a"), user("a"), bot("a"), user("a"), bot("a")]},
     [user("a"), bot("a"), user("a"), bot("a"), user("a"), bot("a")], None),
    ({"messages": [user("q"), bot("first", loss=False), user("r"), bot("second"), user("s"), bot("third", loss=True)]},
     [user("q"), bot("first"), user("r"), bot("second"), user("s"), bot("third")], None),
    ({"messages": [user(Q), bot("<think>\nhm\nwell\n</think>\n\n" + A), user("b"), bot("<think>\nok\n</think>\n\nyes")]},
     [user(Q), bot("<think>\nhm\nwell\n</think>\n\n" + A), user("b"), bot("<think>\nok\n</think>\n\nyes")], None),
    ({"messages": [user(Q), bot("n1<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\nx"), user("b"), bot("n2")]},
     [user(Q), bot("n1<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\nx"), user("b"), bot("n2")], None),
    ({"messages": [user(Q), bot("done"), user("more")]}, [user(Q), bot("done"), user("more")], None),
    ({"messages": [user("1+1?"), bot("I add.", tool_calls=[CALL]), {"role": "tool", "content": "2"}, bot("Two.")],
      "tools": [TOOL]},
     [user("1+1?"), bot("I add.", tool_calls=[CALL]), {"role": "tool", "content": "2"}, bot("Two.")], [TOOL]),
]

CALLS_OF_TWO = [{"type": "function", "function": {"name": "add", "arguments": {"a": n, "b": [n, None, "é\"\n"]}}}
                for n in (1, 2)]
TWO_CALLS = [user("1+1 and 2+2?"), bot("", tool_calls=CALLS_OF_TWO), {"role": "tool", "content": "2"},
             {"role": "tool", "content": "4 \"é\""}, bot("2 and 4."), user("Again."), bot("No.")]
THOUGHT = "<think>Count.</think><response>Four.</response>"
DOCUMENTS = [{"doc_id": 1, "title": "A", "text": "Four ranks."}, {"doc_id": "b", "text": "Übung\n"}]


def given(messages, tools=None, **variables):
    row = {"messages": messages, **({"tools": tools} if tools else {})}
    return {**row, "chat_template_kwargs": variables} if variables else row


# Template: (tokenizer, numbers of ROWS, rows of its own)
MORE_ROWS = {
    "granite": ("qwen2", (0, 1, 2, 7, 8, 9, 10, 11, 12), [
        given([user(Q), bot(A), user("And?"), bot("No.")], documents=DOCUMENTS),
        given(TWO_CALLS, [TOOL], documents=DOCUMENTS[1:]),
        given([system("s"), *TWO_CALLS], [TOOL, TOOL]),
        given([user(Q), bot(THOUGHT), user("b"), bot(THOUGHT)], thinking=True),
        given([user(Q), bot(A)], controls={"citations": True, "length": "long"}),
        given([user(Q), bot("")])]),
    "smollm3": ("qwen2", (0, 2, 8, 9, 10, 11), [
        given([system("Be brief. /no_think"), user(Q), bot(A), user("b"), bot("\nn")]),
        given([system("/think"), user(Q), bot("<think>\nhm\n</think>\n" + A)], enable_thinking=False),
        given([user(Q + " /no_think"), bot(A), user("b"), bot("n")], enable_thinking=True),
        given([user(Q), bot(A), user("b"), bot("n")], enable_thinking=False),
        given([system("/system_override Only this. /no_think"), user(Q), bot(A)]),
        given([user("1+1?"), bot('<tool_call>{"name": "add"}</tool_call>'), {"role": "tool", "content": "2"},
               bot("Two.")], [TOOL]),
        given([user(Q), bot(A)], xml_tools=[TOOL], python_tools=["def add(a):"], enable_thinking=False)]),
    "olmo2": ("qwen2", (0, 1, 2, 7, 8, 9, 11), [given([user("<|endoftext|>"), bot(""), user("b"), bot(" n\n")])]),
    "llama4": ("llama3", (0, 1, 2, 7, 8, 9, 11, 12), [
        given(TWO_CALLS, [TOOL]),
        given([system(" s "), *TWO_CALLS], [TOOL], tools_in_user_message=False),
        given([system("s"), user(Q), bot(A), user("b"), bot("")], custom_tools=[TOOL]),
        given(TWO_CALLS[:2])]),
}


def runs(mask):
    """First and last + 1 of each run of ones."""
    out = []
    for i, one in enumerate(mask):
        if one and (i == 0 or not mask[i - 1]):
            out.append([i, i + 1])
        elif one:
            out[-1][1] = i + 1
    return out


def loss_of(mask, row, rule, answers):
    spans = runs(mask)
    assert len(spans) == answers, (spans, answers)
    flags = [m.get("loss") for m in row.get("messages", []) if m["role"] == "assistant"] or [None] * answers
    loss = [1 if rule == "all" else 0] * len(mask)
    for k, (begin, end) in enumerate(spans):
        on = rule != "last_round" or k == answers - 1
        if flags[k] is not None:
            on = flags[k]
        loss[begin:end] = [int(on)] * (end - begin)
    loss[0] = 0
    return loss


def case_of(tokenizer, family, name, rule, row, messages, tools):
    text, variables = TEMPLATES_OF_ALL[name], row.get("chat_template_kwargs", {})
    made = tokenizer.apply_chat_template(messages, tools=tools, chat_template=text, return_dict=True,
                                         return_assistant_tokens_mask=True, **variables)
    plain = tokenizer.apply_chat_template(messages, tools=tools, chat_template=PLAIN[name], **variables)
    assert plain["input_ids"] == made["input_ids"], name
    answers = sum(m["role"] == "assistant" for m in messages)
    return {"tokenizer": family, "template": name, "rule": rule, "row": json.dumps(row), "ids": made["input_ids"],
            "loss": runs(loss_of(made["assistant_masks"], row, rule, answers))}


def main():
    cases = []
    tokenizers = {}
    for family in ("qwen2", "llama3", "metaspace"):
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"../tokenizer/{family}.tokenizer.json", **SPECIAL[family])
        tokenizers[family] = tokenizer
        for name in TEMPLATES:
            for number, (row, messages, tools) in enumerate(ROWS):
                if tools and not name.startswith("qwen"):
                    continue
                if name == "mistral" and messages[-1]["role"] == "user":
                    continue
                rules = ["default", "last_round", "all"] if family == "qwen2" and number in (3, 8) else ["default"]
                cases += [case_of(tokenizer, family, name, rule, row, messages, tools) for rule in rules]
    for name, (family, numbers, own) in MORE_ROWS.items():
        rows = [ROWS[number] for number in numbers] + [(row, row["messages"], row.get("tools")) for row in own]
        cases += [case_of(tokenizers[family], family, name, "default", *row) for row in rows]
    golden = {"templates": PLAIN, "special_tokens": SPECIAL, "cases": cases}
    with open("masks.golden.json", "w", encoding="utf-8") as file:
        file.write(json.dumps(golden, separators=(",", ":"), ensure_ascii=False).replace('{"tokenizer"', '\n{"tokenizer"'))
        file.write("\n")


main()
