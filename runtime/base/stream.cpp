// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/stream.hpp"

#include <utility>

#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/cuda/stream.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/start_thread.hpp"

namespace tessera {

Event::~Event() {
  if constexpr (cuda_built)
    if (mark_ != nullptr) cuda::destroy_event(mark_);
}

void Event::wait() {
  if (!stream_) return;
  stream_->wait_until(ticket_);
  if constexpr (cuda_built)
    if (stream_->on_device()) {
      cuda::use(stream_->device());  // any thread may wait: without this, CUDA would create a context on device 0
      cuda::synchronize(mark_);
    }
}

bool Event::passed() const {
  if (!stream_) return true;
  {
    std::lock_guard lock(stream_->mutex_);
    if (stream_->finished_ < ticket_) return false;
  }
  if constexpr (cuda_built)
    if (stream_->on_device()) {
      cuda::use(stream_->device());
      return cuda::passed(mark_);
    }
  return true;
}

Stream::Stream(std::string name, Mode mode, std::size_t capacity)
    : Stream(std::move(name), mode, host_device, Priority::normal, capacity) {}

Stream::Stream(std::string name, Mode mode, Device device, Priority priority, std::size_t capacity)
    : name_(std::move(name)), mode_(mode), device_(device), ring_(capacity) {
  TESSERA_ASSERT(cuda_built || !on_device(), "a stream on a device, in a build without devices");
  if constexpr (cuda_built)
    if (on_device()) handle_ = cuda::make_stream(device_, priority);
  if (mode_ == Mode::threaded) thread_ = start_thread("a stream of the executor", [this] { loop(); });
}

Stream::~Stream() {
  if (thread_.joinable()) {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    thread_.join();
  }
  if constexpr (cuda_built)
    if (on_device()) cuda::destroy_stream(handle_);
}

void Stream::run(const Task& task) noexcept {
  if (error_) return;  // only the running thread writes error_; others read it under the mutex
  try {
    if constexpr (cuda_built)
      if (on_device()) cuda::use(device_);
    task.function(task.context, task.argument);
  } catch (...) {
    std::lock_guard lock(mutex_);
    error_ = std::current_exception();
  }
}

void Stream::push(Task task) {
  if (mode_ == Mode::immediate) {
    ++enqueued_;
    run(task);
    ++finished_;
    rethrow();
    return;
  }
  std::unique_lock lock(mutex_);
  const auto capacity = static_cast<std::int64_t>(ring_.size());
  while (enqueued_ - finished_ >= capacity) {
    if (mode_ == Mode::deferred) {
      lock.unlock();
      run_until(finished_ + 1);
      lock.lock();
    } else {
      done_.wait(lock);
    }
  }
  ring_[static_cast<std::size_t>(enqueued_ % capacity)] = task;
  ++enqueued_;
  lock.unlock();
  work_.notify_one();
}

void Stream::enqueue(Function function, void* context, std::int64_t argument) { push({function, context, argument}); }

void Stream::record(Event& event) {
  if (on_device()) record_on_device(event);
  else event.stream_ = this;
  std::lock_guard lock(mutex_);
  event.ticket_ = enqueued_;
}

void Stream::wait(Event& event) {
  if (!event.stream_ || event.stream_ == this) return;
  if (mode_ == Mode::immediate) {
    event.stream_->wait_until(event.ticket_);
    return wait_for_mark(event);
  }
  // The task carries the ticket: the event may be recorded again before the task runs.
  push({[](void* stream, std::int64_t ticket) { static_cast<Stream*>(stream)->wait_until(ticket); }, event.stream_,
        event.ticket_});
  if (event.stream_->on_device())
    push({[](void* awaited, std::int64_t stream) {
            reinterpret_cast<Stream*>(stream)->wait_for_mark(*static_cast<const Event*>(awaited));
          },
          &event, reinterpret_cast<std::int64_t>(this)});
}

/// Creates the CUDA event before anybody can wait for it; the task that records it runs before anybody queries it.
void Stream::record_on_device(Event& event) {
  if constexpr (cuda_built) {
    TESSERA_ASSERT(event.mark_ == nullptr || event.stream_ == this, "stream %s records another stream's event",
                   name_.c_str());
    if (event.mark_ == nullptr) {  // written once: a stream's thread may read both during a later record
      event.mark_ = cuda::make_event(device_, cuda::EventKind::order);
      event.stream_ = this;
    }
    push({[](void* recorded, std::int64_t stream) {
            cuda::record(static_cast<Event*>(recorded)->mark_, reinterpret_cast<Stream*>(stream)->handle_);
          },
          &event, reinterpret_cast<std::int64_t>(this)});
  }
}

/// The recorded work has been issued: the device waits for it, or this host stream does.
void Stream::wait_for_mark([[maybe_unused]] const Event& event) {
  if constexpr (cuda_built) {
    if (event.mark_ == nullptr) return;
    if (on_device()) return cuda::wait(handle_, event.mark_);
    cuda::use(event.stream_->device());  // as in Event::wait: this thread has no current device
    cuda::synchronize(event.mark_);
  }
}

void Stream::run_until(std::int64_t ticket) {
  std::unique_lock lock(mutex_);
  while (finished_ < ticket) {
    const Task task = ring_[static_cast<std::size_t>(finished_ % static_cast<std::int64_t>(ring_.size()))];
    lock.unlock();
    run(task);
    lock.lock();
    ++finished_;
  }
}

void Stream::wait_until(std::int64_t ticket) {
  if (mode_ == Mode::deferred) {
    run_until(ticket);
  } else if (mode_ == Mode::threaded) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return finished_ >= ticket || error_; });
  }
  rethrow();
}

void Stream::synchronize() {
  if (on_device()) {
    record(drained_);
    return drained_.wait();
  }
  std::int64_t all = 0;
  {
    std::lock_guard lock(mutex_);
    all = enqueued_;
  }
  wait_until(all);
}

void Stream::rethrow() {
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

void Stream::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return finished_ < enqueued_ || stopping_; });
    if (finished_ == enqueued_) return;
    const Task task = ring_[static_cast<std::size_t>(finished_ % static_cast<std::int64_t>(ring_.size()))];
    lock.unlock();
    run(task);
    lock.lock();
    ++finished_;
    done_.notify_all();
  }
}

}  // namespace tessera
