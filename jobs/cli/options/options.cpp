// SPDX-License-Identifier: Apache-2.0
// Storage of option values: types, precedence, and values that are spelled in several ways.
#include "jobs/cli/options/options.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "io/tokenizer/utf8.hpp"
#include "jobs/cli/options/list_items.hpp"
#include "jobs/cli/options/other_tools.hpp"
#include "jobs/cli/options/renamed.hpp"
#include "jobs/cli/options/unsupported.hpp"

namespace tessera::jobs {

namespace {

[[noreturn]] void wrong_value(const OptionSpec& spec, const std::string& item, const std::string& expected,
                              const Source& source) {
  throw RefusedOption(RefusedOption::Group::wrong_value,
                      "--" + std::string(spec.name) + " " + item + ": expected " + expected, source.text,
                      value_instead(spec, item));
}

/// Values are written to JSON files. A file whose name is in another encoding needs a link with a name in UTF-8.
void require_utf8(const std::string& name, const std::vector<std::string>& items, const Source& source) {
  for (const std::string& item : items) {
    if (io::utf8::valid_prefix(item) == item.size()) continue;
    throw RefusedOption(RefusedOption::Group::wrong_value, "--" + name + " " + io::utf8::repaired(item) + ": not UTF-8",
                        source.text, "Write it in UTF-8, or give a link to the file (ln -s) a name in UTF-8");
  }
}

/// The one spelling in which the program reads a value.
std::string canonical_value(const OptionSpec& spec, const std::string& item, const Source& source) {
  const std::string name = spec.name;
  std::string word = canonical_spelling(item);
  if (name == "gradient_checkpointing") {
    if (const auto on = parse_flag(word)) return *on ? "full" : "none";
    return word;
  }
  if (name == "offload_optimizer" || name == "offload_params") {
    if (const auto on = parse_flag(word)) return *on ? "cpu" : "none";
    return word == "nvme" ? "disk" : word;
  }
  if (name == "forward_prefetch" || name == "backward_prefetch") {
    const bool backward = name == "backward_prefetch";  // FSDP's BACKWARD_PRE etc. are about backward only
    if (word == "true" || (backward && word == "backward_pre")) return "1";
    if (word == "false" || word == "none" || (backward && (word == "backward_post" || word == "no_prefetch")))
      return "0";
    const auto depth = parse_integer(word);
    if (!depth || *depth < 0 || *depth > 1000)
      wrong_value(spec, item,
                  std::string("a number of units (0 to 1000), ") +
                      (backward ? "BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH" : "true or false"),
                  source);
    return std::to_string(*depth);
  }
  if (name == "shard_group_size" && word != "node") {
    const auto size = parse_integer(word);
    if (!size || *size < 1) wrong_value(spec, item, "node or a number of ranks, at least 1", source);
    return std::to_string(*size);
  }
  if (name == "report_to") {
    if (word == "all") return "tensorboard";
    if (word != "tensorboard" && word != "jsonl" && word != "none")
      throw RefusedOption(RefusedOption::Group::not_supported, "--report_to " + item + ": not built yet", source.text,
                          "Accepted: tensorboard or none. Every run writes logging.jsonl too");
    return word;
  }
  if (spec.type == Type::flag) return *parse_flag(item) ? "true" : "false";
  if (spec.type == Type::choice || name == "loss_type") {
    for (const std::string& choice : split_words(spec.values, '|')) {
      if (canonical_spelling(choice) == word) return choice;
    }
  }
  return item;
}

/// An option that two names or keys of the same precedence set (lr and learning_rate in a file, TESSERA_LR beside
/// TESSERA_LEARNING_RATE) must not differ. On the command line the last wins, but where other options set it, too.
void require_agreement(const OptionSpec& spec, const Value& before, const std::vector<std::string>& items,
                       const Source& source) {
  if (source.precedence != before.source.precedence || source.precedence < precedence::file || items == before.items)
    return;
  const bool set_by_others = is_named("offload_activations offload_optimizer offload_params nvme_path", spec.name);
  if (source.precedence == precedence::command_line && (!set_by_others || source.text == before.source.text)) return;
  if (items.size() == 1 && before.items.size() == 1)
    if (const auto a = parse_real(items[0]), b = parse_real(before.items[0]); a && b && *a == *b) return;
  throw RefusedOption(
      RefusedOption::Group::contradiction,
      strfmt("--%s is %s, and it is also %s", spec.name, before.items.front().c_str(), items.front().c_str()),
      both_sources(before.source, source), "Keep one of the two");
}

}  // namespace

std::string both_sources(const Source& a, const Source& b) {
  return a.text == b.text ? a.text : a.text + "; " + b.text;
}

std::string ExternalKey::str() const {
  switch (outcome) {
    case Outcome::option: return "an option";
    case Outcome::used: return (text.empty() ? "used" : "used: " + text) + overridden;
    case Outcome::mapped: return text + overridden;
    case Outcome::harmless: return "harmless: " + text;
    case Outcome::refused: return "refused: " + text;
  }
  return "";
}

Value default_of(const OptionSpec& spec) {
  Value value;
  if (spec.default_value[0] != '\0') {
    value.items.emplace_back(spec.default_value);
    value.positions.push_back(0);
  }
  return value;
}

Options::Options() {
  for (const OptionSpec& spec : option_table()) values_.emplace(spec.name, default_of(spec));
}

const Value& Options::value(const char* name) const {
  const auto found = values_.find(name);
  TESSERA_ASSERT(found != values_.end(), "no option %s", name);
  return found->second;
}

bool Options::given(const char* name) const { return value(name).source.precedence > precedence::default_value; }

std::string Options::text(const char* name) const {
  const Value& found = value(name);
  return found.items.empty() ? "" : found.items.front();
}

bool Options::flag(const char* name) const { return parse_flag(text(name)).value_or(false); }

template <class T>
T Options::parsed(const char* name, std::optional<T> (*parse)(const std::string&)) const {
  const std::optional<T> parsed_value = parse(text(name));
  TESSERA_ASSERT(parsed_value.has_value(), "option %s has no value of this type", name);
  return *parsed_value;
}

std::int64_t Options::integer(const char* name) const { return parsed(name, parse_integer); }
double Options::real(const char* name) const { return parsed(name, parse_real); }
std::uint64_t Options::bytes(const char* name) const { return parsed(name, parse_size); }
double Options::seconds(const char* name) const { return parsed(name, parse_duration); }

std::optional<std::int64_t> Options::optional_integer(const char* name) const {
  if (!has(name)) return std::nullopt;
  return integer(name);
}

bool Options::is_share(const char* name) const { return !parse_integer(text(name)); }

std::int64_t Options::steps(const char* name, std::int64_t total_steps) const {
  if (!is_share(name)) return integer(name);
  // 0.07 of 100 steps are 7, though the product in double is above that.
  const double share = std::ceil(real(name) * static_cast<double>(total_steps) - 1e-9);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(share));
}

std::vector<Options::Item> Options::in_order(std::initializer_list<const char*> names) const {
  std::vector<std::tuple<int, int, Item>> items;
  for (const char* name : names) {
    const Value& found = value(name);
    for (std::size_t i = 0; i < found.items.size(); ++i)
      items.emplace_back(found.source.precedence, found.positions[i], Item{name, found.items[i], found.source.text});
  }
  std::ranges::stable_sort(items, {}, [](const auto& item) { return std::pair(std::get<0>(item), std::get<1>(item)); });
  std::vector<Item> result;
  for (auto& [precedence, position, item] : items) result.push_back(std::move(item));
  return result;
}

Error Options::refuse(const char* name, const std::string& what, const std::string& to_do) const {
  return Error(ExitCode::usage, what, std::string("--") + name + ": " + value(name).source.text, to_do);
}

std::string option_sources(const Options& options, std::initializer_list<const char*> names) {
  std::string text;
  for (const char* name : names) {
    if (!options.given(name)) continue;
    text += (text.empty() ? "--" : "; --") + std::string(name) + ": " + options.value(name).source.text;
  }
  return text;
}

void Options::check(const OptionSpec& spec, const std::vector<std::string>& items, const Source& source) {
  for (const std::string& item : items) {
    if (item.empty() && std::string_view(spec.values) == "FILE ...")
      throw RefusedOption(RefusedOption::Group::wrong_value,
                          strfmt("--%s: expected the name of a file, got none", spec.name), source.text,
                          "Leave the option out, or name a file");
    const std::string expected = expected_value(spec, item);
    if (!expected.empty()) wrong_value(spec, item, expected, source);
  }
}

void Options::assign(const std::string& name, std::vector<std::string> items, const Source& source,
                     std::vector<int> positions) {
  require_utf8(name, items, source);
  const OptionSpec* spec = find_option(name);
  if (spec == nullptr) {
    if (const UnsupportedOption* unsupported = find_unsupported(name))
      return check_unsupported(*unsupported, name, items, source.text);
    if (const RenamedOption* renamed = find_renamed(name)) return check_renamed(*renamed, name, items, source.text);
    if (find_other_tools(name) != nullptr) return assign_other_tools(name, items, source);
    const std::string near = suggestion(name, option_names());
    throw RefusedOption(RefusedOption::Group::unknown, "unknown option " + name, source.text,
                        near.empty() ? "See --help-all" : near);
  }
  if (spec->name == std::string("fsdp") && items.size() != 1) {  // a list of its words; an empty one is off
    std::string words;
    for (const std::string& item : items) words += (words.empty() ? "" : " ") + item;
    items = {words.empty() ? "false" : words};
  }
  const bool many = spec->type == Type::list || spec->type == Type::repeated_text;
  if (many ? items.empty() : items.size() != 1)
    throw RefusedOption(
        RefusedOption::Group::wrong_value,
        strfmt("--%s: expected %s, got %zu", spec->name, many ? "at least one value" : "one value", items.size()),
        source.text);
  if (!many && assign_strategy(*spec, items.front(), source)) return;
  if (!many && items.front().empty() && (spec->name == std::string("model") || spec->name == std::string("output_dir")))
    throw RefusedOption(RefusedOption::Group::wrong_value, strfmt("--%s: expected a value", spec->name), source.text);
  check(*spec, items, source);
  Value& slot = values_.find(spec->name)->second;
  if (source.precedence < slot.source.precedence) return;
  for (std::string& item : items) item = canonical_value(*spec, item, source);
  require_agreement(*spec, slot, items, source);
  if (spec->name == std::string("report_to") && items.size() > 1 && std::ranges::count(items, "none") > 0)
    throw RefusedOption(RefusedOption::Group::contradiction, "--report_to none cannot be combined with other values",
                        source.text, "Drop none, or the others");
  if (positions.empty()) positions.assign(items.size(), assigned_++);
  slot = {std::move(items), source, std::move(positions)};
  if (spec->status == Status::no_effect && slot.items.front() != spec->default_value)
    without_effect.push_back(no_effect(spec->name, spec->help));
}

void Options::decide(const char* name, const std::string& value, const std::string& why) {
  Value& slot = values_.find(name)->second;
  slot.source.text += ": " + why;
  slot.items = {value};
  slot.positions.resize(1);
  slot.decided = why;
  if (std::string_view(name) == "mixed_precision") resolve_save_dtype();
}

void Options::assign_other_tools(const std::string& name, const std::vector<std::string>& items, const Source& source) {
  const OtherToolsOption& option = *find_other_tools(name);
  std::string given_value;
  for (const std::string& item : items) given_value += (given_value.empty() ? "" : " ") + item;
  if (is_named("fsdp_config lr_scheduler_kwargs", name))
    return assign_block(canonical_spelling(name), given_value, source);
  const std::string key = "--" + name + (given_value.empty() ? "" : " " + given_value);
  const OtherToolsRequest request = request_of(option, given_value);
  if (!request.accepted)
    throw RefusedOption(RefusedOption::Group::not_supported, key + ": not supported", source.text, option.note);
  if (request.value.empty()) {
    const bool harmless = option.target[0] == '\0';
    external_keys.push_back(
        {source.text, key, ExternalKey::Outcome::harmless, harmless ? option.note : "it is the default", ""});
    return;
  }
  const Value& set_before = value(option.target);
  if (set_before.source.precedence == source.precedence && set_before.items != std::vector<std::string>{request.value})
    throw RefusedOption(
        RefusedOption::Group::wrong_value,
        key + " asks for --" + option.target + " " + request.value + ", but it is " + text(option.target),
        both_sources(source, set_before.source), "Keep one of the two");
  assign(option.target, {request.value}, source);
  external_keys.push_back({source.text, key, ExternalKey::Outcome::mapped,
                           std::string("mapped to ") + option.target + " " + request.value, option.target});
}

bool is_option_variable(const std::string& name) {
  return name.starts_with("TESSERA_") && !name.starts_with("TESSERA_TEST_") && name != "TESSERA_ISA";
}

void Options::read_environment(char** environment) {
  for (char** entry = environment == nullptr ? ::environ : environment; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    const std::string variable = text.substr(0, equals);
    if (!is_option_variable(variable)) continue;
    const std::string name = canonical_spelling(variable.substr(8));
    const Source source{precedence::environment, "environment " + variable};
    const OptionSpec* spec = find_option(name);
    const std::string value = text.substr(equals + 1);
    std::vector<std::string> items{value};
    if (spec != nullptr && spec->type == Type::list) items = list_items(*spec, value);
    try {
      assign(name, std::move(items), source);
    } catch (const RefusedOption& refusal) { refuse_later(refusal); }
  }
}

std::string Options::json() const {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const OptionSpec& spec : option_table()) {
    if ((spec.commands & for_runs) == 0) continue;
    const Value& found = value(spec.name);
    nlohmann::ordered_json entry;
    if (spec.type == Type::list || spec.type == Type::repeated_text) entry["value"] = found.items;
    else if (found.items.empty()) entry["value"] = nullptr;
    else if (spec.type == Type::flag && parse_flag(found.items[0])) entry["value"] = *parse_flag(found.items[0]);
    else if ((spec.type == Type::integer || spec.type == Type::steps) && parse_integer(found.items[0]))
      entry["value"] = *parse_integer(found.items[0]);
    else if ((spec.type == Type::real || spec.type == Type::steps) && parse_real(found.items[0]))
      entry["value"] = *parse_real(found.items[0]);
    else entry["value"] = found.items[0];
    entry["source"] = found.source.text;
    object[spec.name] = std::move(entry);
  }
  return object.dump(2) + "\n";
}

}  // namespace tessera::jobs
