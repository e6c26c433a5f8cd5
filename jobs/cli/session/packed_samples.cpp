// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/packed_samples.hpp"

#include <sys/stat.h>

#include <bit>
#include <filesystem>

#include "io/data/loss_file.hpp"
#include "io/data/megatron.hpp"
#include "io/data/packed_index.hpp"
#include "io/file/file.hpp"
#include "io/tokenizer/byte_hash.hpp"
#include "jobs/cli/session/tokenized_data.hpp"
#include "runtime/base/hash.hpp"

namespace tessera::jobs {

namespace {

constexpr std::uint64_t index_form = 1;  // increase when the same key would mean other samples

/// Size and time of a file; of one that is not there, nothing.
std::uint64_t stamp_of(const std::string& path, std::uint64_t seed) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return io::mix(seed, 0);
  const auto word = [](auto number) { return static_cast<std::uint64_t>(number); };
  seed = hash64(word(status.st_size), seed);
  // st_ctim also changes where another file takes the place of this one and is given its time.
  for (const timespec& time : {status.st_mtim, status.st_ctim})
    seed = hash64(word(time.tv_nsec), hash64(word(time.tv_sec), seed));
  return seed;
}

}  // namespace

const io::DocumentEnds& SampleDocuments::ends() {
  if (!ends_) ends_.emplace(*data_, [this] { return separator_.value(); });
  return *ends_;
}

void SampleDocuments::for_each(std::int64_t first, std::int64_t last, const io::TakeDocument& take) {
  if (files_.empty()) return ends().for_each(first, last, take);
  std::int64_t begin = 0;
  for (std::size_t f = 0; f < files_.size(); ++f) {
    const std::int64_t all = ends().documents_of(f), wanted = files_[f].wanted(all);
    const std::uint64_t seed = hash64(f, hash64("documents of a file", seed_));
    std::int64_t index = 0;
    ends().for_each(begin, begin + all, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t n = io::copies_of(index++, all, wanted, seed); n > 0; --n) take(from, to);
    });
    begin += all;
  }
}

std::uint64_t SampleDocuments::key() const {
  std::uint64_t key = hash64(static_cast<std::uint64_t>(separator_.value_or(-1)), index_form);
  for (const io::DatasetFile& file : data_->files) {
    key = hash64(std::filesystem::absolute(file.path).lexically_normal().string(), key);
    key = hash64(static_cast<std::uint64_t>(file.tokens), key);
    for (const std::string& path : {file.path, io::document_file_name(file.path), io::loss_file_name(file.path)})
      key = stamp_of(path, key);
    if (io::is_megatron(file.path)) key = stamp_of(io::megatron_index_name(file.path), key);
  }
  return key;
}

std::uint64_t SampleDocuments::selection() const {
  if (files_.empty()) return 0;
  std::uint64_t hash = hash64("documents of files", seed_);
  for (const io::DataFile& file : files_)
    hash = hash64(std::bit_cast<std::uint64_t>(file.share.value_or(0)),
                  hash64(static_cast<std::uint64_t>(file.rows.value_or(0)), hash));
  return hash;
}

std::shared_ptr<io::PackedStream> packed_samples(const Options& options, World& world,
                                                 const std::shared_ptr<const io::TokenStream>& tokens,
                                                 SampleDocuments& documents, DocumentPart part, std::int64_t position,
                                                 const io::PackingRule& rule) {
  std::uint64_t key = hash64(documents.selection(), documents.key());
  for (const std::int64_t number :
       {static_cast<std::int64_t>(part), position, rule.tokens, static_cast<std::int64_t>(rule.packing),
        static_cast<std::int64_t>(rule.truncation)})
    key = hash64(static_cast<std::uint64_t>(number), key);
  if (rule.group > 0) key = hash64(static_cast<std::uint64_t>(rule.group), key);
  std::string path;
  const auto make = [&] {
    if (io::has_packed_index(path, tokens->size(), rule)) return;
    io::make_directories(io::directory_of(path));
    const io::DocumentEnds& ends = documents.ends();
    std::int64_t kept = part == DocumentPart::all ? 0 : std::min(ends.find(position) + 1, ends.size());
    kept -= kept % io::documents_of_sample(rule.packing);  // a pair is not divided
    const std::int64_t first = part == DocumentPart::behind ? kept : 0,
                       last = part == DocumentPart::before ? kept : ends.size();
    io::write_packed_index(
        path, *tokens, [&](const io::TakeDocument& take) { documents.for_each(first, last, take); }, rule);
  };
  world.run_and_agree([&] { path = cache_directory(options) + strfmt("/packed-%016lx.index", key); });
  world.run_on_rank_0(make);
  world.run_and_agree([&] {
    if (world.node_rank() == 0) make();
  });
  std::shared_ptr<io::PackedStream> packed;
  world.run_and_agree([&] { packed = std::make_shared<io::PackedStream>(tokens, path, rule, documents.selection()); });
  world.require_equal("the packed samples", strfmt("%016lx", packed->hash()));
  return packed;
}

}  // namespace tessera::jobs
