// The balance loss on Batch::router, in double.
#include "models/balance.hpp"

namespace tessera::models {
namespace {

/// Rows [first, first + count) of (layers, 2, E), summed: choices (0) or probabilities (1) of expert e.
double total(const TensorView& router, int first, int count, int which, std::int64_t e) {
  const std::int64_t experts = router.shape[2];
  double sum = 0;
  for (int layer = first; layer < first + count; ++layer) sum += router.as<double>()[(2 * layer + which) * experts + e];
  return sum;
}

}  // namespace

std::int64_t choosing_tokens(const Batch& batch) {
  std::int64_t tokens = batch.ids.numel();
  for (std::int64_t i = 0; batch.positions && i < batch.ids.numel(); ++i) tokens -= is_padding(batch, i);
  return tokens;
}

double balance_loss(const TensorView& router, std::int64_t tokens, int layer) {
  const int layers = static_cast<int>(router.shape[0]), first = layer < 0 ? 0 : layer, count = layer < 0 ? layers : 1;
  const std::int64_t experts = router.shape[2];
  const double rows = static_cast<double>(tokens) * count;
  double sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) sum += total(router, first, count, 0, e) / rows * (total(router, first, count, 1, e) / rows);
  return static_cast<double>(experts) * sum;
}

double balance_weight(const Batch& batch) {
  const auto* targets = batch.targets.as<std::int32_t>();
  std::int64_t valid = 0;
  for (std::int64_t i = 0; i < batch.targets.numel(); ++i) valid += targets[i] != kernels::ignore_index;
  return static_cast<double>(valid) * *batch.loss_scale;
}

void balance_gradient(const TensorView& router, std::int64_t tokens, double factor, const TensorView& out) {
  const int layers = static_cast<int>(router.shape[0]);
  const std::int64_t experts = router.shape[2];
  const double rows = static_cast<double>(tokens) * layers;
  for (std::int64_t e = 0; e < experts; ++e)
    out.as<double>()[e] = factor * static_cast<double>(experts) * total(router, 0, layers, 0, e) / rows / rows;
}

}  // namespace tessera::models
