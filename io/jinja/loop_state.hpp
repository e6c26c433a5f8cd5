// SPDX-License-Identifier: Apache-2.0
#pragma once
// `loop`: where a loop is.

#include <deque>
#include <memory>
#include <optional>

#include "io/jinja/runtime.hpp"

namespace tessera::io::jinja {

/// Reads its items when they are needed: `last` and `nextitem` read one ahead, `length` all.
class LoopState final : public Computed, public std::enable_shared_from_this<LoopState> {
 public:
  LoopState(std::shared_ptr<Iterator> items, std::optional<std::int64_t> length)
      : items_(std::move(items)), length_(length) {}

  /// Goes to the next item; false at the end.
  bool next(Runtime& runtime, Value& item);
  /// The loop is over: drops what it holds, which may hold this.
  void finish();

  Value attribute(Runtime& runtime, const std::string& name) const override;
  [[nodiscard]] std::int64_t size(Runtime& runtime) const override;
  /// `loop.cycle(…)`, `loop.changed(…)`.
  [[nodiscard]] Value cycle(Runtime& runtime, const Arguments& arguments) const;
  [[nodiscard]] Value changed(Runtime& runtime, const Arguments& arguments) const;

 private:
  [[nodiscard]] bool peek(Runtime& runtime) const;

  mutable std::shared_ptr<Iterator> items_;
  mutable std::optional<std::int64_t> length_;
  mutable std::deque<Value> ahead_;
  mutable std::optional<Value> changed_;
  Value before_, current_;
  std::int64_t index0_ = -1;
  bool running_ = true;
};

}  // namespace tessera::io::jinja
