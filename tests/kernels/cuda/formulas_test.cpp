// SPDX-License-Identifier: Apache-2.0
// The device functions of one element, on the CPU: the bits of host kernels where bits are promised, a tolerance
// elsewhere.
#include "kernels/cuda/activations.hpp"

#include <cstring>
#include <numeric>

#include "../reference.hpp"
#include "kernels/cuda/adamw_step.hpp"
#include "kernels/cuda/exact_sum_term.hpp"
#include "kernels/cuda/int8_code.hpp"
#include "kernels/cuda/normals.hpp"
#include "kernels/cuda/sgd_step.hpp"
#include "kernels/cuda/sort_rows.hpp"
#include "kernels/gelu.hpp"
#include "kernels/init.hpp"
#include "kernels/int8_blocks.hpp"
#include "kernels/swiglu.hpp"

namespace tessera::kernels {
namespace {

constexpr std::int64_t count = 4099;

TEST(CudaFormulas, GeluIsTheHosts) {
  auto x = random_vector<float>(count, 1, 4), dy = random_vector<float>(count, 2);
  x[0] = 1e9F, x[1] = -1e9F, x[2] = 0;
  std::vector<float> y(x.size()), dx(x.size());
  gelu_forward({.x = view(x), .y = view(y)}, host_stream);
  gelu_backward({.x = view(x), .dy = view(dy), .dx = view(dx)}, host_stream);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(cuda::gelu(x[i]), y[i], 4e-7 * std::abs(x[i])) << x[i];
    EXPECT_NEAR(dy[i] * cuda::gelu_slope(x[i]), dx[i], 2e-6 * std::abs(dy[i])) << x[i];
  }
  EXPECT_TRUE(std::isnan(cuda::gelu(std::numeric_limits<float>::quiet_NaN())));
}

TEST(CudaFormulas, SwigluIsTheHosts) {
  auto gate = random_vector<float>(count, 3, 6), up = random_vector<float>(count, 4),
       dy = random_vector<float>(count, 5);
  gate[0] = 200, gate[1] = -200;
  std::vector<float> y(gate.size()), dgate(gate.size()), dup(gate.size());
  swiglu_forward({.gate = view(gate), .up = view(up), .y = view(y)}, host_stream);
  swiglu_backward({.gate = view(gate), .up = view(up), .dy = view(dy), .dgate = view(dgate), .dup = view(dup)},
                  host_stream);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    EXPECT_NEAR(cuda::swiglu(gate[i], up[i]), y[i], 5e-7 * std::abs(gate[i] * up[i]));
    const auto slopes = cuda::swiglu_slopes(gate[i], up[i], dy[i]);
    EXPECT_NEAR(slopes.gate, dgate[i], 2e-6 * std::abs(dy[i] * up[i]) + 1e-30);
    EXPECT_NEAR(slopes.up, dup[i], 5e-7 * std::abs(dy[i] * gate[i]) + 1e-30);
  }
  constexpr auto gelu = GateActivation::gelu;
  swiglu_forward({.gate = view(gate), .up = view(up), .y = view(y), .activation = gelu}, host_stream);
  swiglu_backward(
      {.gate = view(gate), .up = view(up), .dy = view(dy), .dgate = view(dgate), .dup = view(dup), .activation = gelu},
      host_stream);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    EXPECT_NEAR(cuda::geglu(gate[i], up[i]), y[i], 5e-7 * std::abs(gate[i] * up[i]));
    const auto slopes = cuda::geglu_slopes(gate[i], up[i], dy[i]);
    EXPECT_NEAR(slopes.gate, dgate[i], 2e-6 * std::abs(dy[i] * up[i]) + 1e-30);
    EXPECT_NEAR(slopes.up, dup[i], 5e-7 * std::abs(dy[i] * gate[i]) + 1e-30);
  }
}

TEST(CudaFormulas, AdamWIsTheHostsToTheBit) {
  const auto grad = random_vector<float>(count, 6);
  for (const bool decay : {true, false}) {
    auto param = random_vector<float>(count, 7), m = random_vector<float>(count, 8), v = random_vector<float>(count, 9);
    for (float& x : v) x = x * x;
    v[0] = 0, v[1] = 1e-42F;
    auto own_param = param, own_m = m, own_v = v;
    auto own_grad = grad;
    const UpdateSegment all{.begin = 0, .end = count, .lr_factor = 0.3, .weight_decay = decay ? 0.1 : 0};
    const UpdateDecision decision{.clip = 0.37};
    const AdamWScalars scalars{.learning_rate = 3e-4,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .eps = 1e-8,
                               .bias_correction1 = 1 - 0.9 * 0.9,
                               .sqrt_bias_correction2 = std::sqrt(1 - 0.95 * 0.95)};
    adamw({.update = {.param = view(param), .grad = view(own_grad), .decision = &decision, .segments = {&all, 1}},
           .exp_avg = view(m),
           .exp_avg_sq = view(v),
           .scalars = &scalars},
          host_stream);
    const auto constants = cuda::adamw_constants(scalars, decision.clip, {0, count, all.lr_factor, all.weight_decay});
    for (std::size_t i = 0; i < grad.size(); ++i)
      cuda::adamw_element(constants, grad[i], own_param[i], own_m[i], own_v[i]);
    EXPECT_EQ(own_param, param);
    EXPECT_EQ(own_m, m);
    EXPECT_EQ(own_v, v);
  }
}

TEST(CudaFormulas, SgdIsTheHostsToTheBit) {
  auto grad = random_vector<float>(count, 6);
  const UpdateSegment all{.begin = 0, .end = count, .lr_factor = 0.3, .weight_decay = 0.1};
  const UpdateDecision decision{.clip = 0.37};
  for (const double momentum : {0.0, 0.9})
    for (const bool nesterov : {false, true}) {
      auto param = random_vector<float>(count, 7), buffer = random_vector<float>(count, 8);
      auto own_param = param, own_buffer = buffer;
      const SgdScalars scalars{.learning_rate = 3e-4, .momentum = momentum, .nesterov = nesterov ? 1 : 0};
      sgd({.update = {.param = view(param), .grad = view(grad), .decision = &decision, .segments = {&all, 1}},
           .momentum_buffer = momentum > 0 ? view(buffer) : TensorView{},
           .scalars = &scalars},
          host_stream);
      const auto constants = cuda::sgd_constants(scalars, decision.clip, {0, count, all.lr_factor, all.weight_decay});
      for (std::size_t i = 0; i < grad.size(); ++i) {
        if (momentum > 0) cuda::sgd_element(constants, grad[i], own_param[i], own_buffer[i]);
        else cuda::sgd_element(constants, grad[i], own_param[i]);
      }
      EXPECT_EQ(own_param, param);
      EXPECT_EQ(own_buffer, buffer);
    }
}

TEST(CudaFormulas, UpdateBlocksTakeEachElementOfASegmentOnce) {
  std::vector<UpdateSegment> segments;
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < 150; ++i) {
    const std::int64_t begin = end + (i % 3 == 0 ? i % 7 : 0);
    end = begin + (i * i * 37) % 20011;
    segments.push_back({.begin = begin, .end = end, .weight_decay = i % 2 == 0 ? 0.1 : 0});
  }
  std::vector<int> seen(static_cast<std::size_t>(end));  // as decay asks for: 2 or 1
  int launches = 0;
  for (std::span<const UpdateSegment> rest = segments; !rest.empty(); ++launches) {
    const cuda::UpdateTable table = cuda::take_update_table(rest);
    for (int t = 0; t < table.tiles; ++t) {
      const cuda::UpdateTile tile = cuda::update_tile(table, t);
      ASSERT_LT(tile.first, tile.last);
      ASSERT_LE(tile.last - tile.first, cuda::update_tile_elements);
      const auto take = [&](std::int64_t at) { seen[static_cast<std::size_t>(at)] += tile.weight_decay > 0 ? 2 : 1; };
      const std::int64_t n = t % 2 == 0 ? 8 : 4;
      const cuda::UpdateRuns runs = cuda::update_runs(tile, n);
      ASSERT_EQ((runs.to - runs.from) % n, 0);
      if (runs.to > runs.from) { ASSERT_EQ(runs.from % n, 0); }
      for (std::int64_t at = runs.from; at < runs.to; ++at) take(at);
      for (int thread = 0; thread < 256; ++thread)
        if (runs.single(tile, thread) < tile.last) take(runs.single(tile, thread));
    }
  }
  EXPECT_EQ(launches, 3);
  for (const UpdateSegment& s : segments)
    for (std::int64_t at = s.begin; at < s.end; ++at)
      ASSERT_EQ(std::exchange(seen[static_cast<std::size_t>(at)], 0), s.weight_decay > 0 ? 2 : 1) << at;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 0), end);  // and nothing between them
}

/// A pass as in sort_rows.cu, tile by tile: rows of a digit follow those of lower digits and of earlier tiles, warps
/// and rounds.
std::vector<std::int32_t> sorted_once(const std::vector<std::int32_t>& keys, const std::vector<std::int32_t>& from,
                                      int pass) {
  const auto rows = static_cast<std::int64_t>(from.size()), tiles = cuda::sort_tiles(rows);
  const auto each_row = [&](std::int64_t tile, auto f) {
    for (int warp = 0; warp < cuda::sort_threads / 32; ++warp)
      for (int round = 0; round < cuda::sort_rounds; ++round)
        for (int lane = 0; lane < 32; ++lane)
          if (const std::int64_t row = tile * cuda::sort_tile + cuda::sort_row(warp, round, lane); row < rows) {
            const std::int32_t own = from[static_cast<std::size_t>(row)];
            f(own,
              static_cast<std::size_t>(cuda::sort_digit(keys[static_cast<std::size_t>(own)], pass) * tiles + tile));
          }
  };
  std::vector<std::size_t> counts(static_cast<std::size_t>(cuda::sort_digits * tiles));
  for (std::int64_t tile = 0; tile < tiles; ++tile) each_row(tile, [&](std::int32_t, std::size_t at) { ++counts[at]; });
  std::exclusive_scan(counts.begin(), counts.end(), counts.begin(), std::size_t{0});
  std::vector<std::int32_t> to(from.size(), -1);
  for (std::int64_t tile = 0; tile < tiles; ++tile)
    each_row(tile, [&](std::int32_t own, std::size_t at) { to[counts[at]++] = own; });
  return to;
}

TEST(CudaFormulas, SortsAreStableForKeysOfAnyWidth) {
  for (const std::int64_t rows : {1, 257, 2048, 2049, 9001})
    for (const std::int64_t limit : {1, 2, 256, 257, 65536, 65537, 20000000, 0x7fffffff}) {
      std::vector<std::int32_t> keys(static_cast<std::size_t>(rows)), order(keys.size()), truth(keys.size());
      for (std::size_t i = 0; i < keys.size(); ++i)
        keys[i] = static_cast<std::int32_t>(uniform(12, i) * static_cast<double>(limit));
      keys.back() = static_cast<std::int32_t>(limit - 1);
      std::iota(order.begin(), order.end(), 0);
      truth = order;
      std::stable_sort(truth.begin(), truth.end(), [&](auto a, auto b) {
        return keys[static_cast<std::size_t>(a)] < keys[static_cast<std::size_t>(b)];
      });
      for (int pass = 0; pass < cuda::sort_passes(limit); ++pass) order = sorted_once(keys, order, pass);
      EXPECT_EQ(order, truth) << rows << " rows, keys below " << limit;
      const cuda::SortMemory memory = cuda::sort_memory(keys.data(), rows);  // whatever it is: places only
      const auto* const end = reinterpret_cast<char*>(memory.counts + cuda::sort_digits * cuda::sort_tiles(rows));
      EXPECT_EQ(end - reinterpret_cast<char*>(keys.data()), static_cast<std::ptrdiff_t>(cuda::sort_workspace(rows)));
    }
}

TEST(CudaFormulas, NormalsAreTheHostsToTheBit) {
  const ParamSpec param{.name = "h.3.mlp.c_fc.weight", .shape = {count}, .init = {Initializer::Kind::normal, 0.02}};
  std::vector<float> host(count);
  initialize(param, 1234, 0, count, host.data());
  const auto words = philox(1234, hash64(param.name));
  const std::uint64_t key = static_cast<std::uint64_t>(words[1]) << 32 | words[0];
  for (std::uint64_t group = 0; group < count / 4; ++group) {
    float four[4];
    cuda::normal_group(key, group, 0.02, four);
    for (std::size_t i = 0; i < 4; ++i) ASSERT_EQ(four[i], host[4 * group + i]) << group;
  }
}

TEST(CudaFormulas, DigitsAreExactSums) {
  const double tiny = std::numeric_limits<double>::denorm_min(), huge = std::numeric_limits<double>::max();
  std::vector<double> addends{
      0.0, -0.0, 1, -1, 1.5, tiny, -tiny, huge, -huge, 1e-300, std::numeric_limits<double>::infinity(), std::nan("")};
  for (std::size_t i = 0; i < 500; ++i)
    addends.push_back(std::ldexp(normal(10, i), static_cast<int>(uniform(11, i) * 2000) - 1000));
  ExactSum all;
  std::array<std::int64_t, ExactSum::num_counters> counters{};
  for (const double x : addends) {
    ExactSum one;
    one.add(x);
    all.add(x);
    const auto term = cuda::exact_sum_term(x);
    std::array<std::int64_t, ExactSum::num_counters> own{};
    for (int i = 0; i < 3; ++i) own[static_cast<std::size_t>(term.digit + i)] += term.part[i];
    for (std::size_t i = 0; i < own.size(); ++i) {
      EXPECT_EQ(own[i], one.counters()[i]) << x;
      counters[i] += own[i];
    }
  }
  for (std::size_t i = 0; i < counters.size(); ++i) EXPECT_EQ(counters[i], all.counters()[i]);
}

TEST(CudaFormulas, Int8BlocksAreTheHostsToTheBit) {
  for (const float spread : {1.0F, 1e-30F, 1e-39F, 0.0F, std::numeric_limits<float>::infinity()}) {
    constexpr std::size_t numbers = 256;
    auto x = random_vector<float>(numbers, 15), residual = random_vector<float>(numbers, 16, 0.01);
    for (float& v : x) v *= spread;
    if (spread < 1)
      for (float& v : residual) v *= spread;
    const std::vector<float> before = residual;
    std::vector<std::byte> bytes(int8_bytes(numbers));
    std::vector<float> read(numbers);
    encode_int8({.x = x.data(), .to = bytes.data(), .count = numbers, .residual = residual.data()}, host_stream);
    decode_int8({.from = bytes.data(), .to = read.data(), .count = numbers}, host_stream);
    std::uint32_t largest = 0;
    for (std::size_t i = 0; i < numbers; ++i)
      largest = std::max(largest, cuda::magnitude_bits(cuda::add(x[i], before[i])));
    const cuda::Int8Scale scale = cuda::int8_scale(largest);
    ASSERT_EQ(std::memcmp(bytes.data(), &scale.scale, sizeof(float)), 0);
    ASSERT_EQ(scale.finite, std::isfinite(spread));
    for (std::size_t i = 0; i < numbers && scale.finite; ++i) {
      const cuda::Int8Code code = cuda::int8_code(cuda::add(x[i], before[i]), scale.scale);
      ASSERT_EQ(static_cast<std::int8_t>(bytes[sizeof(float) + i]), code.code);
      ASSERT_EQ(cuda::bits_as<std::uint32_t>(residual[i]), cuda::bits_as<std::uint32_t>(code.rest));
      ASSERT_EQ(cuda::bits_as<std::uint32_t>(read[i]),
                cuda::bits_as<std::uint32_t>(cuda::int8_value(code.code, scale.scale)));
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
