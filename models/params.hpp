#pragma once
// How building blocks address the parameters of the module they are part of: by position in Module::params().

#include <cstdint>
#include <span>

#include "runtime/base/param.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/base/tensor.hpp"

namespace tessera::models {

/// Of a gradient: over what is there, or added to it.
enum class Write : unsigned char { overwrite, add };

/// Gradients to make, in the order of the module's parameters.
struct Gradients {
  std::span<const TensorView> views;
  std::span<const std::uint8_t> accumulate;  // add, or overwrite every element

  [[nodiscard]] const TensorView& operator[](int i) const { return views[static_cast<std::size_t>(i)]; }
  [[nodiscard]] bool adds(int i) const { return accumulate[static_cast<std::size_t>(i)] != 0; }
};

/// The module's parameters while it is put together: appends to the model's list and hands out positions within the
/// module.
class ParamList {
 public:
  explicit ParamList(std::vector<ParamSpec>& model) : model_(model) {}

  /// A parameter of the module's own. Returns its position in the module.
  int add(ParamSpec spec) {
    model_.push_back(std::move(spec));
    return share(static_cast<int>(model_.size()) - 1);
  }
  /// A parameter of an earlier module, by its index in the model. Returns its position in this module.
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

/// y = x, equal numbers of bytes that do not overlap.
void copy(const TensorView& x, const TensorView& y, StreamView stream);
/// Columns [first, first + count) of every row of an (N, C) matrix; the rows stay C apart, which who reads it has to be
/// told.
[[nodiscard]] inline TensorView columns(const TensorView& matrix, std::int64_t first, std::int64_t count) {
  return {static_cast<char*>(matrix.data) + static_cast<std::size_t>(first) * size_of(matrix.dtype), matrix.dtype,
          Shape{matrix.shape[0], count}, matrix.device};
}

/// y = x, matrices (N, C) whose rows are `stride_x` and `stride_y` elements apart.
void copy_columns(const TensorView& x, std::int64_t stride_x, const TensorView& y, std::int64_t stride_y,
                  StreamView stream);
/// Every element of y becomes 0.
void clear(const TensorView& y, StreamView stream);

}  // namespace tessera::models
