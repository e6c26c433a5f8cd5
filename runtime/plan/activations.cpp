// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/activations.hpp"

#include <algorithm>

#include "models/attention.hpp"
#include "runtime/shard/manager.hpp"
#include "runtime/shard/memory.hpp"

namespace tessera::plan {

static ArenaSlot own_slot(SlotId id, std::string name, Category category, std::size_t bytes,
                          Memory memory = Memory::host) {
  return {id, std::move(name), category, Placement::own, bytes, memory};
}

static ArenaSlot output_slot(int number, std::size_t bytes) {
  return own_slot({SlotUse::output, number}, "x." + std::to_string(number), Category::activations, bytes);
}

/// What forward of a module keeps for backward, in memory of its own.
static std::size_t kept_bytes(const RunSpec& spec, const shard::ModuleUse& use, int module,
                              const models::BatchShape& shape) {
  const models::SavedBytes parts =
      spec.model->modules[static_cast<std::size_t>(module)]->split_saved_bytes(shape, spec.model->dtype);
  const shard::Recompute recompute = spec.strategy.policy.recompute;
  if (!use.recomputable || !recomputes(recompute)) return parts.total();
  return recompute == shard::Recompute::selective && parts.split() ? parts.kept : 0;
}

static std::size_t boundary_bytes(const RunSpec& spec, std::int64_t tokens) {
  return static_cast<std::size_t>(tokens * spec.model->hidden) * size_of(spec.model->dtype);
}

/// The same in the first two slots, which a reference model uses, too.
static std::size_t shared_boundary_bytes(const RunSpec& spec, std::int64_t tokens) {
  const std::int64_t hidden = std::max(spec.model->hidden, spec.model->reference_hidden);
  return static_cast<std::size_t>(tokens * hidden) * size_of(spec.model->dtype);
}

void mark_saved(const RunSpec& spec, std::vector<shard::ModuleUse>& modules) {
  const models::Model& model = *spec.model;
  const models::BatchShape shape = spec.train_shape();
  for (std::size_t m = 0; m < modules.size(); ++m) {
    const std::size_t kept = kept_bytes(spec, modules[m], static_cast<int>(m), shape);
    modules[m].saves = kept > 0;
    modules[m].saves_again = model.modules[m]->split_saved_bytes(shape, model.dtype).total() > kept;
    modules[m].offloads = spec.strategy.policy.activations != shard::Tier::device && model.is_block(m);
  }
}

SlotId offloaded_slot(const shard::Instruction& instruction) {
  return {SlotUse::offloaded, instruction.module, static_cast<int>(instruction.state)};
}

std::size_t moved_activation_bytes(const RunSpec& spec, const shard::Schedule& train,
                                   const shard::Instruction& instruction, const models::BatchShape& shape) {
  if (instruction.state == shard::StateKind::input) return boundary_bytes(spec, shape.batch * shape.tokens);
  return kept_bytes(spec, train.use_of(instruction), instruction.module, shape);
}

/// Staging slots, and what is in host memory.
static void offloaded_slots(const RunSpec& spec, const shard::Schedule& train, std::int64_t most_tokens,
                            std::vector<ArenaSlot>& slots) {
  const models::BatchShape shape = spec.train_shape();
  std::size_t most_saved = 0;
  for (std::size_t m = 0; m < train.modules.size(); ++m)
    if (train.modules[m].saves && train.modules[m].offloads)
      most_saved = std::max(most_saved, kept_bytes(spec, train.modules[m], static_cast<int>(m), shape));
  for (int k = 0, inputs = 0; k < static_cast<int>(train.slots.size()); ++k) {
    const shard::Slot& slot = train.slots[static_cast<std::size_t>(k)];
    if (slot.kind != shard::Slot::Kind::stage || !is_activation(slot.state)) continue;
    const bool input = slot.state == shard::StateKind::input;
    const std::size_t bytes =
        inputs < 2 ? shared_boundary_bytes(spec, most_tokens) : boundary_bytes(spec, shape.batch * shape.tokens);
    inputs += input ? 1 : 0;
    const SlotId id = shard::slot_id(train, k);
    slots.push_back(input ? output_slot(id.of, bytes)
                          : own_slot(id, "saved.s" + std::to_string(id.of), Category::activations, most_saved));
  }
  for (const shard::Instruction& in : train.list)
    if (in.op == shard::Op::store && is_activation(in.state) && in.micro == 0)
      slots.push_back(own_slot(offloaded_slot(in),
                               std::string("host.") + shard::name_of(in.state) + "." + train.use_of(in).name,
                               Category::activations, moved_activation_bytes(spec, train, in, shape), Memory::pinned));
}

bool has_field(const RunSpec& spec, models::BatchField field) {
  switch (field) {
    case models::BatchField::ids: return true;
    case models::BatchField::targets: return spec.purpose != Purpose::generate;
    case models::BatchField::positions:
      return spec.packed || (spec.row_ranks() > 1 && spec.purpose != Purpose::generate);
    case models::BatchField::row_positions: return spec.packed && spec.row_ranks() > 1;
    case models::BatchField::part_positions:
      return spec.context_ranks() > 1 && spec.tensor_ranks() > 1 && spec.purpose != Purpose::generate;
    case models::BatchField::part_ids:
    case models::BatchField::part_targets: return spec.tensor_ranks() > 1 && spec.purpose != Purpose::generate;
    case models::BatchField::loss_weights: return spec.loss_weights;
    case models::BatchField::reference_sums: return spec.reference_sums;
    case models::BatchField::sequence_ends:
      return spec.flat_tokens > 0 && (spec.model->num_metrics > 0 || spec.model->writes_sequences);
    case models::BatchField::labels:
    case models::BatchField::kl: return spec.labels && spec.purpose != Purpose::generate;
    case models::BatchField::margins: return spec.margins && spec.purpose != Purpose::generate;
    case models::BatchField::nll_weights: return spec.nll_weights && spec.purpose == Purpose::train;
    case models::BatchField::document_starts:
    case models::BatchField::document_lengths:
      return spec.packed && spec.purpose == Purpose::train &&
             models::wants_document_list(spec.model->dtype, spec.device);
  }
  return false;
}

/// Slots of a micro-batch of so many sequences, and tokens of this rank in all.
static void batch_slots(const RunSpec& spec, std::size_t sequences, std::size_t tokens, std::vector<ArenaSlot>& slots) {
  if (!spec.model->reference.empty() && spec.purpose != Purpose::generate)
    slots.push_back(own_slot({SlotUse::reference}, "reference", Category::buffers, tokens * sizeof(float)));
  for (const models::BatchFieldInfo& field : models::batch_fields) {
    if (!has_field(spec, field.field)) continue;
    const std::size_t of = field.per == models::BatchFieldInfo::Per::sequence ? sequences : 1;
    const std::int64_t numel =
        field.numel(static_cast<std::int64_t>(of), static_cast<std::int64_t>(tokens), spec.row_sharing());
    slots.push_back(own_slot(batch_slot(field.field), field.name, Category::buffers,
                             static_cast<std::size_t>(numel) * size_of(field.dtype)));
  }
  if (spec.model->writes_sequences)
    slots.push_back(own_slot({SlotUse::sequences}, "sequence_values", Category::buffers,
                             static_cast<std::size_t>(spec.batch.accumulation) * sequences * sizeof(double)));
}

/// The largest workspace of a reference model's modules; 0 without one.
static std::size_t reference_workspace(const models::Model& model, const models::BatchShape& shape) {
  std::size_t bytes = 0;
  for (const auto& module : model.reference)
    bytes = std::max(bytes, module->workspace_bytes(shape, model.dtype, models::Phase::eval));
  return bytes;
}

std::size_t dequantized_bytes(const models::Model& model, int param) {
  constexpr std::size_t alignment = 256;
  const QuantizedMatrix& matrix = model.params[static_cast<std::size_t>(param)].quantized;
  const std::size_t bytes = static_cast<std::size_t>(matrix.numel()) * size_of(model.dtype);
  return (bytes + alignment - 1) / alignment * alignment;
}

/// The workspace of the module that has the most of them; no slot if no parameter is quantized.
static void dequantized_slot(const models::Model& model, std::vector<ArenaSlot>& slots) {
  std::size_t most = 0;
  for (const auto* list : {&model.modules, &model.reference})
    for (const auto& module : *list) {
      std::size_t bytes = 0;
      for (const int param : module->params()) bytes += dequantized_bytes(model, param);
      most = std::max(most, bytes);
    }
  if (most > 0) slots.push_back(own_slot({SlotUse::dequantized}, "dequantized", Category::buffers, most));
}

std::vector<ArenaSlot> inference_slots(const RunSpec& spec) {
  const models::Model& model = *spec.model;
  const bool generates = spec.purpose == Purpose::generate;
  const models::BatchShape pass = spec.eval_shape();
  const models::CacheShape cached{pass.batch, spec.cache_tokens};
  models::BatchShape decode = pass;
  decode.tokens = 1;
  const models::Phase phase = generates ? models::Phase::logits : models::Phase::eval;
  const auto tokens = static_cast<std::size_t>(pass.batch * pass.tokens);
  const int modules = static_cast<int>(model.modules.size());
  const int longest = static_cast<int>(std::max(model.modules.size(), model.reference.size()));

  std::vector<ArenaSlot> slots;
  for (int i = 0; i < std::min(2, longest - 1); ++i)
    slots.push_back(output_slot(i, shared_boundary_bytes(spec, pass.batch * pass.tokens)));
  std::size_t workspace = generates ? 0 : reference_workspace(model, pass);
  for (const auto& module : model.modules) {
    workspace = std::max(workspace, module->workspace_bytes(pass, model.dtype, phase));
    if (generates) workspace = std::max(workspace, module->workspace_bytes(decode, model.dtype, phase));
  }
  for (int i = 0; generates && i < modules; ++i)
    if (const std::size_t bytes = model.modules[static_cast<std::size_t>(i)]->cache_bytes(cached, model.dtype);
        bytes > 0)
      slots.push_back(own_slot({SlotUse::cache, i}, "cache." + model.modules[static_cast<std::size_t>(i)]->name(),
                               Category::activations, bytes));
  slots.push_back(own_slot({SlotUse::workspace}, "workspace", Category::buffers, workspace));
  dequantized_slot(model, slots);
  batch_slots(spec, static_cast<std::size_t>(spec.eval_sequences()), tokens, slots);
  if (generates)
    slots.push_back(own_slot({SlotUse::logits}, "logits", Category::buffers,
                             static_cast<std::size_t>(pass.batch * model.vocab) * size_of(stat_dtype(model.dtype))));
  return slots;
}

std::vector<ArenaSlot> activation_slots(const RunSpec& spec, const shard::Schedule& schedule) {
  const models::Model& model = *spec.model;
  const models::BatchShape train = spec.train_shape(), eval = spec.eval_shape();
  const std::int64_t trained = train.batch * train.tokens,
                     // Of which each rank has all; ranks that share rows generate nothing.
      prompt = spec.tensor_ranks() > 1 && spec.context_ranks() == 1 ? spec.tokens : 0,
                     most = std::max({trained, eval.batch * eval.tokens, prompt});
  const auto boundary = [&](std::int64_t tokens) { return boundary_bytes(spec, tokens); };
  const int last = static_cast<int>(model.modules.size()) - 1;

  std::vector<ArenaSlot> slots;
  const int first = first_backward(schedule.modules);
  // Evaluation, generation and a reference model use the first two alternately.
  const int reference_last = static_cast<int>(model.reference.size()) - 1;
  if (schedule.offloads_activations) offloaded_slots(spec, schedule, most, slots);
  for (int i = 0; i < std::max(last, std::min(2, reference_last)) && !schedule.offloads_activations; ++i)
    if (i < 2 ||
        std::ranges::find(schedule.slots, SlotId{SlotUse::output, i}, &shard::Slot::id) != schedule.slots.end())
      slots.push_back(output_slot(i, i < 2 ? shared_boundary_bytes(spec, most) : boundary(trained)));
  for (int i = first; i <= last; ++i) {
    const shard::ModuleUse& use = schedule.modules[static_cast<std::size_t>(i)];
    const std::size_t kept = kept_bytes(spec, use, i, train);
    if (use.saves && !use.offloads)
      slots.push_back(own_slot({SlotUse::saved, i}, "saved." + use.name, Category::activations, kept));
    if (!use.saves_again) continue;
    const std::size_t bytes =
        model.modules[static_cast<std::size_t>(i)]->split_saved_bytes(train, model.dtype).total() - kept;
    const auto same = std::ranges::find(slots, SlotId{SlotUse::recomputed}, &ArenaSlot::id);
    if (same == slots.end())
      slots.push_back(own_slot({SlotUse::recomputed}, "saved.recomputed", Category::activations, bytes));
    else same->bytes = std::max(same->bytes, bytes);
  }
  if (first < last)  // else no module gives a gradient to one before it
    slots.push_back(own_slot({SlotUse::output_gradient}, "dx", Category::activations, boundary(trained)));

  models::BatchShape evaluated = train;
  evaluated.saves_outputs = false;
  std::size_t workspace = std::max(reference_workspace(model, evaluated), reference_workspace(model, eval));
  for (int i = 0; i <= last; ++i) {
    const models::Module& module = *model.modules[static_cast<std::size_t>(i)];
    // Modules without a backward evaluate.
    workspace = std::max({workspace,
                          i < first ? module.workspace_bytes(evaluated, model.dtype, models::Phase::eval)
                                    : module.workspace_bytes(train, model.dtype, models::Phase::train),
                          module.workspace_bytes(eval, model.dtype, models::Phase::eval)});
    if (spec.context_ranks() == 1 && model.score < 0)
      workspace = std::max(workspace, module.workspace_bytes(spec.prompt_shape(), model.dtype, models::Phase::logits));
  }
  slots.push_back(own_slot({SlotUse::workspace}, "workspace", Category::buffers, workspace));
  dequantized_slot(model, slots);
  batch_slots(spec, static_cast<std::size_t>(std::max(spec.train_sequences(), spec.eval_sequences())),
              static_cast<std::size_t>(most), slots);
  if (model.score < 0)
    slots.push_back(own_slot({SlotUse::logits}, "logits", Category::buffers,
                             static_cast<std::size_t>(model.vocab) * size_of(stat_dtype(model.dtype))));
  if (const auto statistics = static_cast<std::size_t>(model.router.num_statistics()); statistics > 0)
    slots.push_back(own_slot({SlotUse::router}, "router", Category::buffers,
                             (statistics + (spec.row_ranks() > 1 ? 2 : 0)) * sizeof(double)));
  return slots;
}

void place_on_device(const RunSpec& spec, int num_units, std::vector<ArenaSlot>& slots) {
  std::vector<ArenaSlot> more;
  const auto add_pinned = [&](SlotId id, const std::string& name, std::size_t bytes) {
    more.push_back(own_slot(id.pinned(), "pinned." + name, Category::buffers, bytes, Memory::pinned));
  };
  const auto both = [&](SlotId id, const std::string& name, std::size_t device_bytes, std::size_t pinned_bytes) {
    more.push_back(own_slot(id, name, Category::buffers, device_bytes, Memory::device));
    add_pinned(id, name, pinned_bytes);
  };
  for (ArenaSlot& slot : slots) {
    if (slot.placement != Placement::own || slot.memory == Memory::pinned || slot.memory == Memory::disk) continue;
    slot.memory = slot.id.use == SlotUse::staging ? Memory::pinned : Memory::device;
    // Every micro-batch of a step has its own token buffers: the host writes them without waiting for the one before.
    const bool is_field = slot.id.use == SlotUse::batch;
    if (is_field && spec.purpose == Purpose::train) slot.bytes *= static_cast<std::size_t>(spec.batch.accumulation);
    if (is_field || slot.id.use == SlotUse::logits) add_pinned(slot.id, slot.name, slot.bytes);
  }
  if (spec.purpose == Purpose::generate) {  // decode passes give the positions of their tokens, and choose the next
    const auto rows = static_cast<std::size_t>(spec.batch.micro_batch) * sizeof(std::int32_t);
    both(batch_slot(models::BatchField::positions), "positions", rows, rows);
    both({SlotUse::chosen}, "chosen", rows, rows);
    both({SlotUse::draws}, "draws", 2 * rows, 2 * rows);
  }
  const std::size_t counters = shard::ShardManager::num_norm_counters(num_units, spec.model->num_extra_sums());
  both({SlotUse::norm}, "norm", (counters + 2 * ExactSum::num_counters) * sizeof(std::int64_t),
       (counters + shard::ShardManager::num_step_counters) * sizeof(std::int64_t));
  if (spec.purpose == Purpose::train) both({SlotUse::step}, "step", shard::step_bytes, shard::step_bytes);
  more.push_back(own_slot({SlotUse::gemm_workspace}, "gemm_workspace", Category::buffers, shard::gemm_workspace_bytes,
                          Memory::device));
  slots.insert(slots.end(), more.begin(), more.end());
}

}  // namespace tessera::plan
