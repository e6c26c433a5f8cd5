// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/inference.hpp"

#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/lora.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/quantization.hpp"
#include "jobs/cli/session/resources.hpp"
#include "jobs/cli/session/strategy.hpp"
#include "jobs/cli/session/versions.hpp"
#include "jobs/cli/session/weights.hpp"
#include "kernels/threads.hpp"
#include "models/wrappers.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

plan::RunSpec inference_spec(const Options& options, const models::Model& model, int world, const Topology& topology,
                             plan::Purpose purpose, std::int64_t most) {
  plan::RunSpec spec;
  spec.purpose = purpose;
  spec.model = &model;
  spec.strategy = strategy_of(options, world, topology.ranks_per_node);
  spec.strategy.policy.param_dtype = model.dtype;
  spec.strategy.policy.reduce_dtype = DType::f32;  // nothing is reduced
  spec.strategy.policy.compression = {};
  if (options.has("nvme_path")) spec.nvme_path = options.text("nvme_path");
  spec.topology = topology;
  const std::int64_t rows = std::min(eval_rows_of(options), most);
  const int data_ranks = spec.strategy.mesh.size(Mesh::data_axes());
  spec.batch = {.global_batch = rows * data_ranks, .micro_batch = rows, .data_ranks = data_ranks, .accumulation = 1};
  return spec;
}

models::Model make_evaluated_model(const Options& options, const ModelConfig& config) {
  models::Model model = make_inference_model(options, config, precision_of(options).compute);
  // There are no master weights: parameters are stored in the type in which they are computed with.
  for (ParamSpec& param : model.params) param.storage_dtype = model.dtype;
  quantize_base(model, options, config.text, config.path, /*trains=*/false);
  return model;
}

namespace {

const char* where_parameters_are(const plan::RunPlan& plan) {
  if (plan.layout.num_shards(0) == 1) return "unsharded";
  if (plan.main().units.front().params_in_place) return "read in place";
  return plan.main().units.front().params_resident ? "gathered once" : "gathered for every pass";
}

}  // namespace

std::unique_ptr<infer::Inference> load_inference(const Options& options, World& world, const ModelConfig& config,
                                                 const models::Model& model, const plan::RunSpec& spec) {
  plan::RunSpec here = spec;
  here.device = world.device();
  require_fit(options, world, plan::make_plan(here),
              "Lower per_device_eval_batch_size or the length, or shard more (--zero_stage 3, more ranks)");
  const double nll = learns_preferences(options) ? preference_spec(options).nll : 0.0;
  auto run = std::make_unique<infer::Inference>(world, infer::InferenceOptions{.run = spec, .nll_weight = nll});
  const std::vector<io::ShardView> shards = run->shards();
  read_weights(world, config.directory,
               {.model = &model, .layout = &run->plan().layout, .shards = shards, .threads = kernels::threads()});
  if (options.has("adapters")) read_adapter(world, config.adapter.directory, {&model, &run->plan().layout, shards});
  read_reference(world, options, config, run->plan(), run->reference_shards());
  run->parameters_loaded();
  if (options.flag("werror") && world.max(log::warnings()) > 0)
    throw options.refuse("werror", "a warning was printed", "Fix what it names, or drop --werror");
  return run;
}

infer::Sampling sampling_of(const Options& options) {
  const infer::Sampling sampling{.temperature = options.real("temperature"),
                                 .top_k = options.integer("top_k"),
                                 .top_p = options.real("top_p"),
                                 .repetition_penalty = options.real("repetition_penalty"),
                                 .seed = static_cast<std::uint64_t>(options.integer("seed"))};
  for (const char* name : {"top_k", "top_p"})
    if (sampling.temperature == 0 && options.given(name))
      log::warn(24, options.no_effect(name, "temperature 0 takes the most likely token"));
  return sampling;
}

void announce_inference(const InferenceStart& start) {
  const World& world = *start.world;
  const infer::Inference& run = *start.run;
  const plan::RunPlan& plan = run.plan();
  const models::Model& model = *plan.spec.model;
  log::info(version_line());
  log::info(strfmt("model     %s %s | %s parameters | vocabulary %ld | %ld positions", model.family.c_str(),
                   start.config->path.c_str(), human_count(model.num_params()).c_str(), model.vocab, model.max_tokens) +
            model.limit_note());
  if (models::is_text_part(model.family)) log::info("model     the text part of " + model.family + " alone");
  log::info(std::string("precision ") + name_of(model.dtype) + " | " + precision_source(*start.options));
  log::info(strfmt("parallel  %s %s | %d rank%s on %d node%s | transport %s | %d thread%s per rank | parameters %s",
                   plan.spec.strategy.name.c_str(), plan.spec.strategy.mesh.str().c_str(), world.size(),
                   world.size() == 1 ? "" : "s", world.node_count(), world.node_count() == 1 ? "" : "s",
                   name_of(plan.spec.topology.transport), start.threads.threads, start.threads.threads == 1 ? "" : "s",
                   where_parameters_are(plan)));
  log::info("work      " + start.work);
  warn_of_unplanned_memory(plan, run.measured_memory());
  std::size_t cache = 0;
  const MemoryTable measured = run.measured_memory();
  for (const ArenaSlot& slot : plan.slots) cache += slot.id.use == SlotUse::cache ? slot.bytes : 0;
  std::string line = "memory    per rank";
  for (int c = 0; c < plan::num_categories; ++c) {
    const std::size_t bytes = measured.by_category[c];
    if (bytes > 0)
      line += strfmt(" | %s %s", plan::name_of(static_cast<plan::Category>(c)), human_bytes(bytes).c_str());
  }
  if (cache > 0) line += strfmt(" (keys and values %s)", human_bytes(cache).c_str());
  log::info(line + strfmt(" | plan %s, measured %s", human_bytes(plan.costs.total).c_str(),
                          human_bytes(measured.total()).c_str()));
  log::info(strfmt("ready     %.2f s after the start",
                   std::chrono::duration<double>(std::chrono::steady_clock::now() - start.call->started).count()));
}

}  // namespace tessera::jobs
