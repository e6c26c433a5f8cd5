// SPDX-License-Identifier: Apache-2.0
// Measures an allocation on a device by the driver's free memory, until two attempts agree.
#include "runtime/base/measured_allocation.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tessera {

namespace {

constexpr int most_attempts = 16;

/// One process of the host at a time holds the turn of a device: ranks that share a card allocate the same blocks at
/// the same time, and would agree twice on the sum of both. It is a socket's name, which ends with its process and
/// leaves no file. Who has waited 10 seconds goes on without.
class Turn {
 public:
  explicit Turn(const std::string& uuid) {
    if (uuid.empty()) return;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = ("tessera-measures-" + uuid).substr(0, sizeof address.sun_path - 1);
    std::memcpy(address.sun_path + 1, name.data(), name.size());  // behind a 0: a name, not a path
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    constexpr int most_waits = 10000;
    for (int waits = 0; socket_ >= 0 && waits < most_waits; ++waits) {
      if (::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size) == 0 || errno != EADDRINUSE) return;
      ::usleep(1000);
    }
  }
  ~Turn() {
    if (socket_ >= 0) ::close(socket_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  int socket_ = -1;
};

}  // namespace

MeasuredAllocation measure_allocation(std::size_t bytes, const MeasuredDevice& device) {
  const Turn turn(device.uuid);
  std::size_t last = 0, smallest = 0;  // 0: none
  for (int attempt = 1;; ++attempt) {
    const std::size_t before = device.read().free;
    std::byte* const block = device.allocate();
    const std::size_t after = device.read().free, taken = before - std::min(after, before);
    const bool possible = taken >= bytes;
    if (possible && taken == last) return {block, taken};
    if (possible && (smallest == 0 || taken < smallest)) smallest = taken;
    if (attempt == most_attempts) return {block, smallest > 0 ? smallest : taken};
    last = possible ? taken : 0;
    device.release(block);
  }
}

}  // namespace tessera
