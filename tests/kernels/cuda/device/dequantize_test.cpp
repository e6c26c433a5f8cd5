// SPDX-License-Identifier: Apache-2.0
// Dequantization on a device: the host's bits, for odd sizes and outputs that are not aligned.
#include "kernels/dequantize.hpp"
#include "host_device_tensor.hpp"
#include "kernels/quantize.hpp"

namespace tessera::kernels {
namespace {

template <class T>
class CudaDequantize : public testing::Test {};
TYPED_TEST_SUITE(CudaDequantize, ElementTypes);

TYPED_TEST(CudaDequantize, HasTheHostsBits) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  for (const QuantFormat format : quant_formats)
    for (const auto& [rows, columns, shift] :
         {std::tuple{3L, 7L, 0UL}, {64L, 256L, 0UL}, {301L, 97L, 0UL}, {301L, 97L, 1UL}}) {
      const QuantizedMatrix matrix{format, rows, columns};
      const std::vector<float> x = random_vector<float>(matrix.numel(), 3);
      std::vector<std::uint8_t> made(static_cast<std::size_t>(matrix.bytes()));
      Quantizer(matrix, [&](std::int64_t first, std::int64_t count, float* to) {
        std::copy_n(x.begin() + first, count, to);
      }).read(0, std::as_writable_bytes(std::span(made)));
      HostDeviceTensor<std::uint8_t> bytes(made, Shape{matrix.bytes()});
      HostDeviceTensor<T> out(Shape{rows, columns}, T(7.0F), shift);
      DeviceStream stream;
      dequantize({.matrix = matrix, .bytes = bytes.on_host(), .out = out.on_host()}, host_stream);
      dequantize({.matrix = matrix, .bytes = bytes.on_device(), .out = out.on_device()}, stream.view());
      stream.synchronize();
      EXPECT_EQ(bytes_of(out.download()), bytes_of(out.host())) << name_of(format) << " " << rows << " " << columns;
    }
}

}  // namespace
}  // namespace tessera::kernels
