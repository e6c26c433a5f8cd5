// SPDX-License-Identifier: Apache-2.0
// Stream, Event, Arena and copies on a device, in the order that the host's tests check, with copies as the work.
#include <algorithm>
#include <vector>

#include "runtime/base/arena.hpp"
#include "runtime/base/cuda/memory.hpp"
#include "runtime/base/cuda/stream.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/stream.hpp"
#include "tests/base/cuda/needs_device.hpp"

namespace tessera {
namespace {

using Mode = Stream::Mode;
constexpr std::size_t large = std::size_t{256} << 20;  // a copy that takes the device a while

/// Memory for one test.
struct OnDevice {
  explicit OnDevice(std::size_t bytes) : data(cuda::allocate(test_device(), bytes)) {}
  ~OnDevice() { cuda::release(test_device(), data); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  std::byte* data;
};
struct Pinned {
  explicit Pinned(std::size_t bytes) : mapping(Mapping::anonymous(bytes, "pinned")), data(mapping.data()) {
    cuda::pin(test_device(), data, bytes);
  }
  ~Pinned() { cuda::unpin(data); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  Mapping mapping;
  std::byte* data;
};

std::byte first_of(const std::byte* device) {
  std::byte value{};
  copy_now(test_device(), &value, device, 1);
  return value;
}

/// A task that fills a buffer; `argument` is the value.
struct Fill {
  Stream* stream;
  std::byte* data;
  std::size_t bytes;
  static void run(void* context, std::int64_t argument) {
    auto& fill = *static_cast<Fill*>(context);
    cuda::fill(fill.data, static_cast<unsigned char>(argument), fill.bytes, fill.stream->view());
  }
};

class CudaStream : public testing::TestWithParam<Mode> {};

TEST_P(CudaStream, does_its_work_in_order) {
  TESSERA_NEEDS_DEVICE();
  const OnDevice buffer(large);
  Stream stream("s", GetParam(), test_device(), Priority::normal);
  Fill fill{&stream, buffer.data, large};
  for (int i = 0; i < 20; ++i) stream.enqueue(Fill::run, &fill, i);
  stream.synchronize();
  EXPECT_EQ(first_of(buffer.data), std::byte{19});
}

TEST_P(CudaStream, waits_for_an_event_of_another) {
  TESSERA_NEEDS_DEVICE();
  const OnDevice from(large), to(large);
  Stream first("first", GetParam(), test_device(), Priority::normal),
      second("second", GetParam(), test_device(), Priority::high);
  Fill fill{&first, from.data, large};
  struct Copy {
    Stream* stream;
    std::byte *to, *from;
    static void run(void* context, std::int64_t) {
      auto& c = *static_cast<Copy*>(context);
      cuda::copy(c.to, c.from, large, c.stream->view());
    }
  } copy{&second, to.data, from.data};
  Event filled, copied;
  for (int round = 1; round < 8; ++round) {  // events are recorded anew
    first.wait(copied);
    first.enqueue(Fill::run, &fill, round);
    first.record(filled);
    second.wait(filled);
    second.enqueue(Copy::run, &copy, 0);
    second.record(copied);
    copied.wait();
    EXPECT_TRUE(filled.passed());
    EXPECT_EQ(first_of(to.data), std::byte(round));
    EXPECT_EQ(first_of(to.data + large - 1), std::byte(round));
  }
}

TEST_P(CudaStream, is_waited_for_by_a_stream_of_the_host) {
  TESSERA_NEEDS_DEVICE();
  const OnDevice buffer(large);
  const Pinned host(large);
  Stream device("device", GetParam(), test_device(), Priority::normal), reader("reader", Mode::threaded);
  struct Work {
    Stream* stream;
    std::byte *device, *host;
    std::byte seen{};
  } work{&device, buffer.data, host.data};
  device.enqueue(
      [](void* context, std::int64_t) {
        auto& w = *static_cast<Work*>(context);
        cuda::fill(w.device, 7, large, w.stream->view());
        cuda::copy(w.host, w.device, large, w.stream->view());
      },
      &work, 0);
  Event done;
  device.record(done);
  reader.wait(done);
  reader.enqueue(
      [](void* context, std::int64_t) {
        auto& w = *static_cast<Work*>(context);
        w.seen = w.host[large - 1];
      },
      &work, 0);
  reader.synchronize();
  EXPECT_EQ(work.seen, std::byte{7});
}

TEST_P(CudaStream, keeps_what_a_task_threw) {
  TESSERA_NEEDS_DEVICE();
  Stream stream("s", GetParam(), test_device(), Priority::normal);
  const auto fail = [](void*, std::int64_t) { throw Error(ExitCode::internal, "task"); };
  EXPECT_THROW(
      {
        stream.enqueue(fail, nullptr, 0);
        stream.synchronize();
      },
      Error);
}

INSTANTIATE_TEST_SUITE_P(Modes, CudaStream, testing::Values(Mode::immediate, Mode::threaded, Mode::deferred),
                         [](const auto& test) {
                           return std::string(test.param == Mode::immediate  ? "immediate"
                                              : test.param == Mode::threaded ? "threaded"
                                                                             : "deferred");
                         });

TEST(CudaEvent, times_the_work_between) {
  TESSERA_NEEDS_DEVICE();
  const OnDevice buffer(large);
  Stream stream("s", Mode::immediate, test_device(), Priority::normal);
  void* const begin = cuda::make_event(test_device(), cuda::EventKind::timed);
  void* const end = cuda::make_event(test_device(), cuda::EventKind::timed);
  cuda::record(begin, stream.view().handle);
  for (int i = 0; i < 50; ++i) cuda::fill(buffer.data, 1, large, stream.view());
  cuda::record(end, stream.view().handle);
  EXPECT_FALSE(cuda::passed(end));  // 12.5 GiB written take milliseconds
  cuda::synchronize(end);
  EXPECT_TRUE(cuda::passed(end));
  EXPECT_GT(cuda::milliseconds(begin, end), 0.5);
  cuda::destroy_event(begin);
  cuda::destroy_event(end);
}

TEST(CudaMemory, is_zero_and_copies_rows) {
  TESSERA_NEEDS_DEVICE();
  const std::size_t rows = 5, pitch = 37, width = 11;
  const OnDevice device(rows * pitch);
  const Pinned from(rows * width), to(rows * width);
  EXPECT_EQ(first_of(device.data + rows * pitch - 1), std::byte{0});
  for (std::size_t i = 0; i < rows * width; ++i) from.data[i] = static_cast<std::byte>(i + 1);
  Stream stream("s", Mode::immediate, test_device(), Priority::normal);
  cuda::copy({device.data, pitch, from.data, width, width, rows}, stream.view());
  cuda::copy({to.data, width, device.data, pitch, width, rows}, stream.view());
  stream.synchronize();
  for (std::size_t i = 0; i < rows * width; ++i) EXPECT_EQ(to.data[i], from.data[i]) << i;
  EXPECT_EQ(first_of(device.data + width), std::byte{0});  // between rows nothing was written
}

TEST(CudaMemory, that_does_not_fit_is_refused_with_what_to_do) {
  TESSERA_NEEDS_DEVICE();
  try {
    (void)cuda::allocate(test_device(), std::size_t{1} << 50);
    FAIL() << "a pebibyte was had";
  } catch (const Error& error) { EXPECT_EQ(error.code(), ExitCode::does_not_fit); }
  const OnDevice after(4096);  // the refusal leaves nothing behind
}

TEST(CudaTransfer, copies_rows_with_a_larger_pitch_than_one_call_takes) {
  TESSERA_NEEDS_DEVICE();
  constexpr std::size_t pitch = cuda::max_pitch + 1 + 64;
  const OnDevice rows(pitch + 4);
  const Pinned from(8), back(8);
  for (unsigned char i = 0; i < 8; ++i) from.data[i] = std::byte{static_cast<unsigned char>(i + 1)};
  Stream stream("s", Mode::immediate, test_device(), Priority::normal);
  copy_rows({rows.data, pitch, from.data, 4, 4, 2}, stream.view());
  copy_rows({back.data, 4, rows.data, pitch, 4, 2}, stream.view());
  stream.synchronize();
  EXPECT_TRUE(std::equal(from.data, from.data + 8, back.data));
  EXPECT_EQ(first_of(rows.data + pitch), std::byte{5});
}

TEST(CudaArena, follows_its_slots_and_detects_a_broken_canary) {
  TESSERA_NEEDS_DEVICE();
  Arena arena({{.name = "host", .bytes = 100},
               {.name = "pinned", .bytes = 200, .memory = Memory::pinned},
               {.name = "device", .bytes = 300, .memory = Memory::device},
               {.name = "more", .bytes = 4097, .memory = Memory::device}},
              nullptr, test_device());
  EXPECT_EQ(arena.broken_canary(), "");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.data("more")) % Arena::alignment,
            reinterpret_cast<std::uintptr_t>(arena.data("device")) % Arena::alignment);
  EXPECT_EQ(first_of(arena.data("more")), std::byte{0});
  arena.fill_with_pattern();
  EXPECT_EQ(arena.touched("device"), 0u);
  fill_now(test_device(), arena.data("device"), 1, 250);
  EXPECT_EQ(arena.touched("device"), 250u);
  EXPECT_EQ(arena.touched("more"), 0u);
  EXPECT_EQ(arena.broken_canary(), "");
  fill_now(test_device(), arena.data("device") + 300, 1, 1);
  EXPECT_EQ(arena.broken_canary(), "device");
}

}  // namespace
}  // namespace tessera
