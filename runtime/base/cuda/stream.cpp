// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/cuda/stream.hpp"

#include <cuda_runtime.h>

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

void begin_capture(void* stream) {
  TESSERA_CUDA(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal));
}

void* end_capture(void* stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  TESSERA_CUDA(cudaStreamEndCapture(stream_of(stream), &graph));
  const cudaError_t status = cudaGraphInstantiateWithFlags(&executable, graph, 0);
  TESSERA_CUDA_QUIETLY(cudaGraphDestroy(graph));
  TESSERA_CUDA(status);
  return executable;
}

void destroy_graph(void* graph) noexcept {
  TESSERA_CUDA_QUIETLY(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)));
}

void launch_graph(void* graph, void* stream) {
  TESSERA_CUDA(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(stream)));
}

double milliseconds(void* from, void* to) {
  float time = 0;
  TESSERA_CUDA(cudaEventElapsedTime(&time, event_of(from), event_of(to)));
  return static_cast<double>(time);
}

}  // namespace tessera::cuda
