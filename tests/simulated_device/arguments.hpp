// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arguments of device kernels as the host's kernels take them.

#include "kernels/adamw_8bit.hpp"
#include "kernels/attention_cache.hpp"
#include "kernels/balance.hpp"
#include "kernels/embedding.hpp"
#include "kernels/gemm.hpp"
#include "kernels/linear_cross_entropy.hpp"
#include "kernels/moe.hpp"
#include "kernels/preference_loss.hpp"
#include "kernels/update.hpp"
#include "tests/simulated_device/device.hpp"
namespace tessera::kernels::cuda {

inline void require(const void* data, std::size_t bytes) {
  TESSERA_ASSERT(data == nullptr || bytes == 0 || simulated::on_device(data, bytes),
                 "%zu bytes of host memory for a device's kernel", bytes);
}

/// Checks that a member of the arguments lies on the device, and turns it into what the host's kernel takes.
inline void take(TensorView& view) {
  if (!view) return;
  TESSERA_ASSERT(view.device.kind == Device::Kind::cuda, "a view of host memory among a device's");
  require(view.data, 1);
  view.device = host_device;
}
template <class T>
void take(T* scalar) {
  require(scalar, sizeof *scalar);
}
inline void take(HeadRows& heads) { take(heads.data); }
inline void take(QkvHeads& of) {
  take(of.q);
  take(of.k);
  take(of.v);
}
inline void take(AttentionArgs& of) {
  take(of.qkv);
  take(of.sinks);
  take(of.positions);
}
inline void take(AttentionCache& cache) {
  take(cache.keys);
  take(cache.values);
}
inline void take(UpdateArgs& update) {
  take(update.param);
  take(update.grad);
  take(update.copy);
  take(update.decision);
}
inline void take(QuantizedMoment& moment) {
  take(moment.codes);
  take(moment.absmax);
}
inline void take(TokenFields& fields) {
  take(fields.positions);
  take(fields.targets);
}
inline void take(VocabularyPart& part) {
  take(part.statistics);
  take(part.merged);
}
inline void take(SequenceRows& rows) {
  take(rows.log_probs);
  take(rows.targets);
  take(rows.ends);
  take(rows.log_sum_squares);
}
inline void take(Dispatch& dispatch) {
  take(dispatch.slots);
  take(dispatch.rows);
  take(dispatch.offsets);
}
inline void take(BalanceArgs& of) {
  take(of.router);
  take(of.fields);
  take(of.counted);
  take(of.loss_scale);
}

template <class Args, class... Members>
Args taken(Args args, Members... members) {
  (take(args.*members), ...);
  return args;
}
template <class T>
T taken(T value) {
  take(value);
  return value;
}

}  // namespace tessera::kernels::cuda
