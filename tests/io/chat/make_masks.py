# SPDX-License-Identifier: Apache-2.0
"""Writes masks.golden.json: ids and loss masks of conversations by transformers.

The templates here mark answers with {% generation %}, and transformers gives the mask. The test uses the same templates
without these marks. Run with transformers 5 in this directory.
"""
import json
import re

from transformers import PreTrainedTokenizerFast

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
PLAIN = {name: re.sub(r"\{%-? (end)?generation %\}", "", text) for name, text in TEMPLATES.items()}
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


def main():
    cases = []
    for family in ("qwen2", "llama3", "metaspace"):
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"../tokenizer/{family}.tokenizer.json", **SPECIAL[family])
        for name, text in TEMPLATES.items():
            for number, (row, messages, tools) in enumerate(ROWS):
                if tools and not name.startswith("qwen"):
                    continue
                if name == "mistral" and messages[-1]["role"] == "user":
                    continue
                kwargs = dict(tools=tools, chat_template=text, return_dict=True)
                made = tokenizer.apply_chat_template(messages, return_assistant_tokens_mask=True, **kwargs)
                mask, answers = made["assistant_masks"], sum(m["role"] == "assistant" for m in messages)
                plain = tokenizer.apply_chat_template(messages, tools=tools, chat_template=PLAIN[name])
                assert plain["input_ids"] == made["input_ids"]
                rules = ["default", "last_round", "all"] if family == "qwen2" and number in (3, 8) else ["default"]
                for rule in rules:
                    cases.append({"tokenizer": family, "template": name, "rule": rule, "row": json.dumps(row),
                                  "ids": made["input_ids"],
                                  "loss": runs(loss_of(mask, row, rule, answers))})
    golden = {"templates": PLAIN, "special_tokens": SPECIAL, "cases": cases}
    with open("masks.golden.json", "w", encoding="utf-8") as file:
        file.write(json.dumps(golden, separators=(",", ":"), ensure_ascii=False).replace('{"tokenizer"', '\n{"tokenizer"'))
        file.write("\n")


main()
