// SPDX-License-Identifier: Apache-2.0
#include "tests/train/golden.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "io/file/text_file.hpp"
#include "io/model/safetensors.hpp"
#include "models/lora_config.hpp"
#include "models/lora_files.hpp"

namespace tessera::test {

using nlohmann::json;

Golden load_golden(const std::string& shape, const std::string& file) {
  Golden g;
  g.directory = std::string(TESSERA_GOLDEN) + "/" + shape;
  g.expected = json::parse(io::read_text(g.directory + "/" + file));
  g.model = models::make(io::read_text(g.directory + "/config.json"), shape);
  g.tokens = std::move(io::open_dataset({g.directory + "/" + g.expected["tokens"].get<std::string>()}).tokens);
  if (g.expected.contains("loss_weights"))
    g.tokens =
        std::make_unique<WeightedTokens>(std::move(g.tokens), g.expected["loss_weights"].get<std::vector<float>>());
  return g;
}

Golden load_golden(const FrozenGolden& frozen) {
  Golden g = load_golden(std::string(frozen.shape));
  g.expected = json::parse(io::read_text(g.directory + "/frozen.json"))["runs"].at(frozen.run);
  const auto prefixes = g.expected["frozen"].get<std::vector<std::string>>();
  freeze(g.model, [&](const std::string& name) {
    return std::ranges::any_of(prefixes, [&](const std::string& prefix) { return name.starts_with(prefix); });
  });
  return g;
}

Golden load_lora_golden(const std::string& shape, const std::string& folder) {
  Golden g = load_golden(shape);
  g.adapter = g.results = g.directory + "/" + folder;
  g.expected = json::parse(io::read_text(g.adapter + "/lora.json"));
  models::add_lora(g.model, models::parse_lora_config(io::read_text(g.adapter + "/adapter_config.json"), g.adapter));
  return g;
}

Golden load_dpo_golden(const std::string& shape) {
  Golden g = load_lora_golden(shape);
  g.results = g.directory + "/dpo";
  g.expected = json::parse(io::read_text(g.results + "/dpo.json"));
  return g;
}

Variant golden_stage(const Golden& g, int world, const char* stage) {
  Variant v{.world = world,
            .strategy = stage,
            .global_batch = g.expected["samples_per_step"],
            .tokens = g.expected["tokens_per_sample"]};
  v.micro_batch = world == 1 ? 4 : 1 + world % 2;
  v.copies = v.selective = world == 4;
  v.recompute = world == 3;
  return v;
}

Variant golden_family(const Golden& g, int world) {
  Variant v{.world = world,
            .strategy = "3",
            .global_batch = g.expected["samples_per_step"],
            .micro_batch = g.expected["micro_batch"],
            .tokens = g.expected["tokens_per_sample"]};
  v.recompute = world == 2;
  v.copies = v.selective = world == 3;
  v.experts = world == 2 ? shard::ExpertUnits::block : shard::ExpertUnits::own;
  return v;
}

namespace {

train::TrainerOptions options(const Golden& g, const Variant& v) {
  const json& o = g.expected["options"];
  Variant variant = v;
  variant.weight_decay = o["weight_decay"];
  const std::string optim = o.value("optim", "adamw");
  if (optim == "sgd") {
    variant.optimizer = {.kind = train::OptimizerKind::sgd, .momentum = o["momentum"], .nesterov = o["nesterov"]};
  } else {
    variant.optimizer = {.kind = optim == "adamw" ? train::OptimizerKind::adamw : train::OptimizerKind::adamw_8bit,
                         .beta1 = o["adam_beta1"],
                         .beta2 = o["adam_beta2"],
                         .eps = o["adam_epsilon"]};
  }
  if (o.contains("rates"))
    for (const ParamSpec& param : g.model.params) {
      const json& rates = o["rates"][param.name];
      variant.optimizer.rates.push_back({rates["lr_scale"], rates["weight_decay"]});
    }
  auto options = options_of(g.model, variant, 1);
  options.lr = {.kind = train::parse_lr_kind(o["lr_scheduler_type"]),
                .learning_rate = o["learning_rate"],
                .warmup_steps = o["warmup_steps"],
                .total_steps = o["max_steps"]};
  options.max_grad_norm = o["max_grad_norm"];
  options.run.loss_weights = g.tokens->weighted();
  return options;
}

/// Key biases have no gradient in exact arithmetic; AdamW turns the rounding noise into full steps, which are not
/// compared.
enum class KeyBiases : bool { count, left_out };

/// Σ x² of one rank's elements, by parameter.
class Squares {
 public:
  Squares(const Golden& g, KeyBiases biases) : params_(&g.model.params), biases_(biases), sums_(params_->size()) {}

  void add(const shard::ShardLayout& layout, int unit, int shard, const std::vector<float>& data) {
    for (const auto& s : layout.segments(unit, shard))
      for (std::int64_t i = 0; i < s.length; ++i)
        if (counts(s.param, s.param_offset + i)) {
          const double x = data[static_cast<std::size_t>(s.unit_offset - shard * layout.shard_numel(unit) + i)];
          sums_[static_cast<std::size_t>(s.param)] += x * x;
        }
  }
  /// Collective: norms of unsharded parameters on rank 0, elsewhere none.
  [[nodiscard]] std::vector<double> norms(World& world) const {
    std::string mine;
    for (const double sum : sums_) mine += strfmt("%.17g ", sum);
    std::vector<double> all;
    for (const std::string& text : world.gather(mine)) {
      all.resize(sums_.size());
      std::istringstream in(text);
      for (double& sum : all) {
        double more = 0;
        in >> more;
        sum += more;
      }
    }
    for (double& sum : all) sum = std::sqrt(sum);
    return all;
  }

 private:
  [[nodiscard]] bool counts(int param, std::int64_t element) const {
    const auto& p = (*params_)[static_cast<std::size_t>(param)];
    const std::int64_t third = p.numel() / 3;
    return biases_ == KeyBiases::count || p.name.find("c_attn.bias") == std::string::npos || element < third ||
           element >= 2 * third;
  }
  const std::vector<ParamSpec>* params_;
  KeyBiases biases_;
  std::vector<double> sums_;
};

/// Compares a run with the golden numbers.
class Comparison {
 public:
  Comparison(const Golden& g, const Variant& v) : g_(g), v_(v) {}

  void near(const char* what, double value, double golden, double relative, const std::string& at) {
    if (std::fabs(value - golden) <= relative * std::fabs(golden)) return;
    run_.wrong.push_back(
        strfmt("%s: %s of %s is %.9g, %.9g expected", v_.str().c_str(), what, at.c_str(), value, golden));
  }
  void step(std::size_t s, const train::StepReport& report, std::span<const double> layers) {
    const json& e = g_.expected;
    // Rounding differences reach the other of two codes that are equally near.
    const double relative = e["options"].value("optim", "") == "adamw_8bit" ? 2e-4 : 2e-5;
    const std::string at = strfmt("step %zu", s + 1);
    near("loss", report.loss, e["loss"][s], relative, at);
    near("norm", report.grad_norm, e["grad_norm"][s], relative, at);
    if (e.contains("correct"))
      near("right tokens", report.token_accuracy * static_cast<double>(report.tokens), e["correct"][s], 1e-12, at);
    near("learning rate", report.learning_rate, e["learning_rate"][s], 1e-9, at);
    run_.curve.insert(run_.curve.end(), {report.loss, report.grad_norm});
    if (!e.contains("aux_loss")) return;
    near("balance loss", report.aux_loss, e["aux_loss"][s], 5e-5, at);
    const auto of_layers = e["aux_loss_layers"][s].get<std::vector<double>>();
    near("number of balance losses", static_cast<double>(layers.size()), static_cast<double>(of_layers.size()), 0, at);
    for (std::size_t l = 0; l < std::min(layers.size(), of_layers.size()); ++l)
      near("balance loss", layers[l], of_layers[l], 5e-5, at + strfmt(" layer %zu", l));
  }
  void norms(const char* what, const std::vector<double>& of_params, const json& golden, double relative) {
    for (std::size_t i = 0; i < of_params.size(); ++i) {
      const ParamSpec& param = g_.model.params[i];
      if (param.trainable) near(what, of_params[i], golden.at(param.name), relative, param.name);
    }
  }
  /// This rank's elements of the adapter's tensors against those of a file.
  void adapter(const char* what, const shard::ShardLayout& layout, const io::ShardView& view,
               const std::vector<float>& data) {
    const io::SafetensorsFile file(g_.results + "/" + what + ".safetensors");
    for (const models::AdapterTensor& tensor : models::adapter_tensors(g_.model))
      for (const shard::Segment& s : layout.segments(view.unit, view.shard)) {
        if (s.param != tensor.param) continue;
        const io::SafetensorsEntry* entry = file.find(tensor.name);
        if (entry == nullptr) return run_.wrong.push_back(tensor.name + " is not in " + what);
        std::vector<float> golden(static_cast<std::size_t>(entry->numel()));
        file.read(*entry, 0, entry->numel(), golden.data());
        double square = 0, apart = 0;
        for (const float x : golden) square += static_cast<double>(x) * x;
        for (std::int64_t i = 0; i < s.length; ++i)
          apart = std::max(
              apart,
              std::fabs(
                  static_cast<double>(
                      data[static_cast<std::size_t>(s.unit_offset - view.shard * layout.shard_numel(view.unit) + i)]) -
                  golden[static_cast<std::size_t>(s.param_offset + i)]));
        near(what, std::sqrt(square) + apart, std::sqrt(square), 5e-5, tensor.name);
        ++compared;
      }
  }
  int compared = 0;  // segments of adapters
  void frozen(const std::string& unit, const std::vector<float>& before, const std::vector<float>& after) {
    if (before.empty() || std::memcmp(before.data(), after.data(), before.size() * sizeof(float)) != 0)
      run_.wrong.push_back(strfmt("%s: unit %s is frozen, and has changed", v_.str().c_str(), unit.c_str()));
  }
  [[nodiscard]] GoldenRun take() { return std::move(run_); }

 private:
  const Golden& g_;
  const Variant& v_;
  GoldenRun run_;
};

}  // namespace

GoldenRun run_golden(World& world, const Golden& g, const Variant& v) {
  const json& e = g.expected;
  Comparison comparison(g, v);
  const bool sgd = e["options"].value("optim", "") == "sgd";
  Squares gradients(g, KeyBiases::count), weights(g, sgd ? KeyBiases::count : KeyBiases::left_out);
  train::Trainer trainer(world, options(g, v));
  const auto& layout = trainer.plan().layout;
  const auto shards = trainer.shards();
  io::read_model(world, g.directory, g.model.params, layout, shards,
                 [&](const std::string& name) { return models::tensor_use(g.model, name); });
  if (!g.adapter.empty())
    io::read_adapter(world, g.adapter + "/adapter_model.safetensors", g.model.params, layout, shards,
                     [&](const std::string& name) { return models::adapter_tensor_use(g.model, name); });
  trainer.parameters_changed();
  std::vector<std::vector<float>> before;
  for (const auto& shard : shards) before.push_back(as_floats(shard.data));
  const io::Sampler in_file_order(io::count_samples(g.tokens->size(), v.tokens).samples, false, 0);
  for (std::size_t s = 0; s < e["steps"].get<std::size_t>(); ++s) {
    comparison.step(
        s, trainer.step(*g.tokens, in_file_order, static_cast<std::int64_t>(s) * v.global_batch, v.global_batch),
        trainer.layer_aux_losses());
    if (s > 0) continue;
    const auto add_gradient = [&](const io::ShardView& shard) {
      const std::vector<float> gradient = trainer.reduced_gradient(shard.unit);
      if (g.adapter.empty()) gradients.add(layout, shard.unit, shard.shard, gradient);
      else comparison.adapter("gradients", layout, shard, gradient);
    };
    for (const auto& shard : shards)
      if (layout.trainable(shard.unit) && layout.replica_of(shard.unit, world.rank()) == 0) add_gradient(shard);
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const int unit = shards[i].unit;
    const std::vector<float> data = as_floats(shards[i].data);
    if (!layout.trainable(unit)) comparison.frozen(layout.unit_name(unit), before[i], data);
    if (layout.replica_of(unit, world.rank()) == 0) weights.add(layout, unit, shards[i].shard, data);
    if (!g.adapter.empty() && layout.trainable(unit)) comparison.adapter("final", layout, shards[i], data);
  }
  if (!g.adapter.empty()) {
    if (world.sum(comparison.compared) == 0) comparison.near("adapters compared", 0, 1, 0, g.adapter);
    return comparison.take();
  }
  comparison.norms("gradient norm", gradients.norms(world), e["gradient_norms_step_1"], 5e-5);
  // A moment of 8 bits that lies between two codes takes either, by the last bit of a gradient. Biases of AdamW with
  // fp32 moments are up to 15e-4 away.
  const double of_weights = e["options"].value("optim", "") == "adamw_8bit" ? 3e-4 : 1e-4;
  comparison.norms("weight norm", weights.norms(world), e["weight_norms_final"], of_weights);
  return comparison.take();
}

}  // namespace tessera::test
