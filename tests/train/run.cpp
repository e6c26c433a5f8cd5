// SPDX-License-Identifier: Apache-2.0
#include "tests/train/run.hpp"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>

#include "io/data/packing.hpp"
#include "kernels/convert.hpp"
#include "kernels/threads.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/base/transfer.hpp"
#include "runtime/shard/context.hpp"
#include "runtime/shard/tensor.hpp"

namespace tessera::test {

RandomTokens::RandomTokens(std::int64_t size, std::int32_t vocab) : ids_(static_cast<std::size_t>(size)) {
  for (std::int64_t i = 0; i < size; ++i)
    ids_[static_cast<std::size_t>(i)] =
        static_cast<std::int32_t>(philox(7, static_cast<std::uint64_t>(i / 2))[static_cast<std::size_t>(i % 2)] %
                                  static_cast<std::uint32_t>(vocab));
}

void RandomTokens::read(std::int64_t first, std::int64_t count, std::int32_t* out) const {
  std::memcpy(out, ids_.data() + first, static_cast<std::size_t>(count) * sizeof(std::int32_t));
}

std::string config_json(const ModelShape& s) {
  return strfmt(
      R"({"model_type": "gpt2", "n_layer": %d, "n_embd": %d, "n_head": %d, "vocab_size": %d, "n_positions": %d, "n_ctx": %d,
      "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})",
      s.layers, s.hidden, s.heads, s.vocab, s.positions, s.positions);
}

void freeze(models::Model& model, const std::function<bool(const std::string& name)>& frozen) {
  for (ParamSpec& param : model.params) param.trainable = !frozen(param.name);
}

/// The layer of "h.1.…" or "model.layers.1.…"; -1: of no layer.
static int layer_of(const std::string& name) {
  for (const std::string prefix : {"h.", "model.layers."})
    if (name.starts_with(prefix)) return std::atoi(name.c_str() + prefix.size());
  return -1;
}

const FrozenSet frozen_sets[5] = {
    {"embedding", [](const std::string& name) { return name == "wte.weight" || name == "model.embed_tokens.weight"; }},
    {"all but layer 1", [](const std::string& name) { return layer_of(name) != 1; }},
    {"every second layer", [](const std::string& name) { return layer_of(name) % 2 == 0; }},
    {"all but norms",
     [](const std::string& name) {
       return name.find("norm") == std::string::npos && name.find("ln_") == std::string::npos;
     }},
    {"all but the head",
     [](const std::string& name) {
       return !name.starts_with("ln_f.") && name != "model.norm.weight" && name != "lm_head.weight";
     }},
};

std::string Variant::str() const {
  const std::string shared = (context > 1 ? strfmt(" context %d", context) : std::string()) +
                             (tensor > 1 ? strfmt(" tensor %d", tensor) : std::string());
  return strfmt(
      "world %d strategy %s group %d G %lld B %lld T %lld reduce %s prefetch %d recompute %d selective %d keep_all %d "
      "reproducible "
      "%d reshard %d copies %d node %d streams %d %s/%s placement %d%d%d%s before norm %d%s",
      world, strategy.c_str(), group, static_cast<long long>(global_batch), static_cast<long long>(micro_batch),
      static_cast<long long>(tokens),
      reduce == shard::Reduce::each   ? "each"
      : reduce == shard::Reduce::last ? "last"
                                      : "shard_each",
      prefetch, recompute, selective, keep_all, reproducible, reshard, copies, ranks_per_node,
      static_cast<int>(streams), name_of(dtype), name_of(reduce_dtype), static_cast<int>(placement.params),
      static_cast<int>(placement.grads), static_cast<int>(placement.optimizer),
      offload_activations ? " and activations" : "", updates_before_norm, shared.c_str());
}

train::TrainerOptions options_of(const models::Model& model, const Variant& v, int steps) {
  train::TrainerOptions options;
  options.run.model = &model;
  options.run.strategy = shard::make_strategy(v.strategy, v.world, v.group,
                                              v.ranks_per_node > 0 ? v.ranks_per_node : v.world, v.unit_strategies);
  options.run.strategy = shard::with_context(std::move(options.run.strategy), v.context);
  options.run.strategy = shard::with_tensor(std::move(options.run.strategy), v.tensor);
  auto& policy = options.run.strategy.policy;
  policy.reduce = v.reduce;
  policy.experts = v.experts;
  policy.wrap = v.wrap;
  policy.param_dtype = v.dtype;
  if (v.dtype == DType::f16) options.loss_scale = v.loss_scale;
  policy.reduce_dtype = v.reduce_dtype;
  policy.compression = v.compression;
  policy.forward_prefetch = policy.backward_prefetch = v.prefetch;
  policy.recompute = v.selective   ? shard::Recompute::selective
                     : v.recompute ? shard::Recompute::full
                     : v.keep_all  ? shard::Recompute::keep_all
                                   : shard::Recompute::none;
  policy.reproducible = v.reproducible;
  policy.placement = v.placement;
  if (v.offload_activations) policy.activations = shard::Tier::host;
  options.run.nvme_path = v.nvme_path;
  policy.updates_before_norm = v.updates_before_norm;
  policy.reshard_after_forward = policy.reshard_after_forward && v.reshard;
  options.run.batch = plan::solve_batch(v.global_batch, v.micro_batch, std::nullopt, v.world / v.context / v.tensor);
  options.run.tokens = v.tokens;
  options.run.row_stride = v.row_stride;
  options.optimizer = v.optimizer;
  options.optimizer.weight_decay = v.weight_decay;
  options.run.states = train::optimizer_states(options.optimizer);
  options.lr = {.kind = train::LrSchedule::Kind::cosine,
                .learning_rate = v.learning_rate,
                .warmup_steps = 1,
                .total_steps = static_cast<double>(steps + 1)};
  options.max_grad_norm = v.max_grad_norm;
  options.seed = 5;
  options.comm_streams = v.streams;
  return options;
}

std::vector<float> as_floats(const TensorView& tensor) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype));
  copy_now(tensor.device, bytes.data(), tensor.data, bytes.size());
  std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
  if (tensor.dtype == DType::u8) {  // of quantized matrices
    std::ranges::transform(bytes, values.begin(),
                           [](std::byte byte) { return static_cast<float>(std::to_integer<int>(byte)); });
    return values;
  }
  (void)kernels::convert_bytes({.from = bytes.data(),
                                .source = tensor.dtype,
                                .to = reinterpret_cast<std::byte*>(values.data()),
                                .target = DType::f32,
                                .count = tensor.numel()});
  return values;
}

namespace {
/// Copies this rank's intervals of every unit into the unsharded parameters.
void collect(const shard::ShardLayout& layout, const io::ShardView& view, const float* from,
             const std::vector<std::int64_t>& offsets, std::vector<float>& to) {
  const std::int64_t begin = view.shard * layout.shard_numel(view.unit);
  for (const auto& s : layout.whole_segments(view.unit, view.shard, view.part))
    std::memcpy(to.data() + offsets[static_cast<std::size_t>(s.param)] + s.param_offset, from + (s.unit_offset - begin),
                static_cast<std::size_t>(s.length) * sizeof(float));
}
}  // namespace

Outcome run(const RunInput& input, const Variant& variant) {
  kernels::set_threads(1);
  Outcome outcome;
  std::int64_t total = 0;
  for (const auto& param : input.model->params) {
    outcome.param_offsets.push_back(total);
    total += param.whole_shape().numel();
  }
  outcome.params.resize(static_cast<std::size_t>(total));
  outcome.grads.resize(static_cast<std::size_t>(total));
  const io::Sampler sampler(io::count_samples(*input.tokens, variant.tokens).samples, true, 11);

  run_local(
      variant.world,
      [&](World& world) {
        train::TrainerOptions options = options_of(*input.model, variant, input.steps);
        options.run.packed = input.tokens->packed() != nullptr;
        options.run.loss_weights = input.tokens->weighted();
        if (variant.padding_free)
          options.run.flat_tokens = options.run.flat_eval_tokens =
              std::max(variant.tokens, input.tokens->packed()->longest_together(variant.micro_batch, {0, 1})) *
              variant.tensor;
        DelayedWorld delayed_world(world, variant.delay);
        train::Trainer trainer(delayed_world, options);
        if (input.model_directory.empty()) {
          trainer.initialize();
        } else {
          const auto shards = trainer.shards();
          io::read_model(world, input.model_directory, input.model->params, trainer.plan().layout, shards,
                         [&](const std::string& name) { return models::tensor_use(*input.model, name); });
          trainer.parameters_changed();
        }
        for (int s = 0; s < input.steps; ++s) {
          const auto report = trainer.step(*input.tokens, sampler, s * variant.global_batch, variant.global_batch);
          if (input.after_step) input.after_step(trainer);
          const std::vector<double> of_units = trainer.unit_gradient_norms();
          if (world.rank() != 0) continue;
          outcome.losses.push_back(report.loss);
          outcome.norms.push_back(report.grad_norm);
          if (input.model->router.layers > 0) {
            outcome.aux_losses.push_back(report.aux_loss);
            const std::span<const double> layers = trainer.layer_aux_losses();
            outcome.aux_losses.insert(outcome.aux_losses.end(), layers.begin(), layers.end());
          }
          const double squares = std::inner_product(of_units.begin(), of_units.end(), of_units.begin(), 0.0);
          if (!report.skipped && !(std::abs(std::sqrt(squares) - report.grad_norm) <= 1e-12 * report.grad_norm))
            throw std::runtime_error("the norms of the units do not make up that of the gradient");
          outcome.tokens.push_back(report.tokens);
        }
        const auto broken = trainer.arena().broken_canary();
        if (!broken.empty()) throw std::runtime_error("canary of slot " + broken + " is broken");
        for (const auto& view : trainer.shards()) {
          if (trainer.plan().layout.replica_of(view.unit, world.rank()) != 0) continue;
          collect(trainer.plan().layout, view, as_floats(view.data).data(), outcome.param_offsets, outcome.params);
          if (trainer.plan().layout.trainable(view.unit))
            collect(trainer.plan().layout, view, trainer.reduced_gradient(view.unit).data(), outcome.param_offsets,
                    outcome.grads);
        }
        if (input.evaluate) {
          const auto report = trainer.evaluate(*input.tokens, 7);
          const std::vector<std::int32_t> prompt = {1, 2, 3};
          const auto ids = variant.context == 1 ? trainer.generate(prompt, 5, 0.7, 3) : std::vector<std::int32_t>();
          if (world.rank() == 0) {
            outcome.eval_loss = report.loss;
            outcome.generated = ids.value();
          }
        }
      },
      variant.copies, variant.ranks_per_node);
  return outcome;
}

std::string difference(const Outcome& a, const Outcome& b) {
  const auto bits = [](const char* what, const auto& x, const auto& y) -> std::string {
    if (x.size() != y.size()) return strfmt("%s: %zu and %zu of them", what, x.size(), y.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      if (std::memcmp(&x[i], &y[i], sizeof(x[i])) != 0)
        return strfmt("%s[%zu]: %.17g and %.17g", what, i, static_cast<double>(x[i]), static_cast<double>(y[i]));
    return {};
  };
  for (const auto& text :
       {bits("loss", a.losses, b.losses), bits("grad_norm", a.norms, b.norms), bits("gradient", a.grads, b.grads),
        bits("parameter", a.params, b.params), bits("token", a.generated, b.generated),
        bits("eval", std::vector{a.eval_loss}, std::vector{b.eval_loss})})
    if (!text.empty()) return text;
  return {};
}

}  // namespace tessera::test
