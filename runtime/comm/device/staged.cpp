// SPDX-License-Identifier: Apache-2.0
// A pipeline: while a slice is exchanged on the host, the next one is copied down and the previous one up.
#include "runtime/comm/device/staged.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"
#include "runtime/comm/device/host_device_copier.hpp"

namespace tessera {

using comm::HostDeviceCopier;

namespace {

class Staged final : public Communicator {
 public:
  Staged(std::unique_ptr<Communicator> inner, const StagedOptions& options)
      : inner_(std::move(inner)),
        options_(options),
        copier_(options.device),
        members_(static_cast<std::size_t>(inner_->size())),
        slice_(options.slice_bytes > 0 ? options.slice_bytes : staged_slice(inner_->size())) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool shares_memory() const override { return false; }
  SharedRegion share(std::size_t) override { return {}; }
  TrafficCount traffic() const override { return inner_->traffic(); }
  std::size_t own_memory() const override { return inner_->own_memory(); }
  Device device() const override { return options_.device; }
  void run_on(StreamView stream) override { copier_.run_on(stream); }

  void set_staging(std::span<std::byte> staging) override {
    const std::size_t own = staged_bytes(size(), slice_);
    TESSERA_ASSERT(staging.size() >= own, "%zu bytes of staging, %zu needed", staging.size(), own);
    for (std::size_t turn = 0; turn < 2; ++turn) slots_[turn] = staging.subspan(turn * own / 2, own / 2);
    inner_->set_staging(staging.subspan(own));
  }

  void all_gather(CollectiveLabel label, const std::byte* mine, std::byte* full, std::size_t chunk) override {
    const std::size_t me = static_cast<std::size_t>(rank()) * chunk;
    if (options_.gather == StagedOptions::Gather::direct) {
      if (mine != full + me) copier_.within(full + me, mine, chunk);
      copier_.synchronize();
      return inner_->all_gather(label, full + me, full, chunk);
    }
    const auto own = [&](std::size_t turn, std::size_t width) {
      return slots_[turn].data() + static_cast<std::size_t>(rank()) * width;
    };
    slices(
        chunk, slice_,
        [&](std::size_t turn, std::size_t first, std::size_t width) {
          return RowCopy{own(turn, width), width, mine + first, width, width, 1};
        },
        [&](std::size_t turn, std::size_t first, std::size_t width) {
          std::byte* const host = slots_[turn].data();
          inner_->all_gather(label, own(turn, width), host, width);
          return RowCopy{full + first, chunk, host, width, width, members_};
        });
  }

  void all_to_all(CollectiveLabel label, const std::byte* parts, std::byte* received, std::size_t chunk) override {
    slices(
        chunk, slice_ / 2,
        [&](std::size_t turn, std::size_t first, std::size_t width) {
          return RowCopy{slots_[turn].data(), width, parts + first, chunk, width, members_};
        },
        [&](std::size_t turn, std::size_t first, std::size_t width) {
          std::byte* const host = slots_[turn].data() + members_ * (slice_ / 2);
          inner_->all_to_all(label, slots_[turn].data(), host, width);
          return RowCopy{received + first, chunk, host, width, width, members_};
        });
  }

  void reduce_scatter(CollectiveLabel label, SourceBuffer full, float* mine, std::size_t chunk) override {
    const std::size_t element = size_of(full.dtype);
    const auto* const from = static_cast<const std::byte*>(full.data);
    auto* const to = reinterpret_cast<std::byte*>(mine);
    slices(
        chunk, slice_ / sizeof(float),
        [&](std::size_t turn, std::size_t first, std::size_t width) {
          return RowCopy{slots_[turn].data(), width * element, from + first * element,
                         chunk * element,     width * element, members_};
        },
        [&](std::size_t turn, std::size_t first, std::size_t width) {
          std::byte* const sum = slots_[turn].data() + members_ * slice_;
          inner_->reduce_scatter(label, SourceBuffer(slots_[turn].data(), full.dtype), reinterpret_cast<float*>(sum),
                                 width);
          return RowCopy{to + first * sizeof(float), width * sizeof(float), sum,
                         width * sizeof(float),      width * sizeof(float), 1};
        });
  }

  using Communicator::all_reduce;
  void all_reduce(CollectiveLabel label, SourceBuffer source, float* sums, std::size_t count) override {
    TESSERA_ASSERT(count % members_ == 0, "%zu elements over %zu members", count, members_);
    const std::size_t chunk = count / members_;
    float* const own = sums + static_cast<std::size_t>(rank()) * chunk;
    reduce_scatter(label, source, own, chunk);
    all_gather(label, reinterpret_cast<const std::byte*>(own), reinterpret_cast<std::byte*>(sums),
               chunk * sizeof(float));
  }

  void all_reduce(CollectiveLabel label, std::span<std::int64_t> counters) override {
    auto* const device = reinterpret_cast<std::byte*>(counters.data());
    through_host({device, counters.size_bytes()}, [&](std::span<std::byte> host) {
      inner_->all_reduce(label,
                         std::span(reinterpret_cast<std::int64_t*>(host.data()), host.size() / sizeof(std::int64_t)));
    });
  }
  void broadcast(CollectiveLabel label, std::span<std::byte> bytes, int root) override {
    through_host(bytes, [&](std::span<std::byte> host) { inner_->broadcast(label, host, root); });
  }
  void barrier(CollectiveLabel label) override {
    copier_.synchronize();
    inner_->barrier(label);
  }

 private:
  /// Runs the pipeline over `count` elements, `step` at a time: down(turn, first, width) tells what to copy to the
  /// host, exchange(…) what to copy back.
  template <class Down, class Exchange>
  void slices(std::size_t count, std::size_t step, const Down& down, const Exchange& exchange) {
    TESSERA_ASSERT(!slots_[0].empty(), "set_staging() comes before the first collective");
    copier_.begin();
    const auto width = [&](std::size_t first) { return std::min(step, count - first); };
    if (count > 0) copier_.down(0, down(0, 0, width(0)));
    for (std::size_t first = 0, turn = 0; first < count; first += step, turn = 1 - turn) {
      const std::size_t next = first + step;
      if (next < count) copier_.down(1 - turn, down(1 - turn, next, width(next)));
      copier_.wait_down(turn);
      copier_.up(turn, exchange(turn, first, width(first)));
    }
  }

  template <class Exchange>
  void through_host(std::span<std::byte> device, const Exchange& exchange) {
    const std::size_t capacity = slots_[0].size() / sizeof(std::int64_t) * sizeof(std::int64_t);
    for (std::size_t first = 0; first < device.size(); first += capacity) {
      const auto part = device.subspan(first, std::min(capacity, device.size() - first));
      copier_.begin();
      copier_.down(0, {slots_[0].data(), part.size(), part.data(), part.size(), part.size(), 1});
      copier_.wait_down(0);
      exchange(slots_[0].first(part.size()));
      copier_.up(0, {part.data(), part.size(), slots_[0].data(), part.size(), part.size(), 1});
    }
  }

  std::unique_ptr<Communicator> inner_;
  StagedOptions options_;
  HostDeviceCopier copier_;
  std::size_t members_, slice_;
  std::span<std::byte> slots_[2];
};

}  // namespace

std::size_t staged_slice(int size) {
  constexpr std::size_t budget = std::size_t{8} << 20, least = 4096;
  return std::max(least, budget / static_cast<std::size_t>(size) / 512 * 512);
}

std::size_t staged_bytes(int size, std::size_t slice_bytes) {
  return 2 * (static_cast<std::size_t>(size) + 1) * slice_bytes;
}

std::unique_ptr<Communicator> staged(std::unique_ptr<Communicator> inner, const StagedOptions& options) {
  return std::make_unique<Staged>(std::move(inner), options);
}

}  // namespace tessera
