// SPDX-License-Identifier: Apache-2.0
#include "jobs/report/advice.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

using Json = nlohmann::ordered_json;

std::string option(const Json& args, const char* name) {
  const auto found = args.find(name);
  if (found == args.end() || !found->contains("value")) return "";
  const Json& value = found->at("value");
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump();
}

/// Whether this run's ranks can be sharded inside a node and replicated over nodes.
bool can_shard_by_node(const Json& run) {
  const Json mesh = run.value("mesh", Json::object());
  const int nodes = run.value("nodes", 1), world = run.value("world", 1), tensor = mesh.value("tensor", 1);
  const int together = std::max(1, mesh.value("context", 1) * tensor);
  if (nodes <= 1 || mesh.value("replicate", 1) != 1 || world % nodes != 0) return false;
  return world / nodes % together == 0 && (tensor == 1 || world / nodes > together);
}

/// What makes communication take less of a step, for this run's settings; the most effective first. Only what the run
/// can have.
std::vector<std::string> less_communication(const Json& args, const Json& run) {
  std::vector<std::string> tries;
  const bool gathers_twice = run.value("gathers_twice", false);
  const Json batch = run.value("batch", Json::object());
  const std::string compute = run.value("compute_dtype", "");
  const auto is = [&](const char* name, const char* value) {
    const std::string given = option(args, name);
    return given.empty() || given == value;
  };
  if (gathers_twice && can_shard_by_node(run))
    tries.push_back(
        "--sharding_strategy HYBRID_SHARD --shard_group_size node: parameters are gathered inside a node, and only "
        "gradients cross the network");
  if (batch.value("accumulation", 1) > 1)
    tries.push_back(strfmt(
        "--per_device_train_batch_size %ld with the same --global_batch_size: fewer micro-batches, each of which "
        "communicates (tessera plan says whether it fits)",
        2 * batch.value("micro_batch", 1L)));
  else
    tries.push_back(
        "A larger --per_device_train_batch_size and --global_batch_size: a step communicates the same bytes for more "
        "tokens (the learning rate may need to follow)");
  if (gathers_twice && is("offload_params", "none"))
    tries.push_back(
        "--reshard_after_forward false: parameters stay gathered between forward and backward, which saves a third of "
        "the traffic "
        "and takes their memory (tessera plan shows it)");
  if (compute == "fp32" && is("bnb_4bit_compute_dtype", "none"))
    tries.push_back("--mixed_precision bf16: parameters are gathered in half the bytes");
  else if (compute != "fp32" && run.value("reduce_dtype", "") == "fp32")
    tries.push_back("--reduce_dtype " + compute + ": gradients are reduced in half the bytes, with less precision");
  if (batch.value("accumulation", 1) > 1 && option(args, "reduce_gradients") == "each" &&
      option(args, "reproducible") != "true")
    tries.push_back("--reduce_gradients last: gradients are reduced once a step instead of once a micro-batch");
  if (gathers_twice && (option(args, "forward_prefetch") == "1" || option(args, "backward_prefetch") == "1"))
    tries.push_back(
        "--forward_prefetch 2 --backward_prefetch 2: gathers start earlier, for the memory of one more unit");
  const bool on_gpu = run.value("memory", Json::object()).contains("device");
  if (run.value("transport", "") == "mpi" && run.value("nodes", 1) == 1 && run.value("world", 1) > 1 && !on_gpu)
    tries.push_back("--comm node: ranks of one host share memory instead of sending messages");
  return tries;
}

}  // namespace

std::vector<std::string> advice(const WaitingShares& shares, const Json& args, const Json& run) {
  std::vector<std::string> lines;
  if (shares.communication > 0.3) {
    lines.push_back(strfmt("Communication takes %.0f %% of a step. What to try next:", 100 * shares.communication));
    std::ranges::move(less_communication(args, run), std::back_inserter(lines));
    lines.push_back(
        "tessera bench collectives measures what this machine can send; ranks that share cores or wait for a slow "
        "neighbor show here too");
  }
  if (shares.data > 0.1)
    lines.push_back(strfmt("%s takes %.0f %% of a step: put the token files (--cache_dir) on a local disk",
                           lines.empty() ? "Reading data" : "Beside that, reading data", 100 * shares.data));
  return lines;
}

}  // namespace tessera::jobs
