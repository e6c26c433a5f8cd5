// SPDX-License-Identifier: Apache-2.0
// Norm by the layer_norm and rms_norm kernels.
#include "models/norm.hpp"

#include "kernels/layer_norm.hpp"

namespace tessera::models {

using Kind = NormSpec::Kind;

Norm::Norm(const NormSpec& spec, ParamList& params)
    : channels_(spec.channels), eps_(spec.eps), weight_offset_(spec.weight_offset), kind_(spec.kind) {
  weight_ = params.add({.name = spec.prefix + ".weight",
                        .shape = {channels_},
                        .init = norm_weight_init(weight_offset_),
                        .decay = false});
  if (kind_ == Kind::layer) bias_ = params.add({.name = spec.prefix + ".bias", .shape = {channels_}, .decay = false});
}

void Norm::forward(std::span<const TensorView> params, const TensorView& x, const TensorView& y, const Saved& saved,
                   StreamView stream) const {
  if (kind_ == Kind::rms) {
    kernels::rms_norm_forward({.x = x,
                               .weight = at(params, weight_),
                               .y = y,
                               .rstd = saved.rstd,
                               .eps = eps_,
                               .weight_offset = weight_offset_},
                              stream);
    return;
  }
  kernels::layer_norm_forward({.x = x,
                               .weight = at(params, weight_),
                               .bias = at(params, bias_),
                               .y = y,
                               .mean = saved.mean,
                               .rstd = saved.rstd,
                               .eps = eps_},
                              stream);
}

void Norm::recompute(std::span<const TensorView> params, const TensorView& x, const TensorView& y, const Saved& saved,
                     StreamView stream) const {
  if (kind_ == Kind::rms) {
    kernels::rms_norm_apply(
        {.x = x, .weight = at(params, weight_), .rstd = saved.rstd, .y = y, .weight_offset = weight_offset_}, stream);
    return;
  }
  kernels::layer_norm_apply({.x = x,
                             .weight = at(params, weight_),
                             .bias = at(params, bias_),
                             .mean = saved.mean,
                             .rstd = saved.rstd,
                             .y = y},
                            stream);
}

void Norm::backward(const BackwardArgs& args) const {
  if (kind_ == Kind::layer) return backward_layer(args);
  kernels::rms_norm_backward({.dy = args.dy,
                              .x = args.x,
                              .weight = at(args.params, weight_),
                              .rstd = args.saved.rstd,
                              .dx = args.dx,
                              .add_to_dx = args.write == Write::add,
                              .dweight = args.grads[weight_],
                              .accumulate = args.grads.adds(weight_),
                              .workspace = args.workspace,
                              .weight_offset = weight_offset_},
                             args.stream);
}

void Norm::backward_layer(const BackwardArgs& args) const {
  // The kernel has one flag for both gradients: if they differ, the one to overwrite is set to 0 first.
  bool adds = false;
  for (const int i : {weight_, bias_}) adds = adds || (args.grads[i] && args.grads.adds(i));
  for (const int i : {weight_, bias_})
    if (adds && args.grads[i] && !args.grads.adds(i)) clear(args.grads[i], args.stream);
  kernels::layer_norm_backward({.dy = args.dy,
                                .x = args.x,
                                .weight = at(args.params, weight_),
                                .mean = args.saved.mean,
                                .rstd = args.saved.rstd,
                                .dx = args.dx,
                                .add_to_dx = args.write == Write::add,
                                .dweight = args.grads[weight_],
                                .dbias = args.grads[bias_],
                                .accumulate = adds,
                                .workspace = args.workspace},
                               args.stream);
}

std::size_t Norm::workspace_bytes(DType dtype, Device device) const {
  return kind_ == Kind::rms ? kernels::rms_norm_backward_workspace(channels_, dtype, device)
                            : kernels::layer_norm_backward_workspace(channels_, dtype);
}

}  // namespace tessera::models
