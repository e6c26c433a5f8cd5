#include "runtime/train/batches.hpp"

#include <algorithm>

namespace tessera::train {

void SampleBatches::set(const io::TokenStream& stream, const io::Sampler* sampler, std::int64_t first, std::int64_t count) {
  stream_ = &stream;
  sampler_ = sampler;
  first_ = first;
  count_ = count;
}

void SampleBatches::load(int micro, std::int32_t* ids, std::int32_t* targets) {
  const auto range = batch_.range(micro, place_, count_);
  for (std::int64_t row = 0; row < range.count; ++row) {
    const std::int64_t index = first_ + range.first + row;
    const std::int64_t sample = sampler_ ? sampler_->sample(index) : index;
    stream_->read(sample * tokens_, tokens_, ids + row * tokens_);
    stream_->read(sample * tokens_ + 1, tokens_, targets + row * tokens_);
  }
}

void PromptBatch::load(int, std::int32_t* ids, std::int32_t*) { std::copy(ids_.end() - tokens(), ids_.end(), ids); }

}  // namespace tessera::train
