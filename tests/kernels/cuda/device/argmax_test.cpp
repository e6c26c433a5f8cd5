// SPDX-License-Identifier: Apache-2.0
// The largest element of rows on host and device: ties, rows of any length, elements that are not finite.
#include "kernels/argmax.hpp"

#include "host_device_tensor.hpp"

namespace tessera::kernels {
namespace {

TEST(CudaArgmax, IsTheHostsAndTheFirstOfEquals) {
  TESSERA_NEEDS_DEVICE();
  for (const std::int64_t width : {1, 31, 1000, 5003, 33000}) {
    const std::int64_t rows = 6;
    auto x = normals_of<float>(rows * width, 1);
    const auto at = [&](std::int64_t row, std::int64_t i) -> float& {
      return x[static_cast<std::size_t>(row * width + i)];
    };
    at(0, width - 1) = at(0, width / 2) = 9;  // equals
    for (std::int64_t i = 0; i < width; ++i) at(1, i) = -3;
    at(2, width / 3) = std::numeric_limits<float>::quiet_NaN();
    at(3, width - 1) = -std::numeric_limits<float>::infinity();
    at(4, width - 1) = 11;
    HostDeviceTensor<float> given(x, Shape{rows, width});
    HostDeviceTensor<std::int32_t> chosen(Shape{rows}, 77);
    DeviceStream stream;
    argmax({.x = given.on_host(), .out = chosen.on_host()}, host_stream);
    argmax({.x = given.on_device(), .out = chosen.on_device()}, stream.view());
    stream.synchronize();
    const auto last = static_cast<std::int32_t>(width - 1);
    EXPECT_EQ(chosen.host()[0], width / 2);
    EXPECT_EQ(chosen.host()[1], 0);
    EXPECT_EQ(chosen.host()[2], -1);
    EXPECT_EQ(chosen.host()[3], -1);
    EXPECT_EQ(chosen.host()[4], last);
    EXPECT_EQ(chosen.download(), chosen.host()) << width;
  }
}

}  // namespace
}  // namespace tessera::kernels
