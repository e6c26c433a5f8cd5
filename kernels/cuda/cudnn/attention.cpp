// SPDX-License-Identifier: Apache-2.0
// Attention plans, one per shape and direction, and their execution by parts of sequences and heads.
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
#include <utility>

#include "kernels/cuda/cudnn/attention_graph.hpp"
#include "kernels/cuda/document_arguments.hpp"
#include "runtime/base/cuda/check.hpp"
#include "runtime/base/cuda/devices.hpp"

namespace tessera::kernels::cuda::cudnn {

namespace {

enum class Direction : unsigned char { forward, backward };

std::string about(const GraphShape& shape, DType dtype, Direction direction) {
  const AttentionShape& s = shape.part;
  return strfmt("attention's %s, %ld x %ld tokens%s, %ld heads on %ld of %ld, %s",
                direction == Direction::forward ? "forward" : "backward", s.batch, s.tokens,
                shape.sequences == Sequences::documents ? " of documents" : "", s.heads, s.kv_heads, s.head_dim,
                name_of(dtype));
}

/// Arguments of an execution: memory by unique id, and the scratch that the plan reserves.
class Arguments {
 public:
  using Pointers = std::array<void*, 19>;
  Arguments(std::initializer_list<std::pair<AttentionTensor, void*>> all) {
    for (const auto& [number, pointer] : all) add(number, pointer);
  }
  void add(AttentionTensor number, void* pointer) {
    numbers_[count_] = number;
    pointers_[count_++] = pointer;
  }
  [[nodiscard]] std::span<const std::int64_t> numbers() const { return {numbers_.data(), count_}; }
  /// The scratch is the last.
  [[nodiscard]] Pointers with(void* scratch) const {
    Pointers all = pointers_;
    all.back() = scratch;
    return all;
  }

 private:
  std::array<std::int64_t, 18> numbers_{};
  Pointers pointers_{};
  std::size_t count_ = 0;
};

/// A graph with its compiled kernels.
class Plan {
 public:
  Plan(const GraphShape& shape, DType dtype, Direction direction, const Descriptor& device)
      : about_(about(shape, dtype, direction)),
        graph_(direction == Direction::forward ? forward_graph(shape, dtype) : backward_graph(shape, dtype)),
        config_(graph_.configure(device, about_)),
        plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config_.config.get())
        .set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device.get());
    plan_.finalize(about_);
    workspace_ = static_cast<std::size_t>(plan_.integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  }

  void execute(cudnnHandle_t handle, const Arguments& arguments, const TensorView& scratch) {
    if (workspace_ > scratch.nbytes())
      throw Error(ExitCode::usage,
                  strfmt("cuDNN wants %zu bytes of scratch, and %zu are planned", workspace_, scratch.nbytes()), about_,
                  "Use --attention own: this version of the library is not known here");
    // Cached by pointers, which are the same in every step of a run.
    const Arguments::Pointers pointers = arguments.with(scratch.data);
    auto& pack = packs_[pointers];
    if (!pack) {
      const std::span<const std::int64_t> numbers = arguments.numbers();
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
  std::map<Arguments::Pointers, std::unique_ptr<Descriptor>> packs_;
};

using Key = std::tuple<std::array<std::int64_t, 8>, Sequences, DType, Direction>;

/// State of one device. Lives until the process ends: the driver may be gone before destructors run.
struct DevicePlans {
  cudnnHandle_t handle = nullptr;
  std::unique_ptr<Descriptor> description;
  std::map<Key, std::unique_ptr<Plan>> plans;
  std::map<Key, Error> refusals;                     // of shapes that the library has no plan for
  std::map<double, std::unique_ptr<float>> numbers;  // by value; cuDNN reads them through the pointer
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

Plan& plan_of(DevicePlans& own, const GraphShape& shape, DType dtype, Direction direction) {
  const AttentionShape& s = shape.part;
  const Key key{{s.batch, s.tokens, s.heads, s.kv_heads, s.head_dim, s.window, shape.heads, shape.kv_heads},
                shape.sequences,
                dtype,
                direction};
  if (const auto known = own.refusals.find(key); known != own.refusals.end()) throw known->second;
  auto& plan = own.plans[key];
  try {
    if (!plan) plan = std::make_unique<Plan>(shape, dtype, direction, *own.description);
  } catch (const Error& error) {  // asking again at every layer and step would take a second each
    own.refusals.emplace(key, error);
    throw;
  }
  return *plan;
}

void* number_of(DevicePlans& own, double number) {
  auto& kept = own.numbers[number];
  if (!kept) kept = std::make_unique<float>(static_cast<float>(number));
  return kept.get();
}

/// Pointers into the tensors of a call: to a row (documents: to row 0, from which offsets count) and a key-value head
/// with its query heads.
struct Place {
  const AttentionShape& shape;  // of the call
  Sequences sequences = Sequences::rows;
  std::int64_t row = 0, kv_head = 0;

  [[nodiscard]] std::int64_t query_head() const { return shape.heads / shape.kv_heads * kv_head; }
  /// Pointer to head `head` of a view whose tokens have `width` heads.
  [[nodiscard]] void* heads(const TensorView& view, std::int64_t width, std::int64_t head) const {
    const std::int64_t at = (row * shape.tokens * width + head) * shape.head_dim;
    return static_cast<std::byte*>(view.data) + static_cast<std::size_t>(at) * size_of(view.dtype);
  }
  [[nodiscard]] std::array<void*, 3> qkv(const QkvHeads& of) const {
    const std::int64_t width = shape.heads + 2 * shape.kv_heads;
    return {heads(of.q.data, width, query_head()), heads(of.k.data, width, kv_head), heads(of.v.data, width, kv_head)};
  }
  [[nodiscard]] void* out(const TensorView& view) const { return heads(view, shape.heads, query_head()); }
  [[nodiscard]] void* statistics(const TensorView& view) const {
    const std::int64_t head_stride = sequences == Sequences::documents ? 1 : shape.tokens;
    return static_cast<float*>(view.data) + row * shape.heads * shape.tokens + query_head() * head_stride;
  }
};

/// `bytes` (0: all) of the workspace after `front` bytes, aligned to 256.
TensorView part_of(const TensorView& workspace, std::size_t front, std::size_t bytes = 0) {
  const std::size_t begin = front + (256 - (reinterpret_cast<std::uintptr_t>(workspace.data) + front) % 256) % 256;
  TESSERA_ASSERT(begin + bytes <= workspace.nbytes(), "%zu bytes of workspace after %zu of %zu", bytes, begin,
                 workspace.nbytes());
  return {static_cast<std::byte*>(workspace.data) + begin, DType::u8,
          Shape{static_cast<std::int64_t>(bytes > 0 ? bytes : workspace.nbytes() - begin)}, workspace.device};
}

/// One call of the library.
struct Call {
  GraphShape shape;
  Place place;
  std::int32_t* documents = nullptr;  // lengths and offsets, or null
  TensorView workspace;               // what is left of it
};

void add_window(DevicePlans& own, const Call& call, Arguments& arguments) {
  const std::int64_t keys = call.shape.part.window;
  if (keys > 0) arguments.add(window, number_of(own, static_cast<double>(keys)));
}

void add_documents(const Call& call, Arguments& arguments) {
  if (call.documents == nullptr) return;
  std::int32_t* at = call.documents;
  for (const AttentionTensor number : {lengths, qkv_offsets, out_offsets, lse_offsets}) {
    arguments.add(number, at);
    at += call.shape.part.batch + 1;
  }
}

/// Calls f for every part of the call's rows.
template <class F>
void each_part_of_rows(const AttentionShape& full, const FusedAttentionPlan& plan, const TensorView& workspace,
                       const F& f) {
  for (std::int64_t row = 0; row < full.batch; row += plan.sequences)
    for (std::int64_t head = 0; head < full.kv_heads; head += plan.kv_heads) {
      AttentionShape part = full;
      part.batch = std::min(plan.sequences, full.batch - row);
      f(Call{GraphShape(part).of_heads(plan.kv_heads), {full, Sequences::rows, row, head}, nullptr, workspace});
    }
}

/// Calls f for every part of the call's documents, whose lengths and offsets are written first.
template <class F>
void each_part_of_documents(const AttentionShape& full, const AttentionDocuments& documents, DType dtype,
                            const TensorView& workspace, StreamView stream, const F& f) {
  for (const DocumentGroup& group : documents.groups) {
    const AttentionShape part = documents_shape(full, group.tokens);
    const FusedAttentionPlan plan = plan_fused_attention(part, dtype).value();
    const auto bytes = static_cast<std::size_t>(document_argument_count(part.batch)) * sizeof(std::int32_t);
    const TensorView arguments = part_of(workspace, 0, bytes);
    const TensorView rest = part_of(workspace, static_cast<std::size_t>(static_cast<std::byte*>(arguments.data) -
                                                                        static_cast<std::byte*>(workspace.data)) +
                                                   bytes);
    for (std::int64_t done = 0; done < group.count; done += part.batch) {
      write_document_arguments({.documents = documents,
                                .first = group.first + done,
                                .count = std::min(part.batch, group.count - done),
                                .capacity = part.batch,
                                .shape = full,
                                .out = arguments},
                               stream);
      for (std::int64_t head = 0; head < full.kv_heads; head += plan.kv_heads)
        f(Call{GraphShape(part, Sequences::documents).of_heads(plan.kv_heads),
               {full, Sequences::documents, 0, head},
               static_cast<std::int32_t*>(arguments.data),
               rest});
    }
  }
}

/// Builds what a micro-batch's documents need, of both directions: so that a refusal comes before anything is computed,
/// and in forward.
void build_plans(DevicePlans& own, const AttentionShape& full, const AttentionDocuments& documents, DType dtype) {
  for (const DocumentGroup& group : documents.groups) {
    const AttentionShape part = documents_shape(full, group.tokens);
    const GraphShape shape =
        GraphShape(part, Sequences::documents).of_heads(plan_fused_attention(part, dtype)->kv_heads);
    for (const Direction direction : {Direction::forward, Direction::backward})
      (void)plan_of(own, shape, dtype, direction);
  }
}

void forward_part(DevicePlans& own, const AttentionForwardArgs& args, const Call& call) {
  const auto [q, k, v] = call.place.qkv(args.of.qkv);
  Arguments arguments{{query, q},
                      {key, k},
                      {value, v},
                      {output, call.place.out(args.out)},
                      {lse, call.place.statistics(args.lse)},
                      {scale, number_of(own, args.of.scale)},
                      {minus_infinity, &mask_and_one[0]}};
  add_window(own, call, arguments);
  add_documents(call, arguments);
  plan_of(own, call.shape, args.of.qkv.q.data.dtype, Direction::forward)
      .execute(own.handle, arguments, part_of(call.workspace, 0));
}

void backward_part(DevicePlans& own, const AttentionBackwardArgs& args, const Call& call) {
  const AttentionShape& part = call.shape.part;
  const auto delta_bytes = static_cast<std::size_t>(part.batch * part.heads * part.tokens) * sizeof(float);
  const auto [q, k, v] = call.place.qkv(args.of.qkv);
  const auto [dq, dk, dv] = call.place.qkv(args.dqkv);
  Arguments arguments{{query, q},
                      {key, k},
                      {value, v},
                      {output, call.place.out(args.out)},
                      {doutput, call.place.out(args.dout)},
                      {lse, call.place.statistics(args.lse)},
                      {delta, call.workspace.data},
                      {dquery, dq},
                      {dkey, dk},
                      {dvalue, dv},
                      {scale, number_of(own, args.of.scale)},
                      {minus_infinity, &mask_and_one[0]},
                      {one, &mask_and_one[1]}};
  add_window(own, call, arguments);
  add_documents(call, arguments);
  plan_of(own, call.shape, args.of.qkv.q.data.dtype, Direction::backward)
      .execute(own.handle, arguments, part_of(call.workspace, delta_bytes));
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
  const DType dtype = args.of.qkv.q.data.dtype;
  const AttentionShape& s = args.of.shape;
  const std::lock_guard lock(mutex());
  DevicePlans& own = plans_on(stream);
  const auto run = [&](const Call& call) { forward_part(own, args, call); };
  if (s.longest == 0) return each_part_of_rows(s, {fused_forward_rows(s), s.kv_heads}, args.workspace, run);
  build_plans(own, s, args.of.documents, dtype);
  each_part_of_documents(s, args.of.documents, dtype, args.workspace, stream, run);
}

void attention_backward(const AttentionBackwardArgs& args, StreamView stream) {
  const DType dtype = args.of.qkv.q.data.dtype;
  const AttentionShape& s = args.of.shape;
  const std::lock_guard lock(mutex());
  DevicePlans& own = plans_on(stream);
  const auto run = [&](const Call& call) { backward_part(own, args, call); };
  if (s.longest == 0) return each_part_of_rows(s, plan_fused_attention(s, dtype).value(), args.workspace, run);
  build_plans(own, s, args.of.documents, dtype);
  each_part_of_documents(s, args.of.documents, dtype, args.workspace, stream, run);
}

}  // namespace tessera::kernels::cuda::cudnn
