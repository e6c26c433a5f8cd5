// SPDX-License-Identifier: Apache-2.0
// Head where ranks share the rows of a mixture of experts: the balance loss is of whole micro-batches, and over all
// layers at once. So the statistics of all layers are summed once, after the last one has routed and before the first
// backward. Sums are fp64, in the order of the ranks, and every rank has the same bits. Ranks that have parts of the
// experts' matrices route the same tokens, and have the same statistics already.
#include "kernels/balance.hpp"
#include "models/head.hpp"

namespace tessera::models {

void Head::add_router_exchange(ModuleStages& stages) const {
  if (stages.stages.empty()) stages.stages.resize(2);
  const int own = router_value(), all = own + 1;
  stages.values.push_back({"router", /*kept=*/false, /*constant=*/true});
  stages.values.push_back({"all routers", /*kept=*/false, /*constant=*/true});
  stages.stages[0].writes.push_back(own);
  stages.stages[1].reads.push_back(all);
  stages.exchanges.push_back({{0, own, all, ExchangeKind::all_gather, ExchangeKind::copy}, RankGroup::context});
}

/// Numbers of Batch::router and Batch::counted; of an empty micro-batch none.
std::size_t Head::router_bytes(int value, BatchShape shape) const {
  if (shape.batch * shape.tokens == 0) return 0;
  return static_cast<std::size_t>((router_ + 2) * (value == router_value() ? 1 : context_ranks_)) * sizeof(double);
}

void Head::pass_router(const ForwardArgs& args) const {
  if (args.stage > (sums_router() ? 1 : 0)) return;
  const auto value = static_cast<std::size_t>(router_value());
  TESSERA_ASSERT(args.batch->router && args.batch->counted, "ranks that share rows sum no statistics");
  const TensorView own{args.batch->router.data, DType::f64, Shape{router_ + 2}, args.batch->router.device};
  if (args.stage == 1)
    return kernels::sum_statistics(
        {.parts = as_rows(args.values[value + 1], DType::f64, {context_ranks_, router_ + 2}), .sum = own}, args.stream);
  const Batch all = vocabulary_.is_split() ? whole_rows(args.batch, args.shape) : *args.batch;
  kernels::count_tokens({.fields = token_fields(all, args.shape.packed), .out = args.batch->counted}, args.stream);
  if (sums_router()) copy(own, as_rows(args.values[value], DType::f64, own.shape), args.stream);
}

}  // namespace tessera::models
