// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts on a device against host ranks: every ZeRO stage, packed rows with padding, load-balancing loss,
// layers and their experts in one unit and in two.
#include <cstdio>

#include "tests/train/device/device_runs.hpp"

namespace tessera::test {
namespace {

std::vector<Variant> expert_variants(int world) {
  const Variant base{.world = world,
                     .global_batch = 3 * world - 1,
                     .micro_batch = 2,
                     .tokens = 13};  // the last micro-batch is short or empty
  std::vector<Variant> all;
  // fp32 first, or bf16 first: so both come with both sizes of experts.
  for (const std::string strategy : {"0", "1", "2", "3"})
    for (const bool first : {true, false}) {
      const DType dtype = first == (strategy == "0" || strategy == "2") ? DType::f32 : DType::bf16;
      all.push_back(base);
      all.back().strategy = strategy;
      all.back().dtype = dtype;
    }
  for (const DType dtype : {DType::f32, DType::bf16}) {
    all.push_back(base);
    all.back().recompute = true;
    all.back().selective = dtype == DType::bf16;
    all.back().experts = shard::ExpertUnits::block;
    all.back().dtype = all.back().reduce_dtype = dtype;
  }
  all.push_back(base);
  all.back().reduce = shard::Reduce::last;
  all.push_back(base);
  all.back().dtype = DType::f16;
  all.back().loss_scale.initial = 0x1p60;  // overflows at first
  if (world == 4) {
    all.push_back(base);
    all.back().strategy = "HYBRID_SHARD";
    all.back().group = 2;
  }
  return all;
}

/// Experts of 20 × 10 for variants of odd index, whose gate and up the alignment of parameters keeps apart; of 20 × 16
/// for the others: adjacent, and one grouped GEMM.
std::string config_of(std::size_t index) {
  std::string config = experts_config;
  const std::string size = "\"moe_intermediate_size\": 10";
  const std::size_t at = config.find(size);
  TESSERA_ASSERT(at != std::string::npos);
  if (index % 2 == 0) config.replace(at, size.size(), "\"moe_intermediate_size\": 16");
  return config;
}

}  // namespace

const io::PackedStream& packed_documents() {
  static const std::vector<std::int64_t> ends = [] {
    std::vector<std::int64_t> all;
    for (std::int64_t at = 0, i = 0; at < 900; ++i)
      all.push_back(at = std::min<std::int64_t>(900, at + 1 + i * i % 23));
    return all;
  }();
  static const io::PackedStream stream(std::make_shared<RandomTokens>(900, 37), {0, ends}, 13, io::Packing::binpack);
  return stream;
}

int experts(World& world, Truth truth) {
  int wrong = 0;
  std::size_t index = 0;
  for (const Variant& v : expert_variants(world.size())) {
    const models::Model model = models::make(config_of(index++), "test", v.dtype);
    const auto body = [&](World& w) {
      return one_rank(w, model, v, {.from = "", .to = "", .stream = &packed_documents()});
    };
    const Said device = body(world), host = on_host(world.size(), world.rank(), body);
    if (agree(device, host, truth, v.dtype)) continue;
    std::printf("rank %d: experts differ, %s\n  device %s\n  host   %s\n", world.rank(), v.str().c_str(),
                device.str().c_str(), host.str().c_str());
    ++wrong;
  }
  return wrong;
}

}  // namespace tessera::test
