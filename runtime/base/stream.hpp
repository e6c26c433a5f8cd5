// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stream and Event, on the host and on a device: ordered queues of work, and points in them.

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/device.hpp"

namespace tessera {

/// The stream that a kernel runs on. Host kernels run at once on the calling thread; device kernels are launched on
/// `handle`, a cudaStream_t. Trivially copied. There is no default stream.
struct StreamView {
  void* handle;
};
inline constexpr StreamView host_stream{nullptr};

class Stream;

/// A point in a stream. Recording again allocates nothing, and a wait is for the latest record. An event never recorded
/// counts as passed. Must outlive the work that uses it. On a device it passes when the device reaches it; its CUDA
/// event is created by the first record.
class Event {
 public:
  Event() = default;
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Blocks (does not spin) until the work before the record is done; deferred streams run it now. Rethrows what that
  /// work threw.
  void wait();
  /// True if wait() would return at once. Runs no deferred work.
  [[nodiscard]] bool passed() const;

 private:
  friend class Stream;
  Stream* stream_ = nullptr;
  std::int64_t ticket_ = 0;  // number of the last task in stream_ to wait for
  void* mark_ = nullptr;     // on a device: the CUDA event, recorded by that task
};

/// Scheduling priority on a device: communication runs at high priority.
enum class Priority : unsigned char { normal, high };

/// An ordered queue of work. A task is a function pointer, a context and a number, so that enqueue allocates nothing.
/// At most `capacity` tasks are queued; enqueue blocks beyond that.
///   immediate  each task runs inside enqueue, on the caller's thread
///   threaded   tasks run on a thread of the stream, which sleeps when idle
///   deferred   for tests: a task runs only when an event after it is waited for, so that a missing wait shows
/// On a device a task issues work on view() and does not wait for it. record and wait order the device's work. The host
/// waits for the device only in Event::wait, in synchronize(), and where a host stream waits for a device event.
class Stream {
 public:
  enum class Mode : unsigned char { immediate, threaded, deferred };
  using Function = void (*)(void* context, std::int64_t argument);

  Stream(std::string name, Mode mode, std::size_t capacity = 1024);
  /// On a device, which is current in the thread that runs the tasks.
  Stream(std::string name, Mode mode, Device device, Priority priority, std::size_t capacity = 1024);
  /// Runs the queued tasks (threaded) or drops them (deferred). Never throws.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void enqueue(Function function, void* context, std::int64_t argument);
  /// `event` passes when everything enqueued so far is done.
  void record(Event& event);
  /// Work enqueued later runs after `event`'s latest record. Does not block the host, except in immediate mode.
  void wait(Event& event);
  /// Blocks until the queue is empty; rethrows the first exception of a task. After a throw the stream skips all work.
  void synchronize();
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] StreamView view() const { return {handle_}; }
  [[nodiscard]] Device device() const { return device_; }

 private:
  friend class Event;
  struct Task {
    Function function = nullptr;
    void* context = nullptr;
    std::int64_t argument = 0;
  };
  void push(Task task);
  void run(const Task& task) noexcept;
  void run_until(std::int64_t ticket);   // deferred: runs tasks on the caller's thread
  void wait_until(std::int64_t ticket);  // threaded: blocks; deferred: runs tasks
  void loop();
  void rethrow();
  // On a device.
  void record_on_device(Event& event);
  void wait_for_mark(const Event& event);
  [[nodiscard]] bool on_device() const { return device_.kind == Device::Kind::cuda; }

  std::string name_;
  Mode mode_;
  Device device_;
  void* handle_ = nullptr;
  std::vector<Task> ring_;
  mutable std::mutex mutex_;
  std::condition_variable work_, done_;
  std::int64_t enqueued_ = 0, finished_ = 0;
  bool stopping_ = false;
  std::exception_ptr error_;
  Event drained_;  // on a device: what synchronize() waits for
  std::thread thread_;
};

}  // namespace tessera
