// GEMM of halves: C in blocks that are summed in fp32 scratch (or in C itself, where it is fp32), over blocks of k.
#include "kernels/host/half_gemm.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>

#include "kernels/host/convert.hpp"
#include "kernels/host/pair_panels.hpp"
#include "kernels/threads.hpp"

namespace tessera::kernels {

namespace host {
namespace {

/// Extents of a block: large enough that widening or packing is a few per cent of the products, small enough for the outer cache.
struct Blocks {
  std::int64_t m, n, k;
};
constexpr Blocks upcast_blocks{1024, 1024, 512}, pair_blocks{480, 1024, 512};
static_assert(pair_blocks.m % pair_rows == 0 && pair_blocks.n % pair_columns == 0 && pair_blocks.k % 2 == 0);

constexpr std::int64_t most(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
constexpr std::int64_t a_numel = most(upcast_blocks.m * upcast_blocks.k, pair_blocks.m * pair_blocks.k / 2),
                       b_numel = most(upcast_blocks.n * upcast_blocks.k, pair_blocks.n * pair_blocks.k / 2),
                       c_numel = most(upcast_blocks.m * upcast_blocks.n, pair_blocks.m * pair_blocks.n);

/// A thread's own words: floats of widened panels, or packed pairs; and a block of C. In huge pages where there are any: with small ones every
/// row that is widened is another page to look up, which cost about a tenth of a product of 512³.
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
  static constexpr std::size_t bytes = sizeof(float) * (a_numel + b_numel + c_numel);
  static_assert(bytes % (2 << 20) == 0);

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

std::atomic<HalfGemm> chosen{HalfGemm::automatic};

bool cpu_has_pairs() {
#ifdef TESSERA_X86
  __builtin_cpu_init();
  return isa() == Isa::avx512 && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

/// The tile product of the `pairs` way; null: up-cast.
template <class T>
PairTileKernel pair_kernel() {
  if constexpr (std::is_same_v<T, bf16>) {
    const HalfGemm way = chosen.load(std::memory_order_relaxed);
    if (way == HalfGemm::pairs_portable) return portable_pair_tile;
#ifdef TESSERA_X86
    if (way == HalfGemm::automatic && cpu_has_pairs()) return avx512_bf16::pair_tile;
#endif
  }
  return nullptr;
}

/// Rows [0, rows) of `columns` numbers, ld apart, widened to rows of `to` that follow one another.
template <class T>
void widen_rows(const T* from, std::int64_t ld, std::int64_t rows, std::int64_t columns, float* to) {
  const Convert& table = convert();
  for (std::int64_t r = 0; r < rows; ++r) table.widen(from + r * ld, to + r * columns, columns);
}

template <class T, class G>
class Run {
 public:
  explicit Run(const HalfProduct<T, G>& product) : p_(product), s_(product.shape), tile_(pair_kernel<T>()) {}

  void run() {
    const Blocks blocks = tile_ ? pair_blocks : upcast_blocks;
    for (std::int64_t i = 0; i < s_.m; i += blocks.m) {
      i_ = i, rows_ = std::min(blocks.m, s_.m - i), packed_k_ = -1;
      for (std::int64_t j = 0; j < s_.n; j += blocks.n) {
        j_ = j, columns_ = std::min(blocks.n, s_.n - j);
        block(blocks.k);
      }
    }
  }

 private:
  /// One block of C, from the first word to the rounding.
  void block(std::int64_t most_k) {
    if constexpr (is_half<G>) sums_ = scratch_.c(), ld_ = (columns_ + 15) / 16 * 16;
    else sums_ = c(0), ld_ = s_.ldc;
    const bool laid = p_.bias || p_.beta != 0 || s_.k == 0;
    if (laid) lay_down();
    // Blocks of k about as deep as each other: a thin last one would cost as much per number as it has few products.
    const std::int64_t steps = (s_.k + most_k - 1) / most_k, step = steps > 0 ? ((s_.k + steps - 1) / steps + 31) / 32 * 32 : 0;
    for (std::int64_t k = 0; k < s_.k; k += step) {
      k_ = k, depth_ = std::min(step, s_.k - k);
      const bool add = laid || k > 0;
      if (tile_) multiply_pairs(add);
      else multiply_upcast(add);
      packed_k_ = k;
    }
    if constexpr (is_half<G>)
      for (std::int64_t r = 0; r < rows_; ++r) convert().narrow(sums_ + r * ld_, c(r), columns_);
  }

  [[nodiscard]] G* c(std::int64_t row) const { return p_.c + (i_ + row) * s_.ldc + j_; }
  [[nodiscard]] const T* a() const { return s_.trans_a ? p_.a + k_ * s_.lda + i_ : p_.a + i_ * s_.lda + k_; }
  [[nodiscard]] const T* b() const { return s_.trans_b ? p_.b + j_ * s_.ldb + k_ : p_.b + k_ * s_.ldb + j_; }

  /// sums = beta·c + bias.
  void lay_down() const {
    for (std::int64_t r = 0; r < rows_; ++r) {
      float* const line = sums_ + r * ld_;
      const G* const old = c(r);
      const T* const bias = p_.bias ? p_.bias + j_ : nullptr;
      for (std::int64_t x = 0; x < columns_; ++x)
        line[x] = (p_.beta == 0 ? 0 : p_.beta * static_cast<float>(old[x])) + (bias ? static_cast<float>(bias[x]) : 0);
    }
  }

  void multiply_upcast(bool add) {
    GemmShape shape = s_;
    shape.m = rows_, shape.n = columns_, shape.k = depth_, shape.ldc = ld_;
    shape.lda = s_.trans_a ? rows_ : depth_;
    shape.ldb = s_.trans_b ? depth_ : columns_;
    if (k_ != packed_k_) widen_rows(a(), s_.lda, s_.trans_a ? depth_ : rows_, shape.lda, scratch_.a());
    widen_rows(b(), s_.ldb, s_.trans_b ? columns_ : depth_, shape.ldb, scratch_.b());
    gemm_serial<float>(shape, p_.alpha, scratch_.a(), scratch_.b(), add ? 1.0F : 0.0F, sums_);
  }

  void multiply_pairs(bool add) {
    if constexpr (std::is_same_v<T, bf16>) {
      auto *const a_words = reinterpret_cast<std::uint32_t*>(scratch_.a()), *const b_words = reinterpret_cast<std::uint32_t*>(scratch_.b());
      if (k_ != packed_k_) pack_pairs({a(), s_.lda, rows_, depth_, s_.trans_a ? KOrder::across : KOrder::along}, pair_rows, a_words);
      pack_pairs({b(), s_.ldb, columns_, depth_, s_.trans_b ? KOrder::along : KOrder::across}, pair_columns, b_words);
      multiply_panels({.a = a_words, .b = b_words, .rows = rows_, .columns = columns_, .pairs = (depth_ + 1) / 2, .alpha = p_.alpha,
                       .add = add, .c = sums_, .ldc = ld_}, tile_);
    }
  }

  const HalfProduct<T, G>& p_;
  const GemmShape& s_;
  PairTileKernel tile_;
  Scratch& scratch_ = Scratch::own();
  std::int64_t i_ = 0, j_ = 0, k_ = 0, rows_ = 0, columns_ = 0, depth_ = 0;
  std::int64_t packed_k_ = -1;  // where in k the rows that scratch.a() holds begin
  float* sums_ = nullptr;       // the block of C, in fp32
  std::int64_t ld_ = 0;
};

}  // namespace

void set_half_gemm(HalfGemm way) { chosen.store(way, std::memory_order_relaxed); }

template <class T, class G>
void half_gemm_serial(const HalfProduct<T, G>& product) {
  Run<T, G>(product).run();
}
template void half_gemm_serial(const HalfProduct<bf16, bf16>&);
template void half_gemm_serial(const HalfProduct<bf16, float>&);
template void half_gemm_serial(const HalfProduct<f16, f16>&);
template void half_gemm_serial(const HalfProduct<f16, float>&);

}  // namespace host

const char* bf16_gemm_name() { return host::pair_kernel<bf16>() ? "avx512-bf16" : "up-cast"; }

}  // namespace tessera::kernels
