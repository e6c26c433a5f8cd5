// docs/cli.md, the man page and the completions.
#include "jobs/cli/options/docs_generator.hpp"
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

std::string default_words(const OptionSpec& spec) {
  return spec.default_value[0] != '\0' ? std::string("`") + spec.default_value + "`" : "";
}

std::string values_words(const OptionSpec& spec) { return spec.words[0] != '\0' ? spec.words : name_of(spec.type); }

const char* exit_codes[][2] = {
    {"0", "done"},
    {"1", "internal error: a bug of ours"},
    {"2", "usage or configuration"},
    {"3", "data, model file or file system"},
    {"4", "does not fit (plan), or out of memory"},
    {"5", "training diverged: a loss or gradient is not finite"},
    {"6", "communication failure or timeout"},
    {"75", "stopped early with a good checkpoint: start again with --resume_from_checkpoint auto"},
    {"128+n", "signal n"}};

std::string markdown_group(const std::string& group) {
  std::string out =
      "\n### " + group +
      "\n\n| option | values | default | what it does | aliases; matching names |\n|---|---|---|---|---|\n";
  for (const OptionSpec& spec : option_table()) {
    if (group != spec.group) continue;
    std::string help = spec.help;
    if (spec.status == Status::not_built && spec.fine[0] != '\0')
      help += std::string(" (accepted: `") + spec.fine + "`)";
    std::string other;
    for (const std::string& alias : split_words(spec.aliases, ' '))
      other += (other.empty() ? "`" : ", `") + alias + "`";
    if (spec.matches[0] != '\0') other += (other.empty() ? "" : "; ") + std::string(spec.matches);
    out += "| `--" + std::string(spec.name) + "` | " + cell(values_words(spec)) + " | " + cell(default_words(spec)) +
           " | " + cell(help) + " | " + cell(other) + " |\n";
  }
  return out;
}

std::vector<std::string> groups() {
  std::vector<std::string> result;
  for (const OptionSpec& spec : option_table()) {
    bool known = false;
    for (const std::string& group : result) known = known || group == spec.group;
    if (!known) result.emplace_back(spec.group);
  }
  return result;
}

std::string roff(const std::string& text) {
  std::string out = escape(text, "\\", '\\');
  for (std::size_t at = 0; (at = out.find('-', at)) != std::string::npos; at += 2) out.replace(at, 1, "\\-");
  return out.empty() || (out[0] != '.' && out[0] != '\'') ? out : "\\&" + out;
}

}  // namespace

std::string markdown() {
  std::string out =
      "# The command line\n\nMade from the option table by `tessera --help-markdown`; a test holds the two equal.\n\n"
      "    tessera <command> [CONFIG.yaml|json ...] [--options]\n\n| command | operands | what it does "
      "|\n|---|---|---|\n";
  for (const CommandSpec& command : command_table()) {
    out += "| `" + std::string(command.name) + "` | " + cell(command.operands) + " | " + cell(command.help) + " |\n";
  }
  out +=
      "\n## Spelling\n\n"
      "`_` and `-` are the same in names; `--x=v` and `--x v`; booleans as `--x`, `--x true|True|1|yes|on`, `--no-x`; "
      "lists by "
      "spaces or\n"
      "commas; sizes `5GB` (decimal), `512MiB`; times `90s`, `1h30m`. Names are never guessed from a prefix; an "
      "unknown one "
      "ends with\n"
      "exit code 2, the nearest names, and where it stands.\n\n"
      "## Layers\n\nLater wins: defaults < `--preset` < configuration files, left to right < `TESSERA_*` environment < "
      "command "
      "line.\n"
      "`tessera config show` prints every value with its source; `args.json` in the output directory keeps the same.\n"
      "A configuration file holds flat names as below, and the blocks `env:`, `fsdp_config:`, `deepspeed:` and "
      "`zero_optimization:`; files of\n"
      "accelerate and DeepSpeed work as they are, and each of their keys is listed as mapped or ignored. `\"auto\"` "
      "leaves the "
      "default.\n\n"
      "## What a run prints and writes\n\n"
      "A step line: `step 120/1000 | loss 2.8123 | grad_norm 0.912 | lr 3.00e-04 | tok/s 18.2k | mfu 68.2% | mem "
      "1.23GiB/40% "
      "|\n"
      "data 0.1% comm 2.4% | 00:02:31<00:18:30`. `mfu` is model FLOP/s (6 N_matmul + 12 L H T per token; packed: with "
      "each "
      "document's own length as T) as a share of the sgemm speed\n"
      "that all ranks together reached at start; `mem` is the largest rank's memory (PSS) and its share of what a rank "
      "may "
      "use; `data` and `comm` are the\n"
      "shares of the time that computation waited for data and for communication; then elapsed `<` remaining. The loss "
      "is that "
      "of the\n"
      "step itself, not a mean since the last line.\n\n"
      "The output directory holds `args.json`, `run.json`, `logging.jsonl`, `STATUS` (one word: `running`, "
      "`completed`, "
      "`preempted`, `failed`; a run whose\n"
      "processes were all killed leaves `running`), `config.json` and `model.safetensors` at the end, "
      "`checkpoint-<step>/` "
      "with `--save_steps` ([checkpoints.md](checkpoints.md)), and `trace/` with `--profile_steps`.\n"
      "Warnings have numbers: [warnings.md](warnings.md).\n\n"
      "## Exit codes\n\n| code | meaning |\n|---|---|\n";
  for (const auto& row : exit_codes) out += std::string("| ") + row[0] + " | " + row[1] + " |\n";
  out += "\n## Options\n";
  for (const std::string& group : groups()) out += markdown_group(group);
  return out;
}

std::string man_page(const std::string& version) {
  std::string out =
      ".TH TESSERA 1 \"\" \"tessera " + roff(version) +
      "\" \"User Commands\"\n.SH NAME\ntessera \\- trains transformer language models sharded over MPI ranks\n"
      ".SH SYNOPSIS\n.B tessera\n.I command\n[CONFIG.yaml|json ...] [\\-\\-options]\n.br\n.B mpirun \\-n N "
      "tessera train\n[CONFIG.yaml|json ...] [\\-\\-options]\n.SH COMMANDS\n";
  for (const CommandSpec& command : command_table()) {
    out += ".TP\n.B " + roff(command.name) + " " + roff(command.operands) + "\n" + roff(command.help) + "\n";
  }
  for (const std::string& group : groups()) {
    std::string title = group;
    for (char& c : title) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
    out += ".SH " + roff(title) + "\n";
    for (const OptionSpec& spec : option_table()) {
      if (group != spec.group) continue;
      out += ".TP\n\\fB\\-\\-" + roff(spec.name) + "\\fR " +
             (spec.type == Type::flag ? "" : "\\fI" + roff(values_words(spec)) + "\\fR") + "\n" + roff(spec.help);
      if (spec.default_value[0] != '\0') out += " (default " + roff(spec.default_value) + ")";
      out += "\n";
    }
  }
  out += ".SH EXIT STATUS\n";
  for (const auto& row : exit_codes) out += ".TP\n.B " + roff(row[0]) + "\n" + roff(row[1]) + "\n";
  return out + ".SH SEE ALSO\n.BR mpirun (1)\n";
}

namespace {

std::string bash_script() {
  std::string out =
      "# bash completion for tessera; source it, or put it into /etc/bash_completion.d\n_tessera() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    words=\"";
  for (const CommandSpec& command : command_table()) out += std::string(command.name) + " ";
  out +=
      "--help --version\"\n    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n    return\n  fi\n  case "
      "$prev "
      "in\n";
  for (const OptionSpec& spec : option_table()) {
    if (spec.type != Type::choice) continue;
    std::string words;
    for (const std::string& word : split_words(spec.words, '|')) words += (words.empty() ? "" : " ") + word;
    out += std::string("    --") + spec.name + ") words=\"" + words + "\" ;;\n";
  }
  out +=
      "  esac\n  if [ -n \"$words\" ]; then\n    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n    "
      "return\n  "
      "fi\n"
      "  if [[ $cur != --* ]]; then\n    case ${COMP_WORDS[1]} in\n"
      "      bench) [ \"$COMP_CWORD\" -eq 2 ] && mapfile -t COMPREPLY < <(compgen -W \"gemm collectives step io "
      "convert "
      "generate\" -- \"$cur\") "
      ";;\n"
      "      checkpoint) [ \"$COMP_CWORD\" -eq 2 ] && mapfile -t COMPREPLY < <(compgen -W \"verify diff\" -- \"$cur\") "
      ";;\n"
      "      config) [ \"$COMP_CWORD\" -eq 2 ] && mapfile -t COMPREPLY < <(compgen -W \"show check\" -- \"$cur\") ;;\n"
      "      completion) mapfile -t COMPREPLY < <(compgen -W \"bash zsh fish\" -- \"$cur\") ;;\n"
      "    esac\n    [ ${#COMPREPLY[@]} -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n    return\n  fi\n"
      "  case ${COMP_WORDS[1]} in\n";
  for (const CommandSpec& command : command_table()) {
    out += std::string("    ") + command.name + ") words=\"";
    std::string words;
    for (const OptionSpec& spec : option_table()) {
      if ((spec.commands & command.bit) != 0) words += (words.empty() ? "--" : " --") + std::string(spec.name);
    }
    out += words + "\" ;;\n";
  }
  return out +
         "  esac\n  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n}\ncomplete -o filenames -F _tessera "
         "tessera\n";
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
  std::string out =
      "#compdef tessera\n# zsh completion for tessera; put it into a directory of $fpath as _tessera\n_tessera() {\n  "
      "local -a "
      "commands options\n  commands=(\n";
  for (const CommandSpec& command : command_table())
    out += std::string("    '") + command.name + ":" + quoted_for_zsh(command.help) + "'\n";
  out +=
      "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n  case ${words[2]} in\n";
  for (const CommandSpec& command : command_table()) {
    out += std::string("    ") + command.name + ")\n      options=(\n";
    for (const OptionSpec& spec : option_table()) {
      if ((spec.commands & command.bit) == 0) continue;
      std::string action;
      if (spec.type == Type::choice) {
        for (const std::string& word : split_words(spec.words, '|')) action += (action.empty() ? "" : " ") + word;
        action = ":value:(" + action + ")";
      } else if (spec.type != Type::flag) {
        action = ":value:_files";
      }
      out += std::string("        '--") + spec.name + "[" + quoted_for_zsh(spec.help) + "]" + action + "'\n";
    }
    out += "      ) ;;\n";
  }
  return out + "  esac\n  _arguments -s $options '*:file:_files'\n}\n_tessera \"$@\"\n";
}

std::string fish_script() {
  std::string out = "# fish completion for tessera; put it into ~/.config/fish/completions/tessera.fish\n";
  const auto quote = [](const std::string& text) { return "'" + escape(text, "'\\", '\\') + "'"; };
  for (const CommandSpec& command : command_table()) {
    out += std::string("complete -c tessera -n __fish_use_subcommand -f -a ") + command.name + " -d " +
           quote(command.help) + "\n";
  }
  for (const OptionSpec& spec : option_table()) {
    std::string commands, words;
    for (const CommandSpec& command : command_table()) {
      if ((spec.commands & command.bit) != 0) commands += std::string(" ") + command.name;
    }
    for (const std::string& word : split_words(spec.words, '|')) words += (words.empty() ? "" : " ") + word;
    out += "complete -c tessera -n '__fish_seen_subcommand_from" + commands + "' -l " + spec.name + " -d " +
           quote(spec.help);
    if (spec.type == Type::choice) out += " -x -a " + quote(words);
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
  throw Error(ExitCode::usage, "no completion for \"" + shell + "\"", "command line", "Shells: bash, zsh, fish");
}

}  // namespace tessera::jobs
