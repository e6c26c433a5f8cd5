// SPDX-License-Identifier: Apache-2.0
// Attention plans, one per shape and direction, and their execution.
#include <cuda_runtime.h>
#include <cudnn.h>

#include "kernels/cuda/cudnn/attention.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "kernels/cuda/cudnn/attention_graph.hpp"
#include "runtime/base/cuda/check.hpp"
#include "runtime/base/cuda/devices.hpp"

namespace tessera::kernels::cuda::cudnn {

namespace {

enum class Direction : unsigned char { forward, backward };

std::string about(const AttentionShape& s, DType dtype, Direction direction) {
  return strfmt("attention's %s, %ld x %ld tokens, %ld heads on %ld of %ld, %s",
                direction == Direction::forward ? "forward" : "backward", s.batch, s.tokens, s.heads, s.kv_heads,
                s.head_dim, name_of(dtype));
}

/// Arguments of an execution: memory by unique id, and scratch. Cached by pointers, which are the same in every step of
/// a run.
using Pointers = std::array<void*, 14>;

/// A graph with its compiled kernels.
class Plan {
 public:
  Plan(const AttentionShape& shape, DType dtype, Direction direction, const Descriptor& device)
      : about_(about(shape, dtype, direction)),
        graph_(direction == Direction::forward ? forward_graph(shape, dtype) : backward_graph(shape, dtype)),
        config_(graph_.configure(device, about_)),
        plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config_.config.get())
        .set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device.get());
    plan_.finalize(about_);
    workspace_ = static_cast<std::size_t>(plan_.integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  }

  /// `pointers[i]` belongs to `numbers[i]`; `scratch` is what the plan reserves for it.
  void execute(cudnnHandle_t handle, std::span<const std::int64_t> numbers, Pointers pointers,
               const TensorView& scratch) {
    if (workspace_ > scratch.nbytes())
      throw Error(ExitCode::usage,
                  strfmt("cuDNN wants %zu bytes of scratch, and %zu are planned", workspace_, scratch.nbytes()), about_,
                  "Use --attention own: this version of the library is not known here");
    pointers.back() = scratch.data;
    auto& pack = packs_[pointers];
    if (!pack) {
      auto made = std::make_unique<Descriptor>(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
      made->set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, numbers);
      made->set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                std::span<void* const>(pointers.data(), numbers.size()));
      made->set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, scratch.data).finalize();
      pack = std::move(made);
    }
    check(library().execute(handle, plan_.get(), pack->get()), "cudnnBackendExecute", about_);
  }

 private:
  std::string about_;
  Graph graph_;
  Graph::Config config_;
  Descriptor plan_;
  std::size_t workspace_ = 0;
  std::map<Pointers, std::unique_ptr<Descriptor>> packs_;
};

using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, DType, Direction>;

/// State of one device. Lives until the process ends: the driver may be gone before destructors run.
struct DevicePlans {
  cudnnHandle_t handle = nullptr;
  std::unique_ptr<Descriptor> description;
  std::map<Key, std::unique_ptr<Plan>> plans;
  std::map<Key, Error> refusals;                    // of shapes that the library has no plan for
  std::map<double, std::unique_ptr<float>> scales;  // by value; cuDNN reads them through the pointer
};

std::mutex& mutex() {
  static auto* const instance = new std::mutex;
  return *instance;
}

float mask_and_one[] = {-std::numeric_limits<float>::infinity(), 1.0F};

/// State of the calling thread's device; its handle now uses the stream.
DevicePlans& plans_on(StreamView stream) {
  static auto* const devices = new std::map<int, std::unique_ptr<DevicePlans>>;
  int device = 0;
  TESSERA_CUDA(cudaGetDevice(&device));
  auto& own = (*devices)[device];
  if (!own) {
    auto made = std::make_unique<DevicePlans>();
    check(library().create(&made->handle), "cudnnCreate", strfmt("device %d", device));
    made->description = std::make_unique<Descriptor>(describe(made->handle));
    own = std::move(made);
  }
  check(library().set_stream(own->handle, static_cast<cudaStream_t>(stream.handle)), "cudnnSetStream",
        strfmt("device %d", device));
  return *own;
}

Plan& plan_of(DevicePlans& own, const AttentionShape& s, DType dtype, Direction direction) {
  const Key key{s.batch, s.tokens, s.heads, s.kv_heads, s.head_dim, dtype, direction};
  if (const auto known = own.refusals.find(key); known != own.refusals.end()) throw known->second;
  auto& plan = own.plans[key];
  try {
    if (!plan) plan = std::make_unique<Plan>(s, dtype, direction, *own.description);
  } catch (const Error& error) {  // asking again at every layer and step would take a second each
    own.refusals.emplace(key, error);
    throw;
  }
  return *plan;
}

void* scale_of(DevicePlans& own, double scale) {
  auto& kept = own.scales[scale];
  if (!kept) kept = std::make_unique<float>(static_cast<float>(scale));
  return kept.get();
}

/// Pointers to the rows from `first` on.
struct Parts {
  Parts(const AttentionShape& s, DType dtype, std::int64_t first) : shape(s), element(size_of(dtype)), row(first) {}
  /// Pointer to head `head` of a view whose rows have `width` heads.
  [[nodiscard]] void* heads(const TensorView& view, std::int64_t width, std::int64_t head) const {
    const std::int64_t at = (row * shape.tokens * width + head) * shape.head_dim;
    return static_cast<std::byte*>(view.data) + static_cast<std::size_t>(at) * element;
  }
  [[nodiscard]] void* in_qkv(const TensorView& view, std::int64_t head) const {
    return heads(view, shape.heads + 2 * shape.kv_heads, head);
  }
  [[nodiscard]] void* statistics(const TensorView& view) const {
    return static_cast<float*>(view.data) + row * shape.heads * shape.tokens;
  }
  AttentionShape shape;
  std::size_t element;
  std::int64_t row;
};

/// Calls f(shape of a chunk, its first row).
template <class F>
void each_chunk(const AttentionShape& full, std::int64_t rows, const F& f) {
  for (std::int64_t first = 0; first < full.batch; first += rows) {
    AttentionShape chunk = full;
    chunk.batch = std::min(rows, full.batch - first);
    f(chunk, first);
  }
}

/// The part of the workspace after `front` bytes, aligned to 256.
TensorView behind(const TensorView& workspace, std::size_t front) {
  const std::size_t begin = front + (256 - (reinterpret_cast<std::uintptr_t>(workspace.data) + front) % 256) % 256;
  return {static_cast<std::byte*>(workspace.data) + begin, DType::u8,
          Shape{static_cast<std::int64_t>(workspace.nbytes() - begin)}, workspace.device};
}

}  // namespace

std::string attention_refusal(const ::tessera::cuda::DeviceProperties& device) {
  if (device.major >= 9) return {};
  return strfmt("cuDNN's attention is used on sm_90 and newer, and %s is sm_%d%d", device.name.c_str(), device.major,
                device.minor);
}

void require(Device device) {
  const auto& facts = ::tessera::cuda::survey().devices.at(static_cast<std::size_t>(device.index));
  if (const std::string why = attention_refusal(facts); !why.empty())
    throw Error(ExitCode::usage, why, "--attention cudnn", "Use --attention own");
  (void)library();
}

void attention_forward(const AttentionForwardArgs& args, StreamView stream) {
  constexpr std::int64_t numbers[] = {query, key, value, output, lse, scale, minus_infinity};
  const DType dtype = args.qkv.dtype;
  const AttentionShape& s = args.shape;
  const std::lock_guard lock(mutex());
  DevicePlans& own = plans_on(stream);
  each_chunk(s, fused_forward_rows(s), [&](const AttentionShape& chunk, std::int64_t first) {
    const Parts at(s, dtype, first);
    plan_of(own, chunk, dtype, Direction::forward)
        .execute(own.handle, numbers,
                 {at.in_qkv(args.qkv, 0), at.in_qkv(args.qkv, s.heads), at.in_qkv(args.qkv, s.heads + s.kv_heads),
                  at.heads(args.out, s.heads, 0), at.statistics(args.lse), scale_of(own, args.scale), &mask_and_one[0]},
                 behind(args.workspace, 0));
  });
}

void attention_backward(const AttentionBackwardArgs& args, StreamView stream) {
  constexpr std::int64_t numbers[] = {query,  key,  value,  output, doutput,        lse, delta,
                                      dquery, dkey, dvalue, scale,  minus_infinity, one};
  const DType dtype = args.qkv.dtype;
  const AttentionShape& s = args.shape;
  const TensorView scratch = behind(args.workspace, fused_delta_bytes(s));
  const std::lock_guard lock(mutex());
  DevicePlans& own = plans_on(stream);
  each_chunk(s, plan_fused_attention(s, dtype)->rows, [&](const AttentionShape& chunk, std::int64_t first) {
    const Parts at(s, dtype, first);
    plan_of(own, chunk, dtype, Direction::backward)
        .execute(
            own.handle, numbers,
            {at.in_qkv(args.qkv, 0), at.in_qkv(args.qkv, s.heads), at.in_qkv(args.qkv, s.heads + s.kv_heads),
             at.heads(args.out, s.heads, 0), at.heads(args.dout, s.heads, 0), at.statistics(args.lse),
             at.statistics(args.workspace), at.in_qkv(args.dqkv, 0), at.in_qkv(args.dqkv, s.heads),
             at.in_qkv(args.dqkv, s.heads + s.kv_heads), scale_of(own, args.scale), &mask_and_one[0], &mask_and_one[1]},
            scratch);
  });
}

}  // namespace tessera::kernels::cuda::cudnn
