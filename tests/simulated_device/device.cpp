// SPDX-License-Identifier: Apache-2.0
// The simulated device's memory, queues and events: implements runtime/base/cuda.
#include "tests/simulated_device/device.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <typeindex>
#include <utility>
#include <vector>

#include "runtime/base/cuda/check.hpp"
#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/cuda/memory.hpp"
#include "runtime/base/cuda/stream.hpp"
#include "runtime/base/error.hpp"
#include "tests/simulated_device/kernel_kinds.hpp"
#include "tests/simulated_device/wait_order.hpp"

namespace tessera {
namespace simulated {
namespace {

/// Time is simulated: a microsecond per kernel or copy. Each queue and each host thread has its own time.
using Time = std::int64_t;
thread_local Time host_time = 0;

struct Task {
  std::function<void()> work;
  Time issued = 0, takes = 0;
};

struct Queue;
/// How many kernels and copies of each queue come before a point of a queue, by its waits and theirs (a vector clock).
using Before = std::map<const Queue*, std::int64_t>;

struct Queue {
  std::deque<Task> waiting;
  std::int64_t issued = 0, done = 0;
  Time time = 0;
  int number = -1;                                        // WaitOrder
  std::int64_t waits = 0;                                 // for events of other queues
  std::int64_t ran = 0;                                   // kernels and copies
  Before before;                                          // what is enqueued next
  std::vector<std::function<void()>>* capture = nullptr;  // where kernels and copies go instead of `waiting`
};

struct Mark {
  Queue* queue = nullptr;  // never recorded: complete
  std::int64_t ticket = 0;
  std::shared_ptr<Time> time;  // when the queue reached it
  Before before;
};

/// The whole state, under one lock: the device runs one thing at a time.
struct Machine {
  std::recursive_mutex mutex;
  std::map<const std::byte*, std::size_t> memory, pinned;
  std::map<Queue*, int> queues;
  std::set<std::type_index> kinds;  // KernelKinds
  int open = 0;                     // running kernels and copies
  // WaitOrder:
  int numbered = 0, drop_queue = -1;
  std::int64_t drop_wait = -1;
  Mark dropped;  // judged by what is enqueued next
  bool needed = false;
  const Queue* ahead = nullptr;

  void protect(int rights) const {
    for (const auto& [block, bytes] : memory)
      TESSERA_ASSERT(mprotect(const_cast<std::byte*>(block), bytes, rights) == 0);
  }
  void run(const std::function<void()>& work) {
    if (open++ == 0) protect(PROT_READ | PROT_WRITE);
    work();
    if (--open == 0) protect(PROT_NONE);
  }
  void run_to(Queue& queue, std::int64_t ticket) {
    while (queue.done < ticket) {
      const Task next = std::move(queue.waiting.front());
      queue.waiting.pop_front();
      queue.time = std::max(queue.time, next.issued);
      next.work();
      queue.time += next.takes;
      ++queue.done;
    }
  }
  /// The host waits.
  void finish(Queue& queue, std::int64_t ticket) {
    run_to(queue, ticket);
    host_time = std::max(host_time, queue.time);
  }
  void finish_all() {
    for (const auto& [queue, unused] : queues) finish(*queue, queue->issued);
  }
  void push(Queue& queue, Task task) {
    queue.waiting.push_back(std::move(task));
    ++queue.issued;
    static const bool eager =
        std::getenv("TESSERA_SIMULATED") != nullptr && std::strcmp(std::getenv("TESSERA_SIMULATED"), "eager") == 0;
    if (eager || &queue == ahead) run_to(queue, queue.issued);
  }
  bool drops(Queue& queue, const Mark& mark) {
    if (mark.queue == &queue || queue.number < 0) return false;
    if (queue.waits++ != drop_wait || queue.number != drop_queue) return false;
    dropped = mark;
    ahead = &queue;
    return true;
  }
  void judge_drop(Queue& queue) {
    if (&queue != ahead || dropped.queue == nullptr) return;
    needed = std::ranges::any_of(dropped.before, [&queue](const auto& work) {
      return work.first->ran < work.second && queue.before[work.first] < work.second;
    });
    dropped = {};
  }
};

Machine& machine() {
  static Machine& one = *new Machine;  // streams of static objects end after main
  return one;
}

bool within(const std::map<const std::byte*, std::size_t>& blocks, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  auto block = blocks.upper_bound(at);
  if (block == blocks.begin()) return false;
  --block;
  return at + bytes <= block->first + block->second;
}

std::size_t pages(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

std::byte* map_memory(std::size_t bytes, int rights) {
  void* const block = mmap(nullptr, pages(bytes), rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TESSERA_ASSERT(block != MAP_FAILED);
  return static_cast<std::byte*>(block);
}

Queue& queue_of(void* stream) {
  if (stream != nullptr) return *static_cast<Queue*>(stream);
  static Queue& default_stream = *new Queue;
  machine().queues[&default_stream] = 0;
  return default_stream;
}

}  // namespace

void launch(StreamView stream, std::function<void()> work) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  m.kinds.insert(work.target_type());
  Queue& queue = queue_of(stream.handle);
  if (queue.capture != nullptr) return queue.capture->push_back(std::move(work));
  m.judge_drop(queue);
  ++queue.before[&queue];
  m.push(queue, {[&m, &queue, work = std::move(work)] { m.run(work), ++queue.ran; }, host_time, 1});
}

bool on_device(const void* data, std::size_t bytes) {
  const std::lock_guard lock(machine().mutex);
  return within(machine().memory, data, bytes);
}

bool pinned(const void* data, std::size_t bytes) {
  const std::lock_guard lock(machine().mutex);
  return within(machine().pinned, data, bytes);
}

namespace {
void drop(int queue, std::int64_t wait) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  m.ahead = nullptr;
  for (const auto& [other, unused] : m.queues) {
    other->waits = 0;
    if (wait < 0 && queue >= 0 && other->number == queue) m.ahead = other;
  }
  m.drop_queue = queue;
  m.drop_wait = wait;
  m.dropped = {};
  m.needed = false;
}
void number_queues() {
  const std::lock_guard lock(machine().mutex);
  for (const auto& [queue, unused] : machine().queues) queue->number = -1;
  machine().numbered = 0;
  drop(-1, -1);
}
std::int64_t waits(int number) {
  const std::lock_guard lock(machine().mutex);
  for (const auto& [queue, unused] : machine().queues)
    if (queue->number == number) return queue->waits;
  return -1;
}
bool needed() {
  const std::lock_guard lock(machine().mutex);
  return machine().needed;
}
void clear_kinds() {
  const std::lock_guard lock(machine().mutex);
  machine().kinds.clear();
}
std::size_t count_kinds() {
  const std::lock_guard lock(machine().mutex);
  return machine().kinds.size();
}
}  // namespace

const WaitOrder* tessera_simulated_wait_order() {
  static constexpr WaitOrder order{number_queues, drop, waits, needed};
  return &order;
}

const KernelKinds* tessera_simulated_kernel_kinds() {
  static constexpr KernelKinds kinds{clear_kinds, count_kinds};
  return &kinds;
}

}  // namespace simulated

namespace cuda {

using simulated::machine, simulated::Mark, simulated::Queue, simulated::queue_of;

/// What a process has on the device beside its allocations.
static constexpr std::size_t simulated_context_bytes = std::size_t{512} << 20;
/// Whether the thread has called use(): without it, CUDA would create a context on device 0.
static thread_local bool has_device = false;

std::byte* allocate(Device device, std::size_t bytes, std::size_t* taken) {
  const auto allocate_once = [bytes] {
    const std::lock_guard lock(machine().mutex);
    std::byte* const block = simulated::map_memory(bytes, PROT_NONE);
    machine().memory[block] = simulated::pages(bytes);
    return block;
  };
  if (taken == nullptr) return allocate_once();
  const MeasuredAllocation made =
      measure_allocation(bytes, {.uuid = "",
                                 .read = [device] { return read_memory(device); },
                                 .allocate = allocate_once,
                                 .release = [device](std::byte* b) { release(device, b); }});
  *taken = made.taken;
  return made.block;
}
/// With SIMULATED_NEIGHBOR another process is on the card: it has that many MiB, and takes 6 MiB before every third
/// reading, 600 MiB at most.
MemoryReading read_memory(Device) {
  const std::lock_guard lock(machine().mutex);
  static const char* const neighbor = std::getenv("SIMULATED_NEIGHBOR");
  static std::size_t readings = 0;
  constexpr std::size_t total = std::size_t{1} << 33, mib = std::size_t{1} << 20;
  std::size_t used = neighbor != nullptr
                         ? (std::strtoull(neighbor, nullptr, 10) + std::min<std::size_t>(readings++ / 3, 100) * 6) * mib
                         : 0;
  for (const auto& [block, bytes] : machine().memory) used += bytes;
  return {total - std::min(used, total), total};
}
std::optional<std::size_t> process_memory(Device) {
  const std::lock_guard lock(machine().mutex);
  if (std::getenv("SIMULATED_NEIGHBOR") != nullptr) return std::nullopt;  // NVML lists no processes
  std::size_t sum = simulated_context_bytes;
  for (const auto& [block, bytes] : machine().memory) sum += bytes;
  return sum;
}
void release(Device, std::byte* block) noexcept {
  const std::lock_guard lock(machine().mutex);
  machine().finish_all();  // as cudaFree does
  munmap(block, machine().memory[block]);
  machine().memory.erase(block);
}
void pin(Device, std::byte* block, std::size_t bytes) {
  const std::lock_guard lock(machine().mutex);
  machine().pinned[block] = bytes;
}
void unpin(std::byte* block) noexcept {
  const std::lock_guard lock(machine().mutex);
  machine().finish_all();
  machine().pinned.erase(block);
}

void copy(const RowCopy& c, StreamView stream) {
  if (c.width == 0 || c.rows == 0) return;
  const auto known = [&](const void* data, std::size_t pitch) {
    const std::size_t bytes = pitch * (c.rows - 1) + c.width;
    return simulated::on_device(data, bytes) || simulated::pinned(data, bytes);
  };
  TESSERA_ASSERT(c.rows == 1 || std::max(c.to_pitch, c.from_pitch) <= max_pitch, "cudaMemcpy2D refuses the pitch");
  const auto move_rows = [](const RowCopy& block) {
    for (std::size_t row = 0; row < block.rows; ++row)
      std::memmove(static_cast<std::byte*>(block.to) + row * block.to_pitch,
                   static_cast<const std::byte*>(block.from) + row * block.from_pitch, block.width);
  };
  const bool pageable = !known(c.from, c.from_pitch) || !known(c.to, c.to_pitch);
  TESSERA_ASSERT(!pageable || queue_of(stream.handle).capture == nullptr, "a captured copy of pageable memory");
  if (!known(c.from, c.from_pitch)) {  // pageable: staged before the call returns, on the device when its turn comes
    auto staged = std::make_shared<std::vector<std::byte>>(c.width * c.rows);
    move_rows({staged->data(), c.width, c.from, c.from_pitch, c.width, c.rows});
    simulated::launch(stream, [=] { move_rows({c.to, c.to_pitch, staged->data(), c.width, c.width, c.rows}); });
  } else {
    simulated::launch(stream, [=] { move_rows(c); });
  }
  if (known(c.to, c.to_pitch)) return;
  // Pageable: the host waits.
  const std::lock_guard lock(machine().mutex);
  machine().finish(queue_of(stream.handle), queue_of(stream.handle).issued);
}
void copy(void* to, const void* from, std::size_t bytes, StreamView stream) {
  copy({to, bytes, from, bytes, bytes, 1}, stream);
}
void fill(void* to, unsigned char value, std::size_t bytes, StreamView stream) {
  TESSERA_ASSERT(bytes == 0 || simulated::on_device(to, bytes), "a fill of the host's memory");
  simulated::launch(stream, [=] { std::memset(to, value, bytes); });
}
void synchronize(Device) {
  const std::lock_guard lock(machine().mutex);
  machine().finish_all();
}

void* make_stream(Device, Priority) {
  const std::lock_guard lock(machine().mutex);
  auto* const queue = new Queue;
  machine().queues[queue] = 0;
  queue->number = machine().numbered++;
  return queue;
}
/// Events may refer to it: it is emptied, not freed.
void destroy_stream(void* stream) noexcept {
  const std::lock_guard lock(machine().mutex);
  machine().run_to(queue_of(stream), queue_of(stream).issued);
  machine().queues.erase(&queue_of(stream));
}

void* make_event(Device, EventKind) { return new Mark; }
void destroy_event(void* event) noexcept { delete static_cast<Mark*>(event); }
void record(void* event, void* stream) {
  const std::lock_guard lock(machine().mutex);
  Queue& queue = queue_of(stream);
  TESSERA_ASSERT(queue.capture == nullptr, "an event recorded during a capture");
  machine().judge_drop(queue);
  const bool idle = queue.done == queue.issued;
  auto time = std::make_shared<simulated::Time>();
  machine().push(queue, {[time, &queue] { *time = queue.time; }, simulated::host_time, 0});
  *static_cast<Mark*>(event) = {&queue, queue.issued, std::move(time), queue.before};
  if (idle) machine().run_to(queue, queue.issued);
}
void wait(void* stream, void* event) {
  const std::lock_guard lock(machine().mutex);
  const Mark mark = *static_cast<Mark*>(event);
  Queue& queue = queue_of(stream);
  TESSERA_ASSERT(queue.capture == nullptr, "a wait during a capture");
  if (mark.queue == nullptr || machine().drops(queue, mark)) return;
  for (const auto& [other, ticket] : mark.before) queue.before[other] = std::max(queue.before[other], ticket);
  machine().push(queue, {[mark, &queue] {
                           machine().run_to(*mark.queue, mark.ticket);
                           queue.time = std::max(queue.time, *mark.time);
                         },
                         simulated::host_time, 0});
}
void synchronize(void* event) {
  TESSERA_ASSERT(has_device, "a thread without a current device asks for an event");
  const std::lock_guard lock(machine().mutex);
  const Mark mark = *static_cast<Mark*>(event);
  if (mark.queue == nullptr) return;
  machine().run_to(*mark.queue, mark.ticket);
  simulated::host_time = std::max(simulated::host_time, *mark.time);
}
bool passed(void* event) {
  TESSERA_ASSERT(has_device, "a thread without a current device asks for an event");
  const std::lock_guard lock(machine().mutex);
  const Mark& mark = *static_cast<Mark*>(event);
  return mark.queue == nullptr || mark.queue->done >= mark.ticket;
}
using Captured = std::vector<std::function<void()>>;
void begin_capture(void* stream) {
  const std::lock_guard lock(machine().mutex);
  Queue& queue = queue_of(stream);
  TESSERA_ASSERT(queue.capture == nullptr, "a capture within a capture");
  queue.capture = new Captured;
}
void* end_capture(void* stream) {
  const std::lock_guard lock(machine().mutex);
  return std::exchange(queue_of(stream).capture, nullptr);
}
void destroy_graph(void* graph) noexcept {
  const std::lock_guard lock(machine().mutex);
  machine().finish_all();
  delete static_cast<Captured*>(graph);
}
void launch_graph(void* graph, void* stream) {
  for (const auto& work : *static_cast<Captured*>(graph)) simulated::launch({stream}, work);
}

double milliseconds(void* from, void* to) {
  const std::lock_guard lock(machine().mutex);
  return 1e-3 * static_cast<double>(*static_cast<Mark*>(to)->time - *static_cast<Mark*>(from)->time);
}

void use(Device) { has_device = true; }
void check(int status, const char* call, const char* file, int line) {
  TESSERA_ASSERT(status == 0, "%s:%d: %s failed", file, line, call);
}

}  // namespace cuda
}  // namespace tessera
