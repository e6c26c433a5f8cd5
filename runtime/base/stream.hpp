#pragma once
// Stream and Event: ordered queues of work and points in them, on the host and on a device. Not a
// thread pool: one queue, one order.

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

/// What a kernel is told about where it runs. Host kernels run at once on the calling thread, which is the stream's
/// own; device kernels are launched on `handle`, a cudaStream_t. Trivially copied; no default stream by accident: make
/// one by name.
struct StreamView {
  void* handle;
};
inline constexpr StreamView host_stream{nullptr};

class Stream;

/// A point in a stream. Recorded again and again without allocation; waiting is for the latest record.
/// An event never recorded counts as passed. Must outlive the work that mentions it. Of a stream on a device it passes
/// when the device has got there; recording it there for the first time makes its mark.
class Event {
 public:
  Event() = default;
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Blocks the caller (never spins) until the work recorded before has run; in deferred mode this runs it.
  /// Rethrows what that work threw.
  void wait();
  /// True if wait() would return at once. Does not run deferred work.
  [[nodiscard]] bool passed() const;

 private:
  friend class Stream;
  Stream* stream_ = nullptr;
  std::int64_t ticket_ = 0;  // position in stream_ that has to be done
  void* mark_ = nullptr;     // on a device: its event, recorded by the task at ticket_
};

/// Where the device's scheduler puts a stream: communication before computation.
enum class Priority : unsigned char { normal, high };

/// An ordered queue of work. Tasks are a function pointer, its context and a number, so that enqueueing allocates
/// nothing (capacity tasks at most are queued; enqueue blocks beyond that).
///   immediate  runs each task inside enqueue: the caller's thread is the stream
///   threaded   one thread of its own, which sleeps when idle
///   deferred   for tests: a task runs only when an event behind it is waited for, so that a missing wait shows
/// A stream on a device has a queue of the device behind it: a task issues work on view() and does not wait for it;
/// record and wait order the device's work, and no host thread waits for the device but in Event::wait, synchronize(),
/// and where a host stream waits for an event.
class Stream {
 public:
  enum class Mode : unsigned char { immediate, threaded, deferred };
  using Function = void (*)(void* context, std::int64_t argument);

  Stream(std::string name, Mode mode, std::size_t capacity = 1024);
  /// On a device. The tasks' thread has the device current.
  Stream(std::string name, Mode mode, Device device, Priority priority, std::size_t capacity = 1024);
  /// Runs out what is queued (threaded), drops it (deferred). Never throws.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void enqueue(Function function, void* context, std::int64_t argument);
  /// `event` passes when everything enqueued so far has run.
  void record(Event& event);
  /// What is enqueued later runs after `event`'s latest record. The host does not block (but in
  /// immediate mode it is the stream).
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
  void run_until(std::int64_t ticket);   // deferred: on the caller's thread
  void wait_until(std::int64_t ticket);  // threaded: blocks; deferred: runs
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
