#pragma once
// A place where bytes live and work is done.

namespace tessera {

/// The host, or one accelerator of this process. Value type.
struct Device {
  enum class Kind : unsigned char { host, cuda };
  Kind kind = Kind::host;
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

inline constexpr Device host_device{};

/// Whether this build has the CUDA backend: `if constexpr (cuda_built) if (device is cuda) return cuda::op(…);`. A
/// discarded branch needs no definition, so a build without CUDA holds no stub of it.
#ifdef TESSERA_CUDA_BUILT
inline constexpr bool cuda_built = true;
#else
inline constexpr bool cuda_built = false;
#endif

}  // namespace tessera
