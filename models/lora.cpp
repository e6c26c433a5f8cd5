// SPDX-License-Identifier: Apache-2.0
// Which modules get adapters, and which parameters are trained.
#include "models/lora.hpp"

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>

#include "models/module.hpp"
#include "models/score_head.hpp"
#include "models/wrappers.hpp"
#include "runtime/base/hash.hpp"

namespace tessera::models {

namespace {

constexpr const char* all_linear = "all-linear";

/// "model.norm.weight" → "model.norm".
std::string module_of(const std::string& parameter) { return parameter.substr(0, parameter.rfind('.')); }

/// PEFT's rule for target_modules that are a list.
bool is_named(const std::string& module, const std::string& name) {
  return module == name || module.ends_with("." + name);
}

/// PEFT's rule for modules_to_save: the name of the module, or of one that it is part of, ends with `name`.
bool is_saved(const std::string& module, const std::string& name) {
  for (std::size_t end = module.find('.');; end = module.find('.', end + 1)) {
    if (module.substr(0, end).ends_with(name)) return true;
    if (end == std::string::npos) return false;
  }
}

std::string list_of(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// The last parts of modules' names: q_proj, k_proj, …
std::set<std::string> short_names(const Model& model) {
  std::set<std::string> names;
  for (const ParamSpec& param : model.params) {
    if (param.adapter) continue;
    const std::string module = module_of(param.name);
    names.insert(module.substr(module.rfind('.') + 1));
  }
  return names;
}

/// The Hugging Face names of the modules that read a parameter: of a tied embedding, the head too.
std::vector<std::string> modules_of(const Model& model, const ParamSpec& param) {
  std::vector<std::string> modules{module_of(huggingface_name(model, param.name))};
  for (const auto& [name, use] : model.aliases)
    if (use.same_as == param.name) modules.push_back(module_of(name));
  return modules;
}

/// The choice of modules, and which names have matched one.
class Choice {
 public:
  explicit Choice(const LoraSpec& spec) : spec_(spec) {
    if (spec.regex.empty()) return;
    try {
      regex_.assign(spec.regex, std::regex::ECMAScript);
    } catch (const std::regex_error& error) {
      throw Error(ExitCode::usage, "\"" + spec.regex + "\" is no regular expression: " + error.what(),
                  spec.regex_source, "Write it in the syntax of ECMAScript, as model\\.layers\\.0\\..*_proj");
    }
  }
  [[nodiscard]] bool has(const std::string& module, AdapterMaker::Kind kind) {
    if (std::ranges::any_of(spec_.modules_to_save, [&](const std::string& name) { return is_saved(module, name); })) {
      for (const std::string& name : spec_.targets)
        if (is_named(module, name)) saved_.insert(name);
      return false;
    }
    if (!spec_.regex.empty()) return std::regex_match(module, regex_);
    bool found = false;
    for (const std::string& name : spec_.targets) {
      if (name == all_linear ? kind != AdapterMaker::Kind::linear : !is_named(module, name)) continue;
      matched_.insert(name);
      found = true;
    }
    return found;
  }
  /// A target that has matched no module, or "".
  [[nodiscard]] std::string unmatched() const {
    for (const std::string& name : spec_.targets)
      if (!matched_.contains(name)) return name;
    return "";
  }
  /// Whether the target names a module that modules_to_save names too.
  [[nodiscard]] bool is_saved_target(const std::string& name) const { return saved_.contains(name); }

 private:
  const LoraSpec& spec_;
  std::regex regex_;
  std::set<std::string> matched_, saved_;  // targets
};

}  // namespace

double LoraSpec::scale() const {
  const auto r = static_cast<double>(rank);
  return rslora ? alpha / std::sqrt(r) : alpha / r;
}

std::string huggingface_name(const Model& model, const std::string& canonical) {
  if (is_text_part(model.family)) return name_in_wrapper(model.family, canonical);
  const std::string prefixed = "transformer." + canonical;
  const std::size_t at = canonical.find(".lora_");  // adapters are no tensors of model files
  const std::string of = at == std::string::npos ? canonical : canonical.substr(0, at) + ".weight";
  if (model.aliases.contains(of) || of == score_weight) return canonical;  // a tied head; a score
  return canonical_name(model, "transformer." + of) == of ? prefixed : canonical;
}

namespace {

class Maker final : public AdapterMaker {
 public:
  Maker(Model& model, const LoraSpec& spec) : model_(model), spec_(spec), choice_(spec) {}

  [[nodiscard]] std::optional<Positions> add(int weight, std::int64_t in, std::int64_t out, bool transposed,
                                             Kind kind) override {
    const int index = (*indices_)[static_cast<std::size_t>(weight)];
    const std::string name =
        kind == Kind::head ? head_module : module_of(model_.params[static_cast<std::size_t>(index)].name);
    const std::string module = module_of(huggingface_name(model_, name + ".weight"));
    if (example_.empty()) example_ = module;
    linears_.insert(module.substr(module.rfind('.') + 1));
    if (!choice_.has(module, kind)) return std::nullopt;
    using Init = Initializer::Kind;
    const Initializer init = spec_.init == LoraSpec::Init::gaussian
                                 ? Initializer{Init::normal, 1 / static_cast<double>(spec_.rank)}
                                 : Initializer{Init::uniform, 1 / std::sqrt(static_cast<double>(in))};
    const bool embeds = kind == Kind::embedding;  // PEFT's: A is 0 and B random
    const int a = embeds ? add_param(name + ".lora_embedding_A", {spec_.rank, in}, {})
                         : add_param(name + ".lora_A.weight", {spec_.rank, in}, init);
    const int b = embeds ? add_param(name + ".lora_embedding_B", {out, spec_.rank}, {Init::normal, 1})
                         : add_param(name + ".lora_B.weight", {out, spec_.rank}, {});
    const int last = static_cast<int>(model_.params.size()) - 1;
    model_.lora->modules.push_back({name, index, last - 1, last, transposed, embeds, kind == Kind::expert});
    return Positions{a, b, hash64(name)};
  }
  [[nodiscard]] std::optional<Positions> add_group(const Group& group, std::int64_t in, std::int64_t out,
                                                   bool transposed) override {
    std::optional<Positions> found;
    for (std::int64_t e = 0; e < group.groups; ++e) {
      const int weight = group.weight + static_cast<int>(e) * group.step;
      const auto at = add(weight, in, out, transposed, Kind::expert);
      if (e > 0 && at.has_value() != found.has_value()) refuse_some_experts(group, weight);
      if (e == 0 && at) found = Positions{.a = at->a, .b = at->b, .step = 2, .groups = group.groups};
    }
    return found;
  }
  [[nodiscard]] const LoraSpec& spec() const override { return spec_; }
  [[nodiscard]] const Choice& choice() const { return choice_; }
  /// The whole name of the first Linear.
  [[nodiscard]] const std::string& example() const { return example_; }
  /// Last parts of the names of all Linears.
  [[nodiscard]] const std::set<std::string>& linears() const { return linears_; }

 private:
  [[noreturn]] void refuse_some_experts(const Group& group, int weight) const {
    const auto name = [&](int position) {
      const int index = (*indices_)[static_cast<std::size_t>(position)];
      return module_of(huggingface_name(model_, model_.params[static_cast<std::size_t>(index)].name));
    };
    const std::string first = name(group.weight);
    throw Error(
        ExitCode::usage,
        "of " + first + " and " + name(weight) + " one has an adapter: a layer's experts have one each, or none",
        spec_.regex.empty() ? "target_modules" : spec_.regex_source,
        "Name the projection of all experts, " + first.substr(first.rfind('.') + 1));
  }
  int add_param(const std::string& name, const Shape& shape, const Initializer& init) {
    model_.params.push_back({.name = name, .shape = shape, .init = init, .adapter = true});
    indices_->push_back(static_cast<int>(model_.params.size()) - 1);
    return static_cast<int>(indices_->size()) - 1;
  }

  Model& model_;
  const LoraSpec& spec_;
  Choice choice_;
  std::set<std::string> linears_;
  std::string example_;
};

}  // namespace

std::vector<std::string> saved_modules(const Model& model) {
  std::set<std::string> saved;
  for (const ParamSpec& param : model.params)
    if (param.trainable && !param.adapter)
      for (const std::string& module : modules_of(model, param))
        if (std::ranges::any_of(model.lora->spec.modules_to_save,
                                [&](const std::string& name) { return is_saved(module, name); }))
          saved.insert(module);
  return {saved.begin(), saved.end()};
}

namespace {

/// Freezes all that is neither an adapter nor named by modules_to_save or `bias`.
void freeze_base(Model& model, const LoraSpec& spec) {
  std::set<std::string> matched, adapted;
  for (const AdaptedModule& module : model.lora->modules) adapted.insert(module.name);
  for (ParamSpec& param : model.params) {
    const std::vector<std::string> modules = modules_of(model, param);
    std::size_t saved = 0;
    for (const std::string& module : modules) {
      bool named = false;
      for (const std::string& name : spec.modules_to_save)
        if (!param.adapter && is_saved(module, name)) matched.insert(name), named = true;
      saved += named ? 1 : 0;
    }
    if (saved > 0 && saved < modules.size())
      throw Error(ExitCode::usage, modules[0] + " and " + modules[1] + " are tied: they are one parameter",
                  "modules_to_save", "Name both, or none");
    const bool bias = (param.name.ends_with(".bias") || param.name.ends_with("_bias")) &&
                      (spec.bias == LoraSpec::Bias::all ||
                       (spec.bias == LoraSpec::Bias::lora_only && adapted.contains(module_of(param.name))));
    param.trainable = param.adapter || saved > 0 || bias;
    if (!param.trainable) param.storage_dtype = model.dtype;
  }
  for (const std::string& name : spec.modules_to_save)
    if (!matched.contains(name))
      throw Error(ExitCode::usage, "no module of the model is named " + name, "modules_to_save",
                  "The modules are " + list_of(short_names(model)));
}

}  // namespace

void add_lora(Model& model, const LoraSpec& spec) {
  TESSERA_ASSERT(!model.lora, "the model has adapters");
  if (spec.rank < 1)
    throw Error(ExitCode::usage, strfmt("a LoRA of rank %ld has no parameters", spec.rank), "lora_rank",
                "Give a rank of at least 1");
  if (spec.dropout < 0 || spec.dropout >= 1)
    throw Error(ExitCode::usage, strfmt("dropout %g is not in [0, 1)", spec.dropout), "lora_dropout");
  model.lora = LoraAdapters{spec, {}};
  Maker maker(model, spec);
  for (const auto& module : model.modules) module->adapt(maker);
  const std::string unmatched = spec.regex.empty() ? maker.choice().unmatched() : "";
  if (model.lora->modules.empty() && !spec.regex.empty())
    throw Error(ExitCode::usage, "no Linear of the model matches \"" + spec.regex + "\"", spec.regex_source,
                "It must match the whole name of a module, as " + maker.example());
  if (spec.strict && maker.choice().is_saved_target(unmatched))
    throw Error(ExitCode::usage, "each module named " + unmatched + " is in modules_to_save too, and so has no adapter",
                "target_modules", "Name it in one of the two");
  if (!unmatched.empty() && (spec.strict || model.lora->modules.empty()))
    for (const ParamSpec& param : model.params)
      if (is_named(param.name, unmatched) || is_named(param.name, unmatched + ".weight"))
        throw Error(ExitCode::usage,
                    "\"" + unmatched + "\" is no Linear with an adapter: " + param.name +
                        (param.shape.rank() == 3 ? " has the weights of all experts" : " has none"),
                    "target_modules", "The Linears are " + list_of(maker.linears()));
  if (model.lora->modules.empty() || (spec.strict && !unmatched.empty()))
    throw Error(ExitCode::usage, "no Linear of the model matches \"" + unmatched + "\"", "target_modules",
                "The Linears are " + list_of(maker.linears()));
  freeze_base(model, spec);
}

}  // namespace tessera::models
