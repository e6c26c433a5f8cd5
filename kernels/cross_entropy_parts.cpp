// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy_parts.hpp"

#include "kernels/gemm.hpp"
#include "kernels/host/dispatch.hpp"
#include "kernels/host/loss_rows.hpp"
#include "kernels/host/parallel.hpp"
#include "runtime/base/error.hpp"

namespace tessera::kernels {

namespace {

void check(const CrossEntropyPart& part) {
  const TensorView &x = part.x, &w = part.weight;
  TESSERA_ASSERT(x.device == host_device && (x.dtype == DType::f32 || x.dtype == DType::f64) && w.dtype == x.dtype,
                 "cross-entropy in parts is for fp32 on the host, not for %s", name_of(x.dtype));
  TESSERA_ASSERT(x.shape.rank() == 2 && w.shape.rank() == 2 && x.shape[1] == w.shape[1], "x %s, weight %s",
                 x.shape.str().c_str(), w.shape.str().c_str());
  const std::int64_t chunk = cross_entropy_chunk(part.vocab), end = part.first + w.shape[0];
  TESSERA_ASSERT(part.first % chunk == 0 && (end == part.vocab || end % chunk == 0), "rows %ld to %ld of %ld",
                 part.first, end, part.vocab);
  TESSERA_ASSERT(part.targets.numel() == x.shape[0] && (!part.weights || part.weights.numel() == x.shape[0]),
                 "targets %s", part.targets.shape.str().c_str());
  TESSERA_ASSERT(part.rows.nbytes() >= cross_entropy_rows_bytes(x.shape[0]) &&
                     part.workspace.nbytes() >= cross_entropy_part_workspace(x.shape[0], part.vocab, x.dtype),
                 "%zu and %zu bytes", part.rows.nbytes(), part.workspace.nbytes());
}

/// The chunks of a part, block of rows by block of rows.
template <class T>
class PartRun {
 public:
  explicit PartRun(const CrossEntropyPart& part)
      : part_(part),
        blocks_(part.x.shape[0], part.vocab, sizeof(T)),
        rows_(static_cast<host::LossRow*>(part.rows.data)),
        targets_(part.targets.as<std::int32_t>()),
        weights_(part.weights ? part.weights.as<float>() : nullptr),
        sweeps_(host::cross_entropy_row<T>()) {}

  void forward(LossSums& sums) {
    const std::int64_t n = part_.x.shape[0];
    if (part_.first == 0) std::fill_n(rows_, n, host::LossRow{});
    for_chunks([&](const TensorView& logits, std::int64_t row, std::int64_t column) {
      for_rows(logits, row, column, [&](const host::ChunkRow<T>& of, std::int64_t r) {
        if (!ignored(r)) (void)host::observe(rows_[r], of, sweeps_);
      });
    });
    if (part_.first + part_.weight.shape[0] < part_.vocab) return;
    for (std::int64_t r = 0; r < n; ++r)
      if (!ignored(r)) host::add_row(rows_[r], targets_[r], weight(r), sums);
  }

  void backward(const CrossEntropyPartGradients& g) {
    for_chunks([&](const TensorView& logits, std::int64_t row, std::int64_t column) {
      for_rows(logits, row, column, [&](const host::ChunkRow<T>& of, std::int64_t r) {
        if (ignored(r)) {
          std::fill_n(of.x, of.width, T(0));
          return;
        }
        const T chunk_max = host::largest_logit(of, sweeps_);
        (void)host::sum_exponentials(of, chunk_max, sweeps_);
        host::to_gradient(rows_[r], of, chunk_max, g.loss_scale * weight(r), sweeps_);
      });
      const std::int64_t count = logits.shape[0], width = logits.shape[1], first = column - part_.first;
      if (g.dx)
        gemm({.a = logits,
              .b = part_.weight.rows(first, width),
              .c = g.dx.rows(row, count),
              .alpha = part_.logits.scale,
              .beta = column == 0 ? 0.0 : 1.0},
             host_stream);
      if (g.dweight)
        gemm({.a = logits,
              .b = part_.x.rows(row, count),
              .c = g.dweight.rows(first, width),
              .trans_a = true,
              .alpha = part_.logits.scale,
              .beta = g.accumulate || row > 0 ? 1.0 : 0.0},
             host_stream);
    });
  }

 private:
  [[nodiscard]] bool ignored(std::int64_t r) const { return targets_[r] == ignore_index; }
  [[nodiscard]] double weight(std::int64_t r) const { return weights_ ? static_cast<double>(weights_[r]) : 1; }

  /// Calls f(logits, first row, first column in the vocabulary) for each block of rows and chunk of columns.
  template <class F>
  void for_chunks(const F& f) {
    const std::int64_t n = part_.x.shape[0], end = part_.first + part_.weight.shape[0];
    for (std::int64_t row = 0; row < n; row += blocks_.rows)
      for (std::int64_t column = part_.first; column < end; column += blocks_.chunk) {
        const std::int64_t count = std::min(blocks_.rows, n - row), width = std::min(blocks_.chunk, end - column);
        const TensorView logits{part_.workspace.data, part_.x.dtype, Shape{count, width}};
        gemm({.a = part_.x.rows(row, count),
              .b = part_.weight.rows(column - part_.first, width),
              .c = logits,
              .trans_b = true,
              .alpha = part_.logits.scale},
             host_stream);
        f(logits, row, column);
      }
  }
  /// Calls f(row of the chunk, row) for each row.
  template <class F>
  void for_rows(const TensorView& logits, std::int64_t row, std::int64_t column, const F& f) {
    const std::int64_t width = logits.shape[1];
    host::parallel_ranges(logits.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r)
        f(host::ChunkRow<T>{logits.as<T>() + r * width, column, width, targets_[row + r],
                            static_cast<T>(part_.logits.soft_cap)},
          row + r);
    });
  }

  const CrossEntropyPart& part_;
  host::LossBlocks blocks_;
  host::LossRow* rows_;
  const std::int32_t* targets_;
  const float* weights_;  // null: 1
  const host::LinearCrossEntropy<T>& sweeps_;
};

template <class F>
void run(const CrossEntropyPart& part, const F& f) {
  check(part);
  host::check_targets(part.targets, part.vocab);
  if (part.x.dtype == DType::f64) f(PartRun<double>(part));
  else f(PartRun<float>(part));
}

}  // namespace

void cross_entropy_part(const CrossEntropyPart& part, LossSums& sums) {
  run(part, [&](auto&& of) { of.forward(sums); });
}

void cross_entropy_part_backward(const CrossEntropyPart& part, const CrossEntropyPartGradients& gradients) {
  run(part, [&](auto&& of) { of.backward(gradients); });
}

std::size_t cross_entropy_rows_bytes(std::int64_t rows) {
  return static_cast<std::size_t>(rows) * sizeof(host::LossRow);
}

std::size_t cross_entropy_part_workspace(std::int64_t rows, std::int64_t vocab, DType dtype) {
  const std::size_t element = size_of(dtype);
  return static_cast<std::size_t>(host::LossBlocks::most_rows(rows, vocab, element) *
                                  host::LossBlocks(rows, vocab, element).chunk) *
         element;
}

std::int64_t cross_entropy_chunk(std::int64_t vocab) { return host::LossBlocks(1, vocab, sizeof(float)).chunk; }

}  // namespace tessera::kernels
