// SPDX-License-Identifier: Apache-2.0
// Operations with equal bits on host and device: sums in a documented order, exact sums of squares, initializers.
#include "kernels/reduce.hpp"
#include "host_device_tensor.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/init.hpp"

namespace tessera::kernels {
namespace {

TEST(CudaReduce, SumTreeToTheBit) {
  TESSERA_NEEDS_DEVICE();
  for (const std::size_t num : {1, 2, 3, 4, 5, 7, 8, 13, 64, 100, 256})
    for (const std::int64_t n : {1, 128, 1027}) {
      std::vector<std::unique_ptr<HostDeviceTensor<float>>> parts;
      std::vector<const float*> host, device;
      for (std::size_t i = 0; i < num; ++i) {
        parts.push_back(std::make_unique<HostDeviceTensor<float>>(normals_of<float>(n, i), Shape{n}));
        host.push_back(parts.back()->host().data());
        device.push_back(parts.back()->data());
      }
      HostDeviceTensor<float> out(Shape{n}, 7.0F);
      DeviceStream stream;
      sum_tree({.parts = host, .out = out.host().data(), .count = static_cast<std::size_t>(n)}, host_stream);
      sum_tree({.parts = device, .out = out.data(), .count = static_cast<std::size_t>(n)}, stream.view());
      stream.synchronize();
      EXPECT_EQ(bytes_of(out.download()), bytes_of(out.host())) << num << " parts of " << n;
      sum_tree({.parts = device, .out = parts[num / 2]->data(), .count = static_cast<std::size_t>(n)},
               stream.view());  // over a part
      stream.synchronize();
      EXPECT_EQ(bytes_of(parts[num / 2]->download()), bytes_of(out.host()));
    }
}

TEST(CudaReduce, SumTree16BitToTheBit) {
  TESSERA_NEEDS_DEVICE();
  for (const std::size_t num : {1, 3, 8, 13}) {
    const std::int64_t n = 1027;
    std::vector<std::unique_ptr<HostDeviceTensor<bf16>>> parts;
    std::vector<const void*> host, device;
    for (std::size_t i = 0; i < num; ++i) {
      parts.push_back(std::make_unique<HostDeviceTensor<bf16>>(normals_of<bf16>(n, i), Shape{n}));
      host.push_back(parts.back()->host().data());
      device.push_back(parts.back()->data());
    }
    HostDeviceTensor<float> out(Shape{n}, 7.0F);
    DeviceStream stream;
    sum_tree_16bit(
        {.parts = host, .dtype = DType::bf16, .out = out.host().data(), .count = static_cast<std::size_t>(n)},
        host_stream);
    sum_tree_16bit({.parts = device, .dtype = DType::bf16, .out = out.data(), .count = static_cast<std::size_t>(n)},
                   stream.view());
    stream.synchronize();
    EXPECT_EQ(bytes_of(out.download()), bytes_of(out.host()));
  }
}

TEST(CudaReduce, Add16Bit) {
  TESSERA_NEEDS_DEVICE();
  for (const int n : {1003, 1024}) {
    HostDeviceTensor<bf16> x(normals_of<bf16>(n, 1), Shape{n});
    HostDeviceTensor<float> y(normals_of<float>(n, 2), Shape{n});
    DeviceStream stream;
    add_16bit_to(x.host().data(), DType::bf16, y.host().data(), static_cast<std::size_t>(n), host_stream);
    add_16bit_to(x.data(), DType::bf16, y.data(), static_cast<std::size_t>(n), stream.view());
    stream.synchronize();
    EXPECT_EQ(bytes_of(y.download()), bytes_of(y.host()));
  }
}

TEST(CudaReduce, AddAndFill) {
  TESSERA_NEEDS_DEVICE();
  HostDeviceTensor<float> x(normals_of<float>(1003, 1), Shape{1003}), y(normals_of<float>(1003, 2), Shape{1003}),
      z(Shape{1003}, 1.0F);
  DeviceStream stream;
  add_to(x.host().data(), y.host().data(), 1003, host_stream);
  add_to(x.data(), y.data(), 1003, stream.view());
  fill(z.data(), 1002, sum_identity, stream.view());
  stream.synchronize();
  EXPECT_EQ(bytes_of(y.download()), bytes_of(y.host()));
  std::vector<float> expected(1003, sum_identity);
  expected.back() = 1;
  EXPECT_EQ(bytes_of(z.download()), bytes_of(expected));
}

/// The counters that a sum of squares adds to zeros.
std::vector<std::int64_t> device_squares(const float* x, std::size_t count) {
  HostDeviceTensor<std::int64_t> counters(Shape{static_cast<std::int64_t>(ExactSum::num_counters)}, std::int64_t{0});
  DeviceStream stream;
  cuda::sum_of_squares(x, count, counters.data(), stream.view());
  stream.synchronize();
  return counters.download();
}

TEST(CudaReduce, SquaresHaveTheHostsDigits) {
  TESSERA_NEEDS_DEVICE();
  for (const std::size_t blocks : {std::size_t{1}, std::size_t{17}, std::size_t{16 * 1024 + 5}}) {
    const std::size_t count = blocks * norm_block;
    auto values = normals_of<float>(static_cast<std::int64_t>(count), 3);
    for (std::size_t i = 0; i < count; i += 7) values[i] = std::ldexp(values[i], static_cast<int>(i % 200) - 100);
    HostDeviceTensor<float> x(values, Shape{static_cast<std::int64_t>(count)});
    ExactSum sum;
    sum_of_squares(x.host().data(), count, sum, host_stream);
    const auto counters = device_squares(x.data(), count);
    EXPECT_TRUE(std::equal(counters.begin(), counters.end(), sum.counters().begin())) << blocks;
    EXPECT_EQ(device_squares(x.data(), count), counters);
  }
}

TEST(CudaReduce, SquaresSayWhatIsNotFinite) {
  TESSERA_NEEDS_DEVICE();
  auto values = normals_of<float>(512, 4);
  values[200] = std::numeric_limits<float>::infinity();
  values[500] = std::numeric_limits<float>::quiet_NaN();
  HostDeviceTensor<float> x(values, Shape{512});
  EXPECT_EQ(device_squares(x.data(), 512).back(), 2);
}

TEST(CudaInit, ToTheBitFromAnyElementOn) {
  TESSERA_NEEDS_DEVICE();
  const ParamSpec param{.name = "wte.weight", .shape = {100003}, .init = {Initializer::Kind::normal, 0.02}};
  const auto words = philox(42, hash64(param.name));
  for (const std::int64_t first : {0, 1, 6, 1000}) {
    const std::int64_t count = 5003;
    HostDeviceTensor<float> x(Shape{count}, 7.0F);
    initialize(param, 42, first, count, x.host().data());
    DeviceStream stream;
    cuda::normals({.key = static_cast<std::uint64_t>(words[1]) << 32 | words[0],
                   .first = first,
                   .count = count,
                   .std = 0.02,
                   .out = x.data()},
                  stream.view());
    stream.synchronize();
    EXPECT_EQ(bytes_of(x.download()), bytes_of(x.host()));
  }
}

}  // namespace
}  // namespace tessera::kernels
