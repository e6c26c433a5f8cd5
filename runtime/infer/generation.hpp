// SPDX-License-Identifier: Apache-2.0
#pragma once
// Generation: prompts in, tokens out; and the micro-batch of unfinished rows that the executor runs.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/exec/executor.hpp"
#include "runtime/infer/sampling.hpp"

namespace tessera::infer {

using TokenIds = std::vector<std::int32_t>;

/// New tokens of a prompt, including the stop token if there is one.
struct Completion {
  TokenIds ids;
  bool stopped = false;  // by a stop token, not by max_new_tokens
  friend bool operator==(const Completion&, const Completion&) = default;
};

struct GenerateRequest {
  std::vector<TokenIds> prompts;  // none empty; ids below the vocabulary size
  std::int64_t max_new_tokens = 1;
  TokenIds stop;  // stop tokens
  Sampling sampling;
  std::function<void(std::size_t prompt, std::int32_t id)> on_token;         // on the (first) rank that generates it
  std::function<void(std::size_t prompt, const Completion&)> on_completion;  // on rank 0, in the order of the prompts
};

/// Sizes to plan for a request: rows of a micro-batch (up to `rows`), longest prompt, longest row.
struct GenerationShape {
  std::int64_t rows = 0, tokens = 0, cache_tokens = 0;
};
[[nodiscard]] GenerationShape generation_shape(const GenerateRequest& request, std::int64_t rows);

/// A micro-batch of rows of different lengths, padded on the right: prefill of the prompts, then decode passes of one
/// token per row. Finished rows stay in the batch: the shape of a pass, and with it every bit of the result, depends on
/// the micro-batch alone.
class GenerationBatch final : public exec::BatchSource {
 public:
  /// For up to `rows` rows and a vocabulary of `vocab` tokens. The request must outlive it.
  GenerationBatch(const GenerateRequest& request, std::int64_t rows, std::int64_t vocab);
  /// Starts prompts [first, first + count); count 0: an empty micro-batch.
  void begin(std::size_t first, std::size_t count);

  /// All rows while one is unfinished, then 0: other ranks may need more passes.
  [[nodiscard]] std::int64_t rows(int) const override { return open_ > 0 ? static_cast<std::int64_t>(count_) : 0; }
  [[nodiscard]] std::int64_t tokens(int) const override { return tokens_; }
  void load(int micro, const exec::BatchMemory& to) override;
  [[nodiscard]] const std::int32_t* positions() const override { return prefill_ ? nullptr : positions_.data(); }
  [[nodiscard]] const std::int32_t* lengths() const override { return prefill_ ? lengths_.data() : nullptr; }
  std::int64_t take(std::span<float> logits) override;
  [[nodiscard]] bool wants_logits() const override { return on_host_; }
  [[nodiscard]] const kernels::SampleRule* sampling() const override { return rule_ ? &*rule_ : nullptr; }
  void draw(std::span<double> numbers) const override;
  std::int64_t take_chosen(std::span<const std::int32_t> ids) override;

  [[nodiscard]] const Completion& completion(std::size_t row) const { return rows_[row].made; }
  /// Input tokens of the next pass, without padding.
  [[nodiscard]] std::int64_t num_input_tokens() const;

 private:
  struct Row {
    TokenIds ids;  // prompt and new tokens
    Completion made;
    bool open = false;
  };
  void append(std::size_t row, std::int32_t id);
  /// Gives every unfinished row its next token.
  template <class Pick>
  std::int64_t continue_rows(const Pick& pick);
  void next_pass();

  const GenerateRequest& request_;
  TokenPicker picker_;
  std::optional<kernels::SampleRule> rule_;  // absent: greedy
  bool on_host_ = false;                     // tokens are chosen there
  std::vector<Row> rows_;
  std::vector<std::int32_t> positions_, lengths_;  // by row
  std::size_t first_ = 0, count_ = 0;
  std::int64_t open_ = 0;  // unfinished rows
  std::int64_t tokens_ = 1;
  bool prefill_ = true;  // the next pass is a prefill
};

}  // namespace tessera::infer
