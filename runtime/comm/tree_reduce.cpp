// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/tree_reduce.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/comm/sum_to_f32.hpp"

namespace tessera::comm {

namespace {
void for_each_chunk(std::span<const ChunkSet> sets, int size, const auto& visit) {
  for (const ChunkSet& set : sets)
    for (int chunk = set.first; chunk < size; chunk += set.step) visit(at(chunk));
}
}  // namespace

TreeReduce::TreeReduce(int size, int rank) : size_(size), slots_(0), most_slots_(tree_slots(size)) {
  for (TreeLevel& level : reduction_tree(size, rank)) levels_.push_back({std::move(level), {}, {}, {}, {}});
  lay_out();
}

void TreeReduce::lay_out() {
  std::vector<std::size_t> place(at(size_));  // of this member's sum of a chunk, before level k
  for (std::size_t i = 0; i < place.size(); ++i) place[i] = i;
  for (std::size_t k = 0; k < levels_.size(); ++k) {
    Level& level = levels_[k];
    for (const TreeMessage& message : level.tree.sends) {
      // Level 0 sends one chunk from where it is, and packs several; later levels find their sums packed.
      if (k > 0) level.sends.push_back(place[at(message.chunks.front().first)]);
      else
        level.sends.push_back(
            std::exchange(slots_, slots_ + (message.count(size_) > 1 ? at(message.count(size_)) : 0)));
    }
    for (const TreeMessage& message : level.tree.receives)
      level.receives.push_back(std::exchange(slots_, slots_ + at(message.count(size_))));
    for_each_chunk(level.tree.held, size_, [&](std::size_t chunk) { level.own.push_back(place[chunk]); });
    if (k + 1 == levels_.size()) break;
    // Sums lie in the order in which the next level sends them; what it keeps comes last.
    const auto next = [&](std::span<const ChunkSet> sets) {
      for_each_chunk(sets, size_, [&](std::size_t chunk) { place[chunk] = slots_++; });
    };
    for (const TreeMessage& message : levels_[k + 1].tree.sends) next(message.chunks);
    next(levels_[k + 1].tree.held);
    for_each_chunk(level.tree.held, size_, [&](std::size_t chunk) { level.sums.push_back(place[chunk]); });
  }
  TESSERA_ASSERT(slots_ <= most_slots_, "%zu slots of %zu", slots_, most_slots_);
}

std::byte* TreeReduce::slot(const Call& call, const Slice& slice, std::size_t offset) {
  return slice.scratch + offset * slice.count * call.slot_bytes;
}

const void* TreeReduce::outgoing(const Call& call, const Slice& slice, std::size_t k, std::size_t message) const {
  const Level& level = levels_[k];
  const TreeMessage& sent = level.tree.sends[message];
  const auto from = [&](std::size_t chunk) { return call.full.from(chunk * call.chunk + slice.first).data; };
  if (k == 0 && sent.count(size_) == 1) return from(at(sent.chunks.front().first));
  std::byte* packed = slot(call, slice, level.sends[message]);
  if (k > 0) return packed;
  const std::size_t bytes = slice.count * size_of(call.full.dtype);
  std::size_t n = 0;
  for_each_chunk(sent.chunks, size_, [&](std::size_t chunk) { std::memcpy(packed + n++ * bytes, from(chunk), bytes); });
  return packed;
}

void TreeReduce::post(const Call& call, const Slice& slice, std::size_t k) {
  const Level& level = levels_[k];
  const std::size_t element = k == 0 ? size_of(call.full.dtype) : sizeof(float);
  const auto bytes_of = [&](const TreeMessage& message) { return at(message.count(size_)) * slice.count * element; };
  const std::uint64_t tag = call.communicator.tag();
  for (std::size_t m = 0; m < level.tree.receives.size(); ++m) {
    const TreeMessage& message = level.tree.receives[m];
    call.endpoint.receive(slice.lane, message.peer, slot(call, slice, level.receives[m]), bytes_of(message), tag);
  }
  const std::size_t sends = level.tree.sends.size();
  const auto later = static_cast<std::size_t>(std::count_if(level.tree.sends.begin(), level.tree.sends.end(),
                                                            [&](const auto& m) { return m.block < level.tree.block; }));
  for (std::size_t i = 0; i < sends; ++i) {  // each block starts with another peer
    const std::size_t m = (i + later) % sends;
    const TreeMessage& message = level.tree.sends[m];
    call.endpoint.send(slice.lane, message.peer, outgoing(call, slice, k, m), bytes_of(message), tag);
    call.communicator.count_sent(message.peer, bytes_of(message));
  }
}

void TreeReduce::add(const Call& call, const Slice& slice, std::size_t k) {
  const Level& level = levels_[k];
  const DType dtype = k == 0 ? call.full.dtype : DType::f32;
  const std::size_t bytes = slice.count * size_of(dtype);
  parts_.resize(at(level.tree.blocks));
  for (std::size_t j = 0; j < level.own.size(); ++j) {
    parts_[at(level.tree.block)] =
        k == 0 ? call.full.from(level.own[j] * call.chunk + slice.first).data : slot(call, slice, level.own[j]);
    for (std::size_t m = 0; m < level.receives.size(); ++m)
      parts_[at(level.tree.receives[m].block)] = slot(call, slice, level.receives[m]) + j * bytes;
    float* to =
        k + 1 == levels_.size() ? call.mine + slice.first : reinterpret_cast<float*>(slot(call, slice, level.sums[j]));
    sum_to_f32(parts_, dtype, to, slice.count);
  }
}

void TreeReduce::run(Endpoint& endpoint, BaseCommunicator& communicator, SourceBuffer full, float* mine,
                     std::size_t chunk, std::span<std::byte> staging) {
  if (chunk == 0) return;
  // Groups of one level keep what they receive, in its type; others sums too.
  const std::size_t slot_bytes = size_ <= tree_radix ? size_of(full.dtype) : sizeof(float),
                    capacity = staging.size() / most_slots_ / slot_bytes,
                    longest = chunk <= capacity ? chunk : capacity / 2 / 16 * 16;
  TESSERA_ASSERT(longest > 0, "staging of %zu bytes for %d members", staging.size(), size_);
  const Call call{endpoint, communicator, full, mine, chunk, slot_bytes};
  const auto slice_at = [&](std::size_t first, int lane) {
    return Slice{first, std::min(longest, chunk - first), staging.data() + at(lane) * slots_ * longest * slot_bytes,
                 lane};
  };
  post(call, slice_at(0, 0), 0);
  int lane = 0;
  for (std::size_t first = 0; first < chunk; first += longest, lane = 1 - lane) {
    const Slice slice = slice_at(first, lane);
    if (first + longest < chunk) post(call, slice_at(first + longest, 1 - lane), 0);
    for (std::size_t k = 0; k < levels_.size(); ++k) {
      if (k > 0) post(call, slice, k);
      finish(endpoint, lane, communicator);
      add(call, slice, k);
    }
  }
}

}  // namespace tessera::comm
