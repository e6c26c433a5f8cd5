// SPDX-License-Identifier: Apache-2.0
// MPI and NCCL on one device with one rank: start, configuration, every call, end, abort. NCCL runs no kernel for one
// rank: rings, their order and overlap are not tested here.
#include <gmock/gmock.h>

#include <cstring>
#include <numeric>

#include "runtime/base/cuda/library.hpp"
#include "runtime/base/cuda/memory.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/transfer.hpp"
#include "runtime/comm/nccl/handle.hpp"
#include "runtime/comm/world.hpp"
#include "tests/base/cuda/needs_device.hpp"

namespace tessera {
namespace {

/// The world of this process; MPI starts once.
World& world() {
  static const auto made = bootstrap({.comm = WorldOptions::Comm::nccl, .backend = WorldOptions::Backend::cuda});
  return *made;
}

template <class T>
struct OnDevice {
  explicit OnDevice(const std::vector<T>& values) : count(values.size()) {
    data = reinterpret_cast<T*>(cuda::allocate(test_device(), count * sizeof(T)));
    copy_now(test_device(), data, values.data(), count * sizeof(T));
  }
  ~OnDevice() { cuda::release(test_device(), reinterpret_cast<std::byte*>(data)); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> values(count);
    copy_now(test_device(), values.data(), data, count * sizeof(T));
    return values;
  }
  T* data;
  std::size_t count;
};

TEST(Nccl, does_every_collective_of_one_rank) {
  TESSERA_NEEDS_DEVICE();
  EXPECT_EQ(world().device(), test_device());
  EXPECT_EQ(world().topology().transport, Transport::nccl);
  Stream stream("comm", Stream::Mode::immediate, test_device(), Priority::high);
  const auto comm = world().communicator(Mesh(1, 1), Axis::shard);
  EXPECT_EQ(comm->device(), test_device());
  EXPECT_FALSE(comm->shares_memory());
  comm->run_on(stream.view());
  const OnDevice<float> from({1, 2, 3}), to({0, 0, 0});
  const OnDevice<std::int64_t> counters({5, -6});
  comm->all_gather({"gather", "u", -1}, reinterpret_cast<const std::byte*>(from.data),
                   reinterpret_cast<std::byte*>(to.data), 12);
  stream.synchronize();
  EXPECT_EQ(to.read(), from.read());
  fill_now(test_device(), to.data, 0, 12);
  comm->all_to_all({"exchange", "u", -1}, reinterpret_cast<const std::byte*>(from.data),
                   reinterpret_cast<std::byte*>(to.data), 12);
  stream.synchronize();
  EXPECT_EQ(to.read(), from.read());
  fill_now(test_device(), to.data, 0, 12);
  comm->reduce_scatter({"reduce", "u", 0}, from.data, to.data, 3);
  comm->all_reduce({"reduce", "u", 0}, to.data, 3);
  comm->all_reduce({"norm"}, std::span(counters.data, 2));
  comm->broadcast({"broadcast", "u", -1}, {reinterpret_cast<std::byte*>(to.data), 12}, 0);
  comm->barrier({"barrier", "u", -1});
  stream.synchronize();
  EXPECT_EQ(to.read(), from.read());
  EXPECT_EQ(counters.read(), (std::vector<std::int64_t>{5, -6}));
  EXPECT_EQ(comm->traffic().collectives, 7u);
}

TEST(Nccl, more_collectives_than_are_watched_at_a_time) {
  TESSERA_NEEDS_DEVICE();
  Stream stream("comm", Stream::Mode::immediate, test_device(), Priority::high);
  const auto comm = world().communicator(Mesh(1, 1), Axis::shard);
  comm->run_on(stream.view());
  const OnDevice<std::int64_t> word({1});
  for (int i = 0; i < 2000; ++i) comm->all_reduce({"norm"}, std::span(word.data, 1));
  stream.synchronize();
  EXPECT_EQ(word.read(), std::vector<std::int64_t>{1});
}

TEST(Nccl, widens_inputs_of_two_bytes) {
  TESSERA_NEEDS_DEVICE();
  Stream stream("comm", Stream::Mode::immediate, test_device(), Priority::high);
  const auto comm = world().communicator(Mesh(1, 1), Axis::shard);
  comm->run_on(stream.view());
  const OnDevice<std::uint16_t> input({0x3f80, 0xc040, 0x7800});  // 1, -3, 2^113
  const OnDevice<float> sums({0, 0, 0});
  comm->reduce_scatter({"reduce", "u", 0}, SourceBuffer(input.data, DType::bf16), sums.data, 3);
  stream.synchronize();
  EXPECT_EQ(sums.read(), (std::vector<float>{1, -3, 0x1p113F}));
  comm->all_reduce({"reduce", "u", 0}, SourceBuffer(input.data, DType::f16), sums.data, 3);
  stream.synchronize();
  EXPECT_EQ(sums.read(), (std::vector<float>{1.875F, -2.125F, 32768}));
}

TEST(Nccl, two_axes_live_side_by_side) {
  TESSERA_NEEDS_DEVICE();
  Stream stream("comm", Stream::Mode::immediate, test_device(), Priority::high);
  const auto shard = world().communicator(Mesh(1, 1), Axis::shard),
             replicate = world().communicator(Mesh(1, 1), Axis::replicate);
  shard->run_on(stream.view());
  replicate->run_on(stream.view());
  const OnDevice<float> buffer({1, 2, 3, 4});
  shard->reduce_scatter({"reduce", "u", 0}, buffer.data, buffer.data, 4);
  replicate->all_reduce({"reduce", "u", 0}, buffer.data, 4);
  stream.synchronize();
  EXPECT_EQ(buffer.read(), (std::vector<float>{1, 2, 3, 4}));
}

TEST(Nccl, works_on_two_streams_and_moves_from_one_to_the_other) {
  TESSERA_NEEDS_DEVICE();
  Stream stream("comm", Stream::Mode::immediate, test_device(), Priority::high),
      second("replicate", Stream::Mode::immediate, test_device(), Priority::high);
  const auto shard = world().communicator(Mesh(1, 1), Axis::shard),
             replicate = world().communicator(Mesh(1, 1), Axis::replicate);
  shard->run_on(stream.view());
  replicate->run_on(second.view());
  constexpr int times = 300;  // more than are watched at a time
  std::vector<float> written(times);
  std::iota(written.begin(), written.end(), 1.0F);
  const OnDevice<float> source(written), seen{std::vector<float>(times)}, buffer({0});
  const OnDevice<std::int64_t> word({7});
  Event scattered, reduced;
  for (int i = 0; i < times; ++i) {
    // What a collective of one rank leaves does not show its order; the copies before and after it do.
    copy_bytes(buffer.data, source.data + i, sizeof(float), stream.view());
    shard->reduce_scatter({"reduce_scatter", "u", i}, buffer.data, buffer.data, 1);
    stream.record(scattered);
    second.wait(scattered);
    replicate->run_on(second.view());
    replicate->all_reduce({"all_reduce", "u", i}, buffer.data, 1);
    copy_bytes(seen.data + i, buffer.data, sizeof(float), second.view());
    second.record(reduced);
    stream.wait(reduced);
    replicate->run_on(stream.view());
    replicate->all_reduce({"norm"}, std::span(word.data, 1));
  }
  stream.synchronize();
  EXPECT_EQ(seen.read(), written);
  EXPECT_EQ(word.read(), std::vector<std::int64_t>{7});
}

TEST(NcclHandle, is_aborted_once_and_then_gives_up) {
  TESSERA_NEEDS_DEVICE();
  Stream stream("comm", Stream::Mode::immediate, test_device(), Priority::high);
  comm::NcclHandle handle(comm::make_nccl_id(), 1, 0, test_device(), [] {});
  EXPECT_NO_THROW(handle.check());
  handle.abort();
  handle.abort();
  EXPECT_THROW(handle.broadcast(nullptr, 0, 0, stream.view()), Error);
  EXPECT_NO_THROW(handle.check());
}

TEST(NcclHandle, that_nobody_joins_ends_when_its_watch_says_so) {
  TESSERA_NEEDS_DEVICE();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  const auto poll = [&] {
    if (std::chrono::steady_clock::now() > end) throw Error(ExitCode::communication, "rank 1 is late");
  };
  try {
    const comm::NcclHandle handle(comm::make_nccl_id(), 2, 0, test_device(), poll);
    FAIL() << "two ranks met, and one came";
  } catch (const Error& error) { EXPECT_THAT(error.line(), testing::HasSubstr("rank 1 is late")); }
}

}  // namespace
}  // namespace tessera
