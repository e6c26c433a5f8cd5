// SPDX-License-Identifier: Apache-2.0
// Attention on the host: tasks (sequence, key/value head, slice of query blocks) over this rank's threads. A task takes
// the documents of its sequence one after another.
#include "kernels/host/attention.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/attention.hpp"
#include "kernels/host/fp32_accumulator.hpp"
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
  return per_task_bytes(attention_workspace(s.num_keys(), s.head_dim, size_of(stat_dtype(dtype))).forward,
                        stat_dtype(dtype));
}
std::size_t backward_bytes(const AttentionShape& s, DType dtype) {
  return per_task_bytes(attention_workspace(s.num_keys(), s.head_dim, size_of(stat_dtype(dtype))).backward,
                        stat_dtype(dtype));
}

/// The first aligned byte: any workspace is accepted.
char* aligned(void* workspace) {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace);
  return static_cast<char*>(workspace) + (alignment - address % alignment) % alignment;
}

/// Calls f(task, workspace) for every task on the next free thread: no task's result depends on another.
template <class T, class F>
void run_tasks(std::int64_t tasks, const TensorView& workspace, std::size_t per_task, const F& f) {
  char* const base = aligned(workspace.data);
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
  std::int64_t first = 0, tokens = 0;  // among the keys of its sequence
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

template <class T>
HeadRowsOf<T> rows_of(const HeadRows& heads) {
  return {heads.data.as<std::remove_const_t<T>>(), heads.pitch};
}

/// The inputs that forward and backward share.
template <class T>
AttentionProblem<T> problem_of(const AttentionArgs& of) {
  const AttentionShape& s = of.shape;
  return {.batch = s.batch,
          .tokens = s.tokens,
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .head_dim = s.head_dim,
          .keys = s.num_keys(),
          .offset = s.query_offset,
          .window = s.window > 0 ? s.window : s.num_keys(),
          .scale = static_cast<Acc<T>>(of.scale),
          .soft_cap = static_cast<Acc<T>>(s.soft_cap),
          .sinks = s.sinks ? of.sinks.as<T>() : nullptr,
          .q = rows_of<const T>(of.qkv.q),
          .k = rows_of<const T>(of.qkv.k),
          .v = rows_of<const T>(of.qkv.v)};
}

/// Document d of sequence b, and the queries that are in it, as a batch of its own.
template <class T>
AttentionProblem<T> part_of(AttentionProblem<T> p, std::int64_t b, const Document& d) {
  const std::int64_t first = std::clamp(d.first - p.offset, std::int64_t{0}, p.tokens),
                     last = std::clamp(d.first + d.tokens - p.offset, std::int64_t{0}, p.tokens);
  const std::int64_t row = b * p.tokens + first, key = b * p.keys + d.first, out_width = p.heads * p.head_dim;
  p.q.data += row * p.q.pitch;
  p.k.data += key * p.k.pitch;
  p.v.data += key * p.v.pitch;
  if (p.out) p.out += row * out_width;
  if (p.dout) p.dout += row * out_width;
  if (p.out_w) p.out_w += row * out_width;
  for (Acc<T>** statistics : {&p.lse, &p.delta})
    if (*statistics) *statistics += b * p.heads * p.tokens + first;
  if (p.dq.data) {
    p.dq.data += row * p.dq.pitch;
    p.dk.data += key * p.dk.pitch;
    p.dv.data += key * p.dv.pitch;
  }
  p.lse_stride = p.tokens;
  p.batch = 1;
  p.offset = p.offset + first - d.first;
  p.tokens = last - first;
  p.keys = d.tokens;
  return p;
}

template <class T>
std::int64_t query_blocks(const AttentionProblem<T>& p) {
  return (p.tokens + attention_q_block - 1) / attention_q_block;
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
  each_document(positions, problem.keys,
                [&](const Document& d) { blocks += group * query_blocks(part_of(problem, b, d)); });
  const std::int64_t first = blocks * slice.index / slice.of, last = blocks * (slice.index + 1) / slice.of;
  each_document(positions, problem.keys, [&](const Document& d) {
    const AttentionProblem<T> part = part_of(problem, b, d);
    const std::int64_t own = group * query_blocks(part);
    const std::int64_t from = std::max(first - before, std::int64_t{0}), to = std::min(last - before, own);
    before += own;
    if (from < to) attention<T>().forward(part, 0, kv_head, from, to, workspace);
  });
}

/// Bytes of delta, after the tasks' workspaces: the gradient of sinks needs that of all rows.
std::size_t delta_bytes(const AttentionShape& s, DType dtype) {
  return s.sinks ? static_cast<std::size_t>(s.batch * s.heads * s.tokens) * size_of(stat_dtype(dtype)) : 0;
}

/// dsink = -Σ over rows of exp(sink - lse)·delta, in fp64 and in the order of the rows.
template <class T>
void sinks_backward(const AttentionBackwardArgs& args, const Acc<T>* delta) {
  const AttentionShape& s = args.of.shape;
  const Acc<T>* const lse = args.lse.as<Acc<T>>();
  dispatch_gradient_dtype<T>(args.dsinks.dtype, [&]<class G>(G) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const auto sink = static_cast<double>(static_cast<Acc<T>>(args.of.sinks.as<T>()[head]));
      double sum = 0;
      for (std::int64_t i = 0; i < s.batch * s.tokens; ++i) {
        const std::int64_t at = (i / s.tokens * s.heads + head) * s.tokens + i % s.tokens;
        sum -= std::exp(sink - static_cast<double>(lse[at])) * static_cast<double>(delta[at]);
      }
      G& to = args.dsinks.as<G>()[head];
      if (args.accumulate_dsinks) sum += static_cast<double>(static_cast<Acc<G>>(to));
      to = static_cast<G>(static_cast<Acc<G>>(sum));
    }
  });
}

}  // namespace

std::size_t attention_forward_workspace(const AttentionShape& s, DType dtype) {
  return static_cast<std::size_t>(threads()) * forward_bytes(s, dtype) + alignment;
}
std::size_t attention_backward_workspace(const AttentionShape& s, DType dtype) {
  return static_cast<std::size_t>(threads()) * backward_bytes(s, dtype) + delta_bytes(s, dtype) + alignment;
}

void attention_forward(const AttentionForwardArgs& args) {
  const AttentionShape& s = args.of.shape;
  const DType dtype = args.of.qkv.q.data.dtype;
  const std::size_t per_task = forward_bytes(s, dtype);
  // Keys are packed once per task, so there are several slices only if heads are too few to keep every thread busy.
  const std::int64_t pairs = s.batch * s.kv_heads, num_threads = threads();
  const std::int64_t blocks = s.heads / s.kv_heads * ((s.tokens + attention_q_block - 1) / attention_q_block);
  const std::int64_t wanted = pairs >= 4 * num_threads || num_threads == 1 ? 1 : (4 * num_threads + pairs - 1) / pairs;
  const std::int64_t slices = wanted < blocks ? wanted : blocks;
  dispatch_dtype(dtype, [&]<class T>(T) {
    AttentionProblem<T> problem = problem_of<T>(args.of);
    problem.out_w = args.out.as<T>();
    problem.lse = args.lse ? args.lse.as<Acc<T>>() : nullptr;
    run_tasks<Acc<T>>(pairs * slices, args.workspace, per_task, [&](std::int64_t task, Acc<T>* workspace) {
      const std::int64_t pair = task / slices, b = pair / s.kv_heads;
      forward_sequence<T>(problem, b, pair % s.kv_heads, {task % slices, slices},
                          positions_of(args.of.positions, b, s.num_keys()), workspace);
    });
  });
}

void attention_backward(const AttentionBackwardArgs& args) {
  const AttentionShape& s = args.of.shape;
  const DType dtype = args.of.qkv.q.data.dtype;
  const std::size_t per_task = backward_bytes(s, dtype);
  dispatch_dtype(dtype, [&]<class T>(T) {
    AttentionProblem<T> problem = problem_of<T>(args.of);
    problem.out = args.out.as<T>();
    problem.dout = args.dout.as<T>();
    problem.lse = args.lse.as<Acc<T>>();
    problem.dq = rows_of<T>(args.dqkv.q);
    problem.dk = rows_of<T>(args.dqkv.k);
    problem.dv = rows_of<T>(args.dqkv.v);
    if (args.dsinks)
      problem.delta =
          reinterpret_cast<Acc<T>*>(aligned(args.workspace.data) + static_cast<std::size_t>(threads()) * per_task);
    const auto& kernel = attention<T>();
    run_tasks<Acc<T>>(s.batch * s.kv_heads, args.workspace, per_task, [&](std::int64_t task, Acc<T>* workspace) {
      const std::int64_t b = task / s.kv_heads;
      each_document(positions_of(args.of.positions, b, s.num_keys()), s.num_keys(), [&](const Document& d) {
        kernel.backward(part_of(problem, b, d), 0, task % s.kv_heads, workspace);
      });
    });
    if (args.dsinks) sinks_backward<T>(args, problem.delta);
  });
}

}  // namespace tessera::kernels::host
