// SPDX-License-Identifier: Apache-2.0
// GEMM on a device against the host: every transposition, odd sizes, pitches, alpha, beta, bias, gradients in fp32, k =
// 0; two runs.
#include "kernels/gemm.hpp"

#include "host_device_tensor.hpp"
#include "kernels/gemm_choice.hpp"

namespace tessera::kernels {
namespace {

template <class T>
class CudaGemm : public testing::Test {};
TYPED_TEST_SUITE(CudaGemm, ElementTypes);

struct Case {
  std::int64_t m, n, k, gap;
};
const Case cases[] = {{1, 1, 1, 0}, {5, 7, 3, 2}, {64, 128, 32, 0}, {37, 130, 257, 3}, {200, 96, 1000, 8}};

template <class T, class C>
void expect_as_host(const Case& s, bool trans_a, bool trans_b, double alpha, double beta, bool with_bias) {
  SCOPED_TRACE(testing::Message() << s.m << " x " << s.n << " x " << s.k << (trans_a ? " aT" : "")
                                  << (trans_b ? " bT" : ""));
  const Shape shape_a = trans_a ? Shape{s.k, s.m} : Shape{s.m, s.k},
              shape_b = trans_b ? Shape{s.n, s.k} : Shape{s.k, s.n}, shape_c{s.m, s.n};
  const auto pitch = [&](const Shape& shape) { return shape[1] + s.gap; };
  const auto numel = [&](const Shape& shape) { return shape[0] * pitch(shape); };
  HostDeviceTensor<T> a(normals_of<T>(numel(shape_a), 1), Shape{numel(shape_a)}),
      b(normals_of<T>(numel(shape_b), 2), Shape{numel(shape_b)}), bias(normals_of<T>(s.n, 3), Shape{s.n});
  HostDeviceTensor<C> c(normals_of<C>(numel(shape_c), 4), Shape{numel(shape_c)});
  const auto as = [](TensorView all, const Shape& shape) { return TensorView(all.data, all.dtype, shape, all.device); };
  const auto args = [&](bool device) {
    return GemmArgs{.a = as(device ? a.on_device() : a.on_host(), shape_a),
                    .b = as(device ? b.on_device() : b.on_host(), shape_b),
                    .c = as(device ? c.on_device() : c.on_host(), shape_c),
                    .trans_a = trans_a,
                    .trans_b = trans_b,
                    .alpha = alpha,
                    .beta = beta,
                    .bias = !with_bias ? TensorView{}
                            : device   ? bias.on_device()
                                       : bias.on_host(),
                    .stride_a = pitch(shape_a),
                    .stride_b = pitch(shape_b),
                    .stride_c = pitch(shape_c)};
  };
  DeviceStream stream;
  gemm(args(false), host_stream);
  gemm(args(true), stream.view());
  stream.synchronize();
  EXPECT_LE(device_error(c), tolerance<C>);
  if (beta != 0) return;
  const auto first = c.download();
  gemm(args(true), stream.view());
  stream.synchronize();
  EXPECT_EQ(bytes_of(c.download()), bytes_of(first));
}

TYPED_TEST(CudaGemm, EveryTransposition) {
  TESSERA_NEEDS_DEVICE();
  for (const Case& s : cases)
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true}) expect_as_host<TypeParam, TypeParam>(s, trans_a, trans_b, 1, 0, false);
}

TYPED_TEST(CudaGemm, AddsAndScales) {
  TESSERA_NEEDS_DEVICE();
  for (const Case& s : cases) {
    expect_as_host<TypeParam, TypeParam>(s, false, true, 1, 1, false);
    expect_as_host<TypeParam, TypeParam>(s, false, false, 0.5, 0.25, false);
  }
}

template <class T>
void add_an_addend(const Case& s, std::size_t shift) {
  const Shape shape{s.m, s.n};
  HostDeviceTensor<T> a(normals_of<T>(s.m * s.k, 1), Shape{s.m, s.k}), b(normals_of<T>(s.n * s.k, 2), Shape{s.n, s.k}),
      old(normals_of<T>(s.m * s.n, 3), shape, shift), c(shape, T(7.0F));
  DeviceStream stream;
  gemm({.a = a.on_host(), .b = b.on_host(), .c = c.on_host(), .trans_b = true, .beta = 1, .addend = old.on_host()},
       host_stream);
  gemm({.a = a.on_device(),
        .b = b.on_device(),
        .c = c.on_device(),
        .trans_b = true,
        .beta = 1,
        .addend = old.on_device()},
       stream.view());
  stream.synchronize();
  EXPECT_LE(device_error(c), tolerance<T>);
  EXPECT_EQ(bytes_of(old.download()), bytes_of(old.host()));
}

TYPED_TEST(CudaGemm, AddsASeparateAddend) {
  TESSERA_NEEDS_DEVICE();
  for (const Case& s : cases)
    for (const std::size_t shift : {0, 1}) add_an_addend<TypeParam>(s, shift);
}

TYPED_TEST(CudaGemm, AddsABias) {
  TESSERA_NEEDS_DEVICE();
  for (const Case& s : cases) {
    if (s.n % 8 != 0) continue;  // the library's epilogue needs whole vectors
    expect_as_host<TypeParam, TypeParam>(s, false, true, 1, 0, true);
    expect_as_host<TypeParam, TypeParam>(s, false, false, 1, 1, true);
  }
}

/// What the kernel for few rows takes, and, by a k that is no multiple of a vector, what it leaves to the library.
std::vector<Case> few_rows() {
  std::vector<Case> all{{1, 1, 8, 0},    {1, 75, 264, 8},  {3, 130, 1000, 16},
                        {9, 33, 520, 8}, {16, 40, 130, 0}, {17, 48, 64, 0}};
  if (small_problems()) return all;
  all.insert(all.end(), {{8, 64, 2048, 0}, {16, 257, 768, 0}, {1, 4100, 136, 0}, {13, 5000, 72, 8}});
  return all;
}

TYPED_TEST(CudaGemm, OfFewRows) {
  TESSERA_NEEDS_DEVICE();
  for (const Case& s : few_rows()) {
    expect_as_host<TypeParam, TypeParam>(s, false, true, 1, 0, s.n % 8 == 0 || s.k % 8 == 0);
    expect_as_host<TypeParam, TypeParam>(s, false, true, 0.5, 1, false);
    expect_as_host<TypeParam, float>(s, false, true, 1, 0, false);
  }
}

TYPED_TEST(CudaGemm, OfFewRowsAddsASeparateAddend) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  for (const Case& s : few_rows()) add_an_addend<T>(s, 1);
}

TYPED_TEST(CudaGemm, GradientsInFp32) {
  TESSERA_NEEDS_DEVICE();
  for (const Case& s : cases)
    for (const double beta : {0.0, 1.0}) expect_as_host<TypeParam, float>(s, true, false, 1, beta, false);
}

TYPED_TEST(CudaGemm, ChoosesByTheClockAndKeepsTheChoice) {
  TESSERA_NEEDS_DEVICE();
  const std::int64_t m = 136, n = 264, k = 520;  // used by this test only
  HostDeviceTensor<TypeParam> a(normals_of<TypeParam>(m * k, 1), Shape{m, k}),
      b(normals_of<TypeParam>(n * k, 2), Shape{n, k});
  HostDeviceTensor<TypeParam> c(Shape{m, n}, TypeParam(7.0F));
  DeviceStream stream;
  const auto run = [&] {
    gemm({.a = a.on_device(), .b = b.on_device(), .c = c.on_device(), .trans_b = true}, stream.view());
    stream.synchronize();
    return bytes_of(c.download());
  };
  gemm({.a = a.on_host(), .b = b.on_host(), .c = c.on_host(), .trans_b = true}, host_stream);
  record_gemms();
  (void)run();
  EXPECT_EQ(finish_recording_gemms(Timing::on), 1u);
  const std::string kept = gemm_choices();
  const auto chosen = run();
  EXPECT_LE(device_error(c), tolerance<TypeParam>);
  record_gemms();
  EXPECT_EQ(run(), chosen);
  EXPECT_EQ(finish_recording_gemms(Timing::on), 0u);  // its choice is known
  EXPECT_GT(apply_gemm_choices(kept, "a test"), 0u);
  EXPECT_EQ(gemm_choices(), kept);
  EXPECT_EQ(run(), chosen);
  EXPECT_THROW((void)apply_gemm_choices(kept + " ", "a test"), Error);
}

TYPED_TEST(CudaGemm, OfARecordingAreCountedAndTimed) {
  TESSERA_NEEDS_DEVICE();
  const std::int64_t m = 152, n = 280, k = 536;  // used by this test only
  HostDeviceTensor<TypeParam> a(normals_of<TypeParam>(m * k, 1), Shape{m, k}),
      b(normals_of<TypeParam>(n * k, 2), Shape{n, k}), c(Shape{m, n}, TypeParam(7.0F));
  DeviceStream stream;
  const auto run = [&](double beta) {
    gemm({.a = a.on_device(), .b = b.on_device(), .c = c.on_device(), .trans_b = true, .beta = beta}, stream.view());
  };
  const std::string before = gemm_choices();
  record_gemms();
  for (const double beta : {0.0, 1.0, 1.0}) run(beta);
  stream.synchronize();
  const std::vector<RecordedGemm> gemms = time_recorded_gemms();
  ASSERT_EQ(gemms.size(), 2u);
  for (const RecordedGemm& gemm : gemms) {
    EXPECT_EQ(gemm.calls, gemm.name.ends_with(", added") ? 2 : 1) << gemm.name;
    EXPECT_EQ(gemm.flops, 2.0 * 152 * 280 * 536);
    EXPECT_GT(gemm.seconds, 0);
    EXPECT_LT(gemm.seconds, 1);
  }
  EXPECT_EQ(gemm_choices(), before);
  run(0);
  EXPECT_TRUE(time_recorded_gemms().empty());  // the recording has ended
}

TEST(CudaGemmEmpty, NoDepthIsZeroOrWhatWasThere) {
  TESSERA_NEEDS_DEVICE();
  HostDeviceTensor<float> none(Shape{1}, 1.0F), c(normals_of<float>(4 * 9, 5), Shape{36});
  const auto run = [&](double beta) {
    DeviceStream stream;
    gemm({.a = {none.data(), Shape{4, 0}, test_device()},
          .b = {none.data(), Shape{0, 6}, test_device()},
          .c = {c.data(), Shape{4, 6}, test_device()},
          .beta = beta,
          .stride_c = 9},
         stream.view());
  };
  run(1);
  EXPECT_EQ(c.download(), c.host());
  run(0);
  const auto after = c.download();
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i], i % 9 < 6 ? 0.0F : c.host()[i]);
}

}  // namespace
}  // namespace tessera::kernels
