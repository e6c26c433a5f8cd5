// Embedding: shapes, threads, dispatch.
#include "kernels/embedding.hpp"

#include <algorithm>

#include "kernels/host/embedding.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels {

void embedding_forward(const EmbeddingForwardArgs& args, StreamView) {
  TESSERA_ASSERT(args.ids.shape.rank() == 2 && args.tokens_table.shape.rank() == 2);
  const std::int64_t tokens = args.ids.shape[1], channels = args.tokens_table.shape[1];
  TESSERA_ASSERT(args.y.shape == Shape({args.ids.shape[0], tokens, channels}), "y %s", args.y.shape.str().c_str());
  TESSERA_ASSERT(
      !args.positions_table ||
          ((args.positions || args.positions_table.shape[0] >= tokens) && args.positions_table.shape[1] == channels),
      "positions %s", args.positions_table.shape.str().c_str());
  TESSERA_ASSERT(!args.positions || args.positions.shape == args.ids.shape, "positions %s", args.positions.shape.str().c_str());
  const auto* ids = args.ids.as<std::int32_t>();
  const auto* positions_of = args.positions ? args.positions.as<std::int32_t>() : nullptr;
  host::by_dtype(args.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* table = args.tokens_table.as<T>();
    const T* positions = args.positions_table ? args.positions_table.as<T>() : nullptr;
    T* y = args.y.as<T>();
    const auto& kernels = host::embedding<T>();
    host::parallel_ranges(args.ids.numel(), 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* token = table + ids[row] * channels;
        const std::int64_t position = positions_of ? positions_of[row] : row % tokens;
        if (positions) kernels.sum(token, positions + position * channels, y + row * channels, channels);
        else std::copy_n(token, channels, y + row * channels);
      }
    });
  });
}

namespace {

/// Columns [begin, end) of every row of a (rows, channels) table to zero.
template <class T>
void clear_columns(T* table, std::int64_t rows, std::int64_t channels, std::int64_t begin, std::int64_t end) {
  if (begin == 0 && end == channels) {
    std::fill_n(table, rows * channels, T(0));
    return;
  }
  for (std::int64_t row = 0; row < rows; ++row) std::fill_n(table + row * channels + begin, end - begin, T(0));
}

}  // namespace

void embedding_backward(const EmbeddingBackwardArgs& args, StreamView) {
  TESSERA_ASSERT(args.ids.shape.rank() == 2 && args.dtokens_table.shape.rank() == 2);
  const std::int64_t tokens = args.ids.shape[1], rows = args.ids.numel(), channels = args.dtokens_table.shape[1];
  TESSERA_ASSERT(args.dy.shape == Shape({args.ids.shape[0], tokens, channels}), "dy %s", args.dy.shape.str().c_str());
  const TensorView& dpositions = args.dpositions_table;
  TESSERA_ASSERT(!dpositions || ((args.positions || dpositions.shape[0] >= tokens) && dpositions.shape[1] == channels), "positions %s",
                 dpositions.shape.str().c_str());
  TESSERA_ASSERT(!args.positions || args.positions.shape == args.ids.shape, "positions %s", args.positions.shape.str().c_str());
  const auto* ids = args.ids.as<std::int32_t>();
  const auto* positions_of = args.positions ? args.positions.as<std::int32_t>() : nullptr;
  host::by_dtype(args.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* dy = args.dy.as<T>();
    const auto& kernels = host::embedding<T>();
    host::parallel_ranges(channels, 16, [&](std::int64_t begin, std::int64_t end) {
      T* table = args.dtokens_table.as<T>();
      if (!args.accumulate_tokens) clear_columns(table, args.dtokens_table.shape[0], channels, begin, end);
      kernels.scatter(ids, 0, dy + begin, rows, channels, end - begin, table + begin);
      if (!dpositions) return;
      T* positions = dpositions.as<T>();
      if (!args.accumulate_positions) clear_columns(positions, dpositions.shape[0], channels, begin, end);
      kernels.scatter(positions_of, tokens, dy + begin, rows, channels, end - begin, positions + begin);
    });
  });
}

}  // namespace tessera::kernels
