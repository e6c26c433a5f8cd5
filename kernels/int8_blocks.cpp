// SPDX-License-Identifier: Apache-2.0
#include "kernels/int8_blocks.hpp"

#include "kernels/host/int8_blocks.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/reduce.hpp"
#include "runtime/base/error.hpp"

namespace tessera::kernels {

void encode_int8(const EncodeInt8Args& args) {
  host::int8_blocks().encode(args.x, args.residual, reinterpret_cast<unsigned char*>(args.to),
                             static_cast<std::int64_t>(args.count));
  const std::size_t bytes = int8_bytes(args.count);
  for (std::size_t unused = (4 - args.count % 4) % 4; unused > 0; --unused)  // sent too
    args.to[bytes - unused] = std::byte{0};
}

void decode_int8(const std::byte* from, float* to, std::size_t count) {
  host::int8_blocks().decode(reinterpret_cast<const unsigned char*>(from), to, static_cast<std::int64_t>(count));
}

void sum_tree_int8(const SumTreeInt8Args& args) {
  TESSERA_ASSERT(!args.parts.empty() && args.parts.size() <= max_sum_parts, "%zu parts", args.parts.size());
  host::sum_tree_int8(args);
}

}  // namespace tessera::kernels
