// SPDX-License-Identifier: Apache-2.0
// Casts over this rank's threads.
#include "kernels/convert.hpp"

#include "kernels/host/convert.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels::host {
namespace {

constexpr std::int64_t convert_grain = 8192;  // elements

template <class T>
void convert_range(const ConvertArgs& args, std::int64_t begin, std::int64_t end) {
  const auto& table = convert();
  if (args.from.dtype == DType::f32) table.narrow(args.from.as<float>() + begin, args.to.as<T>() + begin, end - begin);
  else table.widen(args.from.as<T>() + begin, args.to.as<float>() + begin, end - begin);
}

void convert_range(const ConvertArgs& args, std::int64_t begin, std::int64_t end) {
  const DType half = args.from.dtype == DType::f32 ? args.to.dtype : args.from.dtype;
  if (half == DType::bf16) convert_range<bf16>(args, begin, end);
  else convert_range<f16>(args, begin, end);
}

}  // namespace

void convert(const ConvertArgs& args) {
  parallel_ranges(args.from.numel(), convert_grain,
                  [&](std::int64_t begin, std::int64_t end) { convert_range(args, begin, end); });
}

void convert_serial(const ConvertArgs& args) { convert_range(args, 0, args.from.numel()); }

}  // namespace tessera::kernels::host
