// SPDX-License-Identifier: Apache-2.0
// ShardManager: exchanges of activations.
#include "kernels/convert.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/transfer.hpp"
#include "runtime/shard/manager.hpp"

namespace tessera::shard {

void ShardManager::exchange(const ExchangeArgs& args, StreamView stream) {
  const int group = parts_.groups->exchange_index_of(args.axes);
  if (args.kind == ExchangeKind::copy || group < 0) {  // a group of one rank
    const Shape shape{static_cast<std::int64_t>(args.bytes / size_of(args.dtype))};
    if (!is_sum(args.kind) || args.dtype == DType::f32) return copy_bytes(args.to, args.from, args.bytes, stream);
    return kernels::convert_serial(
        {.from = {args.from, args.dtype, shape, parts_.device}, .to = {args.to, DType::f32, shape, parts_.device}},
        stream);
  }
  Communicator& communicator = on(*parts_.communicators[static_cast<std::size_t>(group)], stream);
  const auto members = static_cast<std::size_t>(communicator.size());
  TESSERA_ASSERT(args.kind == ExchangeKind::all_gather || args.bytes % (members * size_of(args.dtype)) == 0,
                 "%s of %zu bytes over %zu ranks", args.label.unit, args.bytes, members);
  const std::size_t count = args.bytes / size_of(args.dtype);
  auto* const sums = reinterpret_cast<float*>(args.to);
  switch (args.kind) {
    case ExchangeKind::copy: return;
    case ExchangeKind::all_gather: return communicator.all_gather(args.label, args.from, args.to, args.bytes);
    case ExchangeKind::reduce_scatter:
      return communicator.reduce_scatter(args.label, SourceBuffer(args.from, args.dtype), sums, count / members);
    case ExchangeKind::all_reduce:
      return communicator.all_reduce(args.label, SourceBuffer(args.from, args.dtype), sums, count);
    case ExchangeKind::all_to_all: return communicator.all_to_all(args.label, args.from, args.to, args.bytes / members);
  }
}

}  // namespace tessera::shard
