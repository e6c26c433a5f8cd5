#include "runtime/train/batches.hpp"

#include <algorithm>

namespace tessera::train {

void SampleBatches::set(const io::TokenStream& stream, const io::Sampler* sampler, std::int64_t first,
                        std::int64_t count) {
  stream_ = &stream;
  sampler_ = sampler;
  first_ = first;
  count_ = count;
}

io::PackedCounts SampleBatches::work() const {
  const io::PackedStream* packed = stream_->packed();
  if (packed == nullptr)
    return {count_ * tokens_, count_ * tokens_, count_ * tokens_ * tokens_};  // every target of a full sample is valid
  io::PackedCounts all;
  for (std::int64_t i = 0; i < count_; ++i) packed->add_counts(sample(first_ + i), all);
  return all;
}

void SampleBatches::load(int micro, const BatchMemory& to) {
  const auto range = batch_.range(micro, data_rank_, count_);
  const io::PackedStream* packed = stream_->packed();
  TESSERA_ASSERT(
      (packed != nullptr) == (to.positions() != nullptr) && (!stream_->weighted() || to.loss_weights() != nullptr),
      "packed or weighted samples in a run that is planned without, or the reverse");
  for (std::int64_t row = 0; row < range.count; ++row) {
    const std::int64_t k = sample(first_ + range.first + row);
    const BatchMemory m = to.from(row * tokens_);
    if (packed != nullptr) {
      packed->read_sample(k, {m.ids(), m.targets(), m.positions(), m.loss_weights(), kernels::ignore_index});
      continue;
    }
    stream_->read(k * tokens_, tokens_, m.ids());
    stream_->read(k * tokens_ + 1, tokens_, m.targets());
    if (m.loss_weights() != nullptr) stream_->read_weights(k * tokens_ + 1, tokens_, m.loss_weights());
  }
}

void PromptBatch::load(int, const BatchMemory& to) { std::copy(ids_.end() - tokens(), ids_.end(), to.ids()); }

}  // namespace tessera::train
