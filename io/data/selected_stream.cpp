// SPDX-License-Identifier: Apache-2.0
#include "io/data/selected_stream.hpp"

#include <algorithm>
#include <iterator>

#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/rng.hpp"

namespace tessera::io {

SelectedStream::SelectedStream(std::shared_ptr<const TokenStream> source, const std::vector<DataFile>& files,
                               const std::vector<std::int64_t>& tokens_of, std::int64_t length, std::uint64_t seed)
    : source_(std::move(source)), length_(length), hash_(hash64("samples of files", seed)) {
  TESSERA_ASSERT(files.size() == tokens_of.size(), "%zu files, %zu", files.size(), tokens_of.size());
  std::int64_t begin = 0;
  for (std::size_t f = 0; f < files.size(); ++f) {
    const std::int64_t all = count_samples(tokens_of[f], length).samples, wanted = files[f].wanted(all);
    if (all == 0 && files[f].selects())
      throw Error(ExitCode::data, strfmt("%ld tokens; one sample takes max_length + 1 = %ld", tokens_of[f], length + 1),
                  files[f].path, "Leave the file out, or give a smaller --max_length");
    if (wanted > 0) parts_.push_back({begin, all, used_, hash64(f, hash64("samples of a file", seed))});
    used_ += wanted;
    begin += tokens_of[f];
    hash_ = hash64(static_cast<std::uint64_t>(all), hash64(static_cast<std::uint64_t>(wanted), hash_));
  }
  TESSERA_ASSERT(begin == source_->size(), "files of %ld tokens in a stream of %ld", begin, source_->size());
}

std::int64_t SelectedStream::samples(std::int64_t length) const {
  TESSERA_ASSERT(length == length_, "samples of %ld, not %ld", length, length_);
  return used_;
}

std::int64_t SelectedStream::sample_begin(std::int64_t sample, std::int64_t length) const {
  TESSERA_ASSERT(length == length_ && sample >= 0 && sample < used_, "sample %ld of %ld", sample, used_);
  const auto behind = std::upper_bound(parts_.begin(), parts_.end(), sample,
                                       [](std::int64_t s, const Part& part) { return s < part.first_sample; });
  const Part& part = *std::prev(behind);
  const std::int64_t end = behind == parts_.end() ? used_ : behind->first_sample;
  const std::int64_t at = sample - part.first_sample, round = at / part.samples;
  std::int64_t index = at % part.samples;
  const bool is_full = (round + 1) * part.samples <= end - part.first_sample;
  if (!is_full)
    index = static_cast<std::int64_t>(
        permute(part.key, static_cast<std::uint64_t>(part.samples), static_cast<std::uint64_t>(index)));
  return part.begin + index * length_;
}

}  // namespace tessera::io
