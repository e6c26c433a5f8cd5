// The manager's sums where they lie on a device: words that stay there through the all-reduce, and are
// read by the host from pinned memory.
#include <algorithm>
#include <cstddef>

#include "kernels/convert.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/transfer.hpp"
#include "runtime/comm/sum_terms.hpp"
#include "runtime/shard/manager.hpp"
#include "runtime/shard/memory.hpp"

namespace tessera::shard {

namespace {
constexpr std::size_t sum_words = ExactSum::num_words, word_bytes = sizeof(std::int64_t);
// Passes add their loss straight into the words that are summed over ranks: loss, tokens, correct stand there as in
// LossSums.
static_assert(sizeof(kernels::LossSums) == (sum_words + 2) * word_bytes &&
              offsetof(kernels::LossSums, tokens) == sum_words * word_bytes);
}  // namespace

void ShardManager::bind_norm() {
  device_words_ = reinterpret_cast<std::int64_t*>(parts_.arena->data(norm_name));
  unit_words_ = device_words_ + words_.size();
  told_ = reinterpret_cast<std::int64_t*>(parts_.arena->data(std::string("pinned.") + norm_name));
  read_ = told_ + count_words;
}

void ShardManager::run_on(StreamView stream) {
  stream_ = stream;
  for (Communicator* axis : {parts_.shard_axis, parts_.replicate_axis})
    if (axis != nullptr) axis->run_on(stream);
}

void ShardManager::widen(const Terms& terms, float* out, std::size_t count) const {
  if (parts_.device == host_device) return comm::widen(terms, out, count);
  const Shape shape{static_cast<std::int64_t>(count)};
  if (terms.dtype != DType::f32)
    kernels::convert_serial(
        {.from = {const_cast<void*>(terms.data), terms.dtype, shape, parts_.device}, .to = {out, shape, parts_.device}},
        stream_);
  else if (terms.data != out) copy_bytes(out, terms.data, count * sizeof(float), stream_);
}

kernels::LossSums* ShardManager::loss_sums() const {
  return reinterpret_cast<kernels::LossSums*>(device_words_ + sum_words);
}

std::int64_t* ShardManager::extra_sums() const { return device_words_ + 2 * sum_words + count_words; }

void ShardManager::issue_norm(const StepSums& sums, Counts counts, kernels::StepMemory* step) {
  const std::int64_t told[count_words] = {sums.tokens, sums.correct, sums.notes.stop, sums.notes.save,
                                          sums.notes.saved};
  std::ranges::copy(told, told_);
  const std::size_t first = counts == Counts::on_device ? 2 : 0;
  copy_bytes(device_words_ + 2 * sum_words + first, told_ + first, (count_words - first) * word_bytes, stream_);
  const std::span all(device_words_, words_.size());
  const auto extra = static_cast<std::size_t>(parts_.num_extra);
  if (parts_.shard_axis) parts_.shard_axis->all_reduce({"norm"}, all);
  if (parts_.replicate_axis)
    parts_.replicate_axis->all_reduce({"norm"}, all.subspan(sum_words, sum_words + count_words + extra));
  if (step != nullptr)
    kernels::decide_step({.norm2 = device_words_,
                          .loss = device_words_ + sum_words,
                          .flags = device_words_ + 2 * sum_words + count_words + extra,
                          .units = parts_.layout->num_units(),
                          .step = step},
                         stream_);
  copy_bytes(read_, device_words_, all.size_bytes(), stream_);
  clear_bytes(device_words_, all.size_bytes(), stream_);
}

int ShardManager::read_norm(StepSums& sums) const { return unpack({read_, words_.size()}, sums); }

}  // namespace tessera::shard
