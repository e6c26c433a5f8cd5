// SPDX-License-Identifier: Apache-2.0
// A reference model's modules, whose parameters may lie behind others in the model's list.
#include "models/reference.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"

namespace tessera::models {

namespace {

/// A module of a reference model: its parameters are those from `first` on in the list of the model. Forward only.
class ReferenceModule final : public Module {
 public:
  ReferenceModule(std::unique_ptr<Module> inner, int first, std::string name)
      : inner_(std::move(inner)), name_(std::move(name)) {
    for (const int param : inner_->params()) params_.push_back(first + param);
  }

  std::string name() const override { return name_; }
  std::span<const int> params() const override { return params_; }
  bool forward_reads_params(Phase phase) const override { return inner_->forward_reads_params(phase); }
  bool backward_reads_params() const override { return false; }
  ModuleStages stages(Phase phase) const override { return inner_->stages(phase); }
  std::size_t value_bytes(int value, BatchShape shape, DType dtype) const override {
    return inner_->value_bytes(value, shape, dtype);
  }
  void forward(const ForwardArgs& args) const override {
    TESSERA_ASSERT(args.phase == Phase::eval, "a reference model runs in evaluation's phase, %s", name_.c_str());
    inner_->forward(args);
  }
  void backward(const BackwardArgs&) const override { TESSERA_ASSERT(false, "backward of %s", name_.c_str()); }
  std::size_t saved_bytes(BatchShape, DType) const override { return 0; }
  std::size_t workspace_bytes(BatchShape shape, DType dtype, Phase phase) const override {
    return inner_->workspace_bytes(shape, dtype, phase);
  }
  double forward_flops(BatchShape shape) const override { return inner_->forward_flops(shape); }
  double backward_flops(BatchShape, const Wanted&) const override { return 0; }

 private:
  std::unique_ptr<Module> inner_;
  std::string name_;
  std::vector<int> params_;
};

[[noreturn]] void refuse_reference(const std::string& what) {
  throw Error(ExitCode::usage, "the reference model " + what, "reference",
              "Give a reference model of the same vocabulary and dtype");
}

}  // namespace

void add_reference(Model& model, Model reference, ReferenceParams params) {
  if (reference.vocab != model.vocab)
    refuse_reference(strfmt("has a vocabulary of %ld, and the model one of %ld", reference.vocab, model.vocab));
  if (reference.dtype != model.dtype)
    refuse_reference(strfmt("computes in %s, the model in %s", name_of(reference.dtype), name_of(model.dtype)));
  const bool own = params == ReferenceParams::own;
  for (std::size_t p = 0; p < reference.params.size() && !own; ++p)
    if (p >= model.params.size() || model.params[p].name != reference.params[p].name ||
        model.params[p].shape != reference.params[p].shape)
      refuse_reference("reads " + reference.params[p].name + reference.params[p].shape.str() +
                       ", which the model does not have");
  const int first = own ? static_cast<int>(model.params.size()) : 0;
  for (ParamSpec& param : reference.params) {
    if (!own) break;
    param.name = reference_prefix + param.name;
    param.trainable = param.decay = false;
    if (!param.quantized) param.storage_dtype = model.dtype;
    model.params.push_back(std::move(param));
    ++model.reference_params;
  }
  model.reference_hidden = reference.hidden;
  model.max_tokens = std::min(model.max_tokens, reference.max_tokens);
  model.packs = model.packs && reference.packs;
  model.reference.clear();
  for (std::unique_ptr<Module>& module : reference.modules) {
    std::string name = (own ? reference_prefix : "") + module->name();
    model.reference.push_back(std::make_unique<ReferenceModule>(std::move(module), first, std::move(name)));
  }
}

}  // namespace tessera::models
