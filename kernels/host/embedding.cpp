// SPDX-License-Identifier: Apache-2.0
// Embedding. Threads split the rows forward and the columns backward.
#include "kernels/embedding.hpp"

#include <algorithm>

#include "kernels/host/bias.hpp"
#include "kernels/host/embedding.hpp"
#include "kernels/host/fp32_accumulator.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels::host {
namespace {

/// Sets columns [begin, end) of every row of a (rows, channels) table to zero.
template <class T>
void clear_columns(T* table, std::int64_t rows, std::int64_t channels, std::int64_t begin, std::int64_t end) {
  if (begin == 0 && end == channels) {
    std::fill_n(table, rows * channels, T(0));
    return;
  }
  for (std::int64_t row = 0; row < rows; ++row) std::fill_n(table + row * channels + begin, end - begin, T(0));
}

/// -1: none.
std::int64_t index_of(const RowIndices& of, std::int64_t i) {
  const std::int64_t index = of.ids ? of.ids[i] - of.first : i % of.period;
  return index >= 0 && index < of.size ? index : -1;
}

/// dy, and the row of the table that each of its rows belongs to.
template <class T>
struct Rows {
  const T* dy;
  std::int64_t count, channels;
  RowIndices index;
  /// The next row after i with the same index; count if there is none.
  [[nodiscard]] std::int64_t next(std::int64_t i) const {
    const std::int32_t* ids = index.ids;
    return ids ? std::find(ids + i + 1, ids + count, ids[i]) - ids : std::min(i + index.period, count);
  }
  /// Whether no row before i has the same index.
  [[nodiscard]] bool first(std::int64_t i) const {
    const std::int32_t* ids = index.ids;
    return ids ? std::find(ids, ids + i, ids[i]) == ids + i : i < index.period;
  }
};

/// Adds columns [begin, end) of all rows, in order, to the table's. A 16-bit table is summed in fp32 index by index,
/// and rounded once.
template <class T, class G>
void add_rows(const Rows<T>& rows, G* table, std::int64_t begin, std::int64_t end) {
  if constexpr (!is_half<G>) {
    embedding<T>().scatter(rows.index, rows.dy + begin, rows.count, rows.channels, end - begin, table + begin);
  } else {
    for (std::int64_t i = 0; i < rows.count; ++i) {
      const std::int64_t index = index_of(rows.index, i);
      if (index < 0 || !rows.first(i)) continue;
      with_fp32_accumulator(table + index * rows.channels + begin, end - begin, PreviousValues::keep,
                            [&](std::int64_t from, std::int64_t to, float* sums) {
                              for (std::int64_t row = i; row < rows.count; row = rows.next(row))
                                bias<T>().column_sums(rows.dy + row * rows.channels + begin + from, 1, 0, to - from,
                                                      sums,
                                                      /*from_out=*/true);
                            });
    }
  }
}

}  // namespace

void embedding_forward(const EmbeddingForwardArgs& args) {
  const std::int64_t tokens = args.ids.shape[1], channels = args.tokens_table.shape[1];
  const auto* ids = args.ids.as<std::int32_t>();
  const auto* positions_of = args.positions ? args.positions.as<std::int32_t>() : nullptr;
  dispatch_dtype(args.y.dtype, [&]<class T>(T) {
    const T* table = args.tokens_table.as<T>();
    const T* positions = args.positions_table ? args.positions_table.as<T>() : nullptr;
    T* y = args.y.as<T>();
    const RowIndices index{ids, 0, args.first_id, args.tokens_table.shape[0]};
    const auto& kernels = embedding<T>();
    parallel_ranges(args.ids.numel(), 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t at = index_of(index, row), following = row + 1 < end ? index_of(index, row + 1) : -1;
        if (at < 0) {
          std::fill_n(y + row * channels, channels, T(0));
          continue;
        }
        const T *token = table + at * channels, *next = following < 0 ? token : table + following * channels;
        const std::int64_t position = positions_of ? positions_of[row] : row % tokens;
        if (positions) kernels.sum(token, positions + position * channels, y + row * channels, channels, next);
        else kernels.copy(token, y + row * channels, channels, next);
      }
    });
  });
}

void embedding_backward(const EmbeddingBackwardArgs& args) {
  const std::int64_t tokens = args.ids.shape[1], rows = args.ids.numel(), channels = args.dy.shape[2];
  const auto* ids = args.ids.as<std::int32_t>();
  const auto* positions_of = args.positions ? args.positions.as<std::int32_t>() : nullptr;
  dispatch_dtype(args.dy.dtype, [&]<class T>(T) {
    const T* dy = args.dy.as<T>();
    const auto size_of_table = [](const TensorView& table) { return table ? table.shape[0] : 0; };
    const Rows<T> by_id{dy, rows, channels, {ids, 0, args.first_id, size_of_table(args.dtokens_table)}},
        by_position{dy, rows, channels, {positions_of, tokens, 0, size_of_table(args.dpositions_table)}};
    const auto add_to = [&](const TensorView& view, const Rows<T>& from, bool accumulate) {
      if (!view) return;
      dispatch_gradient_dtype<T>(view.dtype, [&]<class G>(G) {
        parallel_ranges(channels, 16, [&](std::int64_t begin, std::int64_t end) {
          if (!accumulate) clear_columns(view.as<G>(), view.shape[0], channels, begin, end);
          add_rows(from, view.as<G>(), begin, end);
        });
      });
    };
    add_to(args.dtokens_table, by_id, args.accumulate_tokens);
    add_to(args.dpositions_table, by_position, args.accumulate_positions);
  });
}

}  // namespace tessera::kernels::host
