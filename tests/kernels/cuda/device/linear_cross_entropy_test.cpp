// SPDX-License-Identifier: Apache-2.0
// linear_cross_entropy on a device against the host: odd vocabularies, ignored rows, accumulated sums, evaluation,
// gradient accumulation, two runs.
#include "kernels/linear_cross_entropy.hpp"

#include <set>
#include <sstream>

#include "host_device_tensor.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/gemm_choice.hpp"

namespace tessera::kernels {
namespace {

template <class T>
class CudaHeadLoss : public testing::Test {};
TYPED_TEST_SUITE(CudaHeadLoss, ElementTypes);

struct Case {
  std::int64_t n, c, v;
};

/// LossSums in device memory.
class DeviceSums {
 public:
  DeviceSums() : memory_(sizeof(LossSums)) { fill_now(test_device(), memory_.view().data, 0, sizeof(LossSums)); }
  [[nodiscard]] LossSums* get() const { return static_cast<LossSums*>(memory_.view().data); }
  [[nodiscard]] LossSums read() const {
    LossSums sums;
    copy_now(test_device(), &sums, get(), sizeof sums);
    return sums;
  }

 private:
  DeviceMemory memory_;
};

/// Of the loss: the device's logits have the type of x.
template <class T>
inline constexpr double loss_tolerance = std::is_same_v<T, float> ? 2e-6 : tolerance<T> / 8;

/// Targets that are the argmax may differ where two logits are rounded to one number.
template <class T>
inline constexpr std::int64_t ties = std::is_same_v<T, float> ? 0 : 1;

template <class T>
struct Problem {
  explicit Problem(const Case& s, double spread = 1, bool with_weights = false)
      : size(s),
        x(normals_of<T>(s.n * s.c, 1), Shape{s.n, s.c}),
        weight(normals_of<T>(s.v * s.c, 2, 0.3 * spread), Shape{s.v, s.c}),
        targets(targets_of(s), Shape{s.n}),
        row_weights(weights_of(s), Shape{s.n}),
        weighted(with_weights),
        dx(Shape{s.n, s.c}, T(7.0F)),
        dweight(normals_of<float>(s.v * s.c, 3), Shape{s.v, s.c}),
        squares(Shape{s.n}, 7.0),
        host_workspace(linear_cross_entropy_workspace(s.n, s.v, dtype_of<T>::value)),
        workspace(cuda::linear_cross_entropy_workspace(s.n, s.v, dtype_of<T>::value)),
        scale(sizeof(double)) {
    copy_now(test_device(), scale.view().data, &loss_scale, sizeof(double));
  }
  static std::vector<std::int32_t> targets_of(const Case& s) {
    std::vector<std::int32_t> t(static_cast<std::size_t>(s.n));
    for (std::size_t i = 0; i < t.size(); ++i)
      t[i] = i % 5 == 3 ? ignore_index : static_cast<std::int32_t>(uniform(4, i) * static_cast<double>(s.v));
    return t;
  }
  static std::vector<float> weights_of(const Case& s) {
    std::vector<float> weights(static_cast<std::size_t>(s.n));
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 0.37F * static_cast<float>(i % 7) - 0.5F;
    return weights;
  }
  void on_host(LossSums& sums, bool accumulate) {
    linear_cross_entropy({.x = x.on_host(),
                          .weight = weight.on_host(),
                          .targets = targets.on_host(),
                          .weights = weighted ? row_weights.on_host() : TensorView{},
                          .logits = logits,
                          .sums = &sums,
                          .workspace = host_workspace.view(),
                          .loss_scale = &loss_scale,
                          .dx = dx.on_host(),
                          .dweight = dweight.on_host(),
                          .accumulate = accumulate,
                          .log_sum_squares = squares.on_host()},
                         host_stream);
  }
  void on_device(LossSums* sums, bool accumulate, StreamView stream) {
    linear_cross_entropy({.x = x.on_device(),
                          .weight = weight.on_device(),
                          .targets = targets.on_device(),
                          .weights = weighted ? row_weights.on_device() : TensorView{},
                          .logits = logits,
                          .sums = sums,
                          .workspace = workspace.view(),
                          .loss_scale = static_cast<const double*>(scale.view().data),
                          .dx = dx.on_device(),
                          .dweight = dweight.on_device(),
                          .accumulate = accumulate},
                         stream);
  }
  void evaluate_on_device(LossSums* sums, StreamView stream) {
    linear_cross_entropy({.x = x.on_device(),
                          .weight = weight.on_device(),
                          .targets = targets.on_device(),
                          .weights = weighted ? row_weights.on_device() : TensorView{},
                          .logits = logits,
                          .sums = sums,
                          .workspace = workspace.view(),
                          .log_sum_squares = squares.on_device()},
                         stream);
  }
  void expect_squares() {
    const std::vector<double> device = squares.download();
    for (std::size_t i = 0; i < device.size(); ++i)
      EXPECT_NEAR(device[i], squares.host()[i], (std::is_same_v<T, float> ? 2e-5 : 0.1)) << i;
  }
  double loss_scale = 1.0 / 7;
  LogitRules logits = {};
  Case size;
  HostDeviceTensor<T> x, weight;
  HostDeviceTensor<std::int32_t> targets;
  HostDeviceTensor<float> row_weights;
  bool weighted;
  HostDeviceTensor<T> dx;
  HostDeviceTensor<float> dweight;
  HostDeviceTensor<double> squares;
  Workspace host_workspace;
  DeviceMemory workspace, scale;
};

TYPED_TEST(CudaHeadLoss, IsTheHosts) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  for (const Case& s : {Case{1, 8, 16}, Case{13, 24, 67}, Case{130, 40, 2049}, Case{37, 16, 50257}})
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(testing::Message() << s.n << " rows, vocabulary " << s.v);
      Problem<T> p(s);
      LossSums host;
      DeviceSums device;
      DeviceStream stream;
      p.on_host(host, accumulate);
      p.on_device(device.get(), accumulate, stream.view());
      stream.synchronize();
      const LossSums sums = device.read();
      EXPECT_EQ(sums.tokens, host.tokens);
      EXPECT_NEAR(sums.correct, host.correct, ties<T>);
      EXPECT_NEAR(sums.loss.value(), host.loss.value(), loss_tolerance<T> * (1 + host.loss.value()));
      EXPECT_LE(device_error(p.dx), 4 * tolerance<T>);
      EXPECT_LE(device_error(p.dweight), (std::is_same_v<T, float> ? 2e-5 : tolerance<T>));
      if (accumulate) continue;
      const auto dx = p.dx.download();
      const auto dweight = p.dweight.download();
      p.on_device(device.get(), false, stream.view());  // adds to the sums
      p.evaluate_on_device(device.get(), stream.view());
      stream.synchronize();
      EXPECT_EQ(bytes_of(p.dx.download()), bytes_of(dx));
      EXPECT_EQ(bytes_of(p.dweight.download()), bytes_of(dweight));
      p.expect_squares();
      const LossSums thrice = device.read();
      EXPECT_EQ(thrice.tokens, 3 * sums.tokens);
      ExactSum expected;
      for (int i = 0; i < 3; ++i) expected.add(sums.loss);
      EXPECT_EQ(thrice.loss.value(), expected.value());
    }
}

TYPED_TEST(CudaHeadLoss, ScaleAndSoftCapOfLogitsAsTheHosts) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  for (const LogitRules& logits : {LogitRules{0.3, 0}, LogitRules{1, 1.5}, LogitRules{1.7, 0.9}}) {
    Problem<T> p({130, 40, 2049}, 1, true);
    p.logits = logits;
    LossSums host;
    DeviceSums device, evaluated;
    DeviceStream stream;
    p.on_host(host, false);
    p.on_device(device.get(), false, stream.view());
    p.evaluate_on_device(evaluated.get(), stream.view());
    stream.synchronize();
    EXPECT_NEAR(device.read().loss.value(), host.loss.value(), 2 * loss_tolerance<T> * (1 + host.loss.value()));
    EXPECT_EQ(device.read().loss.value(), evaluated.read().loss.value());
    p.expect_squares();
    EXPECT_LE(device_error(p.dx), 4 * tolerance<T>) << logits.scale << " " << logits.soft_cap;
    EXPECT_LE(device_error(p.dweight), (std::is_same_v<T, float> ? 2e-5 : tolerance<T>));
  }
}

TYPED_TEST(CudaHeadLoss, WeightsOfRowsAsTheHosts) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  for (const Case& s : {Case{13, 24, 67}, Case{130, 40, 2049}}) {
    Problem<T> p(s, 1, true), plain(s);
    LossSums host;
    DeviceSums device, of_plain;
    DeviceStream stream;
    p.on_host(host, false);
    p.on_device(device.get(), false, stream.view());
    plain.on_device(of_plain.get(), false, stream.view());
    stream.synchronize();
    EXPECT_EQ(device.read().tokens, host.tokens);
    EXPECT_NEAR(device.read().correct, host.correct, ties<T>);
    EXPECT_NEAR(device.read().loss.value(), host.loss.value(), loss_tolerance<T> * of_plain.read().loss.value());
    EXPECT_NE(device.read().loss.value(), of_plain.read().loss.value());
    EXPECT_LE(device_error(p.dx), 4 * tolerance<T>);
    EXPECT_LE(device_error(p.dweight), (std::is_same_v<T, float> ? 2e-5 : tolerance<T>));
    std::ranges::fill(p.row_weights.host(), 1.0F);
    p.row_weights.upload();
    DeviceSums ones;
    p.on_device(ones.get(), false, stream.view());
    stream.synchronize();
    EXPECT_EQ(ones.read().loss.value(), of_plain.read().loss.value());
    EXPECT_EQ(bytes_of(p.dx.download()), bytes_of(plain.dx.download()));
    EXPECT_EQ(bytes_of(p.dweight.download()), bytes_of(plain.dweight.download()));
  }
}

/// The GEMMs, as their plans say it, that have an algorithm chosen.
std::set<std::string> chosen_gemms() {
  std::istringstream lines(gemm_choices());
  std::set<std::string> gemms;
  for (std::string line; std::getline(lines, line);)
    if (line.find(" -> ") != std::string::npos) gemms.insert(line.substr(0, line.find(", aligned")));
  return gemms;
}

TYPED_TEST(CudaHeadLoss, LargeGemmsOfAnyVocabularyHaveAlignedSizes) {
  TESSERA_NEEDS_DEVICE();
  const Case s{136, 72, 2049};  // used by this test only
  Problem<TypeParam> p(s);
  DeviceSums sums;
  DeviceStream stream;
  const std::set<std::string> before = chosen_gemms();
  record_gemms();
  p.on_device(sums.get(), false, stream.view());
  (void)finish_recording_gemms(Timing::on);
  std::set<std::string> gemms;
  std::ranges::set_difference(chosen_gemms(), before, std::inserter(gemms, gemms.end()));
  const char* const type = name_of(dtype_of<TypeParam>::value);
  std::set<std::string> expected;
  const auto expect = [&](std::int64_t v) {
    expected.insert(strfmt("%s T,N %ldx136x72 -> %s, pitches 72 72 2112", type, v, type));  // logits
    expected.insert(strfmt("%s N,T 72x%ldx136 -> fp32, pitches 72 2112 72", type, v));      // dweight
    expected.insert(strfmt("%s N,N 72x136x%ld -> %s, pitches 72 2112 72", type, v, type));  // dx
  };
  if (std::is_same_v<TypeParam, float>) expect(2049);
  else expect(2048), expect(1);
  EXPECT_EQ(gemms, expected);
}

TEST(CudaHeadLossEdges, ExtremesNaNAndTargetsThatDoNotExist) {
  TESSERA_NEEDS_DEVICE();
  const Case s{4, 8, 100};
  Problem<float> p(s, 1e4);
  DeviceSums sums;
  DeviceStream stream;
  p.on_device(sums.get(), false, stream.view());
  stream.synchronize();
  EXPECT_FALSE(sums.read().loss.nonfinite());
  for (const float g : p.dx.download()) EXPECT_TRUE(std::isfinite(g));
  p.targets.host()[0] = 100;
  p.targets.upload();
  DeviceSums bad;
  p.evaluate_on_device(bad.get(), stream.view());
  stream.synchronize();
  EXPECT_TRUE(bad.read().loss.nonfinite());
  p.targets.host()[0] = 1;
  p.targets.upload();
  p.x.host()[0] = std::numeric_limits<float>::quiet_NaN();
  p.x.upload();
  DeviceSums nan;
  p.evaluate_on_device(nan.get(), stream.view());
  stream.synchronize();
  EXPECT_TRUE(nan.read().loss.nonfinite());
}

TEST(CudaHeadLossEdges, TheLowestIndexAmongEqualsIsTheArgmax) {
  TESSERA_NEEDS_DEVICE();
  std::vector<float> w(5000, 0.5F);
  w[700] = w[4900] = 1;
  for (const auto& [target, correct] : {std::pair{700, 1}, {4900, 0}, {3, 0}}) {
    HostDeviceTensor<float> x(Shape{1, 1}, 1.0F), weight(w, Shape{5000, 1});
    HostDeviceTensor<std::int32_t> targets(Shape{1}, target);
    DeviceMemory workspace(cuda::linear_cross_entropy_workspace(1, 5000, DType::f32));
    DeviceSums sums;
    DeviceStream stream;
    linear_cross_entropy({.x = x.on_device(),
                          .weight = weight.on_device(),
                          .targets = targets.on_device(),
                          .sums = sums.get(),
                          .workspace = workspace.view()},
                         stream.view());
    stream.synchronize();
    EXPECT_EQ(sums.read().correct, correct);
  }
}

TEST(CudaHeadLossEdges, AnEmptyMicroBatchOverwritesWithZeros) {
  TESSERA_NEEDS_DEVICE();
  Problem<float> p({0, 4, 9});
  DeviceSums sums;
  DeviceStream stream;
  p.on_device(sums.get(), false, stream.view());
  stream.synchronize();
  EXPECT_EQ(sums.read().tokens, 0);
  EXPECT_EQ(p.dweight.download(), std::vector<float>(36, 0.0F));
}

}  // namespace
}  // namespace tessera::kernels
