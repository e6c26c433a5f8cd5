// The store of values: types, layers, what stands for what.
#include "jobs/cli/options/options.hpp"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tessera::jobs {

namespace {

[[noreturn]] void not_built(const OptionSpec& spec, const std::string& item, const Source& source) {
  std::string to_do = std::string(spec.help);
  if (spec.fine[0] != '\0') {
    std::string words;
    for (const std::string& word : split_words(spec.fine, '|')) {
      words += (words.empty() ? "" : " or ") + word;
      if (word == "false") break;  // the rest are other words for it
    }
    to_do += "; leave it out, or set it to " + words;
  } else {
    to_do += "; leave it out";
  }
  throw Error(ExitCode::usage, "--" + std::string(spec.name) + " " + item + " is not built yet", source.text, to_do);
}

/// Words that stand for another spelling of the same value.
std::string standard_word(const OptionSpec& spec, const std::string& item, const Source& source) {
  const std::string name = spec.name, word = canonical_spelling(item);
  if (name == "gradient_checkpointing") {
    if (word == "selective")
      throw Error(ExitCode::usage, "--gradient_checkpointing selective is not built yet", source.text,
                  "Use none or full");
    if (const auto on = parse_flag(word)) return *on ? "full" : "none";
    return word;
  }
  if (name == "forward_prefetch" || name == "backward_prefetch") {
    const bool backward = name == "backward_prefetch";  // the only one that BACKWARD_PRE and its like speak of
    if (word == "true" || (backward && word == "backward_pre")) return "1";
    if (word == "false" || word == "none" || (backward && (word == "backward_post" || word == "no_prefetch")))
      return "0";
    const auto depth = parse_integer(word);
    if (!depth || *depth < 0 || *depth > 1000) {
      throw Error(ExitCode::usage, "--" + name + " \"" + item + "\" is neither a depth nor one of FSDP's words",
                  source.text, std::string("Give it ") + spec.words);
    }
    return std::to_string(*depth);
  }
  if (name == "shard_group_size" && word != "node") {
    const auto size = parse_integer(word);
    if (!size || *size < 1)
      throw Error(ExitCode::usage, "--shard_group_size \"" + item + "\" is neither node nor a number of ranks",
                  source.text, "Give it node, or N of at least 1");
    return std::to_string(*size);
  }
  if (spec.type == Type::flag) return *parse_flag(item) ? "true" : "false";
  if (spec.type == Type::choice) {
    for (const std::string& choice : split_words(spec.words, '|')) {
      if (canonical_spelling(choice) == word) return choice;
    }
  }
  return item;
}

}  // namespace

Options::Options() {
  for (const OptionSpec& spec : option_table()) {
    Value value;
    if (spec.default_value[0] != '\0') value.items.emplace_back(spec.default_value);
    values_.emplace(spec.name, std::move(value));
  }
}

const Value& Options::value(const char* name) const {
  const auto found = values_.find(name);
  TESSERA_ASSERT(found != values_.end(), "no option %s", name);
  return found->second;
}

bool Options::given(const char* name) const { return value(name).source.layer > layer::default_value; }

std::string Options::text(const char* name) const {
  const Value& found = value(name);
  return found.items.empty() ? "" : found.items.front();
}

bool Options::flag(const char* name) const { return parse_flag(text(name)).value_or(false); }

std::int64_t Options::integer(const char* name) const {
  const auto number = parse_integer(text(name));
  TESSERA_ASSERT(number.has_value(), "option %s has no integer", name);
  return *number;
}

std::optional<std::int64_t> Options::optional_integer(const char* name) const {
  if (!has(name)) return std::nullopt;
  return integer(name);
}

double Options::real(const char* name) const {
  const auto number = parse_real(text(name));
  TESSERA_ASSERT(number.has_value(), "option %s has no number", name);
  return *number;
}

std::uint64_t Options::bytes(const char* name) const {
  const auto number = parse_size(text(name));
  TESSERA_ASSERT(number.has_value(), "option %s has no size", name);
  return *number;
}

double Options::seconds(const char* name) const {
  const auto number = parse_duration(text(name));
  TESSERA_ASSERT(number.has_value(), "option %s has no time", name);
  return *number;
}

Error Options::refuse(const char* name, const std::string& what, const std::string& to_do) const {
  return Error(ExitCode::usage, what, std::string("--") + name + ": " + value(name).source.text, to_do);
}

void Options::check(const OptionSpec& spec, const std::vector<std::string>& items, const Source& source) {
  for (const std::string& item : items) {
    const std::string expected = value_error(spec, item);
    const std::vector<std::string> fine = split_words(spec.fine, '|');
    const bool asks_nothing = std::find(fine.begin(), fine.end(), canonical_spelling(item)) != fine.end();
    if (spec.status == Status::not_built && !asks_nothing) not_built(spec, item, source);
    if (expected.empty() || (spec.status == Status::not_built && asks_nothing)) continue;
    throw Error(ExitCode::usage, "--" + std::string(spec.name) + " \"" + item + "\" is not " + expected, source.text,
                std::string("See --help-all"));
  }
}

void Options::assign(const std::string& name, std::vector<std::string> items, const Source& source) {
  const OptionSpec* spec = find_option(name);
  if (spec == nullptr) {
    const std::string near = suggestion(name, option_names());
    throw Error(ExitCode::usage, "unknown option " + name, source.text, near.empty() ? "See --help-all" : near);
  }
  const bool many = spec->type == Type::list || spec->type == Type::repeated_text;
  if (!many && items.size() != 1) {
    throw Error(ExitCode::usage,
                "--" + std::string(spec->name) + " takes one value, not " + std::to_string(items.size()), source.text,
                "Give it one");
  }
  if (many && items.empty()) {
    throw Error(ExitCode::usage, "--" + std::string(spec->name) + " is an empty list", source.text,
                "Give it values, or leave it out");
  }
  if (!items.empty() && !many && expand(*spec, items.front(), source)) return;
  check(*spec, items, source);
  Value& slot = values_.find(spec->name)->second;
  if (source.layer < slot.source.layer) return;
  for (std::string& item : items) {
    if (spec->status != Status::not_built) item = standard_word(*spec, item, source);
  }
  if (spec->status == Status::no_effect && items.front() != spec->default_value) {
    without_effect.push_back("--" + std::string(spec->name) + " has no effect: " + spec->help + " [" + source.text +
                             "]");
  }
  slot.items = std::move(items);
  slot.source = source;
}

void Options::read_environment(char** environment) {
  // Variables of the floors below, which are no options.
  static constexpr const char* others[] = {"TESSERA_ISA"};
  for (char** entry = environment == nullptr ? ::environ : environment; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || text.rfind("TESSERA_", 0) != 0 || text.rfind("TESSERA_TEST_", 0) == 0) continue;
    const std::string variable = text.substr(0, equals);
    if (std::find(std::begin(others), std::end(others), variable) != std::end(others)) continue;
    const std::string name = canonical_spelling(variable.substr(8));
    const Source source{layer::environment, "environment " + variable};
    const OptionSpec* spec = find_option(name);
    const std::string words = text.substr(equals + 1);
    std::vector<std::string> items{words};
    if (spec != nullptr && spec->type == Type::list) {
      items.clear();
      for (const std::string& part : split_words(words, ' ')) {
        for (std::string& item : split_words(part, ',')) items.push_back(std::move(item));
      }
    }
    assign(name, std::move(items), source);
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
    else if (spec.type == Type::integer && parse_integer(found.items[0]))
      entry["value"] = *parse_integer(found.items[0]);
    else if (spec.type == Type::real && parse_real(found.items[0])) entry["value"] = *parse_real(found.items[0]);
    else entry["value"] = found.items[0];
    entry["source"] = found.source.text;
    object[spec.name] = std::move(entry);
  }
  return object.dump(2) + "\n";
}

}  // namespace tessera::jobs
