// SPDX-License-Identifier: Apache-2.0
#pragma once
// Building blocks address parameters by their position in Module::params().

#include <cstdint>
#include <span>

#include "runtime/base/param.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::models {

/// Whether a gradient overwrites the buffer or is added to it.
enum class Write : unsigned char { overwrite, add };

/// Buffers of gradients, in the order of the module's parameters. An absent one is not wanted.
struct Gradients {
  std::span<const TensorView> views;
  std::span<const std::uint8_t> accumulate;  // add, or overwrite every element

  [[nodiscard]] const TensorView& operator[](int i) const { return views[static_cast<std::size_t>(i)]; }
  [[nodiscard]] bool adds(int i) const { return accumulate[static_cast<std::size_t>(i)] != 0; }
};

/// Which gradients a module's backward computes: of which of its parameters, and whether of its input.
class Wanted {
 public:
  /// Of the parameters with a buffer.
  Wanted(std::span<const TensorView> dparams, bool dx) : dparams_(dparams), count_(dparams.size()), dx_(dx) {}
  /// Of those that are trainable. `model`: Model::params; `indices`: Module::params().
  Wanted(std::span<const ParamSpec> model, std::span<const int> indices, bool dx)
      : model_(model), indices_(indices), count_(indices.size()), dx_(dx) {}

  /// Of the module's i-th parameter.
  [[nodiscard]] bool operator[](int i) const {
    const auto at = static_cast<std::size_t>(i);
    return indices_.empty() ? static_cast<bool>(dparams_[at])
                            : model_[static_cast<std::size_t>(indices_[at])].trainable;
  }
  /// Of any parameter.
  [[nodiscard]] bool any_param() const {
    for (std::size_t i = 0; i < count_; ++i)
      if ((*this)[static_cast<int>(i)]) return true;
    return false;
  }
  /// Of the input.
  [[nodiscard]] bool dx() const { return dx_; }
  /// The same parameters, with or without the input.
  [[nodiscard]] Wanted with_dx(bool dx) const {
    Wanted other = *this;
    other.dx_ = dx;
    return other;
  }

 private:
  std::span<const TensorView> dparams_;
  std::span<const ParamSpec> model_;
  std::span<const int> indices_;
  std::size_t count_;
  bool dx_;
};

/// Collects a module's parameters during construction: appends them to the model's list and returns positions within
/// the module.
class ParamList {
 public:
  explicit ParamList(std::vector<ParamSpec>& model) : model_(model) {}

  /// Adds a parameter. Returns its position in the module.
  int add(ParamSpec spec) { return share(append(std::move(spec))); }
  /// Adds a parameter to the model alone, for share() to give it a later position. Returns its index in the model.
  int append(ParamSpec spec) {
    model_.push_back(std::move(spec));
    return static_cast<int>(model_.size()) - 1;
  }
  /// Shares a parameter of an earlier module, by its index in the model. Returns its position in this module.
  int share(int index) {
    indices_.push_back(index);
    return static_cast<int>(indices_.size()) - 1;
  }
  [[nodiscard]] const std::vector<int>& indices() const { return indices_; }

 private:
  std::vector<ParamSpec>& model_;
  std::vector<int> indices_;
};

[[nodiscard]] inline const TensorView& at(std::span<const TensorView> params, int i) {
  return params[static_cast<std::size_t>(i)];
}

/// Whether the views at these positions lie one after the other in memory, with one dtype; false if one is absent.
template <class Positions>
[[nodiscard]] bool are_adjacent(std::span<const TensorView> views, const Positions& positions) {
  const TensorView* before = nullptr;
  for (const int i : positions) {
    const TensorView& view = at(views, i);
    if (!view) return false;
    if (before != nullptr && (view.data != static_cast<std::byte*>(before->data) + before->nbytes() ||
                              view.dtype != before->dtype || view.device != before->device))
      return false;
    before = &view;
  }
  return true;
}

/// The view under another shape; absent if it is.
[[nodiscard]] inline TensorView reshaped(const TensorView& view, const Shape& shape) {
  return view ? view.reshape(shape) : TensorView{};
}

/// y = x; equal sizes that do not overlap.
void copy(const TensorView& x, const TensorView& y, StreamView stream);
/// Columns [first, first + count) of an (N, C) matrix. The view does not tell its row stride, which stays C.
[[nodiscard]] inline TensorView columns(const TensorView& matrix, std::int64_t first, std::int64_t count) {
  return {static_cast<char*>(matrix.data) + static_cast<std::size_t>(first) * size_of(matrix.dtype), matrix.dtype,
          Shape{matrix.shape[0], count}, matrix.device};
}

/// y = x, matrices (N, C) with row strides `stride_x` and `stride_y` in elements.
void copy_columns(const TensorView& x, std::int64_t stride_x, const TensorView& y, std::int64_t stride_y,
                  StreamView stream);
/// Sets every element of y to 0.
void clear(const TensorView& y, StreamView stream);

}  // namespace tessera::models
