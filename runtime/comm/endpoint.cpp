// SPDX-License-Identifier: Apache-2.0
// Barrier and broadcast over messages.
#include "runtime/comm/endpoint.hpp"

namespace tessera::comm {

void finish(Endpoint& endpoint, int lane, BaseCommunicator& communicator) {
  communicator.progress();
  endpoint.count_round();
  try {
    while (!endpoint.wait(lane, 0.05)) communicator.poll();
  } catch (...) {
    endpoint.abandon();
    throw;
  }
}

void barrier(Endpoint& endpoint, BaseCommunicator& communicator, std::uint64_t tag) {
  const int size = endpoint.size(), rank = endpoint.rank();
  char nothing[2] = {};
  for (int step = 1; step < size; step *= 2) {
    endpoint.receive(0, (rank - step + size) % size, &nothing[0], 0, tag);
    endpoint.send(0, (rank + step) % size, &nothing[1], 0, tag);
    finish(endpoint, 0, communicator);
  }
}

void broadcast(Endpoint& endpoint, BaseCommunicator& communicator, std::span<std::byte> bytes, int root,
               std::uint64_t tag, const std::vector<NodeMembers>* leaders) {
  const int size = endpoint.size(), distance = (endpoint.rank() - root + size) % size;
  int step = 1;
  while (step < size && !(distance & step)) step *= 2;
  if (distance != 0) {
    endpoint.receive(0, (distance - step + root) % size, bytes.data(), bytes.size(), tag);
    finish(endpoint, 0, communicator);
  }
  for (step /= 2; step > 0; step /= 2) {
    if (distance + step >= size) continue;
    const int to = (distance + step + root) % size;
    endpoint.send(0, to, bytes.data(), bytes.size(), tag);
    communicator.count_sent(leaders ? (*leaders)[static_cast<std::size_t>(to)].first : to, bytes.size());
  }
  finish(endpoint, 0, communicator);
}

}  // namespace tessera::comm
