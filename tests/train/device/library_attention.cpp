// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN's kernels, which on the simulated device are ours under its name: its scratch is planned, its
// calls are counted, and warm-up steps may switch between both before the first step without effect on it.
#include <cmath>
#include <cstdio>

#include "kernels/attention.hpp"
#include "tests/train/device/device_runs.hpp"

namespace tessera::test {

namespace {

using kernels::DeviceAttention;

struct WithLibrary {
  WithLibrary() { kernels::set_device_attention(DeviceAttention::cudnn); }
  ~WithLibrary() { kernels::set_device_attention(DeviceAttention::own); }
};

bool is_near(const std::vector<double>& a, const std::vector<double>& b, Truth truth) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (truth == Truth::exact ? a[i] != b[i] : !(std::fabs(a[i] - b[i]) <= 1e-2 * std::fabs(b[i]))) return false;
  return true;
}

/// Losses of two steps, after warm-up steps with each of `cudnn_or_own`; the last one stays in use.
std::vector<double> losses(World& world, const models::Model& model, const std::vector<DeviceAttention>& cudnn_or_own) {
  const Variant v{.world = world.size(), .strategy = "3", .global_batch = 2 * world.size(), .dtype = DType::bf16};
  const RandomTokens tokens(400, 37);
  const io::Sampler sampler(40, true, 11);
  train::Trainer trainer(world, options_of(model, v, 2));
  trainer.initialize();
  for (const DeviceAttention who : cudnn_or_own) {
    kernels::set_device_attention(who);
    trainer.warm_up({&tokens, &sampler, v.global_batch});
  }
  std::vector<double> all;
  for (int s = 0; s < 2; ++s) all.push_back(trainer.step(tokens, sampler, s * v.global_batch, v.global_batch).loss);
  return all;
}

/// cuDNN refuses a call (the simulated one does for heads of 128): with cudnn_or_own our own kernels are used.
int refused(World& world) {
  kernels::set_device_attention(DeviceAttention::own);
  const models::Model model = models::make(config_json({.hidden = 256, .heads = 2}), "test", DType::bf16);
  const std::vector<double> own = losses(world, model, {});
  const WithLibrary library;
  const std::vector<double> cudnn_or_own = losses(world, model, {DeviceAttention::cudnn_or_own});
  const bool is_told = world.max(kernels::cudnn_attention_refusal().empty() ? 0 : 1) > 0;
  if (is_told && cudnn_or_own == own) return 0;
  std::printf("rank %d: attention that cuDNN refuses, told %d: %a %a, by ours %a %a\n", world.rank(), is_told,
              cudnn_or_own[0], cudnn_or_own[1], own[0], own[1]);
  return 1;
}

/// Packed rows, whose documents cuDNN takes as a list (the simulated one checks it): as on the host.
int packed(World& world, Truth truth) {
  const models::Model model = models::make(config_json({.hidden = 128, .heads = 2}), "test", DType::bf16);
  const Variant v{.world = world.size(),
                  .strategy = "3",
                  .global_batch = 3 * world.size() - 1,
                  .micro_batch = 2,
                  .tokens = 13,
                  .dtype = DType::bf16};
  const auto body = [&](World& w) {
    return one_rank(w, model, v, {.from = "", .to = "", .stream = &packed_documents()});
  };
  const WithLibrary library;
  const std::int64_t before = kernels::cudnn_attention_calls();
  const Said device = body(world);
  const bool is_called = world.max(kernels::cudnn_attention_calls() - before) > 0;
  const Said host = on_host(world.size(), world.rank(), body);
  if (is_called && agree(device, host, truth, v.dtype)) return 0;
  std::printf("rank %d: packed rows by cuDNN, called %d\n  device %s\n  host   %s\n", world.rank(), is_called,
              device.str().c_str(), host.str().c_str());
  return 1;
}

}  // namespace

int library_attention(World& world, Truth truth) {
  try {
    kernels::require_cudnn_attention(world.device());
  } catch (const Error& error) {
    if (truth == Truth::exact) return std::printf("the simulated device has no cuDNN: %s\n", error.what()), 1;
    return std::printf("attention by cuDNN is left out: %s\n", error.what()), 0;
  }
  const models::Model model = models::make(config_json({.hidden = 128, .heads = 2}), "test", DType::bf16);
  const std::vector<double> own = losses(world, model, {});
  const WithLibrary library;
  const std::int64_t before = kernels::cudnn_attention_calls();
  const std::vector<double> theirs = losses(world, model, {});
  const bool is_called = world.max(kernels::cudnn_attention_calls() - before) > 0;
  kernels::set_device_attention(DeviceAttention::cudnn);  // the plan has room for both
  const std::vector<double> turned =
      losses(world, model, {DeviceAttention::cudnn, DeviceAttention::own, DeviceAttention::cudnn});
  const bool well = is_called && turned == theirs && is_near(theirs, own, truth);
  if (!well)
    std::printf("rank %d: attention by cuDNN, called %d: %a %a, after turns %a %a, by ours %a %a\n", world.rank(),
                is_called, theirs[0], theirs[1], turned[0], turned[1], own[0], own[1]);
  return (well ? 0 : 1) + packed(world, truth) + (truth == Truth::exact ? refused(world) : 0);
}

}  // namespace tessera::test
