// The proof of a tile kernel, and the choice among those that this CPU can run.
#include "kernels/host/pair_choice.hpp"

#include <array>
#include <cstring>

#include "kernels/host/cpu.hpp"
#include "kernels/host/pair_panels.hpp"
#include "kernels/threads.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/log.hpp"

namespace tessera::kernels::host {

namespace {

// A whole tile and edges of both shapes; three blocks of k, the second and third added.
constexpr std::int64_t rows = 35, columns = 33, ld = 37;
struct Step {
  std::int64_t depth;
  float alpha;
  bool add;
};
constexpr std::array<Step, 3> steps{{{37, 1, false}, {21, 1, true}, {6, -0.5F, true}}};
constexpr std::int64_t most_depth = steps[0].depth;

constexpr std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
constexpr std::int64_t words(std::int64_t lines, std::int64_t width, const PairShape& s) {
  return round_up(lines, width) * pairs_of(most_depth, s);
}
static_assert(words(rows, tile_shape.rows, tile_shape) >= words(rows, vector_shape.rows, vector_shape) &&
              words(columns, tile_shape.columns, tile_shape) >= words(columns, vector_shape.columns, vector_shape));

using Lines = std::array<float, static_cast<std::size_t>(rows* ld)>;

/// Whole numbers from -7 to 7: products and their sums are exact in fp32, in any order, also halved.
template <std::size_t n>
void fill(std::array<bf16, n>& to, std::uint32_t seed) {
  for (bf16& x : to) {
    seed = seed * 1664525 + 1013904223;
    x = bf16(static_cast<float>(static_cast<int>(seed >> 24) % 15 - 7));
  }
}

Lines product(const PairKernel& kernel) {
  std::array<bf16, rows * most_depth> a;
  std::array<bf16, most_depth * columns> b;
  alignas(64) std::array<std::uint32_t, words(rows, tile_shape.rows, tile_shape)> a_words;
  alignas(64) std::array<std::uint32_t, words(columns, tile_shape.columns, tile_shape)> b_words;
  Lines c;
  c.fill(77);
  const PairShape& shape = kernel.shape;
  for (const Step& step : steps) {
    fill(a, static_cast<std::uint32_t>(step.depth)), fill(b, static_cast<std::uint32_t>(step.depth) + 1);
    const std::int64_t pairs = pairs_of(step.depth, shape);
    pack_pairs({a.data(), step.depth, rows, step.depth, KOrder::along}, {shape.rows, shape.group, pairs},
               a_words.data());
    pack_pairs({b.data(), columns, columns, step.depth, KOrder::across}, {shape.columns, 1, pairs}, b_words.data());
    multiply_panels({.a = a_words.data(),
                     .b = b_words.data(),
                     .rows = rows,
                     .columns = columns,
                     .pairs = pairs,
                     .alpha = step.alpha,
                     .add = step.add,
                     .c = c.data(),
                     .ldc = ld},
                    kernel);
  }
  return c;
}

#ifdef TESSERA_AVX512
PairChoice choose_here() {
  static const std::array<PairCandidate, 2> candidates{{
      {{.name = "amx-bf16",
        .shape = tile_shape,
        .tile = amx_bf16::pair_tile,
        .enter = amx_bf16::enter,
        .leave = amx_bf16::leave},
       amx_bf16_missing()},
      {{.name = "avx512-bf16", .shape = vector_shape, .tile = avx512_bf16::pair_tile}, avx512_bf16_missing()},
  }};
  return choose_pairs(candidates);
}
#endif

}  // namespace

bool proves_itself(const PairKernel& kernel) { return product(kernel) == product(portable_pairs()); }

PairChoice choose_pairs(std::span<const PairCandidate> candidates) {
  PairChoice choice;
  const auto pass_over = [&](const PairKernel& kernel, const std::string& why) {
    choice.passed_over += (choice.passed_over.empty() ? "no " : "; no ") + std::string(kernel.name) + ": " + why;
  };
  for (const auto& [kernel, missing] : candidates) {
    if (missing.empty() && proves_itself(kernel)) {
      choice.kernel = &kernel;
      break;
    }
    pass_over(kernel, missing.empty() ? "it multiplies wrongly" : missing);
    if (missing.empty())
      log::warn_here(
          30, strfmt("%s of %s multiplies wrongly: a product of whole numbers differs from plain C++'s; it is not used",
                     kernel.name, cpu_name().c_str()));
  }
  return choice;
}

const PairChoice& pair_choice() {
#ifdef TESSERA_AVX512
  if (isa() == Isa::avx512) {
    static const PairChoice choice = choose_here();
    return choice;
  }
  static const PairChoice none{nullptr, "no amx-bf16, no avx512-bf16: the instruction set in use is not avx512"};
#else
  static const PairChoice none{nullptr, "no amx-bf16, no avx512-bf16: this build has no avx512"};
#endif
  return none;
}

}  // namespace tessera::kernels::host
