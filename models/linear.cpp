// Linear as matrix products: one forward, two backward.
#include "models/linear.hpp"

#include "kernels/bias.hpp"
#include "kernels/gemm.hpp"

namespace tessera::models {

Linear::Linear(const LinearSpec& spec, ParamList& params) : in_(spec.in), out_(spec.out), order_(spec.order) {
  const Shape shape = order_ == WeightOrder::in_out ? Shape{in_, out_} : Shape{out_, in_};
  weight_ = params.add({.name = spec.prefix + ".weight", .shape = shape, .init = {Initializer::Kind::normal, spec.std}});
  if (spec.bias) bias_ = params.add({.name = spec.prefix + ".bias", .shape = {out_}, .decay = false});
}

void Linear::forward(const ForwardArgs& args) const {
  kernels::gemm({.a = args.x,
                 .b = at(args.params, weight_),
                 .c = args.y,
                 .trans_b = order_ == WeightOrder::out_in,
                 .beta = args.addend ? 1.0 : 0.0,
                 .addend = args.addend,
                 .bias = bias_ >= 0 ? at(args.params, bias_) : TensorView{},
                 .stride_c = args.y_stride},
                args.stream);
}

void Linear::backward_params(const BackwardArgs& args) const {
  const bool in_out = order_ == WeightOrder::in_out;
  // dW = xᵀ·dy, or its transpose dyᵀ·x
  kernels::gemm({.a = in_out ? args.x : args.dy,
                 .b = in_out ? args.dy : args.x,
                 .c = args.grads[weight_],
                 .trans_a = true,
                 .beta = args.grads.adds(weight_) ? 1.0 : 0.0,
                 .stride_a = in_out ? 0 : args.dy_stride,
                 .stride_b = in_out ? args.dy_stride : 0},
                args.stream);
  if (bias_ < 0) return;
  kernels::bias_backward({.dy = args.dy, .stride = args.dy_stride, .dbias = args.grads[bias_], .accumulate = args.grads.adds(bias_)},
                         args.stream);
}

void Linear::backward_input(const BackwardArgs& args) const {
  kernels::gemm({.a = args.dy,
                 .b = at(args.params, weight_),
                 .c = args.dx,
                 .trans_b = order_ == WeightOrder::in_out,
                 .beta = args.write == Write::add ? 1.0 : 0.0,
                 .stride_a = args.dy_stride},
                args.stream);
}

}  // namespace tessera::models
