#include "kernels/linear_cross_entropy.hpp"

#include "kernels/cuda/ops.hpp"
#include "kernels/host/ops.hpp"

namespace tessera::kernels {
namespace {

void check(const LinearCrossEntropyArgs& args) {
  const TensorView &x = args.x, &w = args.weight;
  TESSERA_ASSERT(x.shape.rank() == 2 && w.shape.rank() == 2 && x.shape[1] == w.shape[1] && x.dtype == w.dtype,
                 "x %s, weight %s", x.shape.str().c_str(), w.shape.str().c_str());
  const std::int64_t n = x.shape[0], vocab = w.shape[0];
  TESSERA_ASSERT(args.sums && args.targets.numel() == n && args.targets.dtype == DType::i32);
  TESSERA_ASSERT(!args.weights || (args.weights.numel() == n && args.weights.dtype == DType::f32), "weights %s",
                 args.weights.shape.str().c_str());
  TESSERA_ASSERT(!args.dx || (args.dx.shape == x.shape && args.dx.dtype == x.dtype && args.loss_scale), "dx %s",
                 args.dx.shape.str().c_str());
  TESSERA_ASSERT(!args.dweight || (args.dweight.shape == w.shape && (args.loss_scale || n == 0)), "dweight %s",
                 args.dweight.shape.str().c_str());
  TESSERA_ASSERT(args.workspace.nbytes() >= linear_cross_entropy_workspace(n, vocab, x.dtype, x.device),
                 "workspace of %zu bytes", args.workspace.nbytes());
}

}  // namespace

std::size_t linear_cross_entropy_workspace(std::int64_t rows, std::int64_t vocab, DType dtype,
                                           [[maybe_unused]] Device device) {
  if constexpr (cuda_built)
    if (device.kind == Device::Kind::cuda) return cuda::linear_cross_entropy_workspace(rows, vocab);
  return host::linear_cross_entropy_workspace(rows, vocab, dtype);
}

void linear_cross_entropy(const LinearCrossEntropyArgs& args, StreamView stream) {
  check(args);
  TESSERA_DISPATCH(args.x, linear_cross_entropy, args);
}

}  // namespace tessera::kernels
