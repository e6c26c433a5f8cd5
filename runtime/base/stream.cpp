#include "runtime/base/stream.hpp"

#include <utility>

namespace tessera {

void Event::wait() {
  if (stream_) stream_->wait_until(ticket_);
}

bool Event::passed() const {
  if (!stream_) return true;
  std::lock_guard lock(stream_->mutex_);
  return stream_->finished_ >= ticket_;
}

Stream::Stream(std::string name, Mode mode, std::size_t capacity) : name_(std::move(name)), mode_(mode), ring_(capacity) {
  if (mode_ == Mode::threaded) thread_ = std::thread([this] { loop(); });
}

Stream::~Stream() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  thread_.join();
}

void Stream::run(const Task& task) noexcept {
  if (error_) return;  // error_ is written by the running thread alone, and read by others under the mutex
  try {
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
  std::lock_guard lock(mutex_);
  event.stream_ = this;
  event.ticket_ = enqueued_;
}

void Stream::wait(Event& event) {
  if (!event.stream_ || event.stream_ == this) return;
  if (mode_ == Mode::immediate) return event.wait();
  // The ticket travels with the task: the event may be recorded anew before the task runs.
  push({[](void* stream, std::int64_t ticket) { static_cast<Stream*>(stream)->wait_until(ticket); }, event.stream_, event.ticket_});
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
