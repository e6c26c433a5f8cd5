// SPDX-License-Identifier: Apache-2.0
// Optimizers have equal bits on host and device.
#include "host_device_tensor.hpp"
#include "kernels/adamw.hpp"
#include "kernels/adamw_8bit.hpp"
#include "kernels/sgd.hpp"

namespace tessera::kernels {
namespace {

/// A shard on host and device.
struct UpdateProblem {
  UpdateProblem(std::int64_t n, std::size_t shift)
      : shape{n},
        param(normals_of<float>(n, 5), shape, shift),
        grad(normals_of<float>(n, 7), shape, shift),
        copy(shape, bf16(0.0F), shift) {}
  UpdateArgs on_host(std::span<const UpdateSegment> segments, bool with_copy) {
    return {.param = param.on_host(),
            .grad = grad.on_host(),
            .decision = decision.host().data(),
            .segments = segments,
            .copy = with_copy ? copy.on_host() : TensorView{}};
  }
  UpdateArgs on_device(std::span<const UpdateSegment> segments, bool with_copy) {
    return {.param = param.on_device(),
            .grad = grad.on_device(),
            .decision = decision.data(),
            .segments = segments,
            .copy = with_copy ? copy.on_device() : TensorView{}};
  }
  template <class T>
  static void expect_equal(HostDeviceTensor<T>& tensor) {
    EXPECT_EQ(bytes_of(tensor.download()), bytes_of(tensor.host()));
  }
  HostDeviceTensor<AdamWScalars> adamw_scalars{
      {{.learning_rate = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .bias_correction1 = 0.1, .sqrt_bias_correction2 = 0.2}},
      Shape{1}};
  HostDeviceTensor<SgdScalars> sgd_scalars{{{.learning_rate = 3e-3, .momentum = 0.9, .nesterov = 1}}, Shape{1}};
  HostDeviceTensor<UpdateDecision> decision{{{.clip = 0.37}}, Shape{1}};
  Shape shape;
  HostDeviceTensor<float> param, grad;
  HostDeviceTensor<bf16> copy;
};

/// Three steps of AdamW and SGD on host and device, which must agree.
struct Fp32Problem : UpdateProblem {
  Fp32Problem(std::int64_t n, std::size_t shift)
      : UpdateProblem(n, shift),
        m(normals_of<float>(n, 6), shape, shift),
        v(std::vector<float>(static_cast<std::size_t>(n), 0.25F), shape, shift) {}
  void run(std::span<const UpdateSegment> segments, bool with_copy) {
    DeviceStream stream;
    const UpdateArgs here = on_host(segments, with_copy), there = on_device(segments, with_copy);
    const auto *adamw_here = adamw_scalars.host().data(), *adamw_there = adamw_scalars.data();
    const auto *sgd_here = sgd_scalars.host().data(), *sgd_there = sgd_scalars.data();
    for (int step = 0; step < 3; ++step) {
      adamw({.update = here, .exp_avg = m.on_host(), .exp_avg_sq = v.on_host(), .scalars = adamw_here}, host_stream);
      adamw({.update = there, .exp_avg = m.on_device(), .exp_avg_sq = v.on_device(), .scalars = adamw_there},
            stream.view());
      sgd({.update = here, .momentum_buffer = m.on_host(), .scalars = sgd_here}, host_stream);
      sgd({.update = there, .momentum_buffer = m.on_device(), .scalars = sgd_there}, stream.view());
      sgd({.update = here, .momentum_buffer = {}, .scalars = sgd_here}, host_stream);
      sgd({.update = there, .momentum_buffer = {}, .scalars = sgd_there}, stream.view());
    }
    stream.synchronize();
    expect_equal(param);
    expect_equal(copy);
    expect_equal(m);
    expect_equal(v);
  }
  HostDeviceTensor<float> m, v;
};

/// A moment in 8 bits on host and device.
struct MomentProblem {
  explicit MomentProblem(std::int64_t n)
      : codes(Shape{n}, std::uint8_t{0}), absmax(Shape{(n + quantization_block - 1) / quantization_block}, 0.0F) {}
  QuantizedMoment on_host() { return {codes.on_host(), absmax.on_host()}; }
  QuantizedMoment on_device() { return {codes.on_device(), absmax.on_device()}; }
  HostDeviceTensor<std::uint8_t> codes;
  HostDeviceTensor<float> absmax;
};

/// Three steps of AdamW with 8-bit moments, from zero on, with gradients whose magnitudes differ from block to block.
struct EightBitProblem : UpdateProblem {
  EightBitProblem(std::int64_t n, std::size_t shift) : UpdateProblem(n, shift), m(n), v(n) {}
  void run(std::span<const UpdateSegment> segments, bool with_copy) {
    DeviceStream stream;
    for (int step = 0; step < 3; ++step) {
      grad.host() = normals_of<float>(shape[0], static_cast<std::uint64_t>(10 + step));
      for (std::size_t i = 0; i < grad.host().size(); ++i)
        grad.host()[i] *= std::ldexp(1.0F, static_cast<int>(i / std::size_t{quantization_block} % 9) - 4);
      grad.upload();
      adamw_8bit({.update = on_host(segments, with_copy),
                  .exp_avg = m.on_host(),
                  .exp_avg_sq = v.on_host(),
                  .scalars = adamw_scalars.host().data()},
                 host_stream);
      adamw_8bit({.update = on_device(segments, with_copy),
                  .exp_avg = m.on_device(),
                  .exp_avg_sq = v.on_device(),
                  .scalars = adamw_scalars.data()},
                 stream.view());
      stream.synchronize();
    }
    expect_equal(param);
    expect_equal(copy);
    for (MomentProblem* moment : {&m, &v}) {
      expect_equal(moment->codes);
      expect_equal(moment->absmax);
    }
  }
  MomentProblem m, v;
};

template <class Problem>
class CudaUpdate : public testing::Test {};
using UpdateProblems = testing::Types<Fp32Problem, EightBitProblem>;
TYPED_TEST_SUITE(CudaUpdate, UpdateProblems);

TYPED_TEST(CudaUpdate, ToTheBit) {
  TESSERA_NEEDS_DEVICE();
  for (const std::size_t shift : {0, 1})
    for (const std::int64_t n : {1, 4097, 100000})
      for (const bool decay : {true, false}) {
        const UpdateSegment all{.begin = 0, .end = n, .weight_decay = decay ? 0.1 : 0};
        TypeParam(n, shift).run({&all, 1}, decay);
      }
}

TYPED_TEST(CudaUpdate, ASkippedStepChangesNothing) {
  TESSERA_NEEDS_DEVICE();
  const UpdateSegment all{.begin = 0, .end = 4097};
  TypeParam problem(all.end, 0);
  problem.decision.host()[0].skip = 1;
  problem.decision.upload();
  problem.run({&all, 1}, true);
  EXPECT_EQ(problem.param.download(), normals_of<float>(all.end, 5));
}

TYPED_TEST(CudaUpdate, ManySegmentsOfAShardToTheBit) {
  TESSERA_NEEDS_DEVICE();
  // More than one launch. With fp32 moments every alignment, adjacent and apart; with 8 bits segments begin at blocks.
  const std::int64_t unit = std::is_same_v<TypeParam, EightBitProblem> ? quantization_block : 1;
  std::vector<UpdateSegment> segments;
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < 150; ++i) {
    const std::int64_t begin = (end + unit - 1) / unit * unit + (i % 3 == 0 ? i % 7 * unit : 0);
    end = begin + (i * i * 37) % 5003;
    segments.push_back({begin, end, i % 3 == 0 ? 0.5 : 1, i % 2 == 0 ? 0.1 : 0});
  }
  for (const std::size_t shift : {0, 1})
    for (const bool with_copy : {true, false}) {
      if (small_problems() && with_copy == (shift == 1)) continue;
      TypeParam(end + 5, shift).run(segments, with_copy);
    }
}

}  // namespace
}  // namespace tessera::kernels
