// SPDX-License-Identifier: Apache-2.0
#pragma once
// The verifier's account of activations: which value each of their slots, and of the places in host memory where they
// are stored, holds.

#include <vector>

#include "runtime/shard/use_order.hpp"

namespace tessera::shard {

class PlacedActivations {
 public:
  PlacedActivations(const Schedule& schedule, UseOrder& order);

  /// A stage of a forward, recompute or backward.
  void run(const Instruction& in);
  void exchange(const Instruction& in);
  void fetch(const Instruction& in);
  void store(const Instruction& in);
  /// What is not used at the end of a step.
  void end_of_step();

 private:
  /// Value v of ModuleUse::values: first_value + 2 · v; its gradient: one more.
  enum Name : int { input, saved, recomputed, gradient, first_value };
  /// A value of this step; module -1: none. The input of a module that works in place is that of the next one too.
  struct Content {
    int name = input;
    int module = -1, micro = -1, step = -1, instance = 0;
    friend bool operator==(const Content&, const Content&) = default;
  };
  struct Stage : Uses {
    Content content;
    bool needed = false;  // to be used, or stored, before something else takes the slot
  };
  struct Home : Uses {
    Content content;
  };
  [[nodiscard]] Content content_of(const Instruction& in, int name, int module) const;
  [[nodiscard]] std::vector<Home>& homes(StateKind kind) { return kind == StateKind::input ? inputs_ : saved_; }
  [[nodiscard]] static Name name_of(StateKind kind) { return kind == StateKind::input ? input : saved; }
  [[nodiscard]] const std::string& module_name(const Content& content) const;
  /// Begins a use of a slot that nothing is lost in.
  void take(Stage& stage, Content content, const char* what);
  /// The slot, if it has this; else null, and the instruction fails. Null too if there is no slot.
  Stage* with(int slot, Content content, const char* what);
  [[nodiscard]] bool first_stage(const Instruction& in) const;
  [[nodiscard]] bool last_stage(const Instruction& in) const;
  void read(int slot, Content content, const char* what);
  /// A value, or the gradient of one, which is read before anything else takes the slot: with() finds out if not.
  void write(int slot, Content content, const char* what);
  /// Takes the slot in the first stage, and changes what is there in later ones.
  void save(const Instruction& in, int slot, Name name);
  void pass_values(const Instruction& in);
  void forward(const Instruction& in);
  void recompute(const Instruction& in);
  void backward(const Instruction& in);

  const Schedule& s_;
  UseOrder& order_;
  int first_;                         // module with a backward
  std::vector<Stage> stages_;         // by slot
  std::vector<Home> inputs_, saved_;  // by module
};

}  // namespace tessera::shard
