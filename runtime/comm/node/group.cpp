// SPDX-License-Identifier: Apache-2.0
// A futex barrier: the last member to arrive checks that all are in the same collective, and wakes the others.
#include "runtime/comm/node/group.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

#include "runtime/comm/node_members.hpp"

namespace tessera::comm {

struct NodeGroup::BarrierState {
  alignas(64) std::atomic<std::uint32_t> arrived;
  alignas(64) std::atomic<std::uint32_t> generation;
  std::atomic<std::uint32_t> sleepers;
};

struct NodeGroup::Member {
  alignas(64) std::atomic<std::uint64_t> position;  // phase and collective that the member has reached
  SharedAddress addresses[2][2];  // two publications, alternately: a slow peer may still read the previous one
};

namespace {
// Shared between processes: no FUTEX_PRIVATE_FLAG.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, double seconds) {
  timespec wait{0, static_cast<long>(seconds * 1e9)};
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, expected, &wait, nullptr, 0);
}
void futex_wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, 0x7fffffff, nullptr, nullptr, 0);
}
void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}
}  // namespace

NodeGroup::NodeGroup(std::shared_ptr<SharedMemory> memory, std::size_t scratch)
    : memory_(std::move(memory)),
      rank_(memory_->rank()),
      size_(memory_->size()),
      scratch_bytes_(round_to_pages(scratch)) {
  static_assert(sizeof(BarrierState) == barrier_state_bytes && sizeof(Member) == barrier_member_bytes);
  const std::size_t head = node_head_bytes(size_);
  std::byte* base = memory_->allocate(node_region_bytes(size_, scratch));
  barrier_ =
      reinterpret_cast<BarrierState*>(base);  // zero-filled memory is the initial state of these lock-free atomics
  members_ = reinterpret_cast<Member*>(base + sizeof(BarrierState));
  scratch_ = base + head;
}

std::size_t NodeGroup::measured_bytes() const { return part_of(ProcessMaps().bytes_at(barrier_), size_, rank_); }

void NodeGroup::barrier(BaseCommunicator& communicator, std::uint64_t phase) {
  const std::uint64_t position = communicator.tag() * 31 + phase;
  members_[rank_].position.store(position, std::memory_order_relaxed);
  const auto generation = barrier_->generation.load(std::memory_order_acquire);
  if (barrier_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < static_cast<std::uint32_t>(size_))
    return sleep_until_next(communicator, generation);
  for (int i = 0; i < size_; ++i)
    if (members_[i].position.load(std::memory_order_relaxed) != position) communicator.mismatch();
  barrier_->arrived.store(0, std::memory_order_relaxed);
  // Sequentially consistent: either this load sees the sleeper, or the sleeper sees the new generation.
  barrier_->generation.store(generation + 1);
  if (barrier_->sleepers.load() > 0) futex_wake_all(barrier_->generation);
}

void NodeGroup::sleep_until_next(BaseCommunicator& communicator, std::uint32_t generation) {
  const auto passed = [&] { return barrier_->generation.load(std::memory_order_acquire) != generation; };
  for (int i = 0; i < 100; ++i) {  // a few microseconds: the peer may be about to arrive
    if (passed()) return;
    pause();
  }
  communicator.progress();
  barrier_->sleepers.fetch_add(1);
  struct Leave {
    std::atomic<std::uint32_t>& sleepers;
    ~Leave() { sleepers.fetch_sub(1); }
  } leave{barrier_->sleepers};
  while (barrier_->generation.load() == generation) {
    futex_wait(barrier_->generation, generation, 0.05);
    if (!passed()) communicator.poll();
  }
}

void NodeGroup::publish(SharedAddress from, SharedAddress to) {
  turn_ ^= 1;
  auto& addresses = members_[rank_].addresses[turn_];
  addresses[0] = from;
  addresses[1] = to;
}
SharedAddress NodeGroup::from(int member) const { return members_[member].addresses[turn_][0]; }
SharedAddress NodeGroup::to(int member) const { return members_[member].addresses[turn_][1]; }

}  // namespace tessera::comm
