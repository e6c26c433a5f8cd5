// SPDX-License-Identifier: Apache-2.0
// linear_cross_entropy: blocks of rows, and in each block chunks of the vocabulary. Pass 1 computes a chunk of logits
// (gemm) and, while it is in cache, its maximum, the target's logit, and exponentials relative to the chunk's maximum
// with their sum. Pass 2 turns the exponentials into the gradient by one multiplication each and runs the two GEMMs of
// the gradients. Logits with a soft cap stay, and pass 2 computes the exponentials again.

#include "kernels/linear_cross_entropy.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/gemm.hpp"
#include "kernels/host/fp32_accumulator.hpp"
#include "kernels/host/loss_rows.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"
#include "runtime/base/round_up.hpp"

namespace tessera::kernels::host {
namespace {

constexpr std::int64_t part_alignment = 64;

TokenStatistics* statistics_of(const TensorView& view) { return reinterpret_cast<TokenStatistics*>(view.as<double>()); }
static_assert(sizeof(TokenStatistics) == 4 * sizeof(double));

template <class A>
struct Workspace {
  A* logits;  // chunk c at logits + rows·(first column of c): (rows, columns of c); for 16-bit T in training: (rows, V)
  A* chunk_max;   // (chunks, rows)
  LossRow* rows;  // (rows)

  static std::size_t bytes(std::int64_t block_rows, std::int64_t chunks, std::int64_t vocab) {
    const auto part = [](std::int64_t n, std::size_t element) {
      return static_cast<std::size_t>(round_up(n * static_cast<std::int64_t>(element), part_alignment));
    };
    return part(block_rows * vocab, sizeof(A)) + part(chunks * block_rows, sizeof(A)) +
           part(block_rows, sizeof(LossRow)) + part_alignment;
  }
  Workspace(const TensorView& view, const LossBlocks& cut, std::int64_t vocab) {
    auto* next = static_cast<std::byte*>(view.data);
    const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(next));
    next += round_up(address, part_alignment) - address;
    const auto take = [&](std::int64_t n, std::size_t element) {
      void* const at = next;
      next += round_up(n * static_cast<std::int64_t>(element), part_alignment);
      return at;
    };
    logits = static_cast<A*>(take(cut.rows * vocab, sizeof(A)));
    chunk_max = static_cast<A*>(take(cut.chunks * cut.rows, sizeof(A)));
    rows = static_cast<LossRow*>(take(cut.rows, sizeof(LossRow)));
  }
};

template <class T>
class BlockedRun {
  using A = Acc<T>;

 public:
  explicit BlockedRun(const LinearCrossEntropyArgs& args)
      : args_(args),
        vocab_(args.weight.shape[0]),
        cut_(args.x.shape[0], vocab_, sizeof(A)),
        workspace_(args.workspace, cut_, vocab_),
        targets_(args.targets.as<std::int32_t>()),
        weights_(args.weights ? args.weights.as<float>() : nullptr),
        log_probs_(args.log_probs ? args.log_probs.as<float>() : nullptr),
        squares_(args.log_sum_squares ? args.log_sum_squares.as<double>() : nullptr),
        trains_(args.trains()),
        sweeps_(cross_entropy_row<A>()) {}

  void run() {
    const std::int64_t n = args_.x.shape[0];
    for (std::int64_t first = 0; first < n; first += cut_.rows) {
      first_ = first;
      count_ = std::min(cut_.rows, n - first);
      for (std::int64_t r = 0; r < count_; ++r) { workspace_.rows[r] = {}; }
      for (std::int64_t c = 0; c < cut_.chunks; ++c) pass_logits(c);
      if (args_.part.statistics) write_statistics();
      else if (args_.part.merged) read_merged();
      else add_sums();
      if (!trains_) continue;
      for (std::int64_t c = 0; c < cut_.chunks; ++c) pass_gradient(c);
      args_.for_each_product([&](const Product& p, bool) {
        if constexpr (is_half<T>) {
          add_dweight(p, rounded_view(), p.dweight);
          write_dx(p, rounded_view(), p.weight, /*first=*/true);
        } else if (in_place(p)) {
          for (std::int64_t c = 0; c < cut_.chunks; ++c) write_dx(p, c);
        }
      });
    }
  }

 private:
  using Product = LinearCrossEntropyArgs::LowRank;

  [[nodiscard]] std::int64_t column(std::int64_t c) const { return c * cut_.chunk; }
  [[nodiscard]] std::int64_t width(std::int64_t c) const { return std::min(cut_.chunk, vocab_ - column(c)); }
  // Without a gradient the exponentials are not needed again: every chunk uses the same memory, which stays in cache.
  // For 16-bit T the gradient is rounded in place and multiplied after all chunks, so that dx is rounded once: whole
  // rows are kept.
  [[nodiscard]] bool full_rows() const { return is_half<T> && trains_; }
  /// dx is x: no chunk may write it before every chunk's dweight has read it.
  [[nodiscard]] static bool in_place(const Product& p) { return p.dx && p.dx.data == p.x.data; }
  [[nodiscard]] A* logits(std::int64_t c) const {
    return workspace_.logits + (full_rows() ? column(c) : trains_ ? cut_.rows * column(c) : 0);
  }
  [[nodiscard]] A* line(std::int64_t c, std::int64_t r) const {
    return logits(c) + r * (full_rows() ? vocab_ : width(c));
  }
  [[nodiscard]] TensorView logits_view(std::int64_t c) const { return {logits(c), Shape{count_, width(c)}}; }
  /// (rows, V) of T in place of the logits: rows are 2·V apart.
  [[nodiscard]] TensorView rounded_view() const {
    return {reinterpret_cast<T*>(workspace_.logits), Shape{count_, vocab_}};
  }
  [[nodiscard]] std::int64_t gradient_stride() const { return full_rows() ? 2 * vocab_ : 0; }
  [[nodiscard]] bool ignored(std::int64_t r) const { return targets_[first_ + r] == ignore_index; }
  /// In this part of the vocabulary, or outside.
  [[nodiscard]] std::int32_t target(std::int64_t r) const {
    return targets_[first_ + r] - static_cast<std::int32_t>(args_.part.first);
  }
  [[nodiscard]] double weight(std::int64_t r) const { return weights_ ? static_cast<double>(weights_[first_ + r]) : 1; }
  [[nodiscard]] double scale(std::int64_t r) const {
    return args_.part.merged ? statistics_of(args_.part.merged)[first_ + r].factor : *args_.loss_scale * weight(r);
  }

  void pass_logits(std::int64_t c) const {
    args_.for_each_product([&](const Product& p, bool first) {
      kernels::gemm({.a = p.x.rows(first_, count_),
                     .b = p.weight.rows(column(c), width(c)),
                     .c = logits_view(c),
                     .trans_b = true,
                     .alpha = p.alpha,
                     .beta = first ? 0.0 : 1.0,
                     .stride_c = full_rows() ? vocab_ : 0},
                    host_stream);
    });
    parallel_ranges(count_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        if (!ignored(r)) observe(c, r);
      }
    });
  }

  [[nodiscard]] ChunkRow<A> chunk_row(std::int64_t c, std::int64_t r) const {
    return {line(c, r), column(c), width(c), target(r), static_cast<A>(args_.logits.soft_cap)};
  }
  void observe(std::int64_t c, std::int64_t r) const {
    const A max = host::observe(workspace_.rows[r], chunk_row(c, r), sweeps_);
    workspace_.chunk_max[c * cut_.rows + r] = max;
    if (squares_ == nullptr) return;
    double& all = squares_[first_ + r];
    const double of_chunk = log_sum_squares(chunk_row(c, r), max);
    all = c == 0 ? of_chunk : std::max(all, of_chunk) + std::log1p(std::exp(-std::abs(all - of_chunk)));
  }
  /// log Σ exp(2·logit) of a chunk that has been observed: of exponentials, or of logits with a soft cap.
  static double log_sum_squares(const ChunkRow<A>& of, A max) {
    double sum = 0;
    for (std::int64_t i = 0; i < of.width; ++i) {
      const double e = of.soft_cap > 0 ? std::exp(static_cast<double>(of.x[i] - max)) : static_cast<double>(of.x[i]);
      sum += e * e;
    }
    return std::log(sum) + 2 * static_cast<double>(max);
  }

  void add_sums() const {
    LossSums unused;
    LossSums& sums = args_.sums != nullptr ? *args_.sums : unused;
    for (std::int64_t r = 0; r < count_; ++r) {
      LossRow& row = workspace_.rows[r];
      if (!ignored(r)) add_row(row, targets_[first_ + r], weight(r), sums);
      if (log_probs_ != nullptr) log_probs_[first_ + r] = ignored(r) ? 0.0F : static_cast<float>(row.target - row.lse);
      if (squares_ != nullptr) squares_[first_ + r] = ignored(r) ? 0.0 : squares_[first_ + r] - 2 * row.lse;
    }
  }

  void write_statistics() const {
    TokenStatistics* const out = statistics_of(args_.part.statistics) + first_;
    for (std::int64_t r = 0; r < count_; ++r) {
      const LossRow& row = workspace_.rows[r];
      out[r] = {};
      if (ignored(r)) continue;
      out[r].max = row.max;
      out[r].sum = row.sum;
      if (target(r) < 0 || target(r) >= vocab_) continue;
      out[r].target = row.target;
      out[r].factor = row.argmax == target(r) ? 1 : 0;
    }
  }
  void read_merged() const {
    const TokenStatistics* const from = statistics_of(args_.part.merged) + first_;
    for (std::int64_t r = 0; r < count_; ++r) {
      workspace_.rows[r].lse = from[r].max + std::log(from[r].sum);
      workspace_.rows[r].target = from[r].target;
    }
  }

  void pass_gradient(std::int64_t c) const {
    parallel_ranges(count_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        A* const x = line(c, r);
        if (ignored(r)) {
          std::fill_n(x, width(c), A(0));
        } else {
          to_gradient(workspace_.rows[r], chunk_row(c, r), workspace_.chunk_max[c * cut_.rows + r], scale(r), sweeps_);
        }
        // Into the front half of the row, which no later chunk reads.
        if constexpr (is_half<T>) convert().narrow(x, reinterpret_cast<T*>(line(0, r)) + column(c), width(c));
      }
    });
    if constexpr (is_half<T>) return;
    args_.for_each_product([&](const Product& p, bool) {
      if (!in_place(p)) write_dx(p, c);
      add_dweight(p, logits_view(c), p.dweight ? p.dweight.rows(column(c), width(c)) : TensorView{});
    });
  }

  void write_dx(const Product& p, std::int64_t c) const {
    write_dx(p, logits_view(c), p.weight.rows(column(c), width(c)), c == 0);
  }
  /// dx of the block's rows from the columns of `dlogits`, if it is wanted.
  void write_dx(const Product& p, const TensorView& dlogits, const TensorView& weight, bool first) const {
    if (!p.dx) return;
    kernels::gemm({.a = dlogits,
                   .b = weight,
                   .c = p.dx.rows(first_, count_),
                   .alpha = p.alpha,
                   .beta = first ? 0.0 : 1.0,
                   .stride_a = gradient_stride()},
                  host_stream);
  }
  /// dweight of the columns of `dlogits` from the block's rows, if it is wanted.
  void add_dweight(const Product& p, const TensorView& dlogits, const TensorView& dweight) const {
    if (!dweight) return;
    kernels::gemm({.a = dlogits,
                   .b = p.x.rows(first_, count_),
                   .c = dweight,
                   .trans_a = true,
                   .alpha = p.alpha,
                   .beta = p.accumulate || first_ > 0 ? 1.0 : 0.0,
                   .stride_a = gradient_stride()},
                  host_stream);
  }

  const LinearCrossEntropyArgs& args_;
  std::int64_t vocab_;
  LossBlocks cut_;
  Workspace<A> workspace_;
  const std::int32_t* targets_;
  const float* weights_;  // null: 1
  float* log_probs_;      // null: not wanted
  double* squares_;       // log Σ p², during the chunks log Σ exp(2·logit); null: not wanted
  bool trains_;           // a gradient is wanted
  const LinearCrossEntropy<A>& sweeps_;
  std::int64_t first_ = 0, count_ = 0;  // current block of rows
};

}  // namespace

std::size_t linear_cross_entropy_workspace(std::int64_t rows, std::int64_t vocab, DType dtype) {
  std::size_t bytes = 0;
  dispatch_dtype(dtype, [&](auto zero) {
    using A = Acc<decltype(zero)>;
    bytes = Workspace<A>::bytes(LossBlocks::most_rows(rows, vocab, sizeof(A)),
                                LossBlocks(rows, vocab, sizeof(A)).chunks, vocab);
  });
  return bytes;
}

void linear_cross_entropy(const LinearCrossEntropyArgs& args) {
  check_targets(args.targets, args.part.vocab > 0 ? args.part.vocab : args.weight.shape[0]);
  if (args.x.shape[0] == 0) {  // an empty micro-batch
    args.for_each_product([](const LinearCrossEntropyArgs::LowRank& p, bool) {
      if (p.dweight && !p.accumulate) std::memset(p.dweight.data, 0, p.dweight.nbytes());
    });
    return;
  }
  dispatch_dtype(args.x.dtype, [&]<class T>(T) { BlockedRun<T>(args).run(); });
}

void merge_token_statistics(const MergeTokenStatisticsArgs& args) {
  const std::int64_t n = args.targets.numel(), num_parts = args.parts.shape[0];
  const TokenStatistics* const parts = statistics_of(args.parts);
  const auto* targets = args.targets.as<std::int32_t>();
  const float* weights = args.weights ? args.weights.as<float>() : nullptr;
  LossSums unused;
  LossSums& sums = args.sums != nullptr ? *args.sums : unused;
  for (std::int64_t i = 0; i < n; ++i) {
    TokenStatistics all;
    if (targets[i] != ignore_index) {
      bool correct = false;
      for (std::int64_t p = 0; p < num_parts; ++p) {
        const TokenStatistics& part = parts[p * n + i];
        if (part.max > all.max) all.max = part.max, correct = part.factor == 1;
        all.target = std::max(all.target, part.target);
      }
      for (std::int64_t p = 0; p < num_parts; ++p)
        all.sum += parts[p * n + i].sum * std::exp(parts[p * n + i].max - all.max);
      const double weight = weights != nullptr ? static_cast<double>(weights[i]) : 1;
      sums.loss.add(weight * (all.max + std::log(all.sum) - all.target));
      sums.tokens += 1;
      sums.correct += correct ? 1 : 0;
      if (args.loss_scale != nullptr) all.factor = *args.loss_scale * weight;
    }
    if (args.merged) statistics_of(args.merged)[i] = all;
  }
}

}  // namespace tessera::kernels::host
