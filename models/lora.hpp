// SPDX-License-Identifier: Apache-2.0
#pragma once
// LoRA: low-rank adapters beside frozen Linears, y = W·x + b + s·B(A(dropout(x))). Names and meaning are PEFT's
// (docs/lora.md). An adapter's parameters are "<module>.lora_A.weight" (r, in) and "<module>.lora_B.weight" (out, r),
// of an embedding "<module>.lora_embedding_A" (r, V) and "<module>.lora_embedding_B" (C, r), appended to Model::params.

#include <optional>
#include <string>
#include <vector>

#include "models/params.hpp"

namespace tessera::models {

struct Model;

/// What to adapt, and how.
struct LoraSpec {
  std::int64_t rank = 8;
  double alpha = 32, dropout = 0;
  bool rslora = false;  // scale α/√r in place of α/r
  enum class Init : unsigned char { uniform, gaussian };
  Init init = Init::uniform;  // of A: U(±1/√in), or N(0, 1/r²); B starts at 0
  /// Modules with an adapter: names (a module's whole name or its end after a dot), "all-linear" alone for every Linear
  /// but lm_head, routers and experts; or, if `regex` is set, those whose whole name matches it.
  std::vector<std::string> targets{"all-linear"};
  std::string regex;
  const char* regex_source = "target_regex";  // the option or key that `regex` is of, for messages
  /// Modules that are trained in full: ends of names, as PEFT compares them.
  std::vector<std::string> modules_to_save;
  enum class Bias : unsigned char { none, all, lora_only };
  Bias bias = Bias::none;  // biases that are trained: none, all, or of modules with an adapter
  /// Whether every name of `targets` and `modules_to_save` must match a module; otherwise one that does is enough.
  bool strict = true;

  [[nodiscard]] double scale() const;
};

/// A Linear with an adapter: indices into Model::params.
struct AdaptedModule {
  std::string name;  // "h.0.attn.c_attn": the canonical name of the weight without ".weight"
  int weight = -1, a = -1, b = -1;
  bool transposed = false;  // the weight is (in, out), as GPT-2's Conv1D, or an embedding's
  bool embedding = false;
  bool expert = false;
};

/// The adapters of a model.
struct LoraAdapters {
  LoraSpec spec;
  std::vector<AdaptedModule> modules;
};

/// Adds adapters to the model: Model::lora. Of the parameters, those of adapters, of modules_to_save and the biases
/// that `bias` names are trainable; all others are frozen, and stored in the model's dtype. Throws Error (usage): a
/// rank below 1; a target that matches nothing, with the names there are; a target that is of some experts of
/// a layer alone; one of two tied modules to save.
void add_lora(Model& model, const LoraSpec& spec);

inline constexpr const char* head_module = "lm_head";  // in transformers; a tied head has no weight of that name

/// A parameter's name in Hugging Face's files: "transformer.h.0.attn.c_attn.weight".
[[nodiscard]] std::string huggingface_name(const Model& model, const std::string& canonical);

/// The whole names of the modules that modules_to_save chooses.
[[nodiscard]] std::vector<std::string> saved_modules(const Model& model);

/// Gives Linears their adapters: passed by add_lora to every module (Module::adapt), and by that to its Linears.
class AdapterMaker {
 public:
  enum class Kind : unsigned char { linear, router, expert, head, embedding };
  /// The positions of A and B among the module's parameters.
  struct Positions {
    int a = -1, b = -1;
    std::uint64_t key = 0;  // of the dropout of this Linear
    // Of groups: a and b are the first one's.
    int step = 1;             // to the next group's
    std::int64_t groups = 0;  // 0: of one Linear
  };
  virtual ~AdapterMaker() = default;
  /// The module whose Linears follow: `indices` are its Module::params(), to which those of adapters are appended.
  void begin(std::vector<int>& indices) { indices_ = &indices; }
  /// If the Linear with the weight at this position gets an adapter: its positions.
  [[nodiscard]] virtual std::optional<Positions> add(int weight, std::int64_t in, std::int64_t out, bool transposed,
                                                     Kind kind) = 0;
  /// The weights of groups, such as a projection of all experts of a layer.
  struct Group {
    int weight = -1, step = 1;  // position of the first group's weight, and the step to the next
    std::int64_t groups = 0;
  };
  /// The same for groups, of which all or none get an adapter. Throws Error (usage) if some are chosen alone.
  [[nodiscard]] virtual std::optional<Positions> add_group(const Group& group, std::int64_t in, std::int64_t out,
                                                           bool transposed) = 0;
  [[nodiscard]] virtual const LoraSpec& spec() const = 0;

 protected:
  std::vector<int>* indices_ = nullptr;
};

}  // namespace tessera::models
