// SPDX-License-Identifier: Apache-2.0
#pragma once
// A number or share of the samples of each token file: FILE#500, FILE:0.3.

#include <cstdint>
#include <memory>
#include <vector>

#include "io/data/data_files.hpp"
#include "io/data/dataset.hpp"

namespace tessera::io {

/// Samples of T tokens, chosen from each file by itself: DataFile::wanted() of them, a function of (seed, number of the
/// file). Every sample of a file is used as often as the share says in full, in order; the rest are chosen at random.
/// Other reads are those of `source`.
class SelectedStream final : public TokenStream {
 public:
  /// `files`: of `source`, in order, with their tokens in `tokens_of`; `length`: T.
  SelectedStream(std::shared_ptr<const TokenStream> source, const std::vector<DataFile>& files,
                 const std::vector<std::int64_t>& tokens_of, std::int64_t length, std::uint64_t seed);

  [[nodiscard]] std::int64_t size() const override { return source_->size(); }
  void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override {
    source_->read(first, count, out);
  }
  [[nodiscard]] bool masked() const override { return source_->masked(); }
  void read_loss(std::int64_t first, std::int64_t count, std::uint8_t* out) const override {
    source_->read_loss(first, count, out);
  }
  [[nodiscard]] bool weighted() const override { return source_->weighted(); }
  void read_weights(std::int64_t first, std::int64_t count, float* out) const override {
    source_->read_weights(first, count, out);
  }
  [[nodiscard]] std::int64_t samples(std::int64_t length) const override;
  [[nodiscard]] std::int64_t sample_begin(std::int64_t sample, std::int64_t length) const override;
  [[nodiscard]] std::uint64_t selection() const override { return hash_; }

 private:
  struct Part {
    std::int64_t begin = 0;         // of the file in the stream
    std::int64_t samples = 0;       // in the file
    std::int64_t first_sample = 0;  // of those that are used, over all files
    std::uint64_t key = 0;
  };
  std::shared_ptr<const TokenStream> source_;
  std::int64_t length_;
  std::vector<Part> parts_;  // of files with samples that are used
  std::int64_t used_ = 0;
  std::uint64_t hash_;
};

}  // namespace tessera::io
