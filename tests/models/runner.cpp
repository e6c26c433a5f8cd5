// SPDX-License-Identifier: Apache-2.0
// Runner: modules in sequence on guarded memory.
#include "runner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gemm_counter.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::test {

using models::Batch;
using models::BatchShape;
using models::Phase;

std::vector<std::int32_t> random_ids(BatchShape shape, std::int32_t vocab, std::uint64_t key) {
  std::vector<std::int32_t> ids;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(shape.batch * shape.tokens); ++i)
    ids.push_back(static_cast<std::int32_t>(uniform(key, i) * vocab));
  return ids;
}

double get(const TensorView& t, std::int64_t i) {
  if (t.dtype == DType::bf16) return static_cast<double>(t.as<bf16>()[i]);
  if (t.dtype == DType::f16) return static_cast<double>(t.as<f16>()[i]);
  return t.dtype == DType::f64 ? t.as<double>()[i] : t.as<float>()[i];
}

void set(const TensorView& t, std::int64_t i, double value) {
  if (t.dtype == DType::f64) t.as<double>()[i] = value;
  else if (t.dtype == DType::bf16) t.as<bf16>()[i] = bf16(static_cast<float>(value));
  else if (t.dtype == DType::f16) t.as<f16>()[i] = f16(static_cast<float>(value));
  else t.as<float>()[i] = static_cast<float>(value);
}

std::vector<double> values(const TensorView& t) {
  std::vector<double> v(static_cast<std::size_t>(t.numel()));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = get(t, static_cast<std::int64_t>(i));
  return v;
}

double norm(const TensorView& t) {
  double sum = 0;
  for (const double v : values(t)) sum += v * v;
  return std::sqrt(sum);
}

Runner::Runner(const models::Model& model, BatchShape most, DType gradients, Layout layout)
    : model_(model), most_(most) {
  const auto add = [&](std::size_t bytes) { return buffers_.emplace_back(std::make_unique<Guarded>(bytes)).get(); };
  if (layout == Layout::apart) {
    for (const ParamSpec& spec : model.params) {
      const auto numel = static_cast<std::size_t>(spec.numel());
      params_.push_back(add(numel * size_of(model.dtype))->view(model.dtype, spec.shape));
      grads_.push_back(add(numel * size_of(gradients))->view(gradients, spec.shape));
    }
  } else {
    std::int64_t all = 0;
    for (const ParamSpec& spec : model.params) all += spec.numel();
    TensorView params = add(static_cast<std::size_t>(all) * size_of(model.dtype))->view(model.dtype, {all}),
               grads = add(static_cast<std::size_t>(all) * size_of(gradients))->view(gradients, {all});
    params_.resize(model.params.size());
    grads_.resize(model.params.size());
    std::int64_t first = 0;
    for (const auto& module : model.modules)
      for (const int i : module->params()) {
        const auto p = static_cast<std::size_t>(i);
        if (params_[p]) continue;  // of an earlier module, too
        const ParamSpec& spec = model.params[p];
        params_[p] = params.rows(first, spec.numel()).reshape(spec.shape);
        grads_[p] = grads.rows(first, spec.numel()).reshape(spec.shape);
        first += spec.numel();
      }
    TESSERA_ASSERT(first == all);
  }
  const std::size_t activation =
      static_cast<std::size_t>(most.batch * most.tokens * model.hidden) * size_of(model.dtype);
  for (const auto& module : model.modules) {
    saved_.push_back(add(module->saved_bytes(most, model.dtype)));
    const models::SavedBytes parts = module->split_saved_bytes(most, model.dtype);
    kept_.push_back(add(parts.kept));
    recomputed_.push_back(add(parts.recomputed));
    boundaries_.push_back(add(activation));
  }
  for (int phase = 0; phase < 3; ++phase) {
    std::size_t bytes = 0;
    for (const auto& module : model.modules)
      bytes = std::max(bytes, module->workspace_bytes(most, model.dtype, static_cast<Phase>(phase)));
    workspace_[phase] = add(bytes);
  }
  const Shape statistics{model.router.layers, 2, model.router.experts};
  if (model.router.layers > 0)
    router = add(static_cast<std::size_t>(statistics.numel()) * sizeof(double))->view(DType::f64, statistics);
  gradient_a_ = add(activation);
  gradient_b_ = add(activation);
}

void Runner::randomize(std::uint64_t seed) {
  for (std::size_t p = 0; p < params_.size(); ++p) {
    const ParamSpec& spec = model_.params[p];
    const double mean = spec.init.kind == Initializer::Kind::ones ? 1.0 : 0.0, std = spec.shape.rank() == 2 ? 0.3 : 0.2;
    for (std::int64_t i = 0; i < spec.numel(); ++i)
      set(params_[p], i, mean + std * normal(hash64(spec.name, seed), static_cast<std::uint64_t>(i)));
  }
}

int Runner::index(const std::string& name) const {
  for (std::size_t p = 0; p < model_.params.size(); ++p)
    if (model_.params[p].name == name) return static_cast<int>(p);
  ADD_FAILURE() << "no parameter " << name;
  return 0;
}

std::vector<TensorView> Runner::of(std::size_t module, const std::vector<TensorView>& all) const {
  std::vector<TensorView> views;
  for (const int p : model_.modules[module]->params()) views.push_back(all[static_cast<std::size_t>(p)]);
  return views;
}

TensorView Runner::activation(std::size_t boundary, BatchShape shape) const {
  return boundaries_[boundary]->view(model_.dtype, {shape.batch, shape.tokens, model_.hidden});
}

void Runner::forward(std::size_t module, Phase phase, BatchShape shape, const Batch& batch, bool again) {
  const bool last = module + 1 == model_.modules.size();
  Guarded& workspace = *workspace_[static_cast<int>(phase)];
  workspace.poison();
  if (!last && !again) boundaries_[module]->poison();
  const bool reads = model_.modules[module]->forward_reads_params(phase);
  const auto params = reads ? of(module, params_) : std::vector<TensorView>(model_.modules[module]->params().size());
  model_.modules[module]->forward(
      {.phase = phase,
       .shape = shape,
       .params = params,
       .x = module ? activation(module - 1, shape) : TensorView{},
       .y = last ? TensorView{} : activation(module, shape),
       .saved = phase != Phase::train ? TensorView{} : (splits(module) ? recomputed_ : saved_)[module]->bytes(),
       .kept = phase == Phase::train && splits(module) ? kept_[module]->bytes() : TensorView{},
       .recompute = again,
       .writes_y = !again,
       .workspace = workspace.bytes(),
       .batch = &batch,
       .cache = caches_.empty() ? models::Cache{} : models::Cache{caches_[module]->bytes(), capacity_}});
}

void Runner::backward(std::size_t module, BatchShape shape, const Batch& batch, const TensorView& dy,
                      const TensorView& dx, std::vector<std::uint8_t>& accumulate) {
  const models::Module& m = *model_.modules[module];
  const models::Wanted wanted = model_.wanted(module);
  std::vector<TensorView> grads = of(module, grads_);
  std::vector<std::uint8_t> flags;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    std::uint8_t& flag = accumulate[static_cast<std::size_t>(m.params()[i])];
    flags.push_back(flag);
    if (!wanted[static_cast<int>(i)]) grads[i] = {};
    else if (!flag) std::memset(grads[i].data, 0xFF, grads[i].nbytes());
    flag = 1;  // later contributors add
  }
  Guarded& workspace = *workspace_[static_cast<int>(Phase::train)];
  workspace.poison();
  const auto params = m.backward_reads_params() ? of(module, params_) : std::vector<TensorView>(m.params().size());
  m.backward({.shape = shape,
              .params = params,
              .dparams = grads,
              .accumulate = flags,
              .x = module ? activation(module - 1, shape) : TensorView{},
              .saved = (splits(module) ? recomputed_ : saved_)[module]->bytes(),
              .kept = splits(module) ? kept_[module]->bytes() : TensorView{},
              .workspace = workspace.bytes(),
              .dy = dy,
              .dx = dx,
              .batch = &batch});
}

void Runner::recompute(std::size_t module, BatchShape shape, const Batch& batch) {
  if (selective_ && model_.modules[module]->split_saved_bytes(shape, model_.dtype).recomputed == 0) return;
  const auto before = values(activation(module, shape));
  (splits(module) ? recomputed_ : saved_)[module]->poison();
  (void)take_gemm_flops();
  forward(module, Phase::train, shape, batch, /*again=*/true);
  recompute_gemm_flops[module] = take_gemm_flops();
  EXPECT_EQ(before, values(activation(module, shape))) << "recomputed " << model_.modules[module]->name();
}

double Runner::train(BatchShape shape, const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& targets,
                     double loss_scale, const Step& step) {
  const Shape rows{shape.batch, shape.tokens}, full{shape.batch, shape.tokens, model_.hidden};
  const Batch batch{.ids = {ids.data(), rows},
                    .targets = {targets.data(), rows},
                    .loss_scale = &loss_scale,
                    .sums = &sums,
                    .positions = packed.empty() ? TensorView{} : TensorView{packed.data(), rows},
                    .router = router};
  const std::size_t count = model_.modules.size();
  selective_ = step.selective;
  for (std::size_t m = 0; m < count; ++m) {
    for (const auto* list : {&saved_, &kept_, &recomputed_}) (*list)[m]->poison();
    forward(m, Phase::train, shape, batch);
  }
  recompute_gemm_flops.assign(count, 0);
  auto accumulate = step.accumulate.empty() ? std::vector<std::uint8_t>(params_.size(), 0) : step.accumulate;
  TensorView dy;
  Guarded *dy_buffer = gradient_a_, *dx_buffer = gradient_a_;
  for (std::size_t m = count; m-- > 0;) {
    if ((step.recompute || step.selective) && m + 1 < count) recompute(m, shape, batch);
    if (!step.in_place || m + 1 == count) {
      dx_buffer = dy_buffer == gradient_a_ ? gradient_b_ : gradient_a_;
      dx_buffer->poison();
    }
    if (m < model_.lowest_trainable() && m + 1 < count) break;
    const TensorView dx = model_.wanted(m).dx() ? dx_buffer->view(model_.dtype, full) : TensorView{};
    const auto x = m ? values(activation(m - 1, shape)) : std::vector<double>{};
    backward(m, shape, batch, dy, dx, accumulate);
    if (m) {
      EXPECT_EQ(x, values(activation(m - 1, shape)))
          << "backward of " << model_.modules[m]->name() << " changed its input";
    }
    dy = dx;
    dy_buffer = dx_buffer;
  }
  check_guards();
  return sums.loss.value() / static_cast<double>(sums.tokens);
}

double Runner::evaluate(BatchShape shape, const std::vector<std::int32_t>& ids,
                        const std::vector<std::int32_t>& targets) {
  const Shape rows{shape.batch, shape.tokens};
  const Batch batch{.ids = {ids.data(), rows},
                    .targets = {targets.data(), rows},
                    .sums = &sums,
                    .positions = packed.empty() ? TensorView{} : TensorView{packed.data(), rows},
                    .router = router};
  for (std::size_t m = 0; m < model_.modules.size(); ++m) forward(m, Phase::eval, shape, batch);
  check_guards();
  return sums.loss.value() / static_cast<double>(sums.tokens);
}

void Runner::open_cache(models::CacheShape capacity) {
  capacity_ = capacity;
  caches_.clear();
  for (const auto& module : model_.modules) {
    caches_.push_back(
        buffers_.emplace_back(std::make_unique<Guarded>(module->cache_bytes(capacity, model_.dtype))).get());
    caches_.back()->poison();
  }
}

std::vector<double> Runner::cached_logits(BatchShape shape, const std::vector<std::int32_t>& ids,
                                          const std::vector<std::int32_t>& positions,
                                          const std::vector<std::int32_t>& lengths) {
  Guarded out(static_cast<std::size_t>(shape.batch * model_.vocab) * size_of(model_.dtype));
  const Shape rows{shape.batch, shape.tokens};
  const Batch batch{.ids = {ids.data(), rows},
                    .logits = out.view(model_.dtype, {shape.batch, model_.vocab}),
                    .positions = positions.empty() ? TensorView{} : TensorView{positions.data(), rows},
                    .lengths = lengths.empty() ? nullptr : lengths.data()};
  for (std::size_t m = 0; m < model_.modules.size(); ++m) forward(m, Phase::logits, shape, batch);
  EXPECT_TRUE(out.intact());
  check_guards();
  return values(out.view(model_.dtype, {shape.batch, model_.vocab}));
}

std::vector<double> Runner::logits(BatchShape shape, const std::vector<std::int32_t>& ids) {
  Guarded out(static_cast<std::size_t>(shape.batch * model_.vocab) * size_of(model_.dtype));
  const Batch batch{.ids = {ids.data(), {shape.batch, shape.tokens}},
                    .logits = out.view(model_.dtype, {shape.batch, model_.vocab})};
  for (std::size_t m = 0; m < model_.modules.size(); ++m) forward(m, Phase::logits, shape, batch);
  EXPECT_TRUE(out.intact());
  check_guards();
  return values(batch.logits);
}

void Runner::check_guards() const {
  for (const auto& buffer : buffers_) EXPECT_TRUE(buffer->intact());
}

Batch Runner::module_inputs(std::size_t module, BatchShape shape, const std::vector<std::int32_t>& ids,
                            const std::vector<std::int32_t>& targets, const double& loss_scale,
                            kernels::LossSums& loss) {
  const Shape rows{shape.batch, shape.tokens}, full{shape.batch, shape.tokens, model_.hidden};
  for (std::int64_t i = 0; i < full.numel(); ++i) {
    if (module > 0) set(activation(module - 1, shape), i, normal(5, static_cast<std::uint64_t>(i)));
    set(gradient_a_->view(model_.dtype, full), i, normal(6, static_cast<std::uint64_t>(i)));
  }
  return {.ids = {ids.data(), rows},
          .targets = {targets.data(), rows},
          .loss_scale = &loss_scale,
          .sums = &loss,
          .router = router};
}

Runner::ModuleGradients Runner::module_gradients(std::size_t module, BatchShape shape,
                                                 const std::vector<std::int32_t>& ids,
                                                 const std::vector<std::int32_t>& targets,
                                                 const std::vector<std::uint8_t>& wanted, bool dx) {
  const models::Module& m = *model_.modules[module];
  const bool first = module == 0, last = module + 1 == model_.modules.size();
  const Shape full{shape.batch, shape.tokens, model_.hidden};
  const double loss_scale = 0.125;
  kernels::LossSums loss;
  const Batch batch = module_inputs(module, shape, ids, targets, loss_scale, loss);
  const TensorView dy = gradient_a_->view(model_.dtype, full), of_input = gradient_b_->view(model_.dtype, full);
  gradient_b_->poison();
  saved_[module]->poison();
  forward(module, Phase::train, shape, batch);
  Guarded& workspace = *workspace_[static_cast<int>(Phase::train)];
  workspace.poison();
  std::vector<TensorView> grads = of(module, grads_);
  for (const TensorView& grad : grads) std::memset(grad.data, 0xFF, grad.nbytes());
  for (std::size_t i = 0; i < grads.size(); ++i)
    if (!wanted[i]) grads[i] = {};
  const std::vector<std::uint8_t> accumulate(grads.size(), 0);
  const auto x = first ? std::vector<double>{} : values(activation(module - 1, shape));
  (void)take_gemm_flops();
  m.backward({.shape = shape,
              .params = m.backward_reads_params() ? of(module, params_) : std::vector<TensorView>(m.params().size()),
              .dparams = grads,
              .accumulate = accumulate,
              .x = first ? TensorView{} : activation(module - 1, shape),
              .saved = saved_[module]->bytes(),
              .workspace = workspace.bytes(),
              .dy = last ? TensorView{} : dy,
              .dx = dx ? of_input : TensorView{},
              .batch = &batch});
  backward_gemm_flops = take_gemm_flops();
  ModuleGradients result;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const TensorView& buffer = grad(m.params()[i]);
    result.params.push_back(wanted[i] ? values(buffer) : std::vector<double>{});
    const auto* bytes = static_cast<const std::uint8_t*>(buffer.data);
    EXPECT_TRUE(wanted[i] || std::all_of(bytes, bytes + buffer.nbytes(), [](std::uint8_t b) { return b == 0xFF; }));
  }
  if (dx) result.dx = values(of_input);
  if (last) result.loss = loss.loss.value();
  if (!first) { EXPECT_EQ(x, values(activation(module - 1, shape))) << m.name() << " changed its input"; }
  check_guards();
  return result;
}

void Runner::check_module(std::size_t module, BatchShape shape, const std::vector<std::int32_t>& ids,
                          const std::vector<std::int32_t>& targets) {
  const models::Module& m = *model_.modules[module];
  const bool first = module == 0, last = module + 1 == model_.modules.size();
  const Shape full{shape.batch, shape.tokens, model_.hidden};
  const double loss_scale = 0.125;
  kernels::LossSums loss;
  const Batch batch = module_inputs(module, shape, ids, targets, loss_scale, loss);
  // The scalar to differentiate: the head's own loss, else a random weighting of the output.
  const TensorView dy = gradient_a_->view(model_.dtype, full), dx = gradient_b_->view(model_.dtype, full);
  const std::vector<double> weighting = values(dy);
  const auto scalar = [&] {
    loss = {};
    forward(module, Phase::eval, shape, batch);
    if (last) return loss_scale * loss.loss.value();
    double sum = 0;
    for (std::int64_t i = 0; i < full.numel(); ++i)
      sum += weighting[static_cast<std::size_t>(i)] * get(activation(module, shape), i);
    return sum;
  };
  saved_[module]->poison();
  forward(module, Phase::train, shape, batch);
  std::vector<std::uint8_t> accumulate(params_.size(), 0);
  backward(module, shape, batch, last ? TensorView{} : dy, first ? TensorView{} : dx, accumulate);
  const auto check = [&](const TensorView& value, const std::vector<double>& gradient, const std::string& name) {
    constexpr double h = 1e-5;
    double largest = 0, square = 0, error = 0;
    for (std::int64_t i = 0; i < value.numel(); ++i) {
      const double at = get(value, i);
      set(value, i, at + h);
      const double above = scalar();
      set(value, i, at - h);
      const double below = scalar();
      set(value, i, at);
      const double expected = (above - below) / (2 * h);
      largest = std::max(largest, std::abs(expected));
      square += expected * expected;
      error = std::max(error, std::abs(gradient[static_cast<std::size_t>(i)] - expected));
    }
    EXPECT_GT(square, 0) << name << " has no gradient: this checks nothing";
    EXPECT_LE(error, 2e-8 * largest + 1e-10) << m.name() << " " << name;
  };
  for (const int p : m.params()) {
    const std::string& name = model_.params[static_cast<std::size_t>(p)].name;
    check(param(p), values(grad(p)), name);
  }
  if (!first) check(activation(module - 1, shape), values(dx), "x");
  check_guards();
}

}  // namespace tessera::test
