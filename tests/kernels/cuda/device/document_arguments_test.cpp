// SPDX-License-Identifier: Apache-2.0
// Lengths and offsets of documents on a device.
#include "kernels/cuda/document_arguments.hpp"

#include "host_device_tensor.hpp"
#include "kernels/cuda/fused_attention_plan.hpp"

namespace tessera::kernels::cuda {
namespace {

TEST(CudaDocumentArguments, AreOffsetsInElements) {
  TESSERA_NEEDS_DEVICE();
  HostDeviceTensor<std::int32_t> starts({0, 500, 70, 800}, Shape{4}), lengths({70, 9, 30, 200}, Shape{4});
  const AttentionShape shape{.batch = 1, .tokens = 1000, .heads = 4, .kv_heads = 2, .head_dim = 64, .longest = 1000};
  for (const std::int64_t capacity : {3, 5, 200}) {
    const std::int64_t count = document_argument_count(capacity);
    HostDeviceTensor<std::int32_t> out(Shape{count}, -7);
    DeviceStream stream;
    write_document_arguments({.documents = {{}, starts.on_device(), lengths.on_device()},
                              .first = 1,
                              .count = 3,
                              .capacity = capacity,
                              .shape = shape,
                              .out = out.on_device()},
                             stream.view());
    stream.synchronize();
    const std::vector<std::int32_t> got = out.download();
    const std::int32_t at[] = {500, 70, 800}, tokens[] = {9, 30, 200};
    for (std::int64_t i = 0; i <= capacity; ++i) {
      const std::int32_t start = i < 3 ? at[i] : 1000;
      const auto of = [&](std::int64_t part) { return got[static_cast<std::size_t>(part * (capacity + 1) + i)]; };
      EXPECT_EQ(of(0), i < 3 ? tokens[i] : 0);
      EXPECT_EQ(of(1), start * 8 * 64);
      EXPECT_EQ(of(2), start * 4 * 64);
      EXPECT_EQ(of(3), start * 4);
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::cuda
