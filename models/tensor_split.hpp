// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensor parallelism: matrices of which each of several ranks has a part.

#include <string>
#include <vector>

#include "models/module.hpp"
#include "models/vocabulary_parts.hpp"

namespace tessera::models {

/// Divides attention and MLPs of the model over so many ranks (columns of q, k, v, gate and up, rows of the matrices
/// after them), and the vocabulary of embedding and head. Each has 1/T of a micro-batch's tokens elsewhere. The
/// parameters of Model::params become what a rank has of them (TensorPlacement). Call it once, before share_rows, which
/// divides what heads a rank has. Throws Error (usage): the model, or one of its sizes, is not one for which that is
/// built, in words.
void split_tensors(Model& model, int ranks);

/// Tells the parts of a module which of its parameters they divide.
class TensorSplit {
 public:
  /// `indices`: Module::params().
  TensorSplit(int ranks, std::vector<ParamSpec>& model, std::span<const int> indices)
      : ranks_(ranks), model_(model), indices_(indices) {}

  [[nodiscard]] int ranks() const { return ranks_; }
  /// 1/T of a number; refuses one that T does not divide. `of`: "attention heads".
  [[nodiscard]] std::int64_t part(std::int64_t number, const char* of) const;
  /// Divides dimension `dim` of the module's i-th parameter.
  void divide(int i, int dim, std::vector<std::int64_t> sections = {}) const;
  /// The same for tokens of a vocabulary, which the number of ranks need not divide (VocabularyParts). Once, also where
  /// two modules have one table.
  void divide_vocabulary(int i, int dim) const;
  /// Refuses a vocabulary of which a rank would have nothing.
  [[nodiscard]] VocabularyParts vocabulary(std::int64_t size) const;
  /// Whether the i-th parameter is in 4 or 8 bits, whose blocks parts would divide.
  [[nodiscard]] bool is_quantized(int i) const { return bool(param(i).quantized); }
  [[noreturn]] static void refuse(const std::string& what);

 private:
  [[nodiscard]] ParamSpec& param(int i) const {
    return model_[static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)])];
  }

  int ranks_;
  std::vector<ParamSpec>& model_;
  std::span<const int> indices_;
};

}  // namespace tessera::models
