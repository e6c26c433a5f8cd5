#pragma once
// Generation: prompts in, tokens out; and the micro-batch of rows that grow, as the executor sees it.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/train/executor.hpp"
#include "runtime/train/sampling.hpp"

namespace tessera::infer {

using TokenIds = std::vector<std::int32_t>;

/// New tokens of a prompt; the stop token, if one came, is the last.
struct Completion {
  TokenIds ids;
  bool stopped = false;  // by a stop token; else at max_new_tokens
  friend bool operator==(const Completion&, const Completion&) = default;
};

struct GenerateRequest {
  std::vector<TokenIds> prompts;  // none empty; ids below the vocabulary
  std::int64_t max_new_tokens = 1;
  TokenIds stop;  // ids that end a row
  train::Sampling sampling;
  bool recompute = false;  // show all tokens in every pass, for comparison: spec.tokens must hold the longest row
  std::function<void(std::size_t prompt, std::int32_t id)> on_token;         // on the rank that makes it
  std::function<void(std::size_t prompt, const Completion&)> on_completion;  // on rank 0, in the order of the prompts
};

/// What a plan must hold for a request in micro-batches of up to `rows`: rows, longest prompt, longest row.
struct GenerationShape {
  std::int64_t rows = 0, tokens = 0, cache_tokens = 0;
};
[[nodiscard]] GenerationShape generation_shape(const GenerateRequest& request, std::int64_t rows);

/// Rows of different lengths side by side, padded behind: a first pass over the prompts, then one token of each row a
/// pass. A row that has ended stays, so that the shape of a pass, and with it every bit, is a function of the
/// micro-batch alone.
class GenerationBatch final : public train::BatchSource {
 public:
  /// Room for `rows` rows of a model with `vocab` tokens; the request must outlive it.
  GenerationBatch(const GenerateRequest& request, std::int64_t rows, std::int64_t vocab);
  /// Prompts [first, first + count) from the beginning; count 0: an empty micro-batch.
  void begin(std::size_t first, std::size_t count);

  /// All of them while one is open, then none: peers may go on.
  [[nodiscard]] std::int64_t rows(int) const override { return open_ > 0 ? static_cast<std::int64_t>(count_) : 0; }
  [[nodiscard]] std::int64_t tokens() const override { return tokens_; }
  void load(int micro, const train::BatchMemory& to) override;
  [[nodiscard]] const std::int32_t* positions() const override { return whole_ ? nullptr : positions_.data(); }
  [[nodiscard]] const std::int32_t* lengths() const override { return whole_ ? lengths_.data() : nullptr; }
  std::int64_t take(std::span<float> logits) override;

  [[nodiscard]] const Completion& completion(std::size_t row) const { return rows_[row].made; }
  /// Tokens shown in the pass that comes, padding left out.
  [[nodiscard]] std::int64_t shown() const;

 private:
  struct Row {
    TokenIds ids;  // prompt and new tokens
    Completion made;
    bool open = false;
  };
  void append(std::size_t row, std::int32_t id);
  void next_pass();

  const GenerateRequest& request_;
  train::TokenPicker picker_;
  std::vector<Row> rows_;
  std::vector<std::int32_t> positions_, lengths_;  // by row
  std::size_t first_ = 0, count_ = 0;
  std::int64_t open_ = 0;  // rows that want another pass
  std::int64_t tokens_ = 1;
  bool whole_ = true;  // this pass shows rows from their beginning
};

}  // namespace tessera::infer
