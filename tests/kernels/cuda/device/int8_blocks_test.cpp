// SPDX-License-Identifier: Apache-2.0
// Block-wise int8 on a device: the bytes, residuals and sums of the host.
#include "kernels/int8_blocks.hpp"

#include <cmath>
#include <limits>

#include "host_device_tensor.hpp"

namespace tessera::kernels {
namespace {

/// Blocks of magnitudes from 2^-140 to 2^12, so that no number overflows in fp16: the bits of a NaN are not promised.
std::vector<float> blocks_of(std::int64_t n, std::uint64_t seed) {
  auto x = normals_of<float>(n, seed);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(x[i], static_cast<int>(i / 256 % 39) * 4 - 140);
  return x;
}

template <class T>
class CudaInt8Blocks : public testing::Test {};
TYPED_TEST_SUITE(CudaInt8Blocks, ElementTypes);

TYPED_TEST(CudaInt8Blocks, EncodedAndDecodedToTheBit) {
  TESSERA_NEEDS_DEVICE();
  for (const std::int64_t count : {1, 128, 255, 256, 1003, 40000})
    for (const std::int64_t chunks : {1, 3})
      for (const bool feedback : {false, true}) {
        const Shape numbers{chunks * count};
        const auto n = static_cast<std::size_t>(count), c = static_cast<std::size_t>(chunks);
        std::vector<TypeParam> values;
        for (const float v : blocks_of(numbers.numel(), 3)) values.push_back(static_cast<TypeParam>(v));
        HostDeviceTensor<TypeParam> x(values, numbers), read(numbers, TypeParam(7.0F));
        HostDeviceTensor<float> residual(blocks_of(numbers.numel(), 4), numbers);
        HostDeviceTensor<std::uint8_t> bytes(Shape{static_cast<std::int64_t>(c * int8_bytes(n))}, std::uint8_t{9});
        const DType dtype = dtype_of<TypeParam>::value;
        DeviceStream stream;
        const auto run = [&](const void* from, float* rest, std::uint8_t* to, void* back, StreamView where) {
          auto* const encoded = reinterpret_cast<std::byte*>(to);
          encode_int8({.x = from,
                       .dtype = dtype,
                       .to = encoded,
                       .count = n,
                       .chunks = c,
                       .residual = feedback ? rest : nullptr},
                      where);
          decode_int8({.from = encoded, .to = back, .dtype = dtype, .count = n, .chunks = c}, where);
        };
        run(x.host().data(), residual.host().data(), bytes.host().data(), read.host().data(), host_stream);
        run(x.data(), residual.data(), bytes.data(), read.data(), stream.view());
        stream.synchronize();
        EXPECT_EQ(bytes.download(), bytes.host()) << count << " " << chunks;
        EXPECT_EQ(bytes_of(residual.download()), bytes_of(residual.host()));
        EXPECT_EQ(bytes_of(read.download()), bytes_of(read.host()));
      }
}

TYPED_TEST(CudaInt8Blocks, ABlockThatIsNotFiniteIsNaN) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  const DType dtype = dtype_of<T>::value;
  std::vector<T> values(600, static_cast<T>(1.0F));
  values[300] = static_cast<T>(std::numeric_limits<float>::infinity());
  HostDeviceTensor<T> x(values, Shape{600}), read(Shape{600}, static_cast<T>(0.0F));
  HostDeviceTensor<float> residual(Shape{600}, 0.25F);
  HostDeviceTensor<std::uint8_t> bytes(Shape{static_cast<std::int64_t>(int8_bytes(600))}, std::uint8_t{9});
  DeviceStream stream;
  auto* const encoded = reinterpret_cast<std::byte*>(bytes.data());
  encode_int8({.x = x.data(), .dtype = dtype, .to = encoded, .count = 600, .residual = residual.data()}, stream.view());
  decode_int8({.from = encoded, .to = read.data(), .dtype = dtype, .count = 600}, stream.view());
  stream.synchronize();
  const auto got = read.download();
  const auto rest = residual.download();
  for (std::size_t i = 0; i < 600; ++i) EXPECT_EQ(std::isnan(static_cast<float>(got[i])), i >= 256 && i < 512) << i;
  for (std::size_t i = 256; i < 512; ++i) EXPECT_EQ(rest[i], 0.25F);
}

TEST(CudaInt8Blocks, SumsToTheBit) {
  TESSERA_NEEDS_DEVICE();
  for (const std::size_t number : {1, 2, 3, 7, 16, 300})
    for (const std::int64_t count : {1, 128, 1003, 40000}) {
      const auto n = static_cast<std::size_t>(count);
      const auto x = blocks_of(static_cast<std::int64_t>(number) * count, number);
      HostDeviceTensor<std::uint8_t> parts(Shape{static_cast<std::int64_t>(number * int8_bytes(n))}, std::uint8_t{0});
      HostDeviceTensor<float> sum(Shape{count}, 7.0F);
      auto* const encoded = reinterpret_cast<std::byte*>(parts.host().data());
      encode_int8({.x = x.data(), .to = encoded, .count = n, .chunks = number}, host_stream);
      parts.upload();
      DeviceStream stream;
      sum_tree_int8({.parts = encoded, .number = number, .out = sum.host().data(), .count = n}, host_stream);
      sum_tree_int8(
          {.parts = reinterpret_cast<const std::byte*>(parts.data()), .number = number, .out = sum.data(), .count = n},
          stream.view());
      stream.synchronize();
      EXPECT_EQ(bytes_of(sum.download()), bytes_of(sum.host())) << number << " " << count;
    }
}

}  // namespace
}  // namespace tessera::kernels
