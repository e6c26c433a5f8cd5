// Casts: types, threads, dispatch.
#include "kernels/convert.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/convert.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels {

namespace {

constexpr std::int64_t grain = 8192;  // elements

template <class T>
void convert_range(const ConvertArgs& args, std::int64_t begin, std::int64_t end) {
  const auto& table = host::convert();
  if (args.from.dtype == DType::f32) table.narrow(args.from.as<float>() + begin, args.to.as<T>() + begin, end - begin);
  else table.widen(args.from.as<T>() + begin, args.to.as<float>() + begin, end - begin);
}

void convert_range(const ConvertArgs& args, std::int64_t begin, std::int64_t end) {
  const DType half = args.from.dtype == DType::f32 ? args.to.dtype : args.from.dtype;
  if (half == DType::bf16) convert_range<bf16>(args, begin, end);
  else convert_range<f16>(args, begin, end);
}

bool is_half_type(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

void check(const ConvertArgs& args) {
  const DType from = args.from.dtype, to = args.to.dtype;
  TESSERA_ASSERT((from == DType::f32 && is_half_type(to)) || (is_half_type(from) && to == DType::f32),
                 "no cast from %s to %s", name_of(from), name_of(to));
  TESSERA_ASSERT(args.from.numel() == args.to.numel(), "from %s, to %s", args.from.shape.str().c_str(),
                 args.to.shape.str().c_str());
}

}  // namespace

void convert(const ConvertArgs& args, StreamView stream) {
  check(args);
  if constexpr (cuda_built)
    if (is_on_cuda(args.from)) return cuda::convert(args, stream);
  host::parallel_ranges(args.from.numel(), grain,
                        [&](std::int64_t begin, std::int64_t end) { convert_range(args, begin, end); });
}

void convert_serial(const ConvertArgs& args, StreamView stream) {
  check(args);
  if constexpr (cuda_built)
    if (is_on_cuda(args.from)) return cuda::convert(args, stream);
  convert_range(args, 0, args.from.numel());
}

}  // namespace tessera::kernels
