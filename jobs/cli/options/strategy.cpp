// The words for a sharding strategy, of every tool, become claims on one option; the highest layer's claims must agree.
#include <map>

#include "jobs/cli/options/options.hpp"

namespace tessera::jobs {

std::string canonical_strategy(const std::string& word) {
  static const std::map<std::string, std::string> words = {
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
  };
  const auto found = words.find(canonical_spelling(word));
  return found == words.end() ? "" : found->second;
}

namespace {

/// True if two claims can hold together; `joined` is then the more specific one.
bool compatible(const std::string& a, const std::string& b, std::string& joined) {
  static constexpr const char* pairs[][2] = {{"hybrid_shard", "zero3"}, {"hybrid_shard_zero2", "zero2"}};
  if (a == b) return joined = a, true;
  for (const auto& pair : pairs) {
    if ((a == pair[0] && b == pair[1]) || (b == pair[0] && a == pair[1])) return joined = pair[0], true;
  }
  return false;
}

}  // namespace

void Options::claim(const std::string& option, const std::string& given_word, const Source& source) {
  std::string word = canonical_strategy(given_word);
  if (word.empty()) {
    static const std::vector<std::string> names = {
        "zero0",         "zero1",      "zero2",        "zero3", "ddp",    "no_shard",          "fsdp2",
        "shard_grad_op", "full_shard", "hybrid_shard", "fsdp",  "hybrid", "hybrid_shard_zero2"};
    const std::string near = suggestion(given_word, names);
    throw Error(ExitCode::usage, option + " \"" + given_word + "\" is not a sharding strategy", source.text,
                near.empty()
                    ? "Strategies: zero0, zero1, zero2, zero3, hybrid_shard, hybrid_shard_zero2, or FSDP's words"
                    : near);
  }
  claims_.push_back({std::move(word), option, source});
}

bool Options::expand(const OptionSpec& spec, const std::string& word, const Source& source) {
  const std::string name = spec.name, option = "--" + name, lower = canonical_spelling(word);
  const bool stands_for_strategy = name == "preset" || name == "zero_stage" || name == "sharding_strategy" ||
                                   name == "fsdp" || name == "parallel_strategy" || name == "deepspeed";
  if (!stands_for_strategy) return false;
  Value& slot = values_.find(name)->second;
  if (source.layer >= slot.source.layer && name != "sharding_strategy") slot = {{word}, source};
  if (name == "zero_stage") {
    check(spec, {word}, source);
    claim(option, "zero" + word, source);
  } else if (name == "preset") {
    check(spec, {word}, source);
    claim(option, word, {layer::preset, "preset " + word + ", " + source.text});
  } else if (name == "deepspeed" && word.size() > 5 && lower.rfind(".json") == word.size() - 5) {
    read_file(word);
  } else if (lower.find("offload") != std::string::npos) {
    throw Error(ExitCode::usage, option + " " + word + " is not built yet: offload", source.text, "Leave offload out");
  } else if (name == "fsdp") {
    // Hugging Face's form is "full_shard auto_wrap": wrapping is by block in any case.
    for (const std::string& part : split_words(lower, ' ')) {
      if (part != "auto_wrap") claim(option, part, source);
    }
  } else {
    if (name == "sharding_strategy") check(spec, {word}, source);
    claim(option, word, source);
  }
  return true;
}

void Options::resolve_strategy() {
  const Claim* winner = nullptr;
  std::string word;
  for (const Claim& claim : claims_) {
    if (winner == nullptr || claim.source.layer > winner->source.layer) {
      winner = &claim;
      word = claim.word;
      continue;
    }
    if (claim.source.layer < winner->source.layer) continue;
    std::string joined;
    if (!compatible(word, claim.word, joined)) {
      throw Error(ExitCode::usage,
                  winner->option + " asks for " + word + ", but " + claim.option + " for " + claim.word,
                  winner->source.text + "; " + claim.source.text, "Keep one of the two");
    }
    word = joined;
  }
  if (winner == nullptr) return;
  values_.find("sharding_strategy")->second = {{word},
                                               {winner->source.layer, winner->source.text + " " + winner->option}};
}

}  // namespace tessera::jobs
