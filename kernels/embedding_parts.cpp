// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding_parts.hpp"

#include <algorithm>

#include "kernels/host/embedding.hpp"
#include "kernels/host/parallel.hpp"
#include "runtime/base/error.hpp"

namespace tessera::kernels {

namespace {

/// Calls f with a zero of the type.
template <class F>
void dispatch(const TensorView& view, const F& f) {
  TESSERA_ASSERT(view.device == host_device && (view.dtype == DType::f32 || view.dtype == DType::f64),
                 "an embedding in parts is for fp32 on the host, not for %s", name_of(view.dtype));
  if (view.dtype == DType::f64) f(double{});
  else f(float{});
}

}  // namespace

void embedding_part_forward(const EmbeddingPartForwardArgs& args) {
  const std::int64_t count = args.tokens_table.shape[0], channels = args.tokens_table.shape[1];
  const auto* ids = args.ids.as<std::int32_t>();
  dispatch(args.y, [&]<class T>(T) {
    host::parallel_ranges(args.ids.numel(), 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        if (const std::int64_t id = ids[row] - args.first; id >= 0 && id < count)
          std::copy_n(args.tokens_table.as<T>() + id * channels, channels, args.y.as<T>() + row * channels);
    });
  });
}

void add_positions(const AddPositionsArgs& args) {
  const std::int64_t tokens = args.y.shape[1], channels = args.y.shape[2];
  const auto* positions = args.positions ? args.positions.as<std::int32_t>() : nullptr;
  dispatch(args.y, [&]<class T>(T) {
    host::parallel_ranges(args.y.shape[0] * tokens, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t position = positions ? positions[row] : row % tokens;
        T* const y = args.y.as<T>() + row * channels;
        host::embedding<T>().sum(y, args.positions_table.as<T>() + position * channels, y, channels,
                                 row + 1 < end ? y + channels : y);
      }
    });
  });
}

void embedding_part_backward(const EmbeddingPartBackwardArgs& args) {
  const std::int64_t count = args.dtokens_table.shape[0], channels = args.dtokens_table.shape[1];
  const auto* ids = args.ids.as<std::int32_t>();
  dispatch(args.dy, [&]<class T>(T) {
    T* const table = args.dtokens_table.as<T>();
    host::parallel_ranges(channels, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = 0; row < count && !args.accumulate; ++row)
        std::fill_n(table + row * channels + begin, end - begin, T(0));
      for (std::int64_t i = 0; i < args.ids.numel(); ++i) {
        const auto id = static_cast<std::int32_t>(ids[i] - args.first);
        if (id >= 0 && id < count)
          host::embedding<T>().scatter(&id, 0, args.dy.as<T>() + i * channels + begin, 1, channels, end - begin,
                                       table + begin);
      }
    });
  });
}

}  // namespace tessera::kernels
