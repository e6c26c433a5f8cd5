// SPDX-License-Identifier: Apache-2.0
// Messages copied when both sides have posted, and memory that all threads see.
#include "runtime/comm/local/hub.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "runtime/base/error.hpp"

namespace tessera::comm {

void Mailbox::set_size(std::size_t members) {
  std::lock_guard lock(mutex_);
  while (boxes_.size() < members) boxes_.push_back(std::make_unique<Box>());
}

namespace {
void complete(Mailbox::Open& open) {
  std::lock_guard lock(open.mutex);  // the rank that waits may end, with `open`, once the count is 0
  if (--open.count == 0) open.changed.notify_all();
}
}  // namespace

void Mailbox::post(const Message& message, Direction direction) {
  {
    std::lock_guard lock(message.open->mutex);
    ++message.open->count;
  }
  const bool sending = direction == Direction::out;
  Box& box = *boxes_[static_cast<std::size_t>(message.to)];
  std::lock_guard lock(box.mutex);
  auto& same = sending ? box.sends : box.receives;
  auto& other = sending ? box.receives : box.sends;
  const auto match = std::find_if(other.begin(), other.end(), [&](const Message& m) {
    return m.from == message.from && m.to == message.to && m.tag == message.tag;
  });
  if (match == other.end()) {
    same.push_back(message);
    return;
  }
  TESSERA_ASSERT(match->bytes == message.bytes, "%zu bytes meet %zu", match->bytes, message.bytes);
  if (message.bytes > 0)
    std::memcpy(sending ? match->data : message.data, sending ? message.data : match->data, message.bytes);
  Open* const theirs = match->open;
  other.erase(match);
  complete(*theirs);
  complete(*message.open);
}

bool Mailbox::wait(Open& open, double seconds) {
  std::unique_lock lock(open.mutex);
  return open.changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return open.count == 0; });
}

void Mailbox::drop(const Open& open) {
  const auto posted_there = [&](const Message& m) { return m.open == &open; };
  for (auto& box : boxes_) {
    std::lock_guard lock(box->mutex);
    std::erase_if(box->sends, posted_there);
    std::erase_if(box->receives, posted_there);
  }
}

std::byte* GroupMemory::block(std::size_t index, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  if (index == blocks_.size()) blocks_.push_back({Mapping::anonymous(bytes, "tessera node"), bytes});
  TESSERA_ASSERT(blocks_[index].bytes == bytes, "peers share %zu and %zu bytes", blocks_[index].bytes, bytes);
  return blocks_[index].mapping.data();
}

std::shared_ptr<Hub::Group> Hub::join(int split, int color, int key, int rank) {
  std::unique_lock lock(mutex_);
  Split& s = splits_[split];
  auto& group = s.groups[color];
  if (!group) group = std::make_shared<Group>();
  group->keys[key] = rank;
  auto mine = group;
  const int world = static_cast<int>(statuses_.size());
  if (++s.arrived == world) changed_.notify_all();
  while (s.arrived < world) {
    changed_.wait_for(lock, std::chrono::milliseconds(50));
    if (failed_rank() >= 0) throw Error(ExitCode::communication, strfmt("stopped by rank %d", failed_rank()));
  }
  if (++s.left == world) splits_.erase(split);
  return mine;
}

void Hub::fail(int rank, std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  if (failed_rank_.load() >= 0) return;
  error_ = std::move(error);
  failed_rank_.store(rank);
}

}  // namespace tessera::comm
