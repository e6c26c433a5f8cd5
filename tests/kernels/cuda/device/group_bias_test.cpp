// SPDX-License-Identifier: Apache-2.0
// The parts of gpt-oss's experts on a device against the host: biases of groups, and the clamped SwiGLU; aligned or
// not.
#include "kernels/group_bias.hpp"
#include "host_device_tensor.hpp"
#include "kernels/clamped_swiglu.hpp"

namespace tessera::kernels {
namespace {

constexpr std::int64_t rows = 300, groups = 5;

template <class T>
class CudaExpertParts : public testing::Test {
 protected:
  static constexpr double tolerance = sizeof(T) == 2 ? 1e-2 : 2e-6;
};
TYPED_TEST_SUITE(CudaExpertParts, ElementTypes);

TYPED_TEST(CudaExpertParts, ClampedSwiglu) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  const GateLimits limits{.alpha = 1.702, .limit = 1.25};
  for (const std::size_t shift : {0, 1})
    for (const std::int64_t n : {1, 37, 4096 + 24}) {
      HostDeviceTensor<T> x(normals_of<T>(2 * n, 1, 2), Shape{2 * n}, shift), dy(normals_of<T>(n, 2), Shape{n}, shift),
          y(Shape{n}, T(7.0F), shift), dx(Shape{2 * n}, T(7.0F), shift);
      DeviceStream stream;
      clamped_swiglu_forward({x.on_host(), y.on_host(), limits}, host_stream);
      clamped_swiglu_backward({x.on_host(), dy.on_host(), dx.on_host(), limits}, host_stream);
      clamped_swiglu_forward({x.on_device(), y.on_device(), limits}, stream.view());
      clamped_swiglu_backward({x.on_device(), dy.on_device(), dx.on_device(), limits}, stream.view());
      stream.synchronize();
      EXPECT_LE(device_error(y), this->tolerance);
      EXPECT_LE(device_error(dx), this->tolerance);
      clamped_swiglu_backward({x.on_device(), dy.on_device(), x.on_device(), limits}, stream.view());
      stream.synchronize();
      EXPECT_EQ(bytes_of(x.download()), bytes_of(dx.download()));
    }
}

TYPED_TEST(CudaExpertParts, BiasesOfGroups) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  std::vector<std::int32_t> permutation;
  for (std::int32_t i = 0; i < rows; ++i) permutation.push_back(static_cast<std::int32_t>(i * 7 % rows));
  HostDeviceTensor<std::int32_t> offsets({0, 100, 100, 101, 260, rows}, Shape{groups + 1}),
      slots(permutation, Shape{rows}), rows_of(permutation, Shape{rows});
  HostDeviceTensor<float> weights(normals_of<float>(rows, 4), Shape{rows});
  for (const std::size_t shift : {0, 1})
    for (const std::int64_t columns : {40, 37, 1000}) {
      HostDeviceTensor<T> bias(normals_of<T>(groups * columns, 1), Shape{groups, columns}, shift),
          x(normals_of<T>(rows * columns, 2), Shape{rows, columns}, shift),
          y(normals_of<T>(rows * columns, 3), Shape{rows, columns}, shift);
      HostDeviceTensor<float> dbias(Shape{groups, columns}, 0.5F), dweights(Shape{rows}, 0.5F),
          wide(Shape{rows, columns}, 0.25F);
      DeviceStream stream;
      const auto run = [&](bool device, StreamView on) {
        const auto at = [device](auto& tensor) { return device ? tensor.on_device() : tensor.on_host(); };
        const Dispatch dispatch{at(slots), at(rows_of), at(offsets)};
        add_group_bias({at(offsets), at(bias), at(y)}, on);
        add_group_bias({at(offsets), at(bias), at(wide)}, on);
        group_bias_gradient(
            {.dispatch = dispatch, .dy = at(x), .weights = at(weights), .dbias = at(dbias), .accumulate = true}, on);
        add_group_bias_weights({dispatch, at(bias), at(x), at(dweights)}, on);
      };
      run(false, host_stream);
      run(true, stream.view());
      stream.synchronize();
      EXPECT_EQ(bytes_of(y.download()), bytes_of(y.host()));
      EXPECT_EQ(bytes_of(wide.download()), bytes_of(wide.host()));
      EXPECT_LE(device_error(dbias), 2e-6);
      EXPECT_LE(device_error(dweights), 2e-6);
      group_bias_gradient({.dispatch = {slots.on_device(), rows_of.on_device(), offsets.on_device()},
                           .dy = x.on_device(),
                           .weights = {},
                           .dbias = dbias.on_device()},
                          stream.view());
      group_bias_gradient({.dispatch = {slots.on_host(), rows_of.on_host(), offsets.on_host()},
                           .dy = x.on_host(),
                           .weights = {},
                           .dbias = dbias.on_host()},
                          host_stream);
      stream.synchronize();
      EXPECT_LE(device_error(dbias), 2e-6);
    }
}

}  // namespace
}  // namespace tessera::kernels
