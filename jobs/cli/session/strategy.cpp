// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/strategy.hpp"

#include <algorithm>

#include "jobs/cli/session/precision.hpp"
#include "runtime/shard/context.hpp"
#include "runtime/shard/tensor.hpp"

namespace tessera::jobs {

namespace {

std::vector<shard::UnitStrategy> unit_strategies_of(const Options& options) {
  std::vector<shard::UnitStrategy> strategies;
  for (const std::string& item : options.list("unit_strategy")) {
    const std::size_t equals = item.rfind('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == item.size())
      throw options.refuse("unit_strategy", "'" + item + "' is not of the form GLOB=STRATEGY",
                           "Write, for example, --unit_strategy 'embed=NO_SHARD' 'layers.*=FULL_SHARD'");
    strategies.push_back({item.substr(0, equals), item.substr(equals + 1)});
  }
  return strategies;
}

shard::WrapPolicy wrap_policy_of(const Options& options) {
  using Kind = shard::WrapPolicy::Kind;
  const std::string word = canonical_spelling(options.text("wrap_policy"));
  return {.kind = word == "no_wrap"           ? Kind::model
                  : word == "size_based_wrap" ? Kind::size
                                              : Kind::blocks,
          .blocks_per_unit = options.integer("blocks_per_unit"),
          .min_num_params = options.integer("min_num_params")};
}

shard::Tier tier_of(const Options& options, const char* name) {
  const std::string& word = options.text(name);
  return word == "cpu" ? shard::Tier::host : word == "disk" ? shard::Tier::disk : shard::Tier::device;
}

/// The states and activations that are offloaded. Parameters are where the policy shards them: `tessera plan` compares
/// with strategies that do not. Gradients are where the optimizer's states are.
void apply_offload(const Options& options, shard::ShardPolicy& policy) {
  if (options.flag("offload_activations")) policy.activations = shard::Tier::host;
  const shard::Tier params = tier_of(options, "offload_params"),
                    optimizer = std::max(tier_of(options, "offload_optimizer"), params);
  if (optimizer == shard::Tier::device) return;
  policy.placement = {.grads = optimizer, .optimizer = optimizer};
  if (policy.shard_params && policy.reshard_after_forward) policy.placement.params = params;
  // An asynchronous save is told of each update on the thread that runs the step, and a loss scale skips updates.
  policy.updates_before_norm =
      options.real("max_grad_norm") == 0 && !options.flag("async_save") && precision_of(options).compute != DType::f16;
}

void check_offload(const Options& options, const shard::Strategy& strategy) {
  const shard::Tier params = tier_of(options, "offload_params"), optimizer = tier_of(options, "offload_optimizer");
  const std::string word = "--offload_params " + options.text("offload_params");
  if (std::max(params, optimizer) == shard::Tier::disk && !options.has("nvme_path"))
    throw options.refuse(params == shard::Tier::disk ? "offload_params" : "offload_optimizer",
                         "states on disk need a directory for their scratch files", "Add --nvme_path DIR");
  if (params == shard::Tier::device) return;
  const bool given = options.has("offload_optimizer") &&
                     options.value("offload_optimizer").source.precedence > precedence::default_value;
  if (given && optimizer < params)
    throw options.refuse(
        "offload_params",
        word + " moves the optimizer too, and --offload_optimizer is " + options.text("offload_optimizer"),
        "Drop --offload_optimizer, or --offload_params");
  if (!strategy.policy.shard_params || !strategy.policy.reshard_after_forward)
    throw options.refuse("offload_params",
                         "with " + strategy.name + " each rank keeps the full parameters" +
                             (strategy.policy.shard_params ? " after forward" : ""),
                         "Use --sharding_strategy FULL_SHARD or HYBRID_SHARD with --reshard_after_forward true, or "
                         "--offload_optimizer alone");
}

}  // namespace

static int axis_size(const Options& options, const char* option, unsigned commands) {
  if ((options.commands & commands) == 0 || !options.has(option)) return 1;
  return static_cast<int>(std::min<std::int64_t>(options.integer(option), 1 << 20));
}

int context_ranks_of(const Options& options) {
  return axis_size(options, "context_parallel_size", for_train | for_plan);
}
int tensor_ranks_of(const Options& options) {
  return axis_size(options, "tensor_parallel_size", for_train | for_plan | for_inference);
}
int row_ranks_of(const Options& options) { return context_ranks_of(options) * tensor_ranks_of(options); }

std::optional<models::ContextKind> context_kind_of(const Options& options) {
  const std::string kind = options.has("context_parallel_kind") ? options.text("context_parallel_kind") : "auto";
  if (kind == "auto") return std::nullopt;
  return kind == "gather" ? models::ContextKind::gather : models::ContextKind::ulysses;
}

void decide_reduction(Options& options, int world, Device device) {
  const bool offloads_gradients = tier_of(options, "offload_params") != shard::Tier::device ||
                                  tier_of(options, "offload_optimizer") != shard::Tier::device;
  if (device == host_device || world > 1 || options.given("reduce_gradients") || options.flag("reproducible") ||
      options.text("reduce_dtype") != "fp32" || offloads_gradients)
    return;
  options.decide("reduce_gradients", "last", "one rank on a GPU");
}

void apply_policy(const Options& options, shard::ShardPolicy& policy) {
  policy.reshard_after_forward = options.flag("reshard_after_forward");
  const std::string& reduce = options.text("reduce_gradients");
  policy.reduce = reduce == "last"         ? shard::Reduce::last
                  : reduce == "shard_each" ? shard::Reduce::shard_each
                                           : shard::Reduce::each;
  policy.wrap = wrap_policy_of(options);
  policy.experts = options.text("expert_units") == "block" ? shard::ExpertUnits::block : shard::ExpertUnits::own;
  policy.forward_prefetch = static_cast<int>(options.integer("forward_prefetch"));
  policy.backward_prefetch = static_cast<int>(options.integer("backward_prefetch"));
  const std::string& checkpointing = options.text("gradient_checkpointing");
  policy.recompute = checkpointing == "keep_all"    ? shard::Recompute::keep_all
                     : checkpointing == "full"      ? shard::Recompute::full
                     : checkpointing == "selective" ? shard::Recompute::selective
                                                    : shard::Recompute::none;
  policy.reproducible = options.flag("reproducible");
  apply_offload(options, policy);
  const Precision precision = precision_of(options);
  policy.param_dtype = precision.compute;
  policy.reduce_dtype = precision.reduce;
  policy.compression = compression_of(options);
}

shard::Strategy strategy_of(const Options& options, int world, int ranks_per_node) {
  const std::string word = options.text("sharding_strategy");
  const std::string group_word = options.text("shard_group_size");
  const int group = group_word.empty()     ? 0
                    : group_word == "node" ? ranks_per_node
                                           : static_cast<int>(*parse_integer(group_word));
  if (group > 1 && word == "zero0") {
    throw options.refuse("shard_group_size", "ZeRO-0 shards nothing, so it has no shard group",
                         "Drop it, or choose another strategy");
  }
  if (group > world) {
    throw options.refuse("shard_group_size",
                         strfmt("a shard group of %d ranks is larger than the run of %d", group, world),
                         "Give a divisor of the number of ranks");
  }
  if (group > 0 && world % group != 0) {
    int below = group, above = group;
    while (world % below != 0) --below;
    while (world % above != 0) ++above;
    throw options.refuse("shard_group_size",
                         strfmt("a shard group of %d ranks does not divide the %d of the run", group, world),
                         strfmt("The nearest sizes that do are %d and %d", below, above));
  }
  if (options.flag("reproducible") && (world & (world - 1)) != 0) {
    throw options.refuse("reproducible", strfmt("--reproducible needs a power of two of ranks, not %d", world),
                         "Start 1, 2, 4, 8, ... ranks, or drop it");
  }
  shard::Strategy strategy;
  try {
    strategy = shard::with_context(
        shard::make_strategy(word, world, word == "zero0" ? 0 : group, ranks_per_node, unit_strategies_of(options)),
        context_ranks_of(options));
    strategy = shard::with_tensor(std::move(strategy), tensor_ranks_of(options));
  } catch (const Error& error) {
    throw Error(error.code(), error.line(),
                option_sources(options, {"sharding_strategy", "unit_strategy", "shard_group_size", "ranks_per_node",
                                         "context_parallel_size", "tensor_parallel_size"}));
  }
  apply_policy(options, strategy.policy);
  check_offload(options, strategy);
  return strategy;
}

}  // namespace tessera::jobs
