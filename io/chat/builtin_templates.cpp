// SPDX-License-Identifier: Apache-2.0
// The formats of turns, as templates. All mark the assistant's text with {% generation %}.
#include "io/chat/builtin_templates.hpp"

namespace tessera::io {
namespace {

constexpr const char* chatml = R"({%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\n' }}
{%- if message['role'] == 'assistant' %}
{%- generation %}{{- message['content'] + '<|im_end|>' }}{%- endgeneration %}
{%- else %}
{{- message['content'] + '<|im_end|>' }}
{%- endif %}
{{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- endif %}
)";

constexpr const char* llama3 = R"({{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
{%- if message['role'] == 'assistant' %}
{%- generation %}{{- message['content'] | trim + '<|eot_id|>' }}{%- endgeneration %}
{%- else %}
{{- message['content'] | trim + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
)";

constexpr const char* mistral = R"({{- bos_token }}
{%- set has_system = messages[0]['role'] == 'system' %}
{%- set system = messages[0]['content'] + '\n\n' if has_system else '' %}
{%- set rest = messages[1:] if has_system else messages %}
{%- if has_system and (not rest or rest[0]['role'] != 'user') %}
{{- raise_exception("The template mistral prints a system message with the user's message behind it") }}
{%- endif %}
{%- for message in rest %}
{%- if message['role'] == 'system' %}
{{- raise_exception("The template mistral has one system message, the first message") }}
{%- elif message['role'] == 'user' %}
{{- '[INST] ' + (system if loop.first else '') + message['content'] + '[/INST]' }}
{%- elif message['role'] == 'assistant' %}
{%- generation %}{{- ' ' + message['content'] | trim + eos_token }}{%- endgeneration %}
{%- else %}
{{- raise_exception("The template mistral has no role '" + message['role'] + "'") }}
{%- endif %}
{%- endfor %}
)";

constexpr const char* gemma = R"({{- bos_token }}
{%- set has_system = messages[0]['role'] == 'system' %}
{%- set system = messages[0]['content'] | trim + '\n\n' if has_system else '' %}
{%- set rest = messages[1:] if has_system else messages %}
{%- if has_system and (not rest or rest[0]['role'] != 'user') %}
{{- raise_exception("The template gemma prints a system message with the user's message behind it") }}
{%- endif %}
{%- for message in rest %}
{%- if message['role'] == 'system' %}
{{- raise_exception("The template gemma has one system message, the first message") }}
{%- elif message['role'] == 'assistant' %}
{{- '<start_of_turn>model\n' }}
{%- generation %}{{- message['content'] | trim + '<end_of_turn>' }}{%- endgeneration %}
{%- else %}
{{- '<start_of_turn>' + message['role'] + '\n' + (system if loop.first else '') }}
{{- message['content'] | trim + '<end_of_turn>' }}
{%- endif %}
{{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<start_of_turn>model\n' }}
{%- endif %}
)";

constexpr const char* phi3 = R"({%- for message in messages %}
{{- '<|' + message['role'] + '|>\n' }}
{%- if message['role'] == 'assistant' %}
{%- generation %}{{- message['content'] + '<|end|>' }}{%- endgeneration %}
{%- else %}
{{- message['content'] + '<|end|>' }}
{%- endif %}
{{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|assistant|>\n' }}
{%- endif %}
)";

constexpr BuiltinTemplate table_of_templates[] = {
    {"chatml", chatml, "<|im_start|> <|im_end|>"},
    {"gemma", gemma, "<start_of_turn> <end_of_turn>"},
    {"llama3", llama3, "<|start_header_id|> <|end_header_id|> <|eot_id|>"},
    {"mistral", mistral, ""},  // [INST] is text in its older tokenizers
    {"phi3", phi3, "<|user|> <|assistant|> <|end|>"},
};

}  // namespace

std::span<const BuiltinTemplate> builtin_templates() { return table_of_templates; }

}  // namespace tessera::io
