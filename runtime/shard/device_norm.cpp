// SPDX-License-Identifier: Apache-2.0
// The shard manager's norm on a device: counters stay in device memory through the all-reduce; the host reads them from
// pinned memory.
#include <algorithm>
#include <cstddef>

#include "kernels/convert.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/transfer.hpp"
#include "runtime/comm/sum_to_f32.hpp"
#include "runtime/shard/manager.hpp"
#include "runtime/shard/memory.hpp"

namespace tessera::shard {

namespace {
constexpr std::size_t sum_counters = ExactSum::num_counters, counter_bytes = sizeof(std::int64_t);
// Forward passes add their loss directly to the counters that are summed over ranks: loss, tokens and correct are in
// the order of LossSums.
static_assert(sizeof(kernels::LossSums) == (sum_counters + 2) * counter_bytes &&
              offsetof(kernels::LossSums, tokens) == sum_counters * counter_bytes);
}  // namespace

void ShardManager::bind_norm() {
  device_counters_ = reinterpret_cast<std::int64_t*>(parts_.arena->data({SlotUse::norm}));
  unit_counters_ = device_counters_ + counters_.size();
  sent_ = reinterpret_cast<std::int64_t*>(parts_.arena->data(SlotId{SlotUse::norm}.pinned()));
  received_ = sent_ + num_step_counters;
}

void ShardManager::run_on(StreamView stream, StreamView replicate) {
  stream_ = stream;
  replicate_stream_ = replicate;
  for (const auto& communicator : parts_.communicators) communicator->run_on(stream);
}

void ShardManager::widen(const SourceBuffer& source, float* out, std::size_t count) const {
  if (parts_.device == host_device) return comm::widen(source, out, count);
  const Shape shape{static_cast<std::int64_t>(count)};
  if (source.dtype != DType::f32)
    kernels::convert_serial({.from = {const_cast<void*>(source.data), source.dtype, shape, parts_.device},
                             .to = {out, shape, parts_.device}},
                            stream_);
  else if (source.data != out) copy_bytes(out, source.data, count * sizeof(float), stream_);
}

kernels::LossSums* ShardManager::loss_sums() const {
  return reinterpret_cast<kernels::LossSums*>(device_counters_ + sum_counters);
}

std::int64_t* ShardManager::extra_sums() const { return device_counters_ + 2 * sum_counters + num_step_counters; }

void ShardManager::issue_norm(const StepSums& sums, Counts counts, kernels::StepScalars* step) {
  const std::int64_t told[num_step_counters] = {sums.tokens, sums.correct, sums.flags.stop, sums.flags.save,
                                                sums.flags.saved};
  std::ranges::copy(told, sent_);
  const std::size_t first = counts == Counts::on_device ? 2 : 0;
  copy_bytes(device_counters_ + 2 * sum_counters + first, sent_ + first, (num_step_counters - first) * counter_bytes,
             stream_);
  const std::span all(device_counters_, counters_.size());
  const auto extra = static_cast<std::size_t>(parts_.num_extra);
  kernels::carry_sums({.counters = device_counters_, .sums = 2}, stream_);  // norm and loss
  for (const AxisSet axes : parts_.groups->norm) on(*communicator(axes), stream_).all_reduce({"norm"}, all);
  if (step != nullptr)
    kernels::clip_and_skip({.norm2 = device_counters_,
                            .loss = device_counters_ + sum_counters,
                            .flags = device_counters_ + 2 * sum_counters + num_step_counters + extra,
                            .units = parts_.layout->num_units(),
                            .step = step},
                           stream_);
  copy_bytes(received_, device_counters_, all.size_bytes(), stream_);
  clear_bytes(device_counters_, all.size_bytes(), stream_);
}

void ShardManager::decide(kernels::StepScalars& step) const {
  const auto extra = static_cast<std::size_t>(parts_.num_extra);
  kernels::clip_and_skip({.norm2 = received_,
                          .loss = received_ + sum_counters,
                          .flags = received_ + 2 * sum_counters + num_step_counters + extra,
                          .units = parts_.layout->num_units(),
                          .step = &step},
                         host_stream);
}

int ShardManager::read_norm(StepSums& sums) const { return unpack({received_, counters_.size()}, sums); }

}  // namespace tessera::shard
