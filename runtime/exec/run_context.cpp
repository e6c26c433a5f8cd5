// SPDX-License-Identifier: Apache-2.0
#include "runtime/exec/run_context.hpp"

#include <algorithm>

#include "io/scratch/scratch_memory.hpp"
#include "kernels/convert.hpp"
#include "kernels/init.hpp"
#include "kernels/quantize.hpp"
#include "runtime/base/disk_memory.hpp"
#include "runtime/base/transfer.hpp"
#include "runtime/plan/fingerprint.hpp"

namespace tessera::exec {

RunContext::RunContext(World& world_, const plan::RunSpec& spec, const std::string& agreed,
                       const RunTestHooks& test_hooks)
    : world(world_),
      plan(make_plan(spec, agreed, test_hooks)),
      communicators(make_communicators()),
      arena(make_arena()),
      manager({.layout = &plan.layout,
               .train = &plan.main(),
               .groups = &plan.groups,
               .communicators = communicators,
               .arena = arena.get(),
               .rank = world.rank(),
               .states = plan.spec.states,
               .num_extra = spec.model->num_extra_sums(),
               .device = plan.spec.device}) {}

plan::RunPlan RunContext::make_plan(plan::RunSpec spec, const std::string& agreed, const RunTestHooks& test_hooks) {
  spec.rank = world.rank();
  spec.topology = world.topology();
  spec.device = world.device();
  plan::RunPlan result = plan::make_plan(spec);
  for (auto& slot : result.slots)
    if (slot.name == test_hooks.resized_slot) slot.bytes += static_cast<std::size_t>(test_hooks.resize);
  world.require_equal("the configuration", plan::fingerprint(result) + agreed);
  return result;
}

std::vector<std::unique_ptr<Communicator>> RunContext::make_communicators() {
  std::vector<std::unique_ptr<Communicator>> made;
  for (const AxisSet axes : plan.groups.all)
    abort_on_error(0, [&] { made.push_back(world.communicator(plan.spec.strategy.mesh, axes)); });
  return made;
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
            plan.spec.device, [this](const std::vector<ArenaSlot>& slots) { return on_disk(slots); });
      });
    if (turns > 1) world.barrier();
  }
  return made;
}

/// "state.exp_avg.h.3", "master.h.3": the states of a unit, in this rank's scratch file.
std::unique_ptr<DiskMemory> RunContext::on_disk(const std::vector<ArenaSlot>& slots) {
  io::ScratchStore::Spec spec{.directory = plan.spec.nvme_path, .rank = world.rank()};
  for (const ArenaSlot& slot : slots) {
    const std::string& unit = plan.layout.unit_name(slot.id.of);
    spec.regions.push_back({unit, slot.name.substr(0, slot.name.size() - unit.size() - 1), slot.bytes});
  }
  auto memory = std::make_unique<io::ScratchMemory>(std::move(spec));
  scratch = &memory->store();
  return memory;
}

std::byte* RunContext::share(const ArenaSlot& slot, std::size_t bytes) {
  Communicator& group = *communicators[static_cast<std::size_t>(slot.group)];
  const SharedRegion region = group.share(bytes);
  TESSERA_ASSERT(region, "no shared memory for %s", slot.name.c_str());
  return slot.placement == Placement::node
             ? region.base
             : region.base + static_cast<std::size_t>(group.rank() - region.first) * bytes;
}

int RunContext::data_rank() const { return plan.spec.strategy.mesh.coordinate(world.rank(), Mesh::data_axes()); }

SampleBatches::Context RunContext::context() const {
  const Mesh& mesh = plan.spec.strategy.mesh;
  return {plan.spec.model->context, mesh.coordinate(world.rank(), Axis::context), plan.spec.tensor_ranks(),
          mesh.coordinate(world.rank(), Axis::tensor)};
}

namespace {

/// Initial values from element `first` on, made in host memory and rounded to what the parameter is kept in.
void initialize_on_host(const ParamSpec& param, std::uint64_t seed, std::int64_t first, const TensorView& to) {
  constexpr auto most = static_cast<std::int64_t>(host_staging_bytes / sizeof(float));
  std::vector<float> values(static_cast<std::size_t>(std::min(most, to.numel())));
  std::vector<std::byte> rounded(values.size() * size_of(to.dtype));
  for (std::int64_t done = 0; done < to.numel(); done += most) {
    const TensorView rows = to.rows(done, std::min(most, to.numel() - done));
    kernels::initialize(param, seed, first + done, rows.numel(), values.data(), host_stream);
    const void* made = values.data();
    if (rows.dtype != DType::f32) {
      kernels::convert({.from = {values.data(), rows.shape}, .to = {rounded.data(), rows.dtype, rows.shape}},
                       host_stream);
      made = rounded.data();
    }
    copy_now(rows.device, rows.data, made, rows.nbytes());
  }
}

/// The same of a quantized matrix: bytes from `first` on of the matrix with these initial values.
void initialize_quantized(const ParamSpec& param, std::uint64_t seed, std::int64_t first, const TensorView& to) {
  kernels::Quantizer quantizer(param.quantized, [&](std::int64_t element, std::int64_t count, float* values) {
    kernels::initialize(param, seed, element, count, values, host_stream);
  });
  std::vector<std::byte> bytes(std::min(to.nbytes(), host_staging_bytes));
  for (std::int64_t done = 0; done < to.numel(); done += static_cast<std::int64_t>(bytes.size())) {
    const TensorView rows = to.rows(done, std::min(static_cast<std::int64_t>(bytes.size()), to.numel() - done));
    quantizer.read(first + done, std::span(bytes).first(rows.nbytes()));
    copy_now(rows.device, rows.data, bytes.data(), rows.nbytes());
  }
}

}  // namespace

void RunContext::initialize(std::uint64_t seed, Initialized which) {
  const auto& layout = plan.layout;
  for (int u = 0; u < layout.num_units(); ++u) {
    const int shard = layout.shard_of(u, world.rank());
    for (const auto& segment : layout.whole_segments(u, shard, layout.part_of(u, world.rank()))) {
      const ParamSpec& param = plan.spec.model->params[static_cast<std::size_t>(segment.param)];
      if (which == Initialized::adapters && !param.adapter && segment.param != plan.spec.model->score) continue;
      const TensorView to = manager.shard(u).rows(segment.unit_offset - shard * layout.shard_numel(u), segment.length);
      const bool host_only = param.init.kind == Initializer::Kind::uniform || to.device == disk_device;
      if (param.quantized) initialize_quantized(param, seed, segment.param_offset, to);
      else if (to.dtype == DType::f32 && (to.device == host_device || !host_only))
        kernels::initialize(param, seed, segment.param_offset, segment.length, to.as<float>(),
                            to.device == host_device ? host_stream : manager.stream());
      else initialize_on_host(param, seed, segment.param_offset, to);
    }
  }
}

std::vector<io::ShardView> RunContext::shards(Units which) {
  const auto own = static_cast<int>(plan.spec.model->own_params().size());
  std::vector<io::ShardView> views;
  for (int u = 0; u < plan.layout.num_units(); ++u)
    if ((plan.units[static_cast<std::size_t>(u)].params.front() >= own) == (which == Units::reference))
      views.push_back(
          {u, plan.layout.shard_of(u, world.rank()), manager.shard(u), plan.layout.part_of(u, world.rank())});
  return views;
}

MemoryTable RunContext::measure_memory() const {
  MemoryTable table = arena->measure();
  const Memory memory = plan.spec.topology.transport == Transport::nccl ? Memory::device : Memory::host;
  for (const auto& group : communicators) table.add(memory, Category::comm, group->own_memory());
  return table;
}

TrafficCount RunContext::exchange_traffic(AxisSet axes) const {
  const int group = plan.groups.exchange_index_of(axes);
  return group < 0 ? TrafficCount{} : communicators[static_cast<std::size_t>(group)]->traffic();
}

TrafficCount RunContext::traffic(AxisSet axes) const {
  const int group = plan.groups.index_of(axes);
  return group < 0 ? TrafficCount{} : communicators[static_cast<std::size_t>(group)]->traffic();
}

}  // namespace tessera::exec
