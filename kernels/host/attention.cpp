// SPDX-License-Identifier: Apache-2.0
// Attention on the host: tasks (sequence, key/value head, slice of query blocks) over this rank's threads. A task takes
// the documents of its sequence one after another.
#include "kernels/host/attention.hpp"

#include <algorithm>
#include <atomic>

#include "kernels/attention.hpp"
#include "kernels/host/ops.hpp"
#include "kernels/host/parallel.hpp"

namespace tessera::kernels::host {
namespace {

constexpr std::size_t alignment = 64;

std::size_t per_task_bytes(std::int64_t elements, DType dtype) {
  return (static_cast<std::size_t>(elements) * size_of(dtype) + alignment - 1) / alignment * alignment;
}

/// Bytes of the workspace of one task; depends on the type of the arithmetic, not of the storage.
std::size_t forward_bytes(const AttentionShape& s, DType dtype) {
  return per_task_bytes(attention_workspace(s.tokens, s.head_dim, size_of(stat_dtype(dtype))).forward,
                        stat_dtype(dtype));
}
std::size_t backward_bytes(const AttentionShape& s, DType dtype) {
  return per_task_bytes(attention_workspace(s.tokens, s.head_dim, size_of(stat_dtype(dtype))).backward,
                        stat_dtype(dtype));
}

/// Calls f(task, workspace) for every task on the next free thread: no task's result depends on another.
template <class T, class F>
void run_tasks(std::int64_t tasks, const TensorView& workspace, std::size_t per_task, const F& f) {
  // Aligned here, so that any workspace is accepted.
  auto address = reinterpret_cast<std::uintptr_t>(workspace.data);
  char* const base = static_cast<char*>(workspace.data) + (alignment - address % alignment) % alignment;
  std::atomic<std::int64_t> next{0};
  const std::int64_t parts = tasks < threads() ? tasks : threads();
  parallel_parts(parts, [&](std::int64_t part) {
    T* const own = reinterpret_cast<T*>(base + static_cast<std::size_t>(part) * per_task);
    for (std::int64_t task = next.fetch_add(1); task < tasks; task = next.fetch_add(1)) f(task, own);
  });
}

const std::int32_t* positions_of(const TensorView& positions, std::int64_t b, std::int64_t tokens) {
  return positions ? positions.as<std::int32_t>() + b * tokens : nullptr;
}

struct Document {
  std::int64_t first = 0, tokens = 0;  // within its sequence
  [[nodiscard]] std::int64_t blocks() const { return (tokens + attention_q_block - 1) / attention_q_block; }
};

/// Calls f(document) for each document of a sequence with positions (T); null: one document.
template <class F>
void each_document(const std::int32_t* positions, std::int64_t tokens, const F& f) {
  for (Document d; d.first < tokens; d.first += d.tokens, d.tokens = 0) {
    do ++d.tokens;
    while (d.first + d.tokens < tokens && !(positions && positions[d.first + d.tokens] == 0));
    f(d);
  }
}

/// The inputs that forward and backward share.
template <class T>
AttentionProblem<T> problem_of(const AttentionShape& s, const TensorView& qkv, double scale) {
  return {.batch = s.batch,
          .tokens = s.tokens,
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .head_dim = s.head_dim,
          .scale = static_cast<Acc<T>>(scale),
          .qkv = qkv.as<T>()};
}

/// Document d of sequence b as a batch of its own.
template <class T>
AttentionProblem<T> part_of(AttentionProblem<T> p, std::int64_t b, const Document& d) {
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

/// Slice `index` of `of` of a sequence's query blocks, numbered document by document, then head by head.
struct Slice {
  std::int64_t index = 0, of = 1;
};

template <class T>
void forward_sequence(const AttentionProblem<T>& problem, std::int64_t b, std::int64_t kv_head, Slice slice,
                      const std::int32_t* positions, Acc<T>* workspace) {
  const std::int64_t group = problem.heads / problem.kv_heads;
  std::int64_t blocks = 0, before = 0;
  each_document(positions, problem.tokens, [&](const Document& d) { blocks += group * d.blocks(); });
  const std::int64_t first = blocks * slice.index / slice.of, last = blocks * (slice.index + 1) / slice.of;
  each_document(positions, problem.tokens, [&](const Document& d) {
    const std::int64_t own = group * d.blocks();
    const std::int64_t from = std::max(first - before, std::int64_t{0}), to = std::min(last - before, own);
    before += own;
    if (from < to) attention<T>().forward(part_of(problem, b, d), 0, kv_head, from, to, workspace);
  });
}

}  // namespace

std::size_t attention_forward_workspace(const AttentionShape& s, DType dtype) {
  return static_cast<std::size_t>(threads()) * forward_bytes(s, dtype) + alignment;
}
std::size_t attention_backward_workspace(const AttentionShape& s, DType dtype) {
  return static_cast<std::size_t>(threads()) * backward_bytes(s, dtype) + alignment;
}

void attention_forward(const AttentionForwardArgs& args) {
  const AttentionShape& s = args.shape;
  const DType dtype = args.qkv.dtype;
  const std::size_t per_task = forward_bytes(s, dtype);
  // Keys are packed once per task, so there are several slices only if heads are too few to keep every thread busy.
  const std::int64_t pairs = s.batch * s.kv_heads, num_threads = threads();
  const std::int64_t blocks = s.heads / s.kv_heads * ((s.tokens + attention_q_block - 1) / attention_q_block);
  const std::int64_t wanted = pairs >= 4 * num_threads || num_threads == 1 ? 1 : (4 * num_threads + pairs - 1) / pairs;
  const std::int64_t slices = wanted < blocks ? wanted : blocks;
  dispatch_dtype(dtype, [&]<class T>(T) {
    AttentionProblem<T> problem = problem_of<T>(s, args.qkv, args.scale);
    problem.out_w = args.out.as<T>();
    problem.lse = args.lse ? args.lse.as<Acc<T>>() : nullptr;
    run_tasks<Acc<T>>(pairs * slices, args.workspace, per_task, [&](std::int64_t task, Acc<T>* workspace) {
      const std::int64_t pair = task / slices, b = pair / s.kv_heads;
      forward_sequence<T>(problem, b, pair % s.kv_heads, {task % slices, slices},
                          positions_of(args.positions, b, s.tokens), workspace);
    });
  });
}

void attention_backward(const AttentionBackwardArgs& args) {
  const AttentionShape& s = args.shape;
  const DType dtype = args.qkv.dtype;
  const std::size_t per_task = backward_bytes(s, dtype);
  dispatch_dtype(dtype, [&]<class T>(T) {
    AttentionProblem<T> problem = problem_of<T>(s, args.qkv, args.scale);
    problem.out = args.out.as<T>();
    problem.dout = args.dout.as<T>();
    problem.lse = args.lse.as<Acc<T>>();
    problem.dqkv = args.dqkv.as<T>();
    const auto& kernel = attention<T>();
    run_tasks<Acc<T>>(s.batch * s.kv_heads, args.workspace, per_task, [&](std::int64_t task, Acc<T>* workspace) {
      const std::int64_t b = task / s.kv_heads;
      each_document(positions_of(args.positions, b, s.tokens), s.tokens, [&](const Document& d) {
        kernel.backward(part_of(problem, b, d), 0, task % s.kv_heads, workspace);
      });
    });
  });
}

}  // namespace tessera::kernels::host
