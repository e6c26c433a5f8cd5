// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/nccl/handle.hpp"

#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/cuda/library.hpp"
#include "runtime/base/error.hpp"

namespace tessera::comm {

namespace {

/// Pointers to the NCCL functions in use, looked up once.
struct Table {
#define TESSERA_NCCL(name, function) decltype(&::function) name = TESSERA_SYMBOL(cuda::Library::nccl(), function)
  TESSERA_NCCL(get_unique_id, ncclGetUniqueId);
  TESSERA_NCCL(init, ncclCommInitRankConfig);
  TESSERA_NCCL(async_error, ncclCommGetAsyncError);
  TESSERA_NCCL(finalize, ncclCommFinalize);
  TESSERA_NCCL(destroy, ncclCommDestroy);
  TESSERA_NCCL(abort, ncclCommAbort);
  TESSERA_NCCL(error_string, ncclGetErrorString);
  TESSERA_NCCL(last_error, ncclGetLastError);
  TESSERA_NCCL(all_gather, ncclAllGather);
  TESSERA_NCCL(reduce_scatter, ncclReduceScatter);
  TESSERA_NCCL(all_reduce, ncclAllReduce);
  TESSERA_NCCL(broadcast, ncclBroadcast);
  TESSERA_NCCL(send, ncclSend);
  TESSERA_NCCL(receive, ncclRecv);
  TESSERA_NCCL(group_start, ncclGroupStart);
  TESSERA_NCCL(group_end, ncclGroupEnd);
#undef TESSERA_NCCL
};

const Table& nccl() {
  static const Table table;
  return table;
}

ncclComm_t comm_of(void* handle) { return static_cast<ncclComm_t>(handle); }
cudaStream_t stream_of(StreamView stream) { return static_cast<cudaStream_t>(stream.handle); }

[[noreturn]] void refuse(int result, const char* call, void* comm) {
  const char* const more = nccl().last_error(comm_of(comm));
  throw Error(ExitCode::communication,
              strfmt("%s: %s%s%s", call, nccl().error_string(static_cast<ncclResult_t>(result)),
                     more != nullptr && *more != '\0' ? ": " : "", more != nullptr ? more : ""),
              "nccl", "NCCL_DEBUG=WARN prints more; --comm mpi does not use NCCL");
}

}  // namespace

NcclId make_nccl_id() {
  static_assert(sizeof(ncclUniqueId) == sizeof(NcclId));
  ncclUniqueId made;
  if (const ncclResult_t result = nccl().get_unique_id(&made); result != ncclSuccess)
    refuse(result, "ncclGetUniqueId", nullptr);
  NcclId id;
  std::memcpy(id.data(), &made, sizeof made);
  return id;
}

NcclHandle::NcclHandle(const NcclId& id, int size, int rank, Device device, Poll poll)
    : poll_(std::move(poll)), device_(device) {
  cuda::use(device_);
  ncclUniqueId common;
  std::memcpy(&common, id.data(), sizeof common);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 17, 0)
  // A rank may have three collectives in flight, on three streams: of parameters, of gradients, of activations. Their
  // kernels must fit on the device together: if each needed the other's multiprocessors, two ranks that start them in
  // different orders would wait for each other.
  config.maxCTAs = std::max(1, cuda::survey().devices.at(static_cast<std::size_t>(device_.index)).multiprocessors / 3);
#endif
  try {
    call("ncclCommInitRankConfig", [&](ncclComm_t) {
      ncclComm_t made = nullptr;
      const ncclResult_t result = nccl().init(&made, size, common, rank, &config);
      comm_ = made;
      return result;
    });
  } catch (...) {
    abort();
    throw;
  }
}

NcclHandle::~NcclHandle() {
  if (std::uncaught_exceptions() > 0) {
    abort();
    return;
  }
  try {
    cuda::use(device_);
    // Peers may have failed: do not wait for them long.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    poll_ = [end] {
      if (std::chrono::steady_clock::now() > end)
        throw Error(ExitCode::communication, "ncclCommFinalize did not finish in two seconds");
    };
    call("ncclCommFinalize", [](ncclComm_t comm) { return nccl().finalize(comm); });  // throws after an abort
    const std::lock_guard lock(mutex_);
    if (!std::exchange(aborted_, true)) (void)nccl().destroy(comm_of(comm_));
  } catch (const std::exception&) { abort(); }
}

template <class Call>
void NcclHandle::call(const char* name, Call function) {
  const auto under_lock = [&](auto&& make) {
    const std::lock_guard lock(mutex_);
    if (aborted_) throw Error(ExitCode::communication, strfmt("%s: aborted, the run has failed", name), "nccl");
    const ncclResult_t result = make(comm_of(comm_));
    if (result != ncclSuccess && result != ncclInProgress) refuse(result, name, comm_);
    return result;
  };
  ncclResult_t result = under_lock(function);
  for (int tries = 0; result == ncclInProgress; ++tries) {
    poll_();
    if (tries < 64) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(50));
    result = under_lock([](ncclComm_t comm) {
      ncclResult_t state = ncclInProgress;
      const ncclResult_t asked = nccl().async_error(comm, &state);
      return asked != ncclSuccess ? asked : state;
    });
  }
}

void NcclHandle::all_gather(const void* mine, void* full, std::size_t bytes, StreamView stream) {
  call("ncclAllGather",
       [&](ncclComm_t comm) { return nccl().all_gather(mine, full, bytes, ncclInt8, comm, stream_of(stream)); });
}

void NcclHandle::reduce_scatter(const void* full, void* mine, std::size_t count, DType dtype, StreamView stream) {
  const ncclDataType_t type = dtype == DType::bf16 ? ncclBfloat16 : dtype == DType::f16 ? ncclFloat16 : ncclFloat32;
  call("ncclReduceScatter", [&](ncclComm_t comm) {
    return nccl().reduce_scatter(full, mine, count, type, ncclSum, comm, stream_of(stream));
  });
}

/// One group: no send waits for a receive that comes later. A group that was begun is ended also after an error.
void NcclHandle::all_to_all(const std::byte* parts, std::byte* received, std::size_t bytes, int size,
                            StreamView stream) {
  const auto failed = [](ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; };
  call("ncclSend, ncclRecv", [&](ncclComm_t comm) {
    ncclResult_t result = nccl().group_start();
    if (failed(result)) return result;
    for (int peer = 0; peer < size && !failed(result); ++peer) {
      const std::size_t at = static_cast<std::size_t>(peer) * bytes;
      result = nccl().send(parts + at, bytes, ncclInt8, peer, comm, stream_of(stream));
      if (!failed(result)) result = nccl().receive(received + at, bytes, ncclInt8, peer, comm, stream_of(stream));
    }
    const ncclResult_t ended = nccl().group_end();
    return failed(result) ? result : ended;
  });
}

void NcclHandle::sum(std::int64_t* counters, std::size_t count, StreamView stream) {
  call("ncclAllReduce", [&](ncclComm_t comm) {
    return nccl().all_reduce(counters, counters, count, ncclInt64, ncclSum, comm, stream_of(stream));
  });
}

void NcclHandle::broadcast(void* data, std::size_t bytes, int root, StreamView stream) {
  call("ncclBroadcast",
       [&](ncclComm_t comm) { return nccl().broadcast(data, data, bytes, ncclInt8, root, comm, stream_of(stream)); });
}

void NcclHandle::check() const {
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl().async_error(comm_of(comm_), &state);
  const ncclResult_t result = asked != ncclSuccess ? asked : state;
  if (result != ncclSuccess && result != ncclInProgress) refuse(result, "NCCL, during a collective", comm_);
}

void NcclHandle::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(aborted_, true) || comm_ == nullptr) return;
  (void)nccl().abort(comm_of(comm_));
}

}  // namespace tessera::comm
