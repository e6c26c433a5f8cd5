// SPDX-License-Identifier: Apache-2.0
#pragma once
// The verifier's account of offloaded activations: what their tier and the staging slots hold.

#include <vector>

#include "runtime/shard/use_order.hpp"

namespace tessera::shard {

/// Of schedules whose activations are not offloaded it says nothing.
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
  /// Of which module and micro-batch of this step the activations are; -1: of none.
  struct Content {
    int module = -1, micro = -1, step = -1;
    friend bool operator==(const Content&, const Content&) = default;
  };
  struct Stage : Uses {
    Content content;
    bool needed = false;  // to be used, or stored, before something else takes the slot
  };
  struct Home : Uses {
    Content content;
  };
  [[nodiscard]] Content content_of(const Instruction& in, int module) const { return {module, in.micro, order_.step}; }
  [[nodiscard]] std::vector<Home>& homes(StateKind kind) { return kind == StateKind::input ? inputs_ : saved_; }
  /// Begins a use of a slot that nothing is lost in.
  void take(Stage& stage, Content content, const char* what);
  /// The slot, if it has this; else null, and the instruction fails.
  Stage* with(int slot, Content content, const char* what);
  /// Reads its input, and writes its output and what it saves.
  void forward(const Instruction& in);
  /// Reads the input, and may write the output again, whose slot still has it.
  void recompute(const Instruction& in);
  /// Reads the input, and uses up what is saved.
  void backward(const Instruction& in);
  /// A reference model writes the first two slots of inputs, and leaves nothing.
  void run_reference();

  const Schedule& s_;
  UseOrder& order_;
  int first_;                         // module with a backward
  std::vector<Stage> stages_;         // by slot
  std::vector<Home> inputs_, saved_;  // by module
};

}  // namespace tessera::shard
