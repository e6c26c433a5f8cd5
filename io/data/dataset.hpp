// SPDX-License-Identifier: Apache-2.0
#pragma once
// A data set as one stream of token ids in samples of length T, and the order of the samples.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/data/data_files.hpp"
#include "io/data/row_report.hpp"
#include "io/data/token_file.hpp"

namespace tessera::io {

class LengthOrder;   // length_order.hpp
class PackedStream;  // packing.hpp

/// A random-access stream of token ids. Unless it is packed, sample k of length T is the T + 1 tokens [k·T, k·T + T]:
/// inputs and targets.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// Copies tokens [first, first + count) to out. Thread-safe, allocates nothing. Throws Error (data) at an id of a
  /// token file that the vocabulary does not have.
  virtual void read(std::int64_t first, std::int64_t count, std::int32_t* out) const = 0;
  /// True if some tokens have no loss: the text of users and templates in conversations.
  [[nodiscard]] virtual bool masked() const { return false; }
  /// Copies for tokens [first, first + count) whether they have loss: an index of LossWeights, 0 without. Thread-safe,
  /// allocates nothing.
  virtual void read_loss(std::int64_t first, std::int64_t count, std::uint8_t* out) const;
  /// True if the tokens have weights, by which the loss of each as a target is multiplied.
  [[nodiscard]] virtual bool weighted() const { return false; }
  /// Copies the weights of tokens [first, first + count); 1 in a stream that is not weighted. Thread-safe, allocates
  /// nothing.
  virtual void read_weights(std::int64_t first, std::int64_t count, float* out) const;
  /// Samples of T = `length` tokens, and where one begins. A stream that selects samples of its files has its own.
  [[nodiscard]] virtual std::int64_t samples(std::int64_t length) const;
  [[nodiscard]] virtual std::int64_t sample_begin(std::int64_t sample, std::int64_t length) const {
    return sample * length;
  }
  /// A hash of which samples or documents of its files are used how often; 0: each once.
  [[nodiscard]] virtual std::uint64_t selection() const { return 0; }
  /// This stream, if its samples are packed documents; else null.
  [[nodiscard]] virtual const PackedStream* packed() const { return nullptr; }
};

struct DatasetFile {
  std::string path;
  std::uint64_t bytes = 0;
  std::int64_t tokens = 0;
  std::string kind;  // "text", "jsonl", "json", "csv", "bin"
};

struct Dataset {
  std::unique_ptr<TokenStream> tokens;
  std::vector<DatasetFile> files;
  RowReport rows;   // of .bin files: when they were made
  Repairs repairs;  // in rows, and in the text that token files were made of
  /// Of text and rows: the end of each document in `tokens`, including the newline before the next document. Empty
  /// for .bin files.
  std::vector<std::int64_t> document_ends;
};

/// Opens files in the order given and joins them: text files by one newline byte (without a byte-order mark), documents
/// of rows ("text" key) likewise; .bin tokens of llm.c, and of Megatron if the .idx is beside them, unchanged. Text and
/// .bin do not mix. Text and .bin files are mapped into memory. Rows that cannot be used are added to `skipped`; null:
/// the first one is an error (file:line), and bytes of rows that are not UTF-8. Throws Error (data): a file that is
/// empty, missing, Parquet or Arrow, a file of rows of another encoding, a .bin file that contradicts its header, a
/// file without a usable row, a zero byte in a text file, a byte that is not below the rule's `vocab`. Of .bin files
/// headers (Megatron's .idx), sizes and the first ids are checked here, all ids when they are read: opening one takes
/// no longer for more tokens.
[[nodiscard]] Dataset open_dataset(const std::vector<DataFile>& files, SkippedRows* skipped = nullptr,
                                   const TokenRule& rule = {});
[[nodiscard]] Dataset open_dataset(const std::vector<std::string>& paths, SkippedRows* skipped = nullptr,
                                   const TokenRule& rule = {});

/// A view of part of a stream.
[[nodiscard]] std::unique_ptr<TokenStream> slice(std::shared_ptr<const TokenStream> source, std::int64_t first,
                                                 std::int64_t count);

/// Maps a global sample index to a sample: a function of (seed, epoch, index), and with `by_length` of the samples'
/// lengths. May be called by several threads.
class Sampler {
 public:
  /// With `by_length`, samples of similar length follow one another (length_order.hpp). The stream must outlive it.
  Sampler(std::int64_t num_samples, bool shuffle, std::uint64_t seed, const PackedStream* by_length = nullptr);
  ~Sampler();
  [[nodiscard]] std::int64_t num_samples() const { return num_samples_; }
  /// The index continues over epochs: epoch = index / num_samples.
  [[nodiscard]] std::int64_t sample(std::int64_t global_index) const;

 private:
  [[nodiscard]] std::int64_t shuffled(std::int64_t epoch, std::int64_t index) const;

  std::int64_t num_samples_;
  bool shuffle_;
  std::uint64_t seed_;
  std::unique_ptr<LengthOrder> order_;
};

/// Samples of T in a stream of `tokens` tokens: floor((tokens - 1) / T), and the tokens left over.
struct SampleCount {
  std::int64_t samples = 0, dropped_tokens = 0;
};
[[nodiscard]] SampleCount count_samples(std::int64_t tokens, std::int64_t T);
/// The same of a stream, packed or not.
[[nodiscard]] SampleCount count_samples(const TokenStream& tokens, std::int64_t T);

}  // namespace tessera::io
