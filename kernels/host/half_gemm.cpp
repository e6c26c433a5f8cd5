// GEMM of halves: C in blocks that are summed in fp32, in scratch or in C itself, over blocks of k.
#include "kernels/host/half_gemm.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>

#include "kernels/host/convert.hpp"
#include "kernels/host/half_panels.hpp"
#include "kernels/host/pair_choice.hpp"
#include "kernels/threads.hpp"

namespace tessera::kernels {

namespace host {
namespace {

/// Extents of a block: large enough that packing is a few per cent of the products. Of up-cast panels, `strip` rows of
/// A at a time stay in the outer cache (108 KiB), a panel of B in the inner one (24 KiB).
struct Blocks {
  std::int64_t m, n, k;
};
constexpr Blocks upcast_blocks{1024, 1536, 384}, pair_blocks{480, 1024, 512};
constexpr std::int64_t strip = 72;
static_assert(strip % most_panel_rows == 0 && upcast_blocks.n % most_panel_columns == 0);
constexpr bool fit(const PairShape& s) {
  return pair_blocks.m % s.rows == 0 && pair_blocks.n % s.columns == 0 && pair_blocks.k % (2 * s.group) == 0;
}
static_assert(fit(vector_shape) && fit(tile_shape));

constexpr std::int64_t most(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
constexpr std::int64_t a_numel = most(strip * upcast_blocks.k + panel_slack, pair_blocks.m*pair_blocks.k / 2),
                       b_numel = most(upcast_blocks.n * upcast_blocks.k, pair_blocks.n*pair_blocks.k / 2),
                       c_numel = most(upcast_blocks.m * upcast_blocks.n, pair_blocks.m*pair_blocks.n);
static_assert(a_numel % 16 == 0 && b_numel % 16 == 0);

/// A thread's own words: floats of widened panels, or packed pairs; and a block of C. In huge pages where there are
/// any.
class Scratch {
 public:
  [[nodiscard]] static Scratch& own() {
    thread_local Scratch one;
    return one;
  }
  [[nodiscard]] float* a() { return memory_.get(); }
  [[nodiscard]] float* b() { return memory_.get() + a_numel; }
  [[nodiscard]] float* c() { return memory_.get() + a_numel + b_numel; }

 private:
  static constexpr std::align_val_t huge{2 << 20};
  static constexpr std::size_t bytes =
      (sizeof(float) * (a_numel + b_numel + c_numel) + (2 << 20) - 1) / (2 << 20) * (2 << 20);

  static float* take() {
    void* const memory = ::operator new(bytes, huge);
    (void)::madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<float*>(memory);
  }
  struct Free {
    void operator()(float* memory) const { ::operator delete(memory, huge); }
  };
  std::unique_ptr<float, Free> memory_{take()};  // only the pages that a product needs are ever touched
};

constexpr PairKernel no_pairs{};
std::atomic<const PairKernel*> asked{nullptr};  // by a test

/// What multiplies packed pairs; null: up-cast.
template <class T>
const PairKernel* pair_kernel() {
  if constexpr (!std::is_same_v<T, bf16>) return nullptr;
  if (const PairKernel* const kernel = asked.load(std::memory_order_relaxed))
    return kernel == &no_pairs ? nullptr : kernel;
  return pair_choice().kernel;
}

/// Cuts k into blocks about as deep as each other: a thin last one would cost as much per number as it has few
/// products.
std::int64_t k_step(std::int64_t k, std::int64_t most_k) {
  const std::int64_t steps = (k + most_k - 1) / most_k;
  return steps > 0 ? ((k + steps - 1) / steps + 31) / 32 * 32 : 0;
}

/// A block of C and what it is made of.
template <class T, class G>
class Block {
 public:
  Block(const HalfProduct<T, G>& product, std::int64_t i, std::int64_t j, const Blocks& most)
      : p_(product),
        s_(product.shape),
        i_(i),
        j_(j),
        rows_(std::min(most.m, s_.m - i)),
        columns_(std::min(most.n, s_.n - j)) {}

  /// Up-cast panels. Sums of halves wait in scratch for the last block of k, those of fp32 in C itself.
  void multiply_upcast() {
    const std::int64_t step = k_step(s_.k, upcast_blocks.k), ld = (columns_ + 15) / 16 * 16;
    if (s_.k == 0) return finish_empty();
    const HalfPanels<T>& panels = half_panels<T>();
    for (k_ = 0; k_ < s_.k; k_ += step) {
      depth_ = std::min(step, s_.k - k_);
      const bool is_first = k_ == 0, is_last = k_ + depth_ == s_.k;
      panels.pack_b(b(), scratch_.b());
      for (std::int64_t r = 0; r < rows_; r += strip) {
        const std::int64_t lines = std::min(strip, rows_ - r);
        panels.pack_a(a(r, lines), scratch_.a());
        PanelBlock<T, G> block{.a = scratch_.a(),
                               .b = scratch_.b(),
                               .rows = lines,
                               .columns = columns_,
                               .depth = depth_,
                               .alpha = p_.alpha,
                               .is_first = is_first,
                               .is_last = is_last,
                               .sums = scratch_.c() + r * ld,
                               .sums_ld = ld,
                               .c = c(r),
                               .ldc = s_.ldc,
                               .beta = p_.beta,
                               .bias = bias()};
        if constexpr (!is_half<G>) {
          block.is_first = block.is_last = true;
          if (!is_first) block.beta = 1, block.bias = nullptr;
        }
        panels.run(block);
      }
    }
  }

  void multiply_pairs(const PairKernel& kernel) {
    const PairShape& shape = kernel.shape;
    float* const sums = is_half<G> ? scratch_.c() : reinterpret_cast<float*>(c(0));
    const std::int64_t ld = is_half<G> ? (columns_ + 15) / 16 * 16 : s_.ldc;
    const bool laid = p_.bias || p_.beta != 0 || s_.k == 0;
    if (laid) lay_down(sums, ld);
    auto *const a_words = reinterpret_cast<std::uint32_t*>(scratch_.a()), *const b_words =
                                                                              reinterpret_cast<std::uint32_t*>(
                                                                                  scratch_.b());
    const std::int64_t step = k_step(s_.k, pair_blocks.k);
    for (k_ = 0; k_ < s_.k; k_ += step) {
      depth_ = std::min(step, s_.k - k_);
      const std::int64_t pairs = pairs_of(depth_, shape);
      pack_pairs(a(0, rows_), {shape.rows, shape.group, pairs}, a_words);
      pack_pairs(b(), {shape.columns, 1, pairs}, b_words);
      multiply_panels({.a = a_words,
                       .b = b_words,
                       .rows = rows_,
                       .columns = columns_,
                       .pairs = pairs,
                       .alpha = p_.alpha,
                       .add = laid || k_ > 0,
                       .c = sums,
                       .ldc = ld},
                      kernel);
    }
    if constexpr (is_half<G>)
      for (std::int64_t r = 0; r < rows_; ++r) convert().narrow(sums + r * ld, c(r), columns_);
  }

 private:
  [[nodiscard]] G* c(std::int64_t row) const { return p_.c + (i_ + row) * s_.ldc + j_; }
  [[nodiscard]] const T* bias() const { return p_.bias ? p_.bias + j_ : nullptr; }
  [[nodiscard]] PanelSource<T> a(std::int64_t row, std::int64_t lines) const {
    const std::int64_t i = i_ + row;
    if (s_.trans_a) return {p_.a + k_ * s_.lda + i, s_.lda, lines, depth_, KOrder::across};
    return {p_.a + i * s_.lda + k_, s_.lda, lines, depth_, KOrder::along};
  }
  [[nodiscard]] PanelSource<T> b() const {
    if (s_.trans_b) return {p_.b + j_ * s_.ldb + k_, s_.ldb, columns_, depth_, KOrder::along};
    return {p_.b + k_ * s_.ldb + j_, s_.ldb, columns_, depth_, KOrder::across};
  }

  /// sums = beta·c + bias.
  void lay_down(float* sums, std::int64_t ld) const {
    for (std::int64_t r = 0; r < rows_; ++r) {
      float* const line = sums + r * ld;
      const G* const old = c(r);
      for (std::int64_t x = 0; x < columns_; ++x)
        line[x] =
            (p_.beta == 0 ? 0 : p_.beta * static_cast<float>(old[x])) + (bias() ? static_cast<float>(bias()[x]) : 0);
    }
  }

  /// A product of no depth: c = beta·c + bias.
  void finish_empty() const {
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t x = 0; x < columns_; ++x)
        put(c(r)[x],
            (p_.beta == 0 ? 0 : p_.beta * static_cast<float>(c(r)[x])) + (bias() ? static_cast<float>(bias()[x]) : 0));
  }

  const HalfProduct<T, G>& p_;
  const GemmShape& s_;
  Scratch& scratch_ = Scratch::own();
  std::int64_t i_, j_, rows_, columns_;
  std::int64_t k_ = 0, depth_ = 0;
};

}  // namespace

void set_half_gemm(HalfGemm way) {
  asked.store(way == HalfGemm::upcast ? &no_pairs : nullptr, std::memory_order_relaxed);
}
void set_half_gemm(const PairKernel& kernel) { asked.store(&kernel, std::memory_order_relaxed); }

template <class T, class G>
void half_gemm_serial(const HalfProduct<T, G>& product) {
  const PairKernel* const pairs = pair_kernel<T>();
  const Blocks blocks = pairs ? pair_blocks : upcast_blocks;
  for (std::int64_t i = 0; i < product.shape.m; i += blocks.m)
    for (std::int64_t j = 0; j < product.shape.n; j += blocks.n) {
      Block<T, G> block(product, i, j, blocks);
      if constexpr (std::is_same_v<T, bf16>)
        if (pairs) {
          block.multiply_pairs(*pairs);
          continue;
        }
      block.multiply_upcast();
    }
}
template void half_gemm_serial(const HalfProduct<bf16, bf16>&);
template void half_gemm_serial(const HalfProduct<bf16, float>&);
template void half_gemm_serial(const HalfProduct<f16, f16>&);
template void half_gemm_serial(const HalfProduct<f16, float>&);

}  // namespace host

Bf16Gemm bf16_gemm() {
  const host::PairKernel* const pairs = host::pair_kernel<bf16>();
  return {pairs ? pairs->name : "up-cast", host::pair_choice().passed_over};
}

}  // namespace tessera::kernels
