#include "runtime/base/cuda/stream.hpp"

#include <cuda_runtime.h>

#include <utility>

#include "runtime/base/cuda/check.hpp"
#include "runtime/base/cuda/devices.hpp"

namespace tessera::cuda {

namespace {
cudaStream_t stream_of(void* handle) { return static_cast<cudaStream_t>(handle); }
cudaEvent_t event_of(void* handle) { return static_cast<cudaEvent_t>(handle); }
}  // namespace

void* make_stream(Device device, Priority priority) {
  use(device);
  int least = 0, greatest = 0;  // the greatest priority is the lowest number
  TESSERA_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  TESSERA_CUDA(
      cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority == Priority::high ? greatest : least));
  return stream;
}

void destroy_stream(void* stream) noexcept { TESSERA_CUDA_QUIETLY(cudaStreamDestroy(stream_of(stream))); }

void* make_event(Device device, EventKind kind) {
  use(device);
  cudaEvent_t event = nullptr;
  TESSERA_CUDA(cudaEventCreateWithFlags(
      &event, kind == EventKind::timed ? cudaEventBlockingSync : cudaEventBlockingSync | cudaEventDisableTiming));
  return event;
}

void destroy_event(void* event) noexcept { TESSERA_CUDA_QUIETLY(cudaEventDestroy(event_of(event))); }

void record(void* event, void* stream) { TESSERA_CUDA(cudaEventRecord(event_of(event), stream_of(stream))); }

void wait(void* stream, void* event) {
  TESSERA_CUDA(cudaStreamWaitEvent(stream_of(stream), event_of(event), cudaEventWaitDefault));
}

void synchronize(void* event) { TESSERA_CUDA(cudaEventSynchronize(event_of(event))); }

bool passed(void* event) {
  const cudaError_t status = cudaEventQuery(event_of(event));
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  TESSERA_CUDA(status);
  return true;
}

double milliseconds(void* from, void* to) {
  float time = 0;
  TESSERA_CUDA(cudaEventElapsedTime(&time, event_of(from), event_of(to)));
  return static_cast<double>(time);
}

Graph::Graph(StreamView stream, void (*issue)(void* context), void* context) {
  TESSERA_CUDA(cudaStreamBeginCapture(stream_of(stream.handle), cudaStreamCaptureModeThreadLocal));
  cudaGraph_t graph = nullptr;
  try {
    issue(context);
  } catch (...) {
    (void)cudaStreamEndCapture(stream_of(stream.handle), &graph);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    throw;
  }
  TESSERA_CUDA(cudaStreamEndCapture(stream_of(stream.handle), &graph));
  cudaGraphExec_t exec = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&exec, graph, 0);
  (void)cudaGraphDestroy(graph);
  TESSERA_CUDA(status);
  graph_ = exec;
}

Graph::~Graph() {
  if (graph_ != nullptr) TESSERA_CUDA_QUIETLY(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_)));
}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(graph_, other.graph_);
  return *this;
}

void Graph::launch(StreamView stream) const {
  TESSERA_CUDA(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), stream_of(stream.handle)));
}

}  // namespace tessera::cuda
