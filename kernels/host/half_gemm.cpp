// SPDX-License-Identifier: Apache-2.0
// GEMM of 16-bit floats: by oneDNN, or up-cast: C in blocks that are summed in fp32, in scratch or in C itself, over
// blocks of k.
#include "kernels/host/half_gemm.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>

#include "kernels/host/half_panels.hpp"
#include "kernels/host/onednn.hpp"
#include "kernels/threads.hpp"

namespace tessera::kernels {

namespace host {
namespace {

/// Extents of a block: large enough that packing is a few per cent of the products. `strip` rows of A at a time stay
/// in the outer cache (108 KiB), a panel of B in the inner one (24 KiB).
struct Blocks {
  std::int64_t m, n, k;
};
constexpr Blocks blocks{1024, 1536, 384};
constexpr std::int64_t strip = 72;
static_assert(strip % most_panel_rows == 0 && blocks.n % most_panel_columns == 0);

constexpr std::int64_t a_numel = strip * blocks.k + panel_slack, b_numel = blocks.n * blocks.k,
                       c_numel = blocks.m * blocks.n;
static_assert(a_numel % 16 == 0 && b_numel % 16 == 0);

/// A thread's own floats: widened panels and a block of C, or oneDNN's scratchpad. In huge pages where there are any.
class Scratch {
 public:
  [[nodiscard]] static Scratch& own() {
    thread_local Scratch one;
    return one;
  }
  [[nodiscard]] float* a() { return memory_.get(); }
  [[nodiscard]] float* b() { return memory_.get() + a_numel; }
  [[nodiscard]] float* c() { return memory_.get() + a_numel + b_numel; }
  [[nodiscard]] std::byte* all() { return reinterpret_cast<std::byte*>(memory_.get()); }

  static constexpr std::size_t bytes =
      (sizeof(float) * (a_numel + b_numel + c_numel) + (2 << 20) - 1) / (2 << 20) * (2 << 20);

 private:
  static constexpr std::align_val_t huge{2 << 20};
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

std::atomic<HalfGemm> way{HalfGemm::automatic};

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
  Block(const HalfProduct<T, G>& product, std::int64_t i, std::int64_t j)
      : p_(product),
        s_(product.shape),
        i_(i),
        j_(j),
        rows_(std::min(blocks.m, s_.m - i)),
        columns_(std::min(blocks.n, s_.n - j)) {}

  /// The sums of a 16-bit C stay in scratch as fp32 until the last block of k; those of an fp32 C are in C itself.
  void multiply() {
    const std::int64_t step = k_step(s_.k, blocks.k), ld = (columns_ + 15) / 16 * 16;
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

void set_half_gemm(HalfGemm chosen) { way.store(chosen, std::memory_order_relaxed); }

template <class T, class G>
void half_gemm_serial(const HalfProduct<T, G>& product) {
  if (way.load(std::memory_order_relaxed) == HalfGemm::automatic &&
      onednn_gemm(product, Scratch::own().all(), Scratch::bytes))
    return;
  for (std::int64_t i = 0; i < product.shape.m; i += blocks.m)
    for (std::int64_t j = 0; j < product.shape.n; j += blocks.n) Block<T, G>(product, i, j).multiply();
}
template void half_gemm_serial(const HalfProduct<bf16, bf16>&);
template void half_gemm_serial(const HalfProduct<bf16, float>&);
template void half_gemm_serial(const HalfProduct<f16, f16>&);
template void half_gemm_serial(const HalfProduct<f16, float>&);

}  // namespace host

Gemm16Bit gemm_16bit(DType dtype) {
  const host::OneDnn& onednn = dtype == DType::bf16 ? host::onednn<bf16>() : host::onednn<f16>();
  return {onednn.name.empty() ? "up-cast" : onednn.name, onednn.missing.empty() ? "" : "no oneDNN: " + onednn.missing};
}

}  // namespace tessera::kernels
