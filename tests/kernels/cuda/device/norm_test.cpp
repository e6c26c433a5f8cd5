// SPDX-License-Identifier: Apache-2.0
// The norms on a device against the host's: rows per warp and per block, groups in rows, strides, in
// place, sums over many rows, two runs.
#include "host_device_tensor.hpp"
#include "kernels/layer_norm.hpp"
#include "kernels/rms_norm.hpp"

namespace tessera::kernels {
namespace {

template <class T>
class CudaNorm : public testing::Test {};
TYPED_TEST_SUITE(CudaNorm, ElementTypes);

struct Case {
  std::int64_t rows, groups, channels, gap;
};
std::vector<Case> norm_cases() {
  std::vector<Case> cases{{0, 1, 8, 0},    {1, 1, 1, 0},     {3, 1, 7, 0},    {17, 3, 10, 5},
                          {4, 5, 128, 64}, {1100, 1, 12, 0}, {9, 1, 1536, 0}, {5, 1, 2049, 0}};
  if (small_problems()) return cases;
  cases.insert(cases.end(), {{70, 1, 4096, 0}, {6000, 2, 64, 0}, {5000, 1, 520, 8}, {3, 1, 9000, 0}});
  return cases;
}

template <class T>
struct RmsProblem {
  explicit RmsProblem(const Case& c)
      : size(c),
        stride(c.groups * c.channels + c.gap),
        x(normals_of<T>(c.rows * stride, 1, 2), Shape{c.rows * stride}),
        dy(normals_of<T>(c.rows * stride, 2), Shape{c.rows * stride}),
        y(Shape{c.rows * stride}, T(7.0F)),
        dx(normals_of<T>(c.rows * stride, 3), Shape{c.rows * stride}),
        weight(normals_of<T>(c.channels, 4), Shape{c.channels}),
        rstd(Shape{c.rows * c.groups}, 0.0F),
        dweight(normals_of<float>(c.channels, 5), Shape{c.channels}),
        host_workspace(rms_norm_backward_workspace(c.channels, dtype_of<T>::value)),
        workspace(rms_norm_backward_workspace(c.channels, dtype_of<T>::value, test_device())) {}
  TensorView matrix(TensorView all) const {
    return {all.data, all.dtype, Shape{size.rows, size.groups * size.channels}, all.device};
  }
  void run(bool add, DeviceStream& stream) {
    rms_norm_forward({.x = matrix(x.on_host()),
                      .weight = weight.on_host(),
                      .y = matrix(y.on_host()),
                      .rstd = rstd.on_host(),
                      .eps = 1e-5,
                      .weight_offset = offset,
                      .stride_x = stride,
                      .stride_y = stride},
                     host_stream);
    rms_norm_forward({.x = matrix(x.on_device()),
                      .weight = weight.on_device(),
                      .y = matrix(y.on_device()),
                      .rstd = rstd.on_device(),
                      .eps = 1e-5,
                      .weight_offset = offset,
                      .stride_x = stride,
                      .stride_y = stride},
                     stream.view());
    rms_norm_backward({.dy = matrix(dy.on_host()),
                       .x = matrix(x.on_host()),
                       .weight = weight.on_host(),
                       .rstd = rstd.on_host(),
                       .dx = matrix(dx.on_host()),
                       .add_to_dx = add,
                       .dweight = dweight.on_host(),
                       .accumulate = add,
                       .workspace = host_workspace.view(),
                       .weight_offset = offset,
                       .stride_dy = stride,
                       .stride_x = stride,
                       .stride_dx = stride},
                      host_stream);
    backward_on_device(add, matrix(dx.on_device()), stream);
  }
  /// Without `to`, dx is not wanted, and asked to be added to.
  void backward_on_device(bool add, TensorView to, DeviceStream& stream) {
    rms_norm_backward({.dy = matrix(dy.on_device()),
                       .x = matrix(x.on_device()),
                       .weight = weight.on_device(),
                       .rstd = rstd.on_device(),
                       .dx = to,
                       .add_to_dx = add || !to,
                       .dweight = dweight.on_device(),
                       .accumulate = add,
                       .workspace = workspace.view(),
                       .weight_offset = offset,
                       .stride_dy = stride,
                       .stride_x = stride,
                       .stride_dx = stride},
                      stream.view());
  }
  Case size;
  std::int64_t stride;
  double offset = size.rows % 2 == 1 ? 1 : no_weight_offset;
  HostDeviceTensor<T> x, dy, y, dx, weight;
  HostDeviceTensor<float> rstd, dweight;
  Workspace host_workspace;
  DeviceMemory workspace;
};

TYPED_TEST(CudaNorm, RmsNorm) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  for (const Case& c : norm_cases())
    for (const bool add : {false, true}) {
      SCOPED_TRACE(testing::Message() << c.rows << " x " << c.groups << " x " << c.channels << (add ? " added" : ""));
      RmsProblem<T> p(c);
      DeviceStream stream;
      p.run(add, stream);
      stream.synchronize();
      EXPECT_LE(device_error(p.y), tolerance<T>);
      EXPECT_LE(device_error(p.rstd), 1e-6);
      EXPECT_LE(device_error(p.dx), c.channels > 1 ? 4 * tolerance<T> : 0.02);
      EXPECT_LE(device_error(p.dweight), 2e-5);
      if (add) continue;
      const auto dx = p.dx.download();
      const auto dweight = p.dweight.download();
      p.backward_on_device(false, {}, stream);
      stream.synchronize();
      EXPECT_EQ(bytes_of(p.dweight.download()), bytes_of(dweight));
      p.backward_on_device(false, p.matrix(p.dy.on_device()), stream);  // over dy
      stream.synchronize();
      EXPECT_EQ(bytes_of(p.dweight.download()), bytes_of(dweight));
      if (c.gap == 0) { EXPECT_EQ(bytes_of(p.dy.download()), bytes_of(dx)); }
    }
}

TYPED_TEST(CudaNorm, RmsNormAgainFromItsStatistics) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  RmsProblem<T> p({33, 2, 130, 0});
  DeviceStream stream;
  p.run(false, stream);
  stream.synchronize();
  const auto y = p.y.download();
  rms_norm_apply({.x = p.matrix(p.x.on_device()),
                  .weight = p.weight.on_device(),
                  .rstd = p.rstd.on_device(),
                  .y = p.matrix(p.x.on_device()),
                  .weight_offset = p.offset},
                 stream.view());
  stream.synchronize();
  EXPECT_EQ(bytes_of(p.x.download()), bytes_of(y));
}

TYPED_TEST(CudaNorm, LayerNorm) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  for (const Case& c : norm_cases()) {
    if (c.groups > 1) continue;
    for (const bool add : {false, true}) {
      SCOPED_TRACE(testing::Message() << c.rows << " x " << c.channels << (add ? " added" : ""));
      const Shape shape{c.rows, c.channels}, row{c.channels}, column{c.rows};
      const std::int64_t n = c.rows * c.channels;
      HostDeviceTensor<T> x(normals_of<T>(n, 1, 2), shape), dy(normals_of<T>(n, 2), shape), y(shape, T(7.0F)),
          dx(normals_of<T>(n, 3), shape), weight(normals_of<T>(c.channels, 4), row),
          bias(normals_of<T>(c.channels, 5), row);
      HostDeviceTensor<float> mean(column, 0.0F), rstd(column, 0.0F), dweight(normals_of<float>(c.channels, 6), row),
          dbias(normals_of<float>(c.channels, 7), row);
      Workspace host_workspace(layer_norm_backward_workspace(c.channels, dtype_of<T>::value));
      DeviceMemory workspace(layer_norm_backward_workspace(c.channels, dtype_of<T>::value));
      DeviceStream stream;
      layer_norm_forward({.x = x.on_host(),
                          .weight = weight.on_host(),
                          .bias = bias.on_host(),
                          .y = y.on_host(),
                          .mean = mean.on_host(),
                          .rstd = rstd.on_host(),
                          .eps = 1e-3},
                         host_stream);
      layer_norm_forward({.x = x.on_device(),
                          .weight = weight.on_device(),
                          .bias = bias.on_device(),
                          .y = y.on_device(),
                          .mean = mean.on_device(),
                          .rstd = rstd.on_device(),
                          .eps = 1e-3},
                         stream.view());
      layer_norm_backward({.dy = dy.on_host(),
                           .x = x.on_host(),
                           .weight = weight.on_host(),
                           .mean = mean.on_host(),
                           .rstd = rstd.on_host(),
                           .dx = dx.on_host(),
                           .add_to_dx = add,
                           .dweight = dweight.on_host(),
                           .dbias = dbias.on_host(),
                           .accumulate = add,
                           .workspace = host_workspace.view()},
                          host_stream);
      layer_norm_backward({.dy = dy.on_device(),
                           .x = x.on_device(),
                           .weight = weight.on_device(),
                           .mean = mean.on_device(),
                           .rstd = rstd.on_device(),
                           .dx = dx.on_device(),
                           .add_to_dx = add,
                           .dweight = dweight.on_device(),
                           .dbias = dbias.on_device(),
                           .accumulate = add,
                           .workspace = workspace.view()},
                          stream.view());
      stream.synchronize();
      EXPECT_LE(device_error(y), tolerance<T>);
      if (c.channels > 1) { EXPECT_LE(device_error(dx), 8 * tolerance<T>); }
      EXPECT_LE(device_error(dweight), 2e-5);
      EXPECT_LE(device_error(dbias), 2e-5);
      const auto again = y.download();
      layer_norm_apply({.x = x.on_device(),
                        .weight = weight.on_device(),
                        .bias = bias.on_device(),
                        .mean = mean.on_device(),
                        .rstd = rstd.on_device(),
                        .y = x.on_device()},
                       stream.view());
      stream.synchronize();
      EXPECT_EQ(bytes_of(x.download()), bytes_of(again));
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
