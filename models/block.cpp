// SPDX-License-Identifier: Apache-2.0
// Block: memory and order of its branches.
#include "models/block.hpp"

#include <algorithm>

namespace tessera::models {

Block::Block(BlockParts parts) : parts_(std::move(parts)) {
  TESSERA_ASSERT(parts_.residuals.size() == 1 || parts_.residuals.size() == 2);
}

void Block::split(const TensorSplit& over) {
  for (Residual& residual : parts_.residuals) residual.split(over);
  last_stage_ = static_cast<int>(stages(Phase::train).stages.size()) - 1;
}

ModuleStages Block::stages(Phase /*phase*/) const {
  ModuleStages all = parts_.residuals.front().stages();
  for (std::size_t i = 1; i < parts_.residuals.size() && is_split(); ++i) {
    const ModuleStages more = parts_.residuals[i].stages();
    const auto values = static_cast<int>(all.values.size()), stages = static_cast<int>(all.stages.size()) - 1;
    const auto shifted = [&](std::vector<int> list) {
      for (int& value : list) value += values;
      return list;
    };
    all.values.insert(all.values.end(), more.values.begin(), more.values.end());
    all.stages.back().writes = shifted(more.stages.front().writes);  // the first of a branch reads no value
    for (std::size_t s = 1; s < more.stages.size(); ++s)
      all.stages.push_back({shifted(more.stages[s].reads), shifted(more.stages[s].writes)});
    for (ModuleStages::Exchange exchange : more.exchanges) {
      exchange.after += stages;
      exchange.from += values;
      exchange.to += values;
      all.exchanges.push_back(exchange);
    }
  }
  return all;
}

std::size_t Block::value_bytes(int value, BatchShape shape, DType dtype) const {
  if (!is_split()) return parts_.residuals.front().value_bytes(value, shape, dtype);
  const auto [branch, own] = branch_of(value);
  return branch.value_bytes(own, shape, dtype);
}

std::size_t Block::value_gradient_bytes(int value, BatchShape shape, DType dtype) const {
  if (!is_split()) return parts_.residuals.front().value_gradient_bytes(value, shape, dtype);
  const auto [branch, own] = branch_of(value);
  return branch.value_gradient_bytes(own, shape, dtype);
}

std::string Block::context_refusal(ContextShare share) const {
  std::string why;
  for (const Residual& residual : parts_.residuals)
    if (why.empty()) why = residual.context_refusal(share);
  return why;
}

void Block::set_context(ContextShare share) {
  for (Residual& residual : parts_.residuals) residual.set_context(share);
  last_stage_ = std::max(0, static_cast<int>(stages(Phase::train).stages.size()) - 1);
}

Block::Saved Block::saved(SavedAllocator& allocator, BatchShape shape, DType dtype) const {
  const Shape rows{shape.batch * shape.tokens, parts_.channels};
  Saved s;
  if (parts_.residuals.size() > 1) s.middle = allocator.recomputed().take(dtype, rows);
  for (std::size_t i = 0; i < parts_.residuals.size(); ++i)
    s.residuals[i] = allocator.take(parts_.residuals[i].saved_bytes(shape, dtype));
  return s;
}

Block::Saved Block::unsaved(ScratchAllocator& allocator, BatchShape shape, DType dtype) const {
  const Shape rows{shape.batch * shape.tokens, parts_.channels};
  Saved s;
  if (parts_.residuals.size() > 1) s.middle = allocator.take(dtype, rows);
  std::size_t most = 0;
  for (const Residual& residual : parts_.residuals) most = std::max(most, residual.saved_bytes(shape, dtype).total());
  const TensorView bytes = allocator.take_bytes(most);
  for (std::size_t i = 0; i < parts_.residuals.size(); ++i) s.residuals[i].saved = bytes;
  return s;
}

TensorView Block::scratch(ScratchAllocator& allocator, BatchShape shape, DType dtype, Phase phase) const {
  std::size_t bytes = 0;
  for (const Residual& residual : parts_.residuals)
    bytes = std::max(bytes, residual.workspace_bytes(shape, dtype, phase));
  return allocator.take_bytes(bytes);
}

SavedBytes Block::split_saved_bytes(BatchShape shape, DType dtype) const {
  return saved_bytes_of([&](SavedAllocator& allocator) { (void)saved(allocator, shape, dtype); });
}

std::size_t Block::workspace_bytes(BatchShape shape, DType dtype, Phase phase) const {
  ScratchAllocator allocator;
  if (phase != Phase::train) (void)unsaved(allocator, shape, dtype);
  (void)scratch(allocator, shape, dtype, phase);
  return allocator.bytes();
}

int Block::stage_of(int i, int stage) const {
  if (!is_split()) return i == 0 ? stage : stage == last_stage_ ? 0 : -1;
  const int of = i == 0 ? stage : stage - parts_.residuals.front().num_stages() + 1;
  return of < parts_.residuals[static_cast<std::size_t>(i)].num_stages() ? of : -1;
}

std::span<const TensorView> Block::values_of(int i, std::span<const TensorView> values) const {
  if (!is_split()) return values;
  const auto first = static_cast<std::size_t>(parts_.residuals.front().num_values());
  return i == 0 ? values.first(first) : values.subspan(first);
}

void Block::forward(const ForwardArgs& args) const {
  const Shape rows{args.shape.batch * args.shape.tokens, parts_.channels};
  const bool train = args.phase == Phase::train;
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s =
      train ? saved(saved_allocator, args.shape, args.x.dtype) : unsaved(allocator, args.shape, args.x.dtype);
  // Where the second branch has stages, too, the workspace with `middle` does not last to it.
  const TensorView y = args.y.reshape(rows), middle = train || !is_split() ? s.middle : y;
  ForwardArgs inner = args;
  inner.workspace = scratch(allocator, args.shape, args.x.dtype, args.phase);
  for (int i = 0; i < static_cast<int>(parts_.residuals.size()); ++i) {
    inner.stage = stage_of(i, args.stage);
    if (inner.stage < 0) continue;
    const bool last = i + 1 == static_cast<int>(parts_.residuals.size());
    inner.x = i == 0 ? args.x.reshape(rows) : middle;
    inner.y = last ? y : middle;
    inner.writes_y = last ? args.writes_y : true;
    inner.values = values_of(i, args.values);
    inner.saved = s.residuals[i].saved;
    inner.kept = s.residuals[i].kept;
    parts_.residuals[static_cast<std::size_t>(i)].forward(inner);
  }
}

void Block::backward(const BackwardArgs& args) const {
  const Shape rows{args.shape.batch * args.shape.tokens, parts_.channels};
  SavedAllocator saved_allocator(args.saved, args.kept);
  ScratchAllocator allocator(args.workspace);
  const Saved s = saved(saved_allocator, args.shape, args.x.dtype);
  const Wanted wanted = args.wanted();
  const TensorView dx = reshaped(args.dx, rows);
  BackwardArgs inner = args;
  inner.dy = args.dy.reshape(rows);
  inner.workspace = scratch(allocator, args.shape, args.x.dtype, Phase::train);
  for (int i = static_cast<int>(parts_.residuals.size()); i-- > 0 && inner.dy;) {
    inner.x = i > 0 ? s.middle : args.x.reshape(rows);
    // The gradient between the two lies in dx, or in dy, if only the first one's parameters need it, or if its stages
    // follow.
    const bool in_dy = last_stage_ > 0 ? i > 0 : !dx;
    inner.dx = !in_dy ? dx : is_split() || computes_dx(i, wanted) ? inner.dy : TensorView{};
    inner.stage = stage_of(i, args.stage);
    inner.values = values_of(i, args.values);
    inner.value_gradients = values_of(i, args.value_gradients);
    inner.saved = s.residuals[i].saved;
    inner.kept = s.residuals[i].kept;
    if (inner.stage >= 0) parts_.residuals[static_cast<std::size_t>(i)].backward(inner);
    inner.dy = inner.dx;
  }
}

double Block::forward_flops(BatchShape shape) const {
  double flops = 0;
  for (const Residual& residual : parts_.residuals) flops += residual.forward_flops(shape);
  return flops;
}

double Block::recompute_flops(BatchShape shape, bool keeps) const {
  double flops = 0;
  for (std::size_t i = 0; i < parts_.residuals.size(); ++i)
    flops += parts_.residuals[i].recompute_flops(shape, {keeps, /*writes_y=*/i + 1 < parts_.residuals.size()});
  return flops;
}

double Block::backward_flops(BatchShape shape, const Wanted& wanted) const {
  double flops = 0;
  for (std::size_t i = 0; i < parts_.residuals.size(); ++i)
    flops += parts_.residuals[i].backward_flops(shape, wanted.with_dx(computes_dx(static_cast<int>(i), wanted)));
  return flops;
}

bool Block::computes_dx(int i, const Wanted& wanted) const {
  return wanted.dx() || (i > 0 && parts_.residuals.front().has_wanted(wanted));
}

}  // namespace tessera::models
