// SPDX-License-Identifier: Apache-2.0
#pragma once
// Device: the host, or one GPU.

namespace tessera {

/// The host, or a GPU of this process. Value type.
struct Device {
  enum class Kind : unsigned char { host, cuda };
  Kind kind = Kind::host;
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

inline constexpr Device host_device{};

/// Whether this build has the CUDA backend. Use: `if constexpr (cuda_built) if (device is cuda) return cuda::op(…);`. A
/// build without CUDA needs no definition of cuda::op.
#ifdef TESSERA_CUDA_BUILT
inline constexpr bool cuda_built = true;
#else
inline constexpr bool cuda_built = false;
#endif

}  // namespace tessera
