#include "runtime/train/run_context.hpp"

#include "kernels/init.hpp"

namespace tessera::train {

namespace {

/// What must be equal on all ranks, as text.
std::string fingerprint(const plan::RunPlan& plan) {
  const auto& spec = plan.spec;
  const shard::ShardPolicy& policy = spec.strategy.policy;
  std::string text = strfmt("mesh %s, parameters %s, gradients %s, collectives", spec.strategy.mesh.str().c_str(),
                            name_of(policy.param_dtype), name_of(policy.reduce_dtype));
  for (const auto* schedule : plan.schedules()) text += strfmt(" %016lx", shard::collective_hash(*schedule));
  text += strfmt(", G %ld B %ld T %ld E %ld cache %ld, ", spec.batch.global_batch, spec.batch.micro_batch, spec.tokens,
                 spec.eval_batch, spec.cache_tokens);
  if (spec.packed) text += "packed, ";
  for (const auto& param : spec.model->params) text += param.name + param.shape.str() + " ";
  return text;
}

}  // namespace

RunContext::RunContext(World& world_, const plan::RunSpec& spec, const std::string& agreed,
                       const RunTestHooks& test_hooks)
    : world(world_),
      plan(make_plan(spec, agreed, test_hooks)),
      shard_axis(communicator(Axis::shard, test_hooks.delay)),
      replicate_axis(communicator(Axis::replicate, test_hooks.delay)),
      arena(make_arena()),
      manager({&plan.layout, &plan.main(), shard_axis.get(), replicate_axis.get(), arena.get(),
               plan.spec.strategy.mesh.coordinate(world.rank(), Axis::shard),
               spec.purpose == plan::Purpose::train ? 2 : 0, spec.model->router.num_losses(), plan.spec.device}) {}

plan::RunPlan RunContext::make_plan(plan::RunSpec spec, const std::string& agreed, const RunTestHooks& test_hooks) {
  spec.rank = world.rank();
  spec.topology = world.topology();
  spec.device = world.device();
  plan::RunPlan result = plan::make_plan(spec);
  for (auto& slot : result.slots)
    if (slot.name == test_hooks.resized_slot) slot.bytes += static_cast<std::size_t>(test_hooks.resize);
  world.require_equal("the configuration", fingerprint(result) + agreed);
  return result;
}

std::unique_ptr<Communicator> RunContext::communicator(Axis axis, const Delay& d) {
  if (plan.spec.strategy.mesh.size(axis) == 1) return nullptr;
  std::unique_ptr<Communicator> inner;
  abort_on_error(0, [&] { inner = world.communicator(plan.spec.strategy.mesh, axis); });
  const bool slow = d.gather_s > 0 || d.reduce_s > 0 || d.norm_s > 0 || d.per_byte_s > 0 || d.disturb;
  return slow ? delayed(std::move(inner), d) : std::move(inner);
}

/// The allocation may fail on one rank or on one node alone. Ranks that may share a device allocate one after another,
/// so that each measures its own memory.
std::unique_ptr<Arena> RunContext::make_arena() {
  std::unique_ptr<Arena> made;
  const bool share_device = plan.spec.device != host_device && plan.spec.topology.staged;
  const int turns = share_device ? plan.spec.topology.ranks_per_node : 1;
  for (int turn = 0; turn < turns; ++turn) {
    if (world.rank() % turns == turn)
      abort_on_error(0, [&] {
        made = std::make_unique<Arena>(
            plan.slots, [this](const ArenaSlot& slot, std::size_t bytes) { return share(slot, bytes); },
            plan.spec.device);
      });
    if (turns > 1) world.barrier();
  }
  return made;
}

std::byte* RunContext::share(const ArenaSlot& slot, std::size_t bytes) {
  Communicator& axis = shard_axis ? *shard_axis : *replicate_axis;
  const SharedRegion region = axis.share(bytes);
  TESSERA_ASSERT(region, "no shared memory for %s", slot.name.c_str());
  return slot.placement == Placement::node ? region.base
                                           : region.base + static_cast<std::size_t>(axis.rank() - region.first) * bytes;
}

/// Row-major over the mesh axes.
int RunContext::data_rank() const {
  const Mesh& mesh = plan.spec.strategy.mesh;
  return mesh.coordinate(world.rank(), Axis::replicate) * mesh.size(Axis::shard) +
         mesh.coordinate(world.rank(), Axis::shard);
}

void RunContext::initialize(std::uint64_t seed) {
  const auto& layout = plan.layout;
  const int shard = plan.spec.strategy.mesh.coordinate(world.rank(), Axis::shard);
  for (int u = 0; u < layout.num_units(); ++u)
    for (const auto& segment : layout.segments(u, shard))
      kernels::initialize(plan.spec.model->params[static_cast<std::size_t>(segment.param)], seed, segment.param_offset,
                          segment.length, manager.master(u) + (segment.unit_offset - shard * layout.shard_numel(u)),
                          manager.stream());
}

std::vector<io::ShardView> RunContext::shards() {
  std::vector<io::ShardView> views;
  const int shard = plan.spec.strategy.mesh.coordinate(world.rank(), Axis::shard);
  for (int u = 0; u < plan.layout.num_units(); ++u) views.push_back({u, shard, manager.shard(u)});
  return views;
}

std::span<std::byte> RunContext::slot_memory(const char* slot) {
  for (const ArenaSlot& s : plan.slots)
    if (s.name == slot) return {arena->data(s.name), s.bytes};
  return {};
}

MemoryTable RunContext::measure_memory() const {
  MemoryTable table = arena->measure();
  const Memory memory = plan.spec.topology.transport == Transport::nccl ? Memory::device : Memory::host;
  for (const auto* axis : {&shard_axis, &replicate_axis})
    if (*axis) table.add(memory, Category::comm, (*axis)->own_memory());
  return table;
}

TrafficCount RunContext::traffic(Axis axis) const {
  const auto& communicator = axis == Axis::shard ? shard_axis : replicate_axis;
  return communicator ? communicator->traffic() : TrafficCount{};
}

}  // namespace tessera::train
