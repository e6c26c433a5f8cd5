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

  /// A forward, recompute or backward.
  void run(const Instruction& in);
  void fetch(const Instruction& in);
  void store(const Instruction& in);
  /// What is not used at the end of a step.
  void end_of_step();

 private:
  enum class Name : unsigned char { input, saved, recomputed, gradient };
  /// A value of this step; module -1: none. The input of a module that works in place is that of the next one too.
  struct Content {
    Name name{};
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
  [[nodiscard]] Content content_of(const Instruction& in, Name name, int module) const;
  [[nodiscard]] std::vector<Home>& homes(StateKind kind) { return kind == StateKind::input ? inputs_ : saved_; }
  [[nodiscard]] static Name name_of(StateKind kind) { return kind == StateKind::input ? Name::input : Name::saved; }
  [[nodiscard]] const std::string& module_name(const Content& content) const;
  /// Begins a use of a slot that nothing is lost in.
  void take(Stage& stage, Content content, const char* what);
  /// The slot, if it has this; else null, and the instruction fails. Null too if there is no slot.
  Stage* with(int slot, Content content, const char* what);
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
