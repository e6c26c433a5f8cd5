// SPDX-License-Identifier: Apache-2.0
// The rate of a plain TCP connection between hosts, to compare collectives with.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <sstream>
#include <thread>
#include <vector>

#include "jobs/bench/collective_bench.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/start_thread.hpp"

namespace tessera::jobs {

namespace {

constexpr int timeout_ms = 10'000;

[[noreturn]] void refuse_socket(const char* what) {
  throw Error(ExitCode::data, strfmt("%s: %s", what, std::strerror(errno)), "raw socket",
              "Look at the network between the hosts (firewall, routes)");
}

class TcpSocket {
 public:
  explicit TcpSocket(int number = -1) : number_(number) {}
  TcpSocket(TcpSocket&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  TcpSocket& operator=(TcpSocket&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~TcpSocket() {
    if (number_ >= 0) ::close(number_);
  }
  TcpSocket(const TcpSocket&) = delete;
  TcpSocket& operator=(const TcpSocket&) = delete;
  [[nodiscard]] int get() const { return number_; }

 private:
  int number_;
};

[[nodiscard]] bool socket_ready(int socket, short events) {
  pollfd entry{socket, events, 0};
  return ::poll(&entry, 1, timeout_ms) == 1;
}

/// "port address address …" of a listening socket.
std::string addresses_of(const TcpSocket& listening) {
  sockaddr_in bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) refuse_socket("getsockname");
  std::string text = std::to_string(ntohs(bound.sin_port));
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) refuse_socket("getifaddrs");
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0 || (entry->ifa_flags & IFF_UP) == 0) continue;
    char address[INET_ADDRSTRLEN] = "";
    const auto* internet = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    if (::inet_ntop(AF_INET, &internet->sin_addr, address, sizeof address) != nullptr)
      text += std::string(" ") + address;
  }
  ::freeifaddrs(list);
  return text;
}

TcpSocket listen_anywhere() {
  TcpSocket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  if (socket.get() < 0 || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) != 0 ||
      ::listen(socket.get(), 1) != 0)
    refuse_socket("no socket to listen on");
  return socket;
}

/// Tries the addresses in turn: which of them the two hosts have in common is not known.
TcpSocket connect_to(const std::string& addresses) {
  std::istringstream text(addresses);
  int port = 0;
  std::string address;
  text >> port;
  while (text >> address) {
    TcpSocket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) continue;
    const int status = ::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to);
    int error = 0;
    socklen_t size = sizeof error;
    if (status != 0 && (errno != EINPROGRESS || !socket_ready(socket.get(), POLLOUT) ||
                        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0))
      continue;
    return socket;
  }
  refuse_socket(("no connection to " + addresses).c_str());
}

/// Sends or receives `bytes` in calls of a mebibyte.
void move_bytes(const TcpSocket& socket, std::size_t bytes, bool sends) {
  std::vector<char> buffer(std::size_t{1} << 20);
  while (bytes > 0) {
    const std::size_t most = std::min(bytes, buffer.size());
    const ssize_t moved = sends ? ::send(socket.get(), buffer.data(), most, MSG_NOSIGNAL | MSG_DONTWAIT)
                                : ::recv(socket.get(), buffer.data(), most, MSG_DONTWAIT);
    if (moved > 0) bytes -= static_cast<std::size_t>(moved);
    else if (moved == 0 || (errno != EAGAIN && errno != EINTR)) refuse_socket(sends ? "send" : "recv");
    else if (!socket_ready(socket.get(), sends ? POLLOUT : POLLIN)) refuse_socket("no progress in ten seconds");
  }
}

void send_and_receive(const TcpSocket& to, const TcpSocket& from, std::size_t bytes) {
  std::exception_ptr failure;
  std::thread sender = start_thread("the sender", [&] {
    try {
      move_bytes(to, bytes, true);
    } catch (...) { failure = std::current_exception(); }
  });
  try {
    move_bytes(from, bytes, false);
  } catch (...) {
    ::shutdown(to.get(), SHUT_RDWR);
    sender.join();
    throw;
  }
  sender.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

double socket_rate(World& world, std::size_t bytes) {
  const auto nodes = static_cast<std::size_t>(world.node_count());
  if (nodes < 2) return 0;
  const auto width = static_cast<std::size_t>(world.topology().ranks_per_node),
             node = static_cast<std::size_t>(world.rank()) / width;
  const bool first = world.node_rank() == 0;
  TcpSocket listening, to, from;
  std::string mine;
  world.run_and_agree([&] {
    if (!first) return;
    listening = listen_anywhere();
    mine = addresses_of(listening);
  });
  std::string all;
  for (const std::string& text : world.gather(mine)) all += text + "\n";
  std::istringstream lines(world.broadcast(all));
  std::vector<std::string> addresses;
  for (std::string line; std::getline(lines, line);) addresses.push_back(line);
  world.run_and_agree([&] {
    if (!first) return;
    to = connect_to(addresses[(node + 1) % nodes * width]);
    if (!socket_ready(listening.get(), POLLIN)) refuse_socket("nobody connects");
    from = TcpSocket(::accept(listening.get(), nullptr, nullptr));
    if (from.get() < 0) refuse_socket("accept");
  });
  world.barrier();
  const auto begin = std::chrono::steady_clock::now();
  world.run_and_agree([&] {
    if (first) send_and_receive(to, from, bytes);
  });
  const auto took = std::chrono::steady_clock::now() - begin;
  const auto slowest = world.max(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
  return static_cast<double>(bytes) / (1e-9 * static_cast<double>(slowest));
}

}  // namespace tessera::jobs
