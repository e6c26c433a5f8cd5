// SPDX-License-Identifier: Apache-2.0
#include "models/tensor_split.hpp"

#include "models/sublayer.hpp"
#include "runtime/base/error.hpp"

namespace tessera::models {

void TensorSplit::refuse(const std::string& what) {
  throw Error(ExitCode::usage, "--tensor_parallel_size is not built " + what, "tensor_parallel_size",
              "Drop --tensor_parallel_size: --zero_stage 3 divides everything that a rank keeps");
}

std::int64_t TensorSplit::part(std::int64_t number, const char* of) const {
  if (number % ranks_ == 0) return number / ranks_;
  throw Error(ExitCode::usage, strfmt("--tensor_parallel_size %d cannot divide %ld %s", ranks_, number, of),
              "tensor_parallel_size", strfmt("Choose a divisor of %ld", number));
}

/// The shape with another size of one dimension.
static Shape resized(const Shape& of, int dim, std::int64_t size) {
  Shape shape;
  for (int d = 0; d < of.rank(); ++d) shape.push_back(d == dim ? size : of[d]);
  return shape;
}

void TensorSplit::divide(int i, int dim, std::vector<std::int64_t> sections) const {
  ParamSpec& spec = param(i);
  TESSERA_ASSERT(!spec.placement.is_split() && spec.shape[dim] % ranks_ == 0, "%s in %d parts", spec.name.c_str(),
                 ranks_);
  spec.shape = resized(spec.shape, dim, spec.shape[dim] / ranks_);
  spec.placement = {ranks_, dim, std::move(sections)};
}

void TensorSplit::divide_vocabulary(int i, int dim) const {
  ParamSpec& spec = param(i);
  if (spec.placement.is_split()) return;
  const VocabularyParts parts = vocabulary(spec.shape[dim]);
  spec.shape = resized(spec.shape, dim, parts.largest());
  spec.placement = {ranks_, dim, {}, parts.vocab % ranks_ == 0 ? 0 : parts.vocab};
}

VocabularyParts TensorSplit::vocabulary(std::int64_t size) const {
  if (size >= ranks_) return {size, ranks_};
  throw Error(ExitCode::usage, strfmt("--tensor_parallel_size %d cannot divide a vocabulary of %ld", ranks_, size),
              "tensor_parallel_size", "Choose a smaller one");
}

void Sublayer::split(const TensorSplit&) { TensorSplit::refuse("for layers of this kind"); }

void split_tensors(Model& model, int ranks) {
  TESSERA_ASSERT(ranks >= 1 && model.tensor_ranks == 1 && model.context.ranks == 1, "%d ranks", ranks);
  if (ranks == 1) return;
  if (!model.reference.empty() || model.num_metrics > 0 || model.writes_sequences || model.score >= 0)
    TensorSplit::refuse("for losses over sequences, such as those of preferences");
  model.keep_whole_flops();
  for (const auto& module : model.modules) module->split(TensorSplit(ranks, model.params, module->params()));
  (void)TensorSplit(ranks, model.params, {}).part(model.hidden, "numbers of a hidden_size");
  model.tensor_ranks = ranks;
}

}  // namespace tessera::models
