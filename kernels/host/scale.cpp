// SPDX-License-Identifier: Apache-2.0
// Factors and soft caps over this rank's threads.
#include "kernels/scale.hpp"

#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/host/scale.hpp"

namespace tessera::kernels::host {
namespace {

/// Calls the function of T's table that `choose` gives on ranges of elements.
template <class Choose>
void change_elements(const TensorView& x, double number, const Choose& choose) {
  dispatch_dtype(x.dtype, [&]<class T>(T) {
    constexpr std::int64_t grain = 4096;
    parallel_ranges(x.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      choose(scales<T>())(x.as<T>() + begin, static_cast<Acc<T>>(number), end - begin);
    });
  });
}

}  // namespace

void scale(const ScaleArgs& args) {
  change_elements(args.x, args.factor, [](const auto& table) { return table.scale; });
}

void soft_cap(const SoftCapArgs& args) {
  change_elements(args.x, args.cap, [](const auto& table) { return table.soft_cap; });
}

}  // namespace tessera::kernels::host
