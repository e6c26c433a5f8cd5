// SPDX-License-Identifier: Apache-2.0
// The attributes of `loop`.
#include "io/jinja/loop_state.hpp"

#include "io/jinja/operations.hpp"

namespace tessera::io::jinja {
namespace {

/// A method of `loop`, bound to it.
class LoopMethod final : public Callable {
 public:
  using Method = Value (LoopState::*)(Runtime&, const Arguments&) const;
  LoopMethod(std::shared_ptr<const LoopState> loop, Method method) : loop_(std::move(loop)), method_(method) {}
  Value call(Runtime& runtime, Arguments& arguments) const override { return ((*loop_).*method_)(runtime, arguments); }

 private:
  std::shared_ptr<const LoopState> loop_;
  Method method_;
};

}  // namespace

bool LoopState::next(Runtime& runtime, Value& item) {
  if (ahead_.empty()) {
    if (!items_->next(runtime, item)) return false;
  } else {
    item = std::move(ahead_.front());
    ahead_.pop_front();
  }
  ++index0_;
  before_ = std::move(current_);
  current_ = item;
  return true;
}

void LoopState::finish() {
  running_ = false;
  items_.reset();
  ahead_.clear();
  changed_.reset();
  before_ = current_ = Value();
}

bool LoopState::peek(Runtime& runtime) const {
  if (!ahead_.empty()) return true;
  Value item;
  if (!items_ || !items_->next(runtime, item)) return false;
  ahead_.push_back(std::move(item));
  return true;
}

std::int64_t LoopState::size(Runtime& runtime) const {
  if (length_) return *length_;
  for (Value item; items_ && items_->next(runtime, item);) {
    runtime.charge(sizeof(Value));
    ahead_.push_back(item);
  }
  length_ = index0_ + 1 + static_cast<std::int64_t>(ahead_.size());
  return *length_;
}

Value LoopState::attribute(Runtime& runtime, const std::string& name) const {
  if (name == "index") return Value::of(index0_ + 1);
  if (name == "index0") return Value::of(index0_);
  if (name == "first") return Value::of(index0_ == 0);
  if (name == "last") return Value::of(!peek(runtime));
  if (name == "length") return Value::of(size(runtime));
  if (name == "revindex") return Value::of(size(runtime) - index0_);
  if (name == "revindex0") return Value::of(size(runtime) - index0_ - 1);
  if (name == "previtem") return index0_ == 0 ? Value::undefined("there is no previous item") : before_;
  if (name == "nextitem") return peek(runtime) ? ahead_.front() : Value::undefined("there is no next item");
  if (name == "depth") return Value::of(std::int64_t{1});
  if (name == "depth0") return Value::of(std::int64_t{0});
  const auto bound = [&](LoopMethod::Method method) {
    return runtime.object(Value::Kind::callable, make_object<LoopMethod>(shared_from_this(), method));
  };
  if (name == "cycle") return bound(&LoopState::cycle);
  if (name == "changed") return bound(&LoopState::changed);
  return {};
}

Value LoopState::cycle(Runtime& runtime, const Arguments& arguments) const {
  if (arguments.positional.empty()) runtime.fail("loop.cycle: no items given");
  return arguments.positional[static_cast<std::size_t>(index0_) % arguments.positional.size()];
}

Value LoopState::changed(Runtime& runtime, const Arguments& arguments) const {
  Value now = runtime.tuple(arguments.positional);
  if (!running_ || (changed_ && same(runtime, *changed_, now))) return Value::of(false);
  changed_ = std::move(now);
  return Value::of(true);
}

}  // namespace tessera::io::jinja
