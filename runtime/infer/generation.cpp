// SPDX-License-Identifier: Apache-2.0
#include "runtime/infer/generation.hpp"

#include <algorithm>

namespace tessera::infer {

GenerationShape generation_shape(const GenerateRequest& request, std::int64_t rows) {
  GenerationShape shape{std::min(rows, static_cast<std::int64_t>(request.prompts.size())), 0, 0};
  for (const TokenIds& prompt : request.prompts)
    shape.tokens = std::max(shape.tokens, static_cast<std::int64_t>(prompt.size()));
  shape.cache_tokens = shape.tokens + request.max_new_tokens - 1;  // the last new token is no input
  return shape;
}

GenerationBatch::GenerationBatch(const GenerateRequest& request, std::int64_t rows, std::int64_t vocab)
    : request_(request), picker_(request.sampling, vocab), rows_(static_cast<std::size_t>(rows)) {
  if (const Sampling& s = request.sampling; s.temperature > 0) rule_ = {s.temperature, s.top_k, s.top_p};
  on_host_ = picker_.penalizes() || (rule_ && vocab > kernels::max_sampled_vocab);
  positions_.resize(rows_.size());
  lengths_.resize(rows_.size());
  const GenerationShape shape = generation_shape(request, rows);
  for (Row& row : rows_) {
    row.ids.reserve(static_cast<std::size_t>(shape.cache_tokens + 1));
    row.made.ids.reserve(static_cast<std::size_t>(request.max_new_tokens));
  }
}

void GenerationBatch::begin(std::size_t first, std::size_t count) {
  first_ = first;
  count_ = count;
  open_ = static_cast<std::int64_t>(count);
  for (std::size_t r = 0; r < count; ++r) {
    const TokenIds& prompt = request_.prompts[first + r];
    rows_[r].ids.assign(prompt.begin(), prompt.end());
    rows_[r].made.ids.clear();
    rows_[r].made.stopped = false;
    rows_[r].open = true;
  }
  prefill_ = true;
  next_pass();
}

void GenerationBatch::next_pass() {
  tokens_ = 1;
  for (std::size_t r = 0; r < count_; ++r) {
    const Row& row = rows_[r];
    lengths_[r] = static_cast<std::int32_t>(row.ids.size() - (row.made.ids.empty() || row.open ? 0 : 1));
    positions_[r] = lengths_[r] - 1;
    if (prefill_) tokens_ = std::max(tokens_, static_cast<std::int64_t>(lengths_[r]));
  }
}

void GenerationBatch::load(int, const exec::BatchMemory& memory) {
  for (std::size_t r = 0; r < count_; ++r) {
    std::int32_t* to = memory.ids() + static_cast<std::int64_t>(r) * tokens_;
    const std::int32_t* from = rows_[r].ids.data() + (prefill_ ? 0 : positions_[r]);
    const std::int64_t shown = prefill_ ? lengths_[r] : 1;
    std::fill(std::copy_n(from, shown, to), to + tokens_, 0);
  }
}

void GenerationBatch::append(std::size_t r, std::int32_t id) {
  Row& row = rows_[r];
  row.ids.push_back(id);
  row.made.ids.push_back(id);
  row.made.stopped = std::find(request_.stop.begin(), request_.stop.end(), id) != request_.stop.end();
  row.open = !row.made.stopped && static_cast<std::int64_t>(row.made.ids.size()) < request_.max_new_tokens;
  if (request_.on_token) request_.on_token(first_ + r, id);
}

template <class Pick>
std::int64_t GenerationBatch::continue_rows(const Pick& pick) {
  open_ = 0;
  for (std::size_t r = 0; r < count_; ++r) {
    Row& row = rows_[r];
    if (!row.open) continue;
    append(r, pick(r));
    open_ += row.open ? 1 : 0;
  }
  prefill_ = false;
  next_pass();
  return open_;
}

std::int64_t GenerationBatch::take(std::span<float> logits) {
  const std::size_t vocab = logits.size() / count_;
  return continue_rows([&](std::size_t r) {
    return picker_.pick(logits.subspan(r * vocab, vocab), rows_[r].ids, first_ + r, rows_[r].made.ids.size());
  });
}

void GenerationBatch::draw(std::span<double> numbers) const {
  for (std::size_t r = 0; r < numbers.size(); ++r) numbers[r] = picker_.draw(first_ + r, rows_[r].made.ids.size());
}

std::int64_t GenerationBatch::take_chosen(std::span<const std::int32_t> ids) {
  return continue_rows([&](std::size_t r) {
    if (ids[r] < 0) TokenPicker::refuse_logits(first_ + r, rows_[r].made.ids.size());
    return ids[r];
  });
}

std::int64_t GenerationBatch::num_input_tokens() const {
  std::int64_t tokens = 0;
  for (std::size_t r = 0; r < count_; ++r) tokens += rows_[r].open ? (prefill_ ? lengths_[r] : 1) : 0;
  return tokens;
}

}  // namespace tessera::infer
