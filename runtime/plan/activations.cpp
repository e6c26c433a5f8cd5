#include "runtime/plan/activations.hpp"

#include <algorithm>

namespace tessera::plan {

std::string boundary_name(int module) { return "x." + std::to_string(module); }

std::string saved_name(const shard::Schedule& train, int module) {
  const shard::ModuleUse& use = train.modules[static_cast<std::size_t>(module)];
  return train.recompute && use.recomputable ? "saved.recomputed" : "saved." + use.name;
}

std::string cache_name(const models::Model& model, int module) {
  return "cache." + model.modules[static_cast<std::size_t>(module)]->name();
}

std::vector<ArenaSlot> inference_slots(const RunSpec& spec) {
  const models::Model& model = *spec.model;
  const bool generates = spec.purpose == Purpose::generate;
  const models::BatchShape pass{spec.batch.micro_batch, spec.tokens}, room{pass.batch, spec.cache_tokens};
  const models::Phase phase = generates ? models::Phase::logits : models::Phase::eval;
  const std::size_t element = size_of(model.dtype);
  const auto words = static_cast<std::size_t>(pass.batch * pass.tokens);
  const int modules = static_cast<int>(model.modules.size());

  std::vector<ArenaSlot> slots;
  for (int i = 0; i < std::min(2, modules - 1); ++i)
    slots.push_back({boundary_name(i), Category::activations, Placement::own, words * static_cast<std::size_t>(model.hidden) * element});
  std::size_t workspace = 0;
  for (const auto& module : model.modules) {
    workspace = std::max(workspace, module->workspace_bytes(pass, model.dtype, phase));
    if (generates) workspace = std::max(workspace, module->workspace_bytes({pass.batch, 1}, model.dtype, phase));
  }
  for (int i = 0; generates && i < modules; ++i)
    if (const std::size_t bytes = model.modules[static_cast<std::size_t>(i)]->cache_bytes(room, model.dtype); bytes > 0)
      slots.push_back({cache_name(model, i), Category::activations, Placement::own, bytes});
  slots.push_back({workspace_name, Category::buffers, Placement::own, workspace});
  slots.push_back({ids_name, Category::buffers, Placement::own, words * sizeof(std::int32_t)});
  if (generates)
    slots.push_back({logits_name, Category::buffers, Placement::own, static_cast<std::size_t>(pass.batch * model.vocab) * size_of(stat_dtype(model.dtype))});
  else
    slots.push_back({targets_name, Category::buffers, Placement::own, words * sizeof(std::int32_t)});
  if (spec.packed) slots.push_back({positions_name, Category::buffers, Placement::own, words * sizeof(std::int32_t)});
  return slots;
}

std::vector<ArenaSlot> activation_slots(const RunSpec& spec, const shard::Schedule& schedule) {
  const models::Model& model = *spec.model;
  const models::BatchShape train{spec.batch.micro_batch, spec.tokens};
  const models::BatchShape eval{spec.eval_batch > 0 ? spec.eval_batch : spec.batch.micro_batch, spec.tokens};
  const std::int64_t rows = std::max(train.batch, eval.batch);
  const std::size_t element = size_of(model.dtype);
  const auto boundary = [&](std::int64_t batch) { return static_cast<std::size_t>(batch * spec.tokens * model.hidden) * element; };
  const int last = static_cast<int>(model.modules.size()) - 1;

  std::vector<ArenaSlot> slots;
  for (int i = 0; i < last; ++i)  // forward passes alone take turns in the first two
    slots.push_back({boundary_name(i), Category::activations, Placement::own, boundary(i < 2 ? rows : train.batch)});
  for (int i = 0; i <= last; ++i) {
    const std::size_t bytes = model.modules[static_cast<std::size_t>(i)]->saved_bytes(train, model.dtype);
    if (bytes == 0) continue;
    const std::string name = saved_name(schedule, i);
    const auto same = std::find_if(slots.begin(), slots.end(), [&](const ArenaSlot& s) { return s.name == name; });
    if (same == slots.end())
      slots.push_back({name, Category::activations, Placement::own, bytes});
    else
      same->bytes = std::max(same->bytes, bytes);
  }
  slots.push_back({gradient_name, Category::activations, Placement::own, boundary(train.batch)});

  std::size_t workspace = 0;
  for (const auto& module : model.modules)
    workspace = std::max({workspace, module->workspace_bytes(train, model.dtype, models::Phase::train),
                          module->workspace_bytes(eval, model.dtype, models::Phase::eval),
                          module->workspace_bytes({1, spec.tokens}, model.dtype, models::Phase::logits)});
  const auto words = static_cast<std::size_t>(rows * spec.tokens) * sizeof(std::int32_t);
  slots.push_back({workspace_name, Category::buffers, Placement::own, workspace});
  slots.push_back({ids_name, Category::buffers, Placement::own, words});
  slots.push_back({targets_name, Category::buffers, Placement::own, words});
  if (spec.packed) slots.push_back({positions_name, Category::buffers, Placement::own, words});
  slots.push_back({logits_name, Category::buffers, Placement::own, static_cast<std::size_t>(model.vocab) * size_of(stat_dtype(model.dtype))});
  if (const auto statistics = static_cast<std::size_t>(model.router.layers * 2 * model.router.experts); statistics > 0)
    slots.push_back({router_name, Category::buffers, Placement::own, statistics * sizeof(double)});
  return slots;
}

}  // namespace tessera::plan
