// Attention: shapes checked, tasks (sequence, key/value head, slice of query blocks) dealt to this rank's threads. A
// task takes the documents of its sequence one after another.

#include "kernels/attention.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>

#include "kernels/cuda/cudnn/attention.hpp"
#include "kernels/cuda/ops.hpp"
#include "kernels/host/attention.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels {
namespace {

bool is_aligned_16(const TensorView& view) { return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0; }

constexpr std::size_t alignment = 64;

std::atomic<DeviceAttention> on_devices{DeviceAttention::own};
std::atomic<std::int64_t> library_calls{0};

struct Refusal {
  std::mutex mutex;
  std::string last;
};
Refusal& refusal() {
  static Refusal one;
  return one;
}

/// Whether the library took the call; it throws where that is asked for, before it has written anything that our own
/// would not.
[[maybe_unused]] bool taken_by_library(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    if (on_devices != DeviceAttention::cudnn_or_own) throw;
    const std::lock_guard lock(refusal().mutex);
    refusal().last = error.what();
    return false;
  }
  ++library_calls;
  return true;
}

/// Whether the library's kernels take calls of this shape.
[[maybe_unused]] bool is_fused([[maybe_unused]] const AttentionShape& s, [[maybe_unused]] DType dtype) {
  if constexpr (cuda_built)
    return on_devices != DeviceAttention::own && cuda::plan_fused_attention(s, dtype).has_value();
  return false;
}

std::size_t per_task_bytes(std::int64_t elements, DType dtype) {
  return (static_cast<std::size_t>(elements) * size_of(dtype) + alignment - 1) / alignment * alignment;
}

void check_shape(const AttentionShape& s) {
  TESSERA_ASSERT(s.batch >= 0 && s.tokens >= 0 && s.kv_heads > 0 && s.head_dim > 0);
  TESSERA_ASSERT(s.heads > 0 && s.heads % s.kv_heads == 0, "%lld heads on %lld", static_cast<long long>(s.heads),
                 static_cast<long long>(s.kv_heads));
}

void check_view(const TensorView& view, std::int64_t numel, DType dtype) {
  TESSERA_ASSERT(view && view.numel() == numel && view.dtype == dtype, "%s %s, %lld elements expected",
                 name_of(view.dtype), view.shape.str().c_str(), static_cast<long long>(numel));
}

/// Bytes that the workspace of one task has; what is computed in decides, not what is stored.
std::size_t forward_bytes(const AttentionShape& s, DType dtype) {
  return per_task_bytes(host::attention_workspace(s.tokens, s.head_dim, size_of(stat_dtype(dtype))).forward,
                        stat_dtype(dtype));
}
std::size_t backward_bytes(const AttentionShape& s, DType dtype) {
  return per_task_bytes(host::attention_workspace(s.tokens, s.head_dim, size_of(stat_dtype(dtype))).backward,
                        stat_dtype(dtype));
}

/// Calls f(task, workspace) for every task, on whichever thread is free: no task's result depends on another.
template <class T, class F>
void run_tasks(std::int64_t tasks, const TensorView& workspace, std::size_t per_task, const F& f) {
  // Aligned by hand, so that any workspace will do.
  auto address = reinterpret_cast<std::uintptr_t>(workspace.data);
  char* const base = static_cast<char*>(workspace.data) + (alignment - address % alignment) % alignment;
  std::atomic<std::int64_t> next{0};
  const std::int64_t parts = tasks < threads() ? tasks : threads();
  host::parallel_parts(parts, [&](std::int64_t part) {
    T* const own = reinterpret_cast<T*>(base + static_cast<std::size_t>(part) * per_task);
    for (std::int64_t task = next.fetch_add(1); task < tasks; task = next.fetch_add(1)) f(task, own);
  });
}

void check_positions(const TensorView& positions, std::int64_t rows) {
  if (positions) check_view(positions, rows, DType::i32);
}

const std::int32_t* positions_of(const TensorView& positions, std::int64_t b, std::int64_t tokens) {
  return positions ? positions.as<std::int32_t>() + b * tokens : nullptr;
}

struct Document {
  std::int64_t first = 0, tokens = 0;  // within its sequence
  [[nodiscard]] std::int64_t blocks() const { return (tokens + host::attention_q_block - 1) / host::attention_q_block; }
};

/// Calls f(document) for each of a sequence of which positions (T) are given; null: it is one document.
template <class F>
void each_document(const std::int32_t* positions, std::int64_t tokens, const F& f) {
  for (Document d; d.first < tokens; d.first += d.tokens, d.tokens = 0) {
    do ++d.tokens;
    while (d.first + d.tokens < tokens && !(positions && positions[d.first + d.tokens] == 0));
    f(d);
  }
}

/// Document d of sequence b as a batch of its own.
template <class T>
host::AttentionProblem<T> part_of(host::AttentionProblem<T> p, std::int64_t b, const Document& d) {
  const std::int64_t row = b * p.tokens + d.first, width = (p.heads + 2 * p.kv_heads) * p.head_dim,
                     out_width = p.heads * p.head_dim;
  p.qkv += row * width;
  if (p.out) p.out += row * out_width;
  if (p.dout) p.dout += row * out_width;
  if (p.out_w) p.out_w += row * out_width;
  if (p.lse) p.lse += b * p.heads * p.tokens + d.first;
  if (p.dqkv) p.dqkv += row * width;
  p.lse_stride = p.tokens;
  p.batch = 1;
  p.tokens = d.tokens;
  return p;
}

/// One slice of several of a sequence's query blocks, which are counted document by document, there head by head.
struct Slice {
  std::int64_t index = 0, of = 1;
};

template <class T>
void forward_sequence(const host::AttentionProblem<T>& problem, std::int64_t b, std::int64_t kv_head, Slice slice,
                      const std::int32_t* positions, Acc<T>* workspace) {
  const std::int64_t group = problem.heads / problem.kv_heads;
  std::int64_t blocks = 0, before = 0;
  each_document(positions, problem.tokens, [&](const Document& d) { blocks += group * d.blocks(); });
  const std::int64_t first = blocks * slice.index / slice.of, last = blocks * (slice.index + 1) / slice.of;
  each_document(positions, problem.tokens, [&](const Document& d) {
    const std::int64_t own = group * d.blocks();
    const std::int64_t from = std::max(first - before, std::int64_t{0}), to = std::min(last - before, own);
    before += own;
    if (from < to) host::attention<T>().forward(part_of(problem, b, d), 0, kv_head, from, to, workspace);
  });
}

}  // namespace

void set_device_attention(DeviceAttention who) { on_devices = who; }
DeviceAttention device_attention() { return on_devices; }
std::int64_t cudnn_attention_calls() { return library_calls; }
std::string cudnn_attention_refusal() {
  const std::lock_guard lock(refusal().mutex);
  return refusal().last;
}

void require_cudnn_attention([[maybe_unused]] Device device) {
  if constexpr (cuda::cudnn_built) return cuda::cudnn::require(device);
  throw Error(ExitCode::usage, "this program was built without cuDNN", "--attention cudnn",
              "Build it where cudnn_graph.h of 9.8 or newer is, or use --attention own");
}

std::size_t attention_forward_workspace(const AttentionShape& s, DType dtype, [[maybe_unused]] Device device) {
  if constexpr (cuda_built)
    if (device.kind == Device::Kind::cuda)
      return std::max(cuda::attention_forward_workspace(s), is_fused(s, dtype) ? cuda::fused_extra_bytes : 0);
  return static_cast<std::size_t>(threads()) * forward_bytes(s, dtype) + alignment;
}

std::size_t attention_backward_workspace(const AttentionShape& s, DType dtype, [[maybe_unused]] Device device) {
  if constexpr (cuda_built)
    if (device.kind == Device::Kind::cuda)
      return std::max(
          cuda::attention_backward_workspace(s),
          is_fused(s, dtype) ? cuda::fused_delta_bytes(s) + cuda::plan_fused_attention(s, dtype)->workspace : 0);
  return static_cast<std::size_t>(threads()) * backward_bytes(s, dtype) + alignment;
}

void attention_forward(const AttentionForwardArgs& args, StreamView stream) {
  const AttentionShape& s = args.shape;
  check_shape(s);
  const std::int64_t rows = s.batch * s.tokens;
  if (rows == 0) return;
  const DType dtype = args.qkv.dtype;
  check_view(args.qkv, rows * (s.heads + 2 * s.kv_heads) * s.head_dim, dtype);
  check_view(args.out, rows * s.heads * s.head_dim, dtype);
  if (args.lse) check_view(args.lse, rows * s.heads, stat_dtype(dtype));
  check_positions(args.positions, rows);
  TESSERA_ASSERT(args.workspace.nbytes() >= attention_forward_workspace(s, dtype, args.qkv.device));
  if constexpr (cuda::cudnn_built)
    if (is_on_cuda(args.qkv) && args.lse && !args.positions && is_fused(s, dtype)) {
      TESSERA_ASSERT(is_aligned_16(args.qkv) && is_aligned_16(args.out),
                     "attention by the library takes memory aligned to 16 bytes");
      if (taken_by_library([&] { cuda::cudnn::attention_forward(args, stream); })) return;
    }
  if constexpr (cuda_built)
    if (is_on_cuda(args.qkv)) return cuda::attention_forward(args, stream);
  const std::size_t per_task = forward_bytes(s, dtype);
  // Keys are packed once per task: slices only where heads are too few to keep every thread busy.
  const std::int64_t pairs = s.batch * s.kv_heads, team = threads();
  const std::int64_t blocks =
      s.heads / s.kv_heads * ((s.tokens + host::attention_q_block - 1) / host::attention_q_block);
  const std::int64_t wanted = pairs >= 4 * team || team == 1 ? 1 : (4 * team + pairs - 1) / pairs;
  const std::int64_t slices = wanted < blocks ? wanted : blocks;
  host::dispatch_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    const host::AttentionProblem<T> problem{.batch = s.batch,
                                            .tokens = s.tokens,
                                            .heads = s.heads,
                                            .kv_heads = s.kv_heads,
                                            .head_dim = s.head_dim,
                                            .scale = static_cast<Acc<T>>(args.scale),
                                            .qkv = args.qkv.as<T>(),
                                            .out = nullptr,
                                            .dout = nullptr,
                                            .out_w = args.out.as<T>(),
                                            .lse = args.lse ? args.lse.as<Acc<T>>() : nullptr,
                                            .dqkv = nullptr};
    run_tasks<Acc<T>>(pairs * slices, args.workspace, per_task, [&](std::int64_t task, Acc<T>* workspace) {
      const std::int64_t pair = task / slices, b = pair / s.kv_heads;
      forward_sequence<T>(problem, b, pair % s.kv_heads, {task % slices, slices},
                          positions_of(args.positions, b, s.tokens), workspace);
    });
  });
}

void attention_backward(const AttentionBackwardArgs& args, StreamView stream) {
  const AttentionShape& s = args.shape;
  check_shape(s);
  const std::int64_t rows = s.batch * s.tokens, width = (s.heads + 2 * s.kv_heads) * s.head_dim;
  if (rows == 0) return;
  const DType dtype = args.qkv.dtype;
  check_view(args.qkv, rows * width, dtype);
  check_view(args.dqkv, rows * width, dtype);
  check_view(args.out, rows * s.heads * s.head_dim, dtype);
  check_view(args.dout, rows * s.heads * s.head_dim, dtype);
  check_view(args.lse, rows * s.heads, stat_dtype(dtype));
  check_positions(args.positions, rows);
  TESSERA_ASSERT(args.dqkv.data != args.qkv.data &&
                 args.workspace.nbytes() >= attention_backward_workspace(s, dtype, args.qkv.device));
  if constexpr (cuda::cudnn_built)
    if (is_on_cuda(args.qkv) && !args.positions && is_fused(s, dtype)) {
      TESSERA_ASSERT(
          is_aligned_16(args.qkv) && is_aligned_16(args.out) && is_aligned_16(args.dout) && is_aligned_16(args.dqkv),
          "attention by the library takes memory aligned to 16 bytes");
      if (taken_by_library([&] { cuda::cudnn::attention_backward(args, stream); })) return;
    }
  if constexpr (cuda_built)
    if (is_on_cuda(args.qkv)) return cuda::attention_backward(args, stream);
  const std::size_t per_task = backward_bytes(s, dtype);
  host::dispatch_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    const host::AttentionProblem<T> problem{.batch = s.batch,
                                            .tokens = s.tokens,
                                            .heads = s.heads,
                                            .kv_heads = s.kv_heads,
                                            .head_dim = s.head_dim,
                                            .scale = static_cast<Acc<T>>(args.scale),
                                            .qkv = args.qkv.as<T>(),
                                            .out = args.out.as<T>(),
                                            .dout = args.dout.as<T>(),
                                            .out_w = nullptr,
                                            .lse = args.lse.as<Acc<T>>(),
                                            .dqkv = args.dqkv.as<T>()};
    const auto& kernel = host::attention<T>();
    run_tasks<Acc<T>>(s.batch * s.kv_heads, args.workspace, per_task, [&](std::int64_t task, Acc<T>* workspace) {
      const std::int64_t b = task / s.kv_heads;
      each_document(positions_of(args.positions, b, s.tokens), s.tokens, [&](const Document& d) {
        kernel.backward(part_of(problem, b, d), 0, task % s.kv_heads, workspace);
      });
    });
  });
}

}  // namespace tessera::kernels
