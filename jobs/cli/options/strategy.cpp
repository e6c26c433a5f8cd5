// SPDX-License-Identifier: Apache-2.0
// Options that stand for others: every tool's name for a sharding strategy is a request for sharding_strategy, and
// use_cpu chooses the backend. Requests of the same source must agree; a source of higher precedence overrides the
// others.
#include <filesystem>
#include <map>

#include "jobs/cli/options/model_cache.hpp"
#include "jobs/cli/options/options.hpp"
#include "jobs/cli/options/unsupported.hpp"

namespace tessera::jobs {

std::string canonical_strategy(const std::string& name) {
  static const std::map<std::string, std::string> names = {
      {"zero0", "zero0"},
      {"no_shard", "zero0"},
      {"ddp", "zero0"},
      {"none", "zero0"},
      {"zero1", "zero1"},
      {"zero2", "zero2"},
      {"shard_grad_op", "zero2"},
      {"zero3", "zero3"},
      {"full_shard", "zero3"},
      {"fsdp", "zero3"},
      {"fsdp2", "zero3"},
      {"hybrid", "hybrid_shard"},
      {"hybrid_shard", "hybrid_shard"},
      {"hybrid_shard_zero2", "hybrid_shard_zero2"},
      {"fsdp_true", "fsdp_true"},                  // transformers' fsdp: true: zero3, unless fsdp_config says another
      {"replicated_groups", "replicated_groups"},  // accelerate's parallelism_config: with zero2, or else with zero3
  };
  const auto found = names.find(canonical_spelling(name));
  return found == names.end() ? "" : found->second;
}

namespace {

/// True if two requests do not contradict each other; `joined` is then the more specific one.
bool compatible(const std::string& a, const std::string& b, std::string& joined) {
  static constexpr const char* pairs[][3] = {{"hybrid_shard", "zero3", "hybrid_shard"},
                                             {"hybrid_shard_zero2", "zero2", "hybrid_shard_zero2"},
                                             {"replicated_groups", "zero3", "hybrid_shard"},
                                             {"replicated_groups", "hybrid_shard", "hybrid_shard"},
                                             {"replicated_groups", "zero2", "hybrid_shard_zero2"},
                                             {"replicated_groups", "hybrid_shard_zero2", "hybrid_shard_zero2"}};
  if (a == b) return joined = a, true;
  for (const auto& [one, other, both] : pairs)
    if ((a == one && b == other) || (b == one && a == other)) return joined = both, true;
  return false;
}

}  // namespace

void Options::request_strategy(const std::string& option, const std::string& name, const Source& source) {
  std::string strategy = canonical_strategy(name);
  if (strategy.empty()) {
    static const std::vector<std::string> names = {
        "zero0",         "zero1",      "zero2",        "zero3", "ddp",    "no_shard",          "fsdp2",
        "shard_grad_op", "full_shard", "hybrid_shard", "fsdp",  "hybrid", "hybrid_shard_zero2"};
    throw RefusedOption(
        RefusedOption::Group::wrong_value,
        option + " " + name +
            ": expected zero0, zero1, zero2, zero3, hybrid_shard, hybrid_shard_zero2 or FSDP's name for one" +
            (option == "--deepspeed" ? ", or a DeepSpeed FILE.json" : ""),
        source.text, suggestion(name, names));
  }
  strategy_requests_.push_back({std::move(strategy), option, source});
}

bool Options::assign_strategy(const OptionSpec& spec, const std::string& value, const Source& source) {
  const std::string name = spec.name, option = "--" + name, lower = canonical_spelling(value);
  const bool stands_for_strategy = name == "preset" || name == "zero_stage" || name == "sharding_strategy" ||
                                   name == "fsdp" || name == "parallel_strategy" || name == "deepspeed";
  if (!stands_for_strategy) return false;
  Value& slot = values_.find(name)->second;
  if (source.precedence >= slot.source.precedence && name != "sharding_strategy") slot = {{value}, source};
  if (name == "zero_stage") {
    check(spec, {value}, source);
    request_strategy(option, "zero" + value, source);
  } else if (name == "preset") {
    check(spec, {value}, source);
    request_strategy(option, value, {precedence::preset, "preset " + value + ", " + source.text});
  } else if (name == "deepspeed" && value.size() > 5 && lower.rfind(".json") == value.size() - 5) {
    if (source.precedence < precedence::environment) read_included(value, source.precedence, "");
    else read_file(value);
  } else if (name == "deepspeed" && (lower == "zero2_offload" || lower == "zero3_offload")) {  // ms-swift's names
    const bool params = lower == "zero3_offload";
    request_strategy(option, params ? "zero3" : "zero2", source);
    take_offload(params ? "offload_params" : "offload_optimizer", {source.precedence, source.text + " " + option});
  } else if (name == "fsdp") {
    request_fsdp(lower, source);
  } else {
    if (name == "sharding_strategy") check(spec, {value}, source);
    request_strategy(option, value, source);
  }
  return true;
}

/// transformers 5 has true (a bare --fsdp) and false, and fsdp_config for the rest; before it was "full_shard auto_wrap
/// offload". Units are transformer blocks with and without auto_wrap.
void Options::request_fsdp(const std::string& value, const Source& source) {
  const std::string option = "--fsdp";
  if (const auto on = value.empty() ? std::optional(false) : parse_flag(value)) {
    if (*on) {
      request_strategy(option, "fsdp_true", source);
      external_keys.push_back({source.text, option + " " + value, ExternalKey::Outcome::used,
                               "FULL_SHARD, unless fsdp_config says another strategy", ""});
      return;
    }
    std::erase_if(strategy_requests_, [&](const StrategyRequest& earlier) {
      return earlier.option == option && earlier.source.precedence <= source.precedence;
    });
    external_keys.push_back({source.text, option + " " + value, ExternalKey::Outcome::harmless,
                             "off; --sharding_strategy, or its default, decides", ""});
    return;
  }
  for (const std::string& part : split_words(value, ' ')) {
    if (part == "offload") take_offload("offload_params", {source.precedence, source.text + " " + option});
    else if (part == "auto_wrap") continue;
    else request_strategy(option, part, source);
  }
}

void Options::take_offload(const char* name, const Source& source) { assign(name, {"cpu"}, source); }

void Options::resolve_strategy() {
  const StrategyRequest* winner = nullptr;
  const StrategyRequest* fsdp_on = nullptr;  // transformers' fsdp: true
  for (const StrategyRequest& request : strategy_requests_)
    if (request.strategy == "fsdp_true" &&
        (fsdp_on == nullptr || request.source.precedence > fsdp_on->source.precedence))
      fsdp_on = &request;
  std::string strategy;
  for (const StrategyRequest& request : strategy_requests_) {
    // fsdp: true says that FSDP is on, and fsdp_config, which may be of an earlier source, how.
    const bool not_of_fsdp = request.strategy == "zero0" || request.strategy == "zero1";
    if (request.strategy == "fsdp_true") continue;
    if (fsdp_on != nullptr && not_of_fsdp && request.source.precedence < fsdp_on->source.precedence) continue;
    if (winner == nullptr || request.source.precedence > winner->source.precedence) {
      winner = &request;
      strategy = request.strategy;
      continue;
    }
    // What --fsdp_config says stands one below the command line, and beside --fsdp.
    const bool beside = winner->option == "--fsdp" && winner->source.precedence == precedence::command_line &&
                        request.source.precedence == precedence::command_line - 1;
    if (request.source.precedence < winner->source.precedence && !beside) continue;
    std::string joined;
    if (!compatible(strategy, request.strategy, joined)) refuse_strategies(*winner, strategy, request);
    strategy = joined;
  }
  if (winner == nullptr && fsdp_on == nullptr) return;
  if (winner == nullptr) winner = fsdp_on, strategy = "zero3";
  if (fsdp_on != nullptr && strategy == "zero1" && winner->source.precedence == fsdp_on->source.precedence)
    refuse_strategies(*winner, strategy, *fsdp_on);
  if (strategy == "replicated_groups") strategy = "hybrid_shard";
  values_.find("sharding_strategy")->second = {{strategy},
                                               {winner->source.precedence, winner->source.text + " " + winner->option}};
}

void Options::refuse_strategies(const StrategyRequest& one, const std::string& strategy, const StrategyRequest& other) {
  throw RefusedOption(RefusedOption::Group::contradiction,
                      one.option + " asks for " + strategy + ", but " + other.option + " for " +
                          (other.strategy == "fsdp_true" ? "FSDP, which has no such stage" : other.strategy),
                      both_sources(one.source, other.source), "Keep one of the two");
}

/// accelerate's use_cpu: true is --backend cpu. False is --backend auto, unless the same source names a backend.
void Options::resolve_backend() {
  if (!given("use_cpu")) return;
  const Source& asked = value("use_cpu").source;
  Value& backend = values_.find("backend")->second;
  if (asked.precedence < backend.source.precedence) return;
  const bool cpu = flag("use_cpu"), same_source = asked.precedence == backend.source.precedence;
  if (same_source && cpu && text("backend") == "cuda")
    throw RefusedOption(RefusedOption::Group::contradiction, "--use_cpu true, but --backend cuda",
                        both_sources(asked, backend.source), "Keep one of the two");
  if (cpu || !same_source) backend = {{cpu ? "cpu" : "auto"}, {asked.precedence, asked.text + " --use_cpu"}};
}

/// blocks_per_unit and min_num_params ask for the wrap policy that reads them.
void Options::resolve_wrap_policy() {
  Value& policy = values_.find("wrap_policy")->second;
  static constexpr const char* readers[][2] = {{"blocks_per_unit", "TRANSFORMER_BASED_WRAP"},
                                               {"min_num_params", "SIZE_BASED_WRAP"}};
  for (const auto& [option, wanted] : readers) {
    if (!given(option)) continue;
    const Source& asked = value(option).source;
    const bool same = canonical_spelling(policy.items.front()) == canonical_spelling(wanted);
    if (policy.source.precedence > asked.precedence || (same && policy.source.precedence == asked.precedence)) continue;
    if (policy.source.precedence == asked.precedence)
      throw RefusedOption(RefusedOption::Group::contradiction,
                          strfmt("--%s is for --wrap_policy %s, and another is asked for", option, wanted),
                          both_sources(policy.source, asked), "Keep one of the two");
    policy = {{wanted}, {asked.precedence, asked.text + " --" + option}};
  }
}

/// DeepSpeed's stage3_gather_16bit_weights_on_model_save: the saved model has the dtype of the computation.
void Options::resolve_save_dtype() {
  Value& dtype = values_.find("save_dtype")->second;
  if (!save_16bit || save_16bit->precedence <= dtype.source.precedence) return;
  for (const char* name : {"bf16", "fp16"})
    if (flag(name) || text("mixed_precision") == name) dtype = {{name}, *save_16bit};
}

/// The name of a model of a hub becomes its directory in a local cache, if it is there.
void Options::resolve_model() {
  const std::string name = text("model"), revision = text("model_revision");
  std::error_code ignored;
  if (name.empty()) return;
  const bool named = is_hub_name(name) && !std::filesystem::exists(name, ignored);
  if (!named && revision != "main" && revision != "master")
    throw RefusedOption(RefusedOption::Group::wrong_value,
                        "--model_revision " + revision + ": --model is a file or directory",
                        value("model_revision").source.text, "Drop it, or name a model as on the Hugging Face Hub");
  const std::string found = named ? find_cached_model(name, revision) : "";
  if (found.empty()) return;
  Value& model = values_.find("model")->second;
  model.items = {found};
  external_keys.push_back(
      {model.source.text, "--model " + name, ExternalKey::Outcome::mapped, "found in " + found, ""});
}

/// The name of a data set of a hub becomes its directory in the local cache, if it is there.
void Options::resolve_dataset() {
  for (const char* option : {"dataset", "val_dataset"}) {
    Value& data = values_.find(option)->second;
    for (std::string& item : data.items) {
      const auto [name, selection] = split_selection(item);
      const std::string found = is_hub_dataset(name) ? find_cached_dataset(name) : "";
      if (found.empty()) continue;
      external_keys.push_back({data.source.text, std::string("--") + option + " " + item, ExternalKey::Outcome::mapped,
                               "found in " + found, ""});
      item = found + selection;
    }
  }
}

/// A preset of a model has no weights to start from. (plan may stand for a run that has them.)
void Options::resolve_shape() {
  if (!has("shape") || (commands & for_train) == 0) return;
  const Source& asked = value("shape").source;
  Value& scratch = values_.find("from_scratch")->second;
  if (given("from_scratch") && !flag("from_scratch"))
    throw RefusedOption(RefusedOption::Group::contradiction, "--shape has no weights, but --from_scratch is false",
                        both_sources(asked, scratch.source), "Drop one of the two, or give --model DIR");
  if (!given("from_scratch")) scratch = {{"true"}, {asked.precedence, asked.text + " --shape"}};
}

void Options::resolve() {
  for (void (Options::*step)() :
       {&Options::resolve_stage, &Options::resolve_bench, &Options::resolve_strategy, &Options::resolve_backend,
        &Options::resolve_wrap_policy, &Options::resolve_save_dtype, &Options::resolve_model, &Options::resolve_dataset,
        &Options::resolve_shape, &Options::note_unread, &Options::note_overridden}) {
    try {
      (this->*step)();
    } catch (const RefusedOption& refusal) { refuse_later(refusal); }
  }
}

void Options::throw_refused(const OptionCheck& further) const {
  if (refusals_.empty()) return;
  std::vector<RefusedOption> all = refusals_;
  if (further) {
    try {
      further(*this);
    } catch (const SeveralErrors& several) {
      for (const std::string& line : several.lines) all.emplace_back(RefusedOption::Group::among_others, line);
    } catch (const Error& error) { all.emplace_back(RefusedOption::Group::among_others, error.line()); }
  }
  throw_refusals(all);
}

}  // namespace tessera::jobs
