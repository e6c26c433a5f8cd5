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

}  // namespace tessera
