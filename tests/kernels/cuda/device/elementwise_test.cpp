// SPDX-License-Identifier: Apache-2.0
// Activations, addition, casts, rotation and dropout on a device against the host's kernels: odd sizes, unaligned
// pointers, in place, two runs.
#include "host_device_tensor.hpp"
#include "kernels/bias.hpp"
#include "kernels/convert.hpp"
#include "kernels/dropout.hpp"
#include "kernels/gelu.hpp"
#include "kernels/rope.hpp"
#include "kernels/scale.hpp"
#include "kernels/swiglu.hpp"

namespace tessera::kernels {
namespace {

struct Size {
  std::int64_t n;
  std::size_t shift;
};
const Size sizes[] = {{1, 0}, {7, 0}, {8, 0}, {1000, 1}, {4099, 0}, {100003, 3}};

template <class T>
class CudaElementwise : public testing::Test {};
TYPED_TEST_SUITE(CudaElementwise, ElementTypes);

TYPED_TEST(CudaElementwise, Gelu) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  for (const Size& s : sizes) {
    const Shape shape{s.n};
    HostDeviceTensor<T> x(normals_of<T>(s.n, 1, 3), shape, s.shift), y(shape, T(7.0F), s.shift),
        dy(normals_of<T>(s.n, 2), shape, s.shift), dx(shape, T(7.0F), s.shift);
    DeviceStream stream;
    gelu_forward({.x = x.on_host(), .y = y.on_host()}, host_stream);
    gelu_forward({.x = x.on_device(), .y = y.on_device()}, stream.view());
    gelu_backward({.x = x.on_host(), .dy = dy.on_host(), .dx = dx.on_host()}, host_stream);
    gelu_backward({.x = x.on_device(), .dy = dy.on_device(), .dx = dx.on_device()}, stream.view());
    stream.synchronize();
    EXPECT_LE(device_error(y), tolerance<T>) << s.n;
    EXPECT_LE(device_error(dx), tolerance<T>) << s.n;
    const auto first = dx.download();
    gelu_backward({.x = x.on_device(), .dy = dy.on_device(), .dx = dy.on_device()}, stream.view());  // over dy
    stream.synchronize();
    EXPECT_EQ(bytes_of(dy.download()), bytes_of(first));
  }
}

TYPED_TEST(CudaElementwise, ScaleAndSoftCap) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  for (const Size& s : sizes) {
    HostDeviceTensor<T> x(normals_of<T>(s.n, 1, 3), Shape{s.n}, s.shift),
        y(normals_of<T>(s.n, 1, 3), Shape{s.n}, s.shift);
    DeviceStream stream;
    scale({x.on_host(), 0.37}, host_stream);
    scale({x.on_device(), 0.37}, stream.view());
    soft_cap({y.on_host(), 2.5}, host_stream);
    soft_cap({y.on_device(), 2.5}, stream.view());
    stream.synchronize();
    EXPECT_EQ(device_error(x), 0) << s.n;
    EXPECT_LE(device_error(y), tolerance<T>) << s.n;
  }
}

TYPED_TEST(CudaElementwise, Geglu) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  constexpr auto gelu = GateActivation::gelu;
  for (const Size& s : sizes) {
    const Shape shape{s.n};
    HostDeviceTensor<T> gate(normals_of<T>(s.n, 3, 3), shape, s.shift), up(normals_of<T>(s.n, 4), shape, s.shift),
        dy(normals_of<T>(s.n, 5), shape, s.shift), y(shape, T(7.0F), s.shift), dgate(shape, T(7.0F), s.shift),
        dup(shape, T(7.0F), s.shift);
    DeviceStream stream;
    swiglu_forward({.gate = gate.on_host(), .up = up.on_host(), .y = y.on_host(), .activation = gelu}, host_stream);
    swiglu_forward({.gate = gate.on_device(), .up = up.on_device(), .y = y.on_device(), .activation = gelu},
                   stream.view());
    swiglu_backward({.gate = gate.on_host(),
                     .up = up.on_host(),
                     .dy = dy.on_host(),
                     .dgate = dgate.on_host(),
                     .dup = dup.on_host(),
                     .activation = gelu},
                    host_stream);
    swiglu_backward({.gate = gate.on_device(),
                     .up = up.on_device(),
                     .dy = dy.on_device(),
                     .dgate = dgate.on_device(),
                     .dup = dup.on_device(),
                     .activation = gelu},
                    stream.view());
    stream.synchronize();
    EXPECT_LE(device_error(y), tolerance<T>);
    EXPECT_LE(device_error(dgate), tolerance<T>);
    EXPECT_LE(device_error(dup), tolerance<T>);
  }
}

TYPED_TEST(CudaElementwise, Swiglu) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  for (const Size& s : sizes) {
    const Shape shape{s.n};
    HostDeviceTensor<T> gate(normals_of<T>(s.n, 3, 3), shape, s.shift), up(normals_of<T>(s.n, 4), shape, s.shift),
        dy(normals_of<T>(s.n, 5), shape, s.shift);
    HostDeviceTensor<T> y(shape, T(7.0F), s.shift), dgate(shape, T(7.0F), s.shift), dup(shape, T(7.0F), s.shift);
    DeviceStream stream;
    swiglu_forward({.gate = gate.on_host(), .up = up.on_host(), .y = y.on_host()}, host_stream);
    swiglu_forward({.gate = gate.on_device(), .up = up.on_device(), .y = y.on_device()}, stream.view());
    swiglu_backward({.gate = gate.on_host(),
                     .up = up.on_host(),
                     .dy = dy.on_host(),
                     .dgate = dgate.on_host(),
                     .dup = dup.on_host()},
                    host_stream);
    swiglu_backward({.gate = gate.on_device(),
                     .up = up.on_device(),
                     .dy = dy.on_device(),
                     .dgate = dgate.on_device(),
                     .dup = dup.on_device()},
                    stream.view());
    stream.synchronize();
    EXPECT_LE(device_error(y), tolerance<T>);
    EXPECT_LE(device_error(dgate), tolerance<T>);
    EXPECT_LE(device_error(dup), tolerance<T>);
    const auto first = dup.download();
    swiglu_backward({.gate = gate.on_device(),
                     .up = up.on_device(),
                     .dy = dy.on_device(),
                     .dgate = dgate.on_device(),
                     .dup = dy.on_device()},
                    stream.view());
    stream.synchronize();
    EXPECT_EQ(bytes_of(dy.download()), bytes_of(first));
  }
}

TYPED_TEST(CudaElementwise, SwigluOfColumns) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{3, 5}, {17, 64}, {9, 4104}}) {
    const Shape shape{rows, columns}, full{rows, 2 * columns};
    HostDeviceTensor<T> both(normals_of<T>(full.numel(), 3, 3), full), dy(normals_of<T>(shape.numel(), 5), shape),
        y(shape, T(7.0F));
    const auto column = [&](TensorView all, bool second) {
      return TensorView(static_cast<T*>(all.data) + (second ? columns : 0), dtype_of<T>::value, shape, all.device);
    };
    DeviceStream stream;
    const auto run = [&](TensorView of, TensorView to, TensorView slope, StreamView on) {
      const TensorView gate = column(of, false), up = column(of, true);
      swiglu_forward({.gate = gate, .up = up, .y = to, .stride = 2 * columns}, on);
      swiglu_backward({.gate = gate, .up = up, .dy = slope, .dgate = gate, .dup = up, .stride = 2 * columns}, on);
    };
    run(both.on_host(), y.on_host(), dy.on_host(), host_stream);
    run(both.on_device(), y.on_device(), dy.on_device(), stream.view());
    stream.synchronize();
    EXPECT_LE(device_error(y), tolerance<T>) << columns;
    EXPECT_LE(device_error(both), tolerance<T>) << columns;
  }
}

TYPED_TEST(CudaElementwise, AddToTheBit) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  for (const Size& s : sizes) {
    HostDeviceTensor<T> x(normals_of<T>(s.n, 6), Shape{s.n}, s.shift), y(normals_of<T>(s.n, 7), Shape{s.n}, s.shift);
    DeviceStream stream;
    add({.x = x.on_device(), .y = y.on_device()}, stream.view());
    add({.x = x.on_host(), .y = y.on_host()}, host_stream);
    stream.synchronize();
    EXPECT_EQ(bytes_of(y.download()), bytes_of(y.host()));
  }
}

TYPED_TEST(CudaElementwise, BiasGradient) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  struct Case {
    std::int64_t rows, columns, gap;
  };
  for (const Case& c : {Case{0, 5, 0}, Case{1, 1, 0}, Case{37, 19, 3}, Case{1000, 130, 0}, Case{33, 2049, 7}})
    for (const bool accumulate : {false, true}) {
      const std::int64_t stride = c.columns + c.gap;
      HostDeviceTensor<T> dy(normals_of<T>(c.rows * stride, 8), Shape{c.rows * stride});
      HostDeviceTensor<T> own(normals_of<T>(c.columns, 9), Shape{c.columns});
      HostDeviceTensor<float> wide(normals_of<float>(c.columns, 9), Shape{c.columns});
      const auto matrix = [&](TensorView all) {
        return TensorView(all.data, all.dtype, Shape{c.rows, c.columns}, all.device);
      };
      DeviceStream stream;
      bias_backward({.dy = matrix(dy.on_host()), .stride = stride, .dbias = own.on_host(), .accumulate = accumulate},
                    host_stream);
      bias_backward(
          {.dy = matrix(dy.on_device()), .stride = stride, .dbias = own.on_device(), .accumulate = accumulate},
          stream.view());
      bias_backward({.dy = matrix(dy.on_host()), .stride = stride, .dbias = wide.on_host(), .accumulate = accumulate},
                    host_stream);
      bias_backward(
          {.dy = matrix(dy.on_device()), .stride = stride, .dbias = wide.on_device(), .accumulate = accumulate},
          stream.view());
      stream.synchronize();
      EXPECT_LE(device_error(own), tolerance<T>);
      EXPECT_LE(device_error(wide), tolerance<float>);
    }
}

TYPED_TEST(CudaElementwise, RotaryPositionsThereAndBack) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  struct Case {
    std::int64_t rows, heads, d, gap;
  };
  for (const Case& c : {Case{5, 3, 6, 1}, Case{37, 2, 64, 0}, Case{64, 4, 128, 128}}) {
    const std::int64_t stride = c.heads * c.d + c.gap;
    std::vector<double> inv_freq;
    for (std::int64_t j = 0; j < c.d / 2; ++j)
      inv_freq.push_back(std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(c.d)));
    HostDeviceTensor<float> table(Shape{c.rows, c.d}, 0.0F);
    HostDeviceTensor<T> x(normals_of<T>(c.rows * stride, 10), Shape{c.rows * stride});
    std::vector<std::int32_t> position_values;
    for (std::int64_t r = 0; r < c.rows; ++r) position_values.push_back(static_cast<std::int32_t>((r * 7) % c.rows));
    HostDeviceTensor<std::int32_t> positions(position_values, Shape{c.rows});
    const auto matrix = [&](TensorView all) {
      return TensorView(all.data, all.dtype, Shape{c.rows, c.heads * c.d}, all.device);
    };
    DeviceStream stream;
    rope_table({.inv_freq = inv_freq, .scale = 1.1, .positions = {}, .table = table.on_host()}, host_stream);
    rope_table({.inv_freq = inv_freq, .scale = 1.1, .positions = {}, .table = table.on_device()}, stream.view());
    stream.synchronize();
    EXPECT_LE(device_error(table), 2e-7);
    rope({.x = matrix(x.on_host()),
          .head_dim = c.d,
          .stride = stride,
          .table = table.on_host(),
          .positions = positions.on_host()},
         host_stream);
    rope({.x = matrix(x.on_device()),
          .head_dim = c.d,
          .stride = stride,
          .table = table.on_device(),
          .positions = positions.on_device()},
         stream.view());
    stream.synchronize();
    EXPECT_LE(device_error(x), tolerance<T>);
    for (const RotaryPairs pairs : {RotaryPairs::rotate_half, RotaryPairs::interleaved})
      for (const Rotation turn : {Rotation::backward, Rotation::forward}) {
        x.upload();
        RopeArgs of{.x = matrix(x.on_host()),
                    .head_dim = c.d,
                    .stride = stride,
                    .table = table.on_host(),
                    .rotation = turn,
                    .pairs = pairs};
        rope(of, host_stream);
        of.x = matrix(x.on_device());
        of.table = table.on_device();
        rope(of, stream.view());
        stream.synchronize();
        EXPECT_LE(device_error(x), tolerance<T>);
      }
  }
}

TYPED_TEST(CudaElementwise, RotaryPositionsOfRowsAreThoseOfATable) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  for (const auto& [d, pairs] :
       {std::pair{6, RotaryPairs::rotate_half}, {128, RotaryPairs::rotate_half}, {128, RotaryPairs::interleaved}}) {
    const std::int64_t rows = 5, heads = 3, stride = heads * d + 8;
    std::vector<double> inv_freq;
    for (std::int64_t j = 0; j < d / 2; ++j)
      inv_freq.push_back(std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(d)));
    HostDeviceTensor<float> table(Shape{rows, d}, 0.0F);
    HostDeviceTensor<std::int32_t> positions({0, 1, 77, 4095, 131071}, Shape{rows});
    HostDeviceTensor<T> x(normals_of<T>(rows * stride, 10), Shape{rows * stride});
    const RopeTableArgs of{
        .inv_freq = inv_freq, .scale = 1.1, .positions = positions.on_device(), .table = table.on_device()};
    const RopeArgs rotation{.x = {x.data(), dtype_of<T>::value, Shape{rows, heads * d}, test_device()},
                            .head_dim = d,
                            .stride = stride,
                            .table = table.on_device(),
                            .pairs = pairs};
    DeviceStream stream;
    rope_at_positions(of, rotation, stream.view());
    stream.synchronize();
    const auto at_once = x.download();
    x.upload();
    rope_table(of, stream.view());
    rope(rotation, stream.view());
    stream.synchronize();
    EXPECT_EQ(bytes_of(at_once), bytes_of(x.download()));
    EXPECT_NE(bytes_of(at_once), bytes_of(x.host()));
  }
}

TEST(CudaConvert, IsTheHostsToTheBit) {
  TESSERA_NEEDS_DEVICE();
  const std::int64_t n = 65536 + 13;
  std::vector<float> values = normals_of<float>(n, 11, 100);
  for (std::uint32_t i = 0; i < 65536; ++i)
    values[i] = __builtin_bit_cast(float, i << 16 | (i * 40503u & 0xffffu));  // every exponent, all kinds of ties
  for (float& x : values)
    if (std::isnan(x)) x = 1;  // host and device make different NaNs
  const auto round_trip = [&](auto zero) {
    using T = decltype(zero);
    HostDeviceTensor<float> wide(values, Shape{n}), back(Shape{n}, 0.0F);
    HostDeviceTensor<T> narrow(Shape{n}, T(0.0F));
    DeviceStream stream;
    convert({.from = wide.on_host(), .to = narrow.on_host()}, host_stream);
    convert({.from = narrow.on_host(), .to = back.on_host()}, host_stream);
    convert({.from = wide.on_device(), .to = narrow.on_device()}, stream.view());
    convert({.from = narrow.on_device(), .to = back.on_device()}, stream.view());
    stream.synchronize();
    EXPECT_EQ(bytes_of(narrow.download()), bytes_of(narrow.host()));
    EXPECT_EQ(bytes_of(back.download()), bytes_of(back.host()));
  };
  round_trip(bf16{});
  round_trip(f16{});
  HostDeviceTensor<float> bad(std::vector<float>(9, std::numeric_limits<float>::quiet_NaN()), Shape{9});
  HostDeviceTensor<bf16> bad_half(Shape{9}, bf16(0.0F));
  DeviceStream stream;
  convert({.from = bad.on_device(), .to = bad_half.on_device()}, stream.view());
  stream.synchronize();
  for (const bf16 x : bad_half.download()) EXPECT_TRUE(std::isnan(static_cast<float>(x)));
}

template <class T>
void compare_dropout(std::int64_t columns, std::size_t x_shift, std::size_t y_shift, double p) {
  constexpr std::int64_t rows = 5;
  const Shape shape{rows, columns};
  HostDeviceTensor<T> x(normals_of<T>(rows * columns, 1), shape, x_shift), y(shape, T(7.0F), y_shift);
  DeviceStream stream;
  const auto compare = [&](HostDeviceTensor<T>& from, bool accumulate, std::int64_t first_column = 0) {
    DropoutArgs args{.x = from.on_host(), .y = y.on_host(), .p = p, .key = 12345678901, .first_row = 11};
    if (first_column > 0) args.first_column = first_column, args.columns = first_column + columns + 5;
    args.accumulate = accumulate;
    dropout(args, host_stream);
    args.x = from.on_device(), args.y = y.on_device();
    dropout(args, stream.view());
    stream.synchronize();
    EXPECT_EQ(bytes_of(y.download()), bytes_of(y.host())) << columns << " " << x_shift << " " << y_shift << " " << p;
  };
  compare(x, false);
  compare(x, true);
  compare(x, false, 24);  // columns of a wider matrix
  compare(y, false);      // in place
}

TYPED_TEST(CudaElementwise, DropoutToTheBit) {
  TESSERA_NEEDS_DEVICE();
  for (const std::int64_t columns : {1, 7, 8, 1003, 1024}) {
    for (const std::size_t x_shift : {0, 1})
      for (const std::size_t y_shift : {0, 1}) compare_dropout<TypeParam>(columns, x_shift, y_shift, 0.3);
    for (const double p : {0.0, 0.9999}) compare_dropout<TypeParam>(columns, 0, 0, p);
  }
}

}  // namespace
}  // namespace tessera::kernels
