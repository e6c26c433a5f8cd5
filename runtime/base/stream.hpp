#pragma once
// Stream and Event on the host: ordered queues of work and points in them. A CUDA stream will stand behind the same words.
// Not a thread pool: one queue, one order.

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tessera {

/// What a kernel is told about where it runs. Host kernels run at once on the calling thread, which is the stream's own;
/// device kernels will be launched on `handle`. Trivially copied; no default stream by accident: make one by name.
struct StreamView {
  void* handle;
};
inline constexpr StreamView host_stream{nullptr};

class Stream;

/// A point in a stream. Recorded again and again without allocation; waiting is for the latest record.
/// An event never recorded counts as passed. Must outlive the work that mentions it.
class Event {
 public:
  Event() = default;
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
};

/// An ordered queue of work. Tasks are a function pointer, its context and a number, so that enqueueing allocates nothing
/// (capacity tasks at most are queued; enqueue blocks beyond that).
///   immediate  runs each task inside enqueue: the caller's thread is the stream
///   threaded   one thread of its own, which sleeps when idle
///   deferred   for tests: a task runs only when an event behind it is waited for, so that a missing wait shows
class Stream {
 public:
  enum class Mode : unsigned char { immediate, threaded, deferred };
  using Function = void (*)(void* context, std::int64_t argument);

  Stream(std::string name, Mode mode, std::size_t capacity = 1024);
  /// Runs out what is queued (threaded), drops it (deferred). Never throws.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void enqueue(Function function, void* context, std::int64_t argument);
  /// `event` passes when everything enqueued so far has run.
  void record(Event& event);
  /// What is enqueued later runs after `event`'s latest record. The host does not block (but in immediate mode it is the stream).
  void wait(Event& event);
  /// Blocks until the queue is empty; rethrows the first exception of a task. After a throw the stream skips all work.
  void synchronize();
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] StreamView view() const { return host_stream; }

 private:
  friend class Event;
  struct Task {
    Function function = nullptr;
    void* context = nullptr;
    std::int64_t argument = 0;
  };
  void push(Task task);
  void run(const Task& task) noexcept;
  void run_until(std::int64_t ticket);      // deferred: on the caller's thread
  void wait_until(std::int64_t ticket);     // threaded: blocks; deferred: runs
  void loop();
  void rethrow();

  std::string name_;
  Mode mode_;
  std::vector<Task> ring_;
  mutable std::mutex mutex_;
  std::condition_variable work_, done_;
  std::int64_t enqueued_ = 0, finished_ = 0;
  bool stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace tessera
