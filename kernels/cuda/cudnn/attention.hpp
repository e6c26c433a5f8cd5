// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention by cuDNN's fused kernels, for the calls that plan_fused_attention() accepts (kernels/attention.hpp:
// DeviceAttention).

#include <string>

#include "kernels/cuda/fused_attention_plan.hpp"
#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/stream.hpp"

namespace tessera::kernels::cuda {

/// Whether this build includes them.
#ifdef TESSERA_CUDNN_BUILT
inline constexpr bool cudnn_built = true;
#else
inline constexpr bool cudnn_built = false;
#endif

namespace cudnn {
/// "" if they are used on such a device, else the reason: it is older than sm_90. On newer ones too a warm-up step
/// shows whether the library computes the model's attention.
[[nodiscard]] std::string attention_refusal(const ::tessera::cuda::DeviceProperties& device);
/// Throws Error (usage) if they cannot run on the device.
void require(Device device);
/// For calls that plan_fused_attention() accepts, memory aligned to 16 bytes, no positions. The first call of a shape
/// builds its kernels, which takes a second; later calls allocate nothing on the device and do not synchronize.
void attention_forward(const AttentionForwardArgs& args, StreamView stream);
/// By chunks of the batch. The workspace holds delta (B, nh, T), then the library's scratch.
void attention_backward(const AttentionBackwardArgs& args, StreamView stream);
}  // namespace cudnn

}  // namespace tessera::kernels::cuda
