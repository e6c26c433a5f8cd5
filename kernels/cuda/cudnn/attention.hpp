#pragma once
// Attention by a library's fused kernels where it is asked for (kernels/attention.hpp: DeviceAttention) and
// takes the call (attention_split.hpp).

#include "kernels/cuda/fused_attention_plan.hpp"
#include "runtime/base/stream.hpp"

namespace tessera::kernels::cuda {

/// Whether this build has them.
#ifdef TESSERA_CUDNN_BUILT
inline constexpr bool cudnn_built = true;
#else
inline constexpr bool cudnn_built = false;
#endif

namespace cudnn {
/// Throws Error (usage) where they cannot run on the device.
void require(Device device);
/// Of calls that plan_fused_attention() takes, on memory that is aligned to 16 bytes, without positions. The first call
/// of a shape makes its kernels, which takes a second; later ones allocate nothing on the device and wait for nothing.
void attention_forward(const AttentionForwardArgs& args, StreamView stream);
/// Chunk by chunk of the batch. delta (B, nh, T) is written to the workspace's front, the library's scratch lies behind
/// it.
void attention_backward(const AttentionBackwardArgs& args, StreamView stream);
}  // namespace cudnn

}  // namespace tessera::kernels::cuda
