// SPDX-License-Identifier: Apache-2.0
#pragma once
// The options of a run: each value with its source. A later source overrides an earlier one:
// defaults < --preset < configuration files, left to right < TESSERA_* environment variables < command line.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/config/yaml.hpp"
#include "jobs/cli/options/refusals.hpp"
#include "jobs/cli/options/table.hpp"
#include "jobs/cli/options/values.hpp"
#include "runtime/base/error.hpp"

namespace tessera::jobs {

/// Sources by precedence. Configuration file number i, from 1, has precedence::file + i * file_step - 1; a file that it
/// includes is one below it, and a block of keys that is an option's value is one below that option.
namespace precedence {
inline constexpr int default_value = 0, preset = 1, file = 2, file_step = 16, environment = 1 << 20,
                     command_line = environment + 2;
}  // namespace precedence

struct Source {
  int precedence = precedence::default_value;
  std::string text = "default";  // "command line", "run.yaml:3", "environment TESSERA_SEED", "preset zero3", "default"
};

/// Where two options that contradict each other come from: "command line", or "run.yaml:3; run.yaml:7".
[[nodiscard]] std::string both_sources(const Source& a, const Source& b);

/// Whether an environment variable of this name is read as an option: TESSERA_SEED.
[[nodiscard]] bool is_option_variable(const std::string& name);

struct Value {
  std::vector<std::string> items;  // several for a list only; empty: not set
  Source source;
  std::vector<int> positions = {};  // of each item among those of all options of its source
  std::string decided = {};         // why Options::decide set it; "": a source gives it, or it is the default
};

/// A key of a configuration file, or an option of another tool, and what was done with it.
struct ExternalKey {
  /// option: one of Tessera's own, in a file; harmless: it cannot change losses, memory or files.
  enum class Outcome : unsigned char { option, used, mapped, harmless, refused };
  std::string where, key;  // "accelerate.yaml:7", "fsdp_config.fsdp_sharding_strategy"; "command line", "--attn_impl"
  Outcome outcome;
  std::string text;             // "mapped to sharding_strategy FULL_SHARD"; harmless: why; refused: the error
  std::string option;           // the option that it sets; "": none
  std::string overridden = {};  // "; overridden: 50 [command line]" by another source of its option; "": by none
  /// "used", "mapped to sharding_strategy FULL_SHARD", "harmless: set by the launcher (mpirun, srun)".
  [[nodiscard]] std::string str() const;
};

class Options;
/// Throws Error of options that contradict one another.
using OptionCheck = std::function<void(const Options&)>;

class Options {
 public:
  Options();

  /// True if the user set it: its source is not the default.
  [[nodiscard]] bool given(const char* name) const;
  /// True if it has a value, set or default.
  [[nodiscard]] bool has(const char* name) const { return !value(name).items.empty(); }
  // The value in the option's type. To read an option without a value, or as another type, is a bug.
  [[nodiscard]] bool flag(const char* name) const;
  [[nodiscard]] std::int64_t integer(const char* name) const;
  [[nodiscard]] double real(const char* name) const;
  [[nodiscard]] std::string text(const char* name) const;  // "" if none; a choice as the option table spells it
  [[nodiscard]] const std::vector<std::string>& list(const char* name) const { return value(name).items; }
  [[nodiscard]] std::uint64_t bytes(const char* name) const;
  [[nodiscard]] double seconds(const char* name) const;
  [[nodiscard]] std::optional<std::int64_t> optional_integer(const char* name) const;
  /// An option of Type::steps: its number, or its share of `total_steps`, rounded up.
  [[nodiscard]] std::int64_t steps(const char* name, std::int64_t total_steps) const;
  /// True if an option of Type::steps has a share of all steps.
  [[nodiscard]] bool is_share(const char* name) const;
  [[nodiscard]] const Value& value(const char* name) const;
  /// An item of a list option, and where it was given.
  struct Item {
    std::string option, text, source;
  };
  /// The items of several list options as one list: by precedence of their sources, then as they were given.
  [[nodiscard]] std::vector<Item> in_order(std::initializer_list<const char*> names) const;

  /// An Error (usage) about this option's value: "WHAT [--name: source]. TO DO".
  [[nodiscard]] Error refuse(const char* name, const std::string& what, const std::string& to_do) const;

  /// Sets an option, unless a source of higher precedence has set it. Other tools' names for a sharding strategy (fsdp,
  /// deepspeed, …) become requests for sharding_strategy. Throws RefusedOption for a value of another type, an option
  /// that is not built or not known. `positions`: of the items on the command line; empty: after those of earlier
  /// calls.
  void assign(const std::string& name, std::vector<std::string> items, const Source& source,
              std::vector<int> positions = {});
  /// Gives a value that was left to the program ("auto", or not set) what the program decides, with the precedence that
  /// it had; `why` is added to its source's text.
  void decide(const char* name, const std::string& value, const std::string& why);
  /// Reads a configuration file, the blocks of accelerate and DeepSpeed included.
  void read_file(const std::string& path);
  void read_tree(const io::ConfigNode& root, const std::string& path);
  /// Reads a file that one of precedence `including` names, as a block of keys (`block`; "": as a whole file).
  void read_included(const std::string& path, int including, const std::string& block);
  /// Reads the variables TESSERA_<NAME>. A refused one is kept for resolve().
  void read_environment(char** environment);
  /// Keeps a refused option; resolve() throws all of them at once.
  void refuse_later(const RefusedOption& refusal) { refusals_.push_back(refusal); }
  /// Call once, after the last source: sets sharding_strategy and backend from the options that stand for them, and the
  /// defaults that depend on the stage. If two options of the same source contradict each other, that is refused too.
  void resolve();
  /// Throws RefusedOption or RefusedOptions if anything was refused; with it, what `further` throws of these options.
  void throw_refused(const OptionCheck& further = {}) const;

  /// "--NAME VALUE has no effect: WHY [SOURCE]", the text of W024.
  [[nodiscard]] std::string no_effect(const char* name, const std::string& why) const;
  /// JSON object: every option's value and source.
  [[nodiscard]] std::string json() const;

  unsigned commands = for_all;              // of the command that runs
  std::vector<ExternalKey> external_keys;   // keys of files, and options of other tools
  std::optional<Source> save_16bit;         // where a file asks for a saved model in the dtype of mixed_precision
  std::vector<std::string> stage_defaults;  // "learning_rate 1e-5": values that --stage chose
  std::vector<std::string> without_effect;  // options that were accepted and change nothing, with their source

 private:
  struct StrategyRequest {
    std::string strategy, option;  // "zero3"; the option that asks for it
    Source source;
  };
  friend class ConfigFileReader;
  template <class T>
  [[nodiscard]] T parsed(const char* name, std::optional<T> (*parse)(const std::string&)) const;
  void request_strategy(const std::string& option, const std::string& name, const Source& source);
  void check(const OptionSpec& spec, const std::vector<std::string>& items, const Source& source);
  /// True if `spec` is one of the options that stand for a sharding strategy; its request is then stored.
  bool assign_strategy(const OptionSpec& spec, const std::string& value, const Source& source);
  /// Sets the option that stands for one of another tool, or notes that it has no effect.
  void assign_other_tools(const std::string& name, const std::vector<std::string>& items, const Source& source);
  /// A block of keys that is the value of an option: JSON, or the path of a JSON file.
  void assign_block(const std::string& name, const std::string& text, const Source& source);
  void request_fsdp(const std::string& value, const Source& source);
  [[noreturn]] static void refuse_strategies(const StrategyRequest& one, const std::string& strategy,
                                             const StrategyRequest& other);
  void resolve_strategy();
  /// An offload that another option's value stands for: `name` is cpu, unless a source of higher precedence sets it.
  void take_offload(const char* name, const Source& source);
  void resolve_stage();
  void resolve_bench();
  void resolve_backend();
  void resolve_wrap_policy();
  void resolve_save_dtype();
  void resolve_model();
  void resolve_shape();
  void resolve_dataset();
  void note_unread();
  /// generate and eval take of a training run's file what they have; the rest has its default again.
  void leave_out_options_of_runs();
  void note_other_commands();
  void note_saves();
  void note_overridden();

  std::map<std::string, Value, std::less<>> values_;
  std::vector<StrategyRequest> strategy_requests_;
  std::vector<RefusedOption> refusals_;
  int files_ = 0, depth_ = 0, assigned_ = 0;
};

/// What the option has where no source sets it.
[[nodiscard]] Value default_of(const OptionSpec& spec);
/// "convert, tokenize" of a set of bits.
[[nodiscard]] std::string names_of_commands(unsigned commands);
/// What to use in place of an option that other commands have; "" if there is nothing to say.
[[nodiscard]] std::string instead_of(const OptionSpec& spec, unsigned commands);

/// Where those of these options that the user set come from: "--bf16: command line; --fp16: run.yaml:3".
[[nodiscard]] std::string option_sources(const Options& options, std::initializer_list<const char*> names);
/// "sft, with its defaults learning_rate 1e-5, …"; "" if the stage chose nothing.
[[nodiscard]] std::string stage_line(const Options& options);

/// The default of an option with a stage ("" for train without one): the table's, or what the stage chooses, and what
/// it chooses with LoRA: "1e-5, with LoRA 1e-4". "": none.
[[nodiscard]] std::string stage_default(const OptionSpec& spec, const std::string& stage);

/// With --stage sft, the number of samples of a step that gradient accumulation reaches by default.
inline constexpr long sft_global_batch = 16;

/// A parsed command line.
struct Invocation {
  std::string command;                // "" if none was given
  std::string stage;                  // "sft", "dpo": the command that stands for train --stage; else ""
  std::vector<std::string> operands;  // "gemm"; configuration files are read, not kept
  Options options;
  std::vector<std::string> ranks_command = {};  // job-script: what follows "--", as it is
};

/// Parses the arguments of main, without the program's name, and resolves all sources. Throws Error (usage, data); with
/// refused options of a command that trains, plans or evaluates, also what `further` throws of the accepted ones.
[[nodiscard]] Invocation parse_command_line(const std::vector<std::string>& arguments, char** environment,
                                            const OptionCheck& further = {});

/// Arguments in one form, and what is not an option of Tessera.
struct ScannedArguments {
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::vector<std::string>>> other_tools;  // options of other_tools.hpp, with values
  std::vector<RefusedOption> refusals;
};
/// Rewrites arguments to "--name=value", one per value of a list: resolves aliases, '-' in names, flags with and
/// without a value, "--no-x", "--config FILE" and lists. Operands stay as they are. Refusals are unknown and
/// unsupported options, and missing and wrong values.
[[nodiscard]] ScannedArguments canonical_arguments(const std::vector<std::string>& arguments, unsigned commands);

/// The strategy ("zero3", "hybrid_shard", …) that any tool's name stands for; "" if there is none.
[[nodiscard]] std::string canonical_strategy(const std::string& name);

}  // namespace tessera::jobs
