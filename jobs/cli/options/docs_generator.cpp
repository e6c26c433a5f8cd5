// SPDX-License-Identifier: Apache-2.0
// Generates docs/cli.md, the man page and the shell completions.
#include "jobs/cli/options/docs_generator.hpp"

#include <algorithm>

#include "jobs/cli/options/examples.hpp"
#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

std::string escape(const std::string& text, const char* special, char with) {
  std::string out;
  for (const char c : text) {
    if (std::string(special).find(c) != std::string::npos) out += with;
    out += c;
  }
  return out;
}

std::string cell(const std::string& text) { return escape(text, "|", '\\'); }

std::string default_text(const OptionSpec& spec) {
  return spec.default_value[0] != '\0' ? std::string("`") + spec.default_value + "`" : "";
}

std::string value_text(const OptionSpec& spec) { return spec.values[0] != '\0' ? spec.values : name_of(spec.type); }

const char* exit_codes[][2] = {
    {"0", "done"},
    {"1", "internal error: a bug of tessera"},
    {"2", "usage or configuration"},
    {"3", "data, model file or file system"},
    {"4", "does not fit (plan), or out of memory"},
    {"5", "training diverged: a loss or gradient is not finite"},
    {"6", "communication failure or timeout"},
    {"75", "stopped early after saving a checkpoint: continue with --resume_from_checkpoint auto"},
    {"128+n", "signal n"}};

std::string markdown_group(const std::string& group) {
  std::string out = "\n### " + group +
                    "\n\n| option | values | default | what it does | aliases; equivalents |\n|---|---|---|---|---|\n";
  for (const OptionSpec& spec : option_table()) {
    if (group != spec.group) continue;
    std::string help = spec.help;
    std::string other;
    for (const std::string& alias : split_words(spec.aliases, ' '))
      other += (other.empty() ? "`" : ", `") + alias + "`";
    if (spec.equivalents[0] != '\0') other += (other.empty() ? "" : "; ") + std::string(spec.equivalents);
    out += "| `--" + std::string(spec.name) + "` | " + cell(value_text(spec)) + " | " + cell(default_text(spec)) +
           " | " + cell(help) + " | " + cell(other) + " |\n";
  }
  return out;
}

std::string roff(const std::string& text) {
  std::string out = escape(text, "\\", '\\');
  for (std::size_t at = 0; (at = out.find('-', at)) != std::string::npos; at += 2) out.replace(at, 1, "\\-");
  return out.empty() || (out[0] != '.' && out[0] != '\'') ? out : "\\&" + out;
}

}  // namespace

std::string markdown() {
  std::string out = R"(# The command line

Generated from the option table by `tessera --help-markdown`; a test compares the two.

    tessera <command> [CONFIG.yaml|json ...] [--options]

| command | operands | what it does |
|---|---|---|
)";
  for (const CommandSpec& command : command_table()) {
    out += "| `" + std::string(command.name) + "` | " + cell(command.operands) + " | " + cell(command.help) + " |\n";
  }
  out += R"(
## Spelling

`_` and `-` are the same in names. A value follows as `--x=v` or `--x v`. A flag is `--x`, `--x true|True|1|yes|on` or
`--no-x`. A list is separated by spaces or commas. Sizes are `5GB` (decimal) or `512MiB`, times `90s` or `1h30m`. A
prefix of a name is not accepted for it. An unknown name exits with code 2; the error shows the nearest names, and the
file and line.

## Precedence

A later source overrides an earlier one: defaults < `--preset` < configuration files, left to right < `TESSERA_*`
environment variables < command line. `tessera config show` prints every value with its source; `args.json` in the
output directory stores the same.

A configuration file contains options by name, and the blocks `env:`, `fsdp_config:`, `deepspeed:` and
`zero_optimization:`. Files of accelerate and DeepSpeed work as they are; `tessera config explain FILE` lists each of
their keys as used, mapped, harmless or refused ([coming-from.md](coming-from.md)). `"auto"` leaves the default. A file
that another one names (`deepspeed: ds.json`) is overridden by it. An option of a file or of the environment that the
command does not read is named in a warning (W024); `generate` and `eval` take of a training run's file what they have.

Options of other tools that are not built yet, or have another name here, are not listed. Naming one is an error that
says what to use instead ([coming-from.md](coming-from.md)).

## What a run prints and writes

A step line is:

    step 120/1000 | loss 2.8123 | grad_norm 0.912 | lr 3.00e-04 | tok/s 18.2k | mfu 68.2% | mem 1.23GiB/40% |
    data 0.1% comm 2.4% | 00:02:31<00:18:30

`loss` is the loss of this step, not a mean since the last line. `mfu` is model FLOP/s as a share of the peak that the
run prints at start. A token takes 6 N_matmul + 12 L H T FLOPs; with packing, T is the length of its document. `mem` is
the memory of the largest rank (PSS) and its share of what a rank may use; on a GPU, what the process uses of the card,
its share of the card's memory, and the host's PSS ([memory.md](memory.md#what-lines-and-records-show)). In fine-tuning,
where some tokens have no loss, `tok/s 58.0k, 20.0k with loss` says tokens processed (without padding) and those with
loss. `data` and `comm` are the shares of the time in which computation waited for data and for communication. The times
are elapsed `<` remaining.

The output directory contains `args.json`, `run.json`, `logging.jsonl`, `runs/`, `STATUS`, at the end `config.json` and
`model.safetensors`, with `--save_steps` also `checkpoint-<step>/` ([checkpoints.md](checkpoints.md)), and with
`--profile_steps` also `trace/`. The first word of `STATUS` is `running`, `completed`, `preempted` or `failed`
([failures.md](failures.md)). [monitoring.md](monitoring.md) describes TensorBoard's event files (`runs/`),
`report.html` and the progress bar. Warnings have numbers: [warnings.md](warnings.md).

## Exit codes

| code | meaning |
|---|---|
)";
  for (const auto& row : exit_codes) out += std::string("| ") + row[0] + " | " + row[1] + " |\n";
  out += "\n## Options\n\nText in brackets is the default of an option whose default depends on the run.\n";
  for (const std::string& group : option_groups()) out += markdown_group(group);
  return out;
}

std::string man_page(const std::string& version) {
  std::string out =
      ".TH TESSERA 1 \"\" \"tessera " + roff(version) +
      "\" \"User Commands\"\n.SH NAME\ntessera \\- trains transformer language models sharded over MPI ranks\n"
      ".SH SYNOPSIS\n.B tessera\n.I command\n[CONFIG.yaml|json ...] [\\-\\-options]\n.br\n.B tessera launch "
      "\\-n N \\-\\- train\n[CONFIG.yaml|json ...] [\\-\\-options]\n.SH COMMANDS\n";
  for (const CommandSpec& command : command_table()) {
    out += ".TP\n.B " + roff(command.name) + " " + roff(command.operands) + "\n" + roff(command.help) + "\n";
  }
  for (const std::string& group : option_groups()) {
    std::string title = group;
    for (char& c : title) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
    out += ".SH " + roff(title) + "\n";
    for (const OptionSpec& spec : option_table()) {
      if (group != spec.group) continue;
      out += ".TP\n\\fB\\-\\-" + roff(spec.name) + "\\fR " +
             (spec.type == Type::flag ? "" : "\\fI" + roff(value_text(spec)) + "\\fR") + "\n" + roff(spec.help);
      if (spec.default_value[0] != '\0') out += " (default " + roff(spec.default_value) + ")";
      out += "\n";
    }
  }
  out += ".SH EXAMPLES\n";
  for (const Example& example : example_table())
    out += ".TP\n" + roff(example.what) + "\n.B " + roff(example.line) + "\n";
  out += ".SH EXIT STATUS\n";
  for (const auto& row : exit_codes) out += ".TP\n.B " + roff(row[0]) + "\n" + roff(row[1]) + "\n";
  return out + ".SH SEE ALSO\n.BR mpirun (1)\n";
}

namespace {

/// "a|b|c" as "a b c".
std::string spaced(std::string values) {
  std::replace(values.begin(), values.end(), '|', ' ');
  return values;
}

std::string bash_script() {
  std::string out = R"(# bash completion for tessera; source it, or copy it to /etc/bash_completion.d
_tessera() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    words=")";
  for (const CommandSpec& command : command_table()) out += std::string(command.name) + " ";
  out += R"(--help --version"
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    return
  fi
  case $prev in
)";
  for (const OptionSpec& spec : option_table()) {
    if (spec.type == Type::choice) out += strfmt("    --%s) words=\"%s\" ;;\n", spec.name, spaced(spec.values).c_str());
  }
  out += R"(  esac
  if [ -z "$words" ] && [[ $cur != --* ]] && [ "$COMP_CWORD" -eq 2 ]; then
    case ${COMP_WORDS[1]} in
      bench) words="gemm kernels attention collectives dequantize step strategies compression io scratch convert generate tokenizer" ;;
      checkpoint) words="verify diff" ;;
      config) words="show check explain" ;;
      completion) words="bash zsh fish" ;;
    esac
  fi
  if [ -n "$words" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    return
  fi
  if [[ $cur != --* ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    return
  fi
  case ${COMP_WORDS[1]} in
)";
  for (const CommandSpec& command : command_table()) {
    std::string names;
    for (const OptionSpec& spec : option_table()) {
      if ((spec.commands & command.bit) != 0) names += (names.empty() ? "--" : " --") + std::string(spec.name);
    }
    out += strfmt("    %s) words=\"%s\" ;;\n", command.name, names.c_str());
  }
  return out + R"(  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -o filenames -F _tessera tessera
)";
}

std::string quoted_for_zsh(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') out += "'\\''";
    else if (c == '[' || c == ']' || c == ':' || c == '\\') (out += '\\') += c;
    else out += c;
  }
  return out;
}

std::string zsh_script() {
  std::string out = R"(#compdef tessera
# zsh completion for tessera; copy it to a directory of $fpath as _tessera
_tessera() {
  local -a commands options
  commands=(
)";
  for (const CommandSpec& command : command_table())
    out += std::string("    '") + command.name + ":" + quoted_for_zsh(command.help) + "'\n";
  out += R"(  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  case ${words[2]} in
)";
  for (const CommandSpec& command : command_table()) {
    out += std::string("    ") + command.name + ")\n      options=(\n";
    for (const OptionSpec& spec : option_table()) {
      if ((spec.commands & command.bit) == 0) continue;
      std::string action;
      if (spec.type == Type::choice) action = ":value:(" + spaced(spec.values) + ")";
      else if (spec.type != Type::flag) action = ":value:_files";
      out += std::string("        '--") + spec.name + "[" + quoted_for_zsh(spec.help) + "]" + action + "'\n";
    }
    out += "      ) ;;\n";
  }
  return out + "  esac\n  _arguments -s $options '*:file:_files'\n}\n_tessera \"$@\"\n";
}

std::string fish_script() {
  std::string out = "# fish completion for tessera; copy it to ~/.config/fish/completions/tessera.fish\n";
  const auto quote = [](const std::string& text) { return "'" + escape(text, "'\\", '\\') + "'"; };
  for (const CommandSpec& command : command_table()) {
    out += std::string("complete -c tessera -n __fish_use_subcommand -f -a ") + command.name + " -d " +
           quote(command.help) + "\n";
  }
  for (const OptionSpec& spec : option_table()) {
    std::string commands;
    for (const CommandSpec& command : command_table()) {
      if ((spec.commands & command.bit) != 0) commands += std::string(" ") + command.name;
    }
    out += "complete -c tessera -n '__fish_seen_subcommand_from" + commands + "' -l " + spec.name + " -d " +
           quote(spec.help);
    if (spec.type == Type::choice) out += " -x -a " + quote(spaced(spec.values));
    else if (spec.type != Type::flag) out += " -r";
    out += "\n";
  }
  return out;
}

}  // namespace

std::string completion_script(const std::string& shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return zsh_script();
  if (shell == "fish") return fish_script();
  throw Error(ExitCode::usage, "completion " + shell + ": expected bash, zsh or fish", "command line");
}

}  // namespace tessera::jobs
