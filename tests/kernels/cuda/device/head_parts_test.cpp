// SPDX-License-Identifier: Apache-2.0
// Heads in parts on a device: the bits of the host, with vectors and without.
#include "kernels/head_parts.hpp"
#include "host_device_tensor.hpp"

namespace tessera::kernels {
namespace {

template <class T>
class CudaHeadParts : public testing::Test {};
TYPED_TEST_SUITE(CudaHeadParts, ElementTypes);

TYPED_TEST(CudaHeadParts, AreThoseOfTheHost) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  constexpr std::int64_t rows = 37;
  for (const HeadParts& of : {HeadParts{2, 4, 2, 16}, HeadParts{4, 4, 2, 16}, HeadParts{4, 8, 1, 5},
                              HeadParts{2, 4, 0, 8}, HeadParts{8, 8, 8, 8}})
    for (const std::size_t shift : {0, 1}) {
      HostDeviceTensor<T> matrix(normals_of<T>(rows * of.width(), 3), Shape{rows, of.width()}, shift),
          parts(Shape{of.parts, rows, of.part_width()}, T(7.0F), shift);
      DeviceStream stream;
      split_heads({of, matrix.on_host(), parts.on_host()}, host_stream);
      split_heads({of, matrix.on_device(), parts.on_device()}, stream.view());
      stream.synchronize();
      EXPECT_EQ(bytes_of(parts.download()), bytes_of(parts.host()));
      merge_heads({of, matrix.on_host(), parts.on_host()}, host_stream);
      merge_heads({of, matrix.on_device(), parts.on_device()}, stream.view());
      stream.synchronize();
      EXPECT_EQ(bytes_of(matrix.download()), bytes_of(matrix.host()));
    }
}

}  // namespace
}  // namespace tessera::kernels
