// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shape and TensorView: the arguments of kernels. Neither owns memory.

#include <array>
#include <initializer_list>
#include <string>

#include "runtime/base/device.hpp"
#include "runtime/base/dtype.hpp"

namespace tessera {

/// Dimensions of a row-major tensor of rank 0 to 4. Value type; does not allocate.
class Shape {
 public:
  static constexpr int max_rank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) {
    TESSERA_ASSERT(dims.size() <= max_rank, "rank %zu", dims.size());
    for (auto d : dims) push_back(d);
  }

  void push_back(std::int64_t dim) {
    TESSERA_ASSERT(rank_ < max_rank && dim >= 0);
    dims_[rank_++] = dim;
  }
  [[nodiscard]] int rank() const { return rank_; }
  /// Size of dimension i; negative i counts from the end.
  [[nodiscard]] std::int64_t operator[](int i) const { return dims_[i < 0 ? rank_ + i : i]; }
  [[nodiscard]] std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  /// "[2, 3]"
  [[nodiscard]] std::string str() const {
    std::string s = "[";
    for (int i = 0; i < rank_; ++i) s += (i ? ", " : "") + std::to_string(dims_[i]);
    return s + "]";
  }
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, max_rank> dims_{};
  int rank_ = 0;
};

/// Pointer, type, shape and device of a contiguous row-major tensor. Trivially copied; owns nothing. A
/// default-constructed view is absent (`!view`): "no bias", "not wanted".
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  Device device;

  TensorView() = default;
  TensorView(void* data_, DType dtype_, Shape shape_, Device device_ = {})
      : data(data_), dtype(dtype_), shape(shape_), device(device_) {}
  template <class T>
  TensorView(T* data_, Shape shape_, Device device_ = {})
      : data(const_cast<std::remove_const_t<T>*>(data_)),
        dtype(dtype_of<std::remove_const_t<T>>::value),
        shape(shape_),
        device(device_) {}

  explicit operator bool() const { return data != nullptr; }
  [[nodiscard]] std::int64_t numel() const { return shape.numel(); }
  [[nodiscard]] std::size_t nbytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype); }
  /// Typed pointer. Asserts that T is the view's type.
  template <class T>
  [[nodiscard]] T* as() const {
    TESSERA_ASSERT(dtype == dtype_of<T>::value, "view holds %s", name_of(dtype));
    return static_cast<T*>(data);
  }
  /// The same bytes under another shape of equal numel.
  [[nodiscard]] TensorView reshape(Shape other) const {
    TESSERA_ASSERT(other.numel() == numel(), "%s as %s", shape.str().c_str(), other.str().c_str());
    return {data, dtype, other, device};
  }
  /// Rows [first, first + count) of the first dimension.
  [[nodiscard]] TensorView rows(std::int64_t first, std::int64_t count) const {
    TESSERA_ASSERT(shape.rank() > 0 && first >= 0 && count >= 0 && first + count <= shape[0]);
    Shape s;
    s.push_back(count);
    std::int64_t stride = 1;
    for (int i = 1; i < shape.rank(); ++i) {
      s.push_back(shape[i]);
      stride *= shape[i];
    }
    return {static_cast<char*>(data) + static_cast<std::size_t>(first * stride) * size_of(dtype), dtype, s, device};
  }
};

}  // namespace tessera
