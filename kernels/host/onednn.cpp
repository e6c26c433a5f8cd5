// SPDX-License-Identifier: Apache-2.0
// oneDNN's matmul primitive, called on one thread with scratchpads and memory of ours.
#include "kernels/host/onednn.hpp"

#include <dlfcn.h>

#include <array>
#include <dnnl.hpp>
#include <unordered_map>

#include "kernels/threads.hpp"
#include "runtime/base/error.hpp"

namespace tessera::kernels::host {
namespace {

using DnnlType = dnnl::memory::data_type;
template <class T>
constexpr DnnlType type_of = std::is_same_v<T, bf16>  ? DnnlType::bf16
                             : std::is_same_v<T, f16> ? DnnlType::f16
                                                      : DnnlType::f32;

const dnnl::engine& engine() {
  static const dnnl::engine one(dnnl::engine::kind::cpu, 0);
  return one;
}

/// oneDNN uses as many threads as OpenMP's setting of the calling thread allows, both when it makes a primitive and
/// when it runs one: one, while this lives. Resolved by dlsym, so that a sequential oneDNN works too.
class OneThread {
 public:
  OneThread() : before_(omp().get ? omp().get() : 1) {
    if (before_ != 1) omp().set(1);
  }
  ~OneThread() {
    if (before_ != 1) omp().set(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  struct Omp {
    int (*get)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
    void (*set)(int) = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  };
  static const Omp& omp() {
    static const Omp one;
    return one;
  }
  int before_;
};

constexpr std::int64_t any = DNNL_RUNTIME_DIM_VAL;

/// What a primitive is made for; extents and strides may be `any`.
struct Key {
  GemmShape shape;
  float alpha, beta;
  bool bias;
  DnnlType type, type_c;
  bool operator==(const Key&) const = default;
};
struct Hash {
  std::size_t operator()(const Key& key) const {
    const GemmShape& s = key.shape;
    std::uint64_t hash = (s.trans_a ? 1U : 0U) + (s.trans_b ? 2U : 0U) + (key.bias ? 4U : 0U);
    for (const std::int64_t x : {s.m, s.n, s.k, s.lda, s.ldb, s.ldc, static_cast<std::int64_t>(key.type),
                                 static_cast<std::int64_t>(key.type_c), static_cast<std::int64_t>(key.beta * 4)})
      hash = (hash ^ static_cast<std::uint64_t>(x)) * 0x9E3779B97F4A7C15U, hash ^= hash >> 29;
    return static_cast<std::size_t>(hash);
  }
};

dnnl_memory_desc_t describe(DnnlType type, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                            bool transposed) {
  const dnnl_dims_t extents{rows, columns}, strides{transposed ? 1 : stride, transposed ? stride : 1};
  dnnl_memory_desc_t made;
  dnnl::error::wrap_c_api(
      dnnl_memory_desc_init_by_strides(&made, 2, extents, dnnl::memory::convert_to_c(type), strides),
      "oneDNN could not describe a matrix");
  return made;
}

/// The matrices of a product as oneDNN sees them.
struct Matrices {
  explicit Matrices(const Key& key)
      : a(describe(key.type, key.shape.m, key.shape.k, key.shape.lda, key.shape.trans_a)),
        b(describe(key.type, key.shape.k, key.shape.n, key.shape.ldb, key.shape.trans_b)),
        c(describe(key.type_c, key.shape.m, key.shape.n, key.shape.ldc, false)),
        bias(describe(key.type, 1, key.shape.n, key.shape.n, false)) {}
  dnnl_memory_desc_t a, b, c, bias;
};

struct Primitive {
  dnnl::matmul matmul;  // empty: oneDNN has none
  std::string implementation;
  std::size_t scratch_bytes = 0;
  std::uint64_t last_use = 0;
};

Primitive make(const Key& key) {
  const OneThread one;
  const Matrices of(key);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.alpha != 1) attr.set_output_scales(0, {key.alpha});
  if (key.beta != 0) {
    dnnl::post_ops after;
    after.append_sum(key.beta);
    attr.set_post_ops(after);
  }
  const dnnl::memory::desc a(of.a), b(of.b), c(of.c), bias(of.bias);
  try {
    const dnnl::matmul::primitive_desc made(key.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c),
                                            attr, engine());
    const std::string name = made.impl_info_str();
    if (name.starts_with("ref")) return {};  // a plain loop
    return {dnnl::matmul(made), name, made.scratchpad_desc().get_size()};
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return {};
    throw;
  }
}

/// The primitives of a thread. The one used longest ago goes when there are too many.
class Primitives {
 public:
  static Primitives& own() {
    thread_local Primitives one;
    return one;
  }
  const Primitive& get(const Key& key) {
    const auto found = made_.find(key);
    Primitive& primitive = found != made_.end() ? found->second : add(key);
    primitive.last_use = ++uses_;
    return primitive;
  }
  [[nodiscard]] dnnl_stream_t stream() const { return stream_.get(); }

 private:
  Primitive& add(const Key& key) {
    constexpr std::size_t most = 256;
    if (made_.size() == most) {
      auto oldest = made_.begin();
      for (auto at = made_.begin(); at != made_.end(); ++at)
        if (at->second.last_use < oldest->second.last_use) oldest = at;
      made_.erase(oldest);
    }
    return made_.emplace(key, make(key)).first->second;
  }
  std::unordered_map<Key, Primitive, Hash> made_;
  std::uint64_t uses_ = 0;
  dnnl::stream stream_{engine()};
};

/// A matrix in memory of ours. oneDNN's C interface: the other would allocate in our code.
class Memory {
 public:
  Memory(const dnnl_memory_desc_t& desc, const void* data) {
    dnnl::error::wrap_c_api(dnnl_memory_create(&memory_, &desc, engine().get(), const_cast<void*>(data)),
                            "oneDNN could not take a matrix");
  }
  ~Memory() { dnnl_memory_destroy(memory_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] dnnl_memory_t get() const { return memory_; }

 private:
  dnnl_memory_t memory_ = nullptr;
};

struct Pointers {
  const void *a, *b, *bias;
  void* c;
};

void run(const Primitive& primitive, const Key& key, const Pointers& of, std::byte* scratch) {
  const OneThread one;
  const Matrices desc(key);
  const Memory a(desc.a, of.a), b(desc.b, of.b), c(desc.c, of.c), bias(desc.bias, of.bias),
      pad(describe(DnnlType::u8, 1, static_cast<std::int64_t>(primitive.scratch_bytes),
                   static_cast<std::int64_t>(primitive.scratch_bytes), false),
          scratch);
  std::array<dnnl_exec_arg_t, 5> args{{{DNNL_ARG_SRC, a.get()},
                                       {DNNL_ARG_WEIGHTS, b.get()},
                                       {DNNL_ARG_DST, c.get()},
                                       {DNNL_ARG_SCRATCHPAD, pad.get()}}};
  int count = 4;
  if (key.bias) args[4] = {DNNL_ARG_BIAS, bias.get()}, count = 5;
  dnnl::error::wrap_c_api(
      dnnl_primitive_execute(primitive.matmul.get(), Primitives::own().stream(), count, args.data()),
      "oneDNN could not run a GEMM");
}

Key for_any_shape(Key key) {
  GemmShape& s = key.shape;
  s.m = s.n = s.k = s.lda = s.ldb = s.ldc = any;
  return key;
}

/// The answer for one type, from a small GEMM.
OneDnn ask(DnnlType type) {
  const dnnl_cpu_isa_t has = dnnl_get_effective_cpu_isa();
  if (type == DnnlType::bf16 && (has & dnnl_cpu_isa_avx512_core_bf16) != dnnl_cpu_isa_avx512_core_bf16)
    return {"", "the CPU has no AVX512-BF16, or ONEDNN_MAX_CPU_ISA excludes it"};
  const Primitive probe =
      make({{.m = 64, .n = 64, .k = 64, .trans_b = true, .lda = 64, .ldb = 64, .ldc = 64}, 1, 0, false, type, type});
  if (!probe.matmul) return {"", "oneDNN has no GEMM of it for this CPU"};
  const dnnl_version_t* const version = dnnl_version();
  return {strfmt("oneDNN %d.%d.%d %s", version->major, version->minor, version->patch, probe.implementation.c_str()),
          ""};
}

}  // namespace

template <class T>
const OneDnn& onednn() {
  if (isa() == Isa::avx512_bf16) {
    static const OneDnn here = ask(type_of<T>);
    return here;
  }
  static const OneDnn none{"", "the instruction set in use is not avx512_bf16"};
  return none;
}
template const OneDnn& onednn<bf16>();
template const OneDnn& onednn<f16>();

template <class T, class G>
bool onednn_gemm(const HalfProduct<T, G>& product, std::byte* scratch, std::size_t scratch_bytes) {
  const GemmShape& s = product.shape;
  if (!onednn<T>().missing.empty() || s.m == 0 || s.n == 0 || s.k == 0) return false;
  if (product.bias && product.alpha != 1) return false;  // oneDNN would scale the bias
  const Key exact{s, product.alpha, product.beta, product.bias != nullptr, type_of<T>, type_of<G>};
  const bool any_shape = product.rows_vary || (s.trans_a && !is_half<G>);
  const Primitive* primitive = &Primitives::own().get(any_shape ? for_any_shape(exact) : exact);
  if (primitive->scratch_bytes > scratch_bytes) primitive = &Primitives::own().get(for_any_shape(exact));
  if (!primitive->matmul || primitive->scratch_bytes > scratch_bytes) return false;
  run(*primitive, exact, {product.a, product.b, product.bias, product.c}, scratch);
  return true;
}
template bool onednn_gemm(const HalfProduct<bf16, bf16>&, std::byte*, std::size_t);
template bool onednn_gemm(const HalfProduct<bf16, float>&, std::byte*, std::size_t);
template bool onednn_gemm(const HalfProduct<f16, f16>&, std::byte*, std::size_t);
template bool onednn_gemm(const HalfProduct<f16, float>&, std::byte*, std::size_t);

}  // namespace tessera::kernels::host
