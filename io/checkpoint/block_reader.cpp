// SPDX-License-Identifier: Apache-2.0
// Reads files block by block, each checked before a byte of it is used, and joins the checksums of many writers or
// readers.
#include <algorithm>
#include <cstring>
#include <tuple>

#include "io/checkpoint/blocks.hpp"
#include "io/file/crc32c.hpp"
#include "io/file/thread_tasks.hpp"
#include "io/file/work_progress.hpp"
#include "kernels/convert.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::io {

std::string pack_checksums(const std::vector<RangeChecksum>& checksums) {
  return {reinterpret_cast<const char*>(checksums.data()), checksums.size() * sizeof(RangeChecksum)};
}

std::vector<RangeChecksum> unpack_checksums(const std::vector<std::string>& of_ranks) {
  std::vector<RangeChecksum> checksums;
  for (const std::string& text : of_ranks) {
    const std::size_t n = text.size() / sizeof(RangeChecksum), before = checksums.size();
    checksums.resize(before + n);
    if (n > 0) std::memcpy(checksums.data() + before, text.data(), n * sizeof(RangeChecksum));
  }
  return checksums;
}

void join_checksums(std::vector<RangeChecksum> checksums, std::vector<StateFile>& files) {
  std::ranges::sort(checksums, [](const RangeChecksum& a, const RangeChecksum& b) {
    return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
  });
  auto range = checksums.begin();
  for (std::size_t f = 0; f < files.size(); ++f) {
    StateFile& file = files[f];
    file.crcs.assign(static_cast<std::size_t>((file.bytes + block_bytes - 1) / block_bytes), 0);
    file.dataset_crcs.assign(file.datasets.size(), 0);
    std::size_t d = 0;  // the data set that ends after `at`
    std::uint64_t at = 0;
    for (; at < file.bytes; ++range) {
      if (range == checksums.end() || range->file != f || range->offset != at)
        throw Error(
            ExitCode::internal,
            strfmt("byte %lu of %s was written %s", at, file.name.c_str(),
                   range != checksums.end() && range->file == f && range->offset < at ? "twice" : "not at all"));
      std::uint32_t& crc = file.crcs[static_cast<std::size_t>(at / block_bytes)];
      crc = crc32c_combine(crc, range->crc, range->bytes);
      while (d < file.datasets.size() && file.datasets[d].offset + file.datasets[d].bytes <= at) ++d;
      if (d < file.datasets.size() && at >= file.datasets[d].offset)
        file.dataset_crcs[d] = crc32c_combine(file.dataset_crcs[d], range->crc, range->bytes);
      at += range->bytes;
      const Hdf5Dataset* const now = d < file.datasets.size() ? &file.datasets[d] : nullptr;
      TESSERA_ASSERT(
          now == nullptr || (range->offset < now->offset ? at <= now->offset : at <= now->offset + now->bytes),
          "a range crosses the end of %s", now->path.c_str());
    }
  }
  if (range != checksums.end()) throw Error(ExitCode::internal, "bytes beyond the end of a file were written");
}

BlockReader::BlockReader(const std::string& path, const StateFile& file)
    : description_(&file),
      file_(path, DirectFile::Access::read),
      buffer_(static_cast<std::size_t>(std::min(file.bytes, block_bytes))) {
  if (const std::uint64_t bytes = file_.size(); bytes != file.bytes)
    throw Error(ExitCode::data, strfmt("E109 %s has %lu bytes, not %lu", path.c_str(), bytes, file.bytes));
}

std::span<const std::byte> BlockReader::unchecked(std::uint64_t first, std::uint64_t last) {
  current_ = ~std::uint64_t{0};
  bytes_read_ += last - first;
  return file_.read(first, last, buffer_);
}

namespace {

/// Of the data sets in a damaged block, those whose own checksum is wrong too. Reads all of them.
std::string damaged_datasets(const std::string& path, const StateFile& file, std::uint64_t first, std::uint64_t last) {
  BlockReader reader(path, file);
  std::string names;
  int hit = 0;
  for (std::size_t i = 0; i < file.datasets.size(); ++i) {
    const Hdf5Dataset& d = file.datasets[i];
    const std::uint64_t end = d.offset + d.bytes;
    if (d.offset >= last || end <= first) continue;
    std::uint32_t crc = 0;
    for (std::uint64_t at = d.offset; at < end;) {
      const std::uint64_t until = std::min(end, (at / block_bytes + 1) * block_bytes);
      crc = crc32c(crc, reader.unchecked(at, until));
      at = until;
    }
    if (crc == file.dataset_crcs[i]) continue;
    if (++hit <= 3) names += (hit == 1 ? "" : ", ") + d.path;
  }
  if (hit > 3) names += strfmt(" and %d more", hit - 3);
  return hit == 0 ? "the file's headers or the gaps between data sets" : names;
}

[[noreturn]] void throw_damaged(const std::string& path, const StateFile& file, std::uint64_t index) {
  const std::uint64_t first = index * block_bytes, last = first + bytes_of_block(file, index);
  throw Error(ExitCode::data,
              strfmt("E123 %s is damaged: the checksum of block %lu (bytes %lu to %lu) is wrong; damaged: ",
                     path.c_str(), index, first, last) +
                  damaged_datasets(path, file, first, last));
}

}  // namespace

std::span<const std::byte> BlockReader::block(std::uint64_t index) {
  const std::uint64_t first = index * block_bytes, last = first + bytes_of_block(*description_, index);
  if (index == current_) return buffer_.span().first(static_cast<std::size_t>(last - first));
  const auto bytes = unchecked(first, last);
  if (const auto& crcs = description_->crcs; !crcs.empty() && crc32c(0, bytes) != crcs[static_cast<std::size_t>(index)])
    throw_damaged(file_.path(), *description_, index);
  current_ = index;
  return bytes;
}

void put_range(const StateRange& range, std::uint64_t offset, std::span<const std::byte> bytes) {
  const std::uint64_t first = offset - range.offset;
  if (range.stored == range.held) return copy_now(range.device, range.memory + first, bytes.data(), bytes.size());
  const std::size_t from = size_of(range.stored), to = size_of(range.held);
  TESSERA_ASSERT(first % from == 0 && bytes.size() % from == 0, "part of an element at byte %lu", offset);
  const auto count = static_cast<std::int64_t>(bytes.size() / from);
  std::vector<std::byte> converted(static_cast<std::size_t>(count) * to);
  if (kernels::convert_bytes({bytes.data(), range.stored, converted.data(), range.held, count}) != count)
    throw Error(
        ExitCode::data,
        strfmt("E143 a value at byte %lu of file %d is too large for %s", offset, range.file + 1, name_of(range.held)),
        {}, "Compute in fp32 or bf16");
  copy_now(range.device, range.memory + first / from * to, converted.data(), converted.size());
}

namespace {

/// One block and the ranges that need bytes of it.
struct BlockTask {
  int file = 0;
  std::uint64_t block = 0;
  std::size_t first = 0, last = 0;  // ranges
  bool complete = false;            // they cover all data of the block
};

/// How many bytes of [a, a + n) lie in [first, last).
std::uint64_t overlap(std::uint64_t a, std::uint64_t n, std::uint64_t first, std::uint64_t last) {
  const std::uint64_t from = std::max(a, first), to = std::min(a + n, last);
  return from < to ? to - from : 0;
}

std::vector<BlockTask> block_tasks(const std::vector<StateFile>& files, const std::vector<StateRange>& ranges) {
  std::vector<BlockTask> tasks;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const StateRange& e = ranges[i];
    if (e.bytes == 0) continue;
    for (std::uint64_t b = e.offset / block_bytes; b <= (e.offset + e.bytes - 1) / block_bytes; ++b) {
      if (!tasks.empty() && tasks.back().file == e.file && tasks.back().block == b) tasks.back().last = i + 1;
      else tasks.push_back({e.file, b, i, i + 1});
    }
  }
  for (BlockTask& task : tasks) {
    const StateFile& file = files[static_cast<std::size_t>(task.file)];
    const std::uint64_t first = task.block * block_bytes, last = first + bytes_of_block(file, task.block);
    std::uint64_t missing = 0;
    auto d = std::ranges::upper_bound(file.datasets, first, {}, &Hdf5Dataset::offset);
    if (d != file.datasets.begin()) --d;
    for (; d != file.datasets.end() && d->offset < last; ++d) missing += overlap(d->offset, d->bytes, first, last);
    for (std::size_t i = task.first; i < task.last; ++i)
      missing -= overlap(ranges[i].offset, ranges[i].bytes, first, last);
    task.complete = missing == 0;
  }
  return tasks;
}

/// Copies `bytes`, which begin at `offset` of the file, to the memory of `ranges`.
void copy_to_ranges(std::span<const std::byte> bytes, std::uint64_t offset, std::span<const StateRange> ranges) {
  for (const StateRange& e : ranges)
    if (const std::uint64_t n = overlap(e.offset, e.bytes, offset, offset + bytes.size()); n > 0) {
      const std::uint64_t first = std::max(offset, e.offset);
      put_range(e, first, bytes.subspan(static_cast<std::size_t>(first - offset), static_cast<std::size_t>(n)));
    }
}

/// A thread's file, and what it has read.
struct RangeReader {
  std::unique_ptr<BlockReader> reader;
  int open = -1;
  RangesRead read;

  BlockReader& open_file(int index, const std::string& path, const StateFile& file) {
    if (open == index) return *reader;
    close();
    reader = std::make_unique<BlockReader>(path, file);
    open = index;
    return *reader;
  }
  void close() {
    if (reader) read.bytes += reader->bytes_read();
    reader.reset();
  }
};

}  // namespace

RangesRead read_ranges(const std::vector<std::string>& paths, const std::vector<StateFile>& files,
                       const std::vector<StateRange>& all_ranges, int threads) {
  const std::vector<BlockTask> tasks = block_tasks(files, all_ranges);
  std::vector<RangeReader> readers(static_cast<std::size_t>(std::max(1, threads)));
  WorkCounter progress("load", tasks.size() * block_bytes);
  run_tasks(tasks.size(), readers, [&](RangeReader& r, std::size_t i) {
    const BlockTask& task = tasks[i];
    progress.add(block_bytes);
    const auto f = static_cast<std::size_t>(task.file);
    BlockReader& reader = r.open_file(task.file, paths[f], files[f]);
    const std::span ranges = std::span(all_ranges).subspan(task.first, task.last - task.first);
    const std::uint64_t first = task.block * block_bytes, last = first + block_bytes;
    if (task.complete) return copy_to_ranges(reader.block(task.block), first, ranges);
    for (const StateRange& e : ranges) {
      const std::uint64_t from = std::max(first, e.offset), to = std::min(last, e.offset + e.bytes);
      const auto bytes = reader.unchecked(from, to);
      put_range(e, from, bytes);
      r.read.shared.push_back({static_cast<std::uint32_t>(task.file), crc32c(0, bytes), from, to - from});
    }
  });
  RangesRead all;
  for (RangeReader& r : readers) {
    r.close();
    all.bytes += r.read.bytes;
    all.shared.insert(all.shared.end(), r.read.shared.begin(), r.read.shared.end());
  }
  return all;
}

namespace {

/// Where the blocks of sorted checksums begin.
std::vector<std::size_t> blocks_of(const std::vector<RangeChecksum>& checksums) {
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < checksums.size(); ++i)
    if (i == 0 || checksums[i].file != checksums[i - 1].file ||
        checksums[i].offset / block_bytes != checksums[i - 1].offset / block_bytes)
      begins.push_back(i);
  return begins;
}

}  // namespace

void check_shared(const std::vector<std::string>& paths, const std::vector<StateFile>& files,
                  std::vector<RangeChecksum> checksums, int part, int parts) {
  const auto key = [](const RangeChecksum& p) { return std::tuple(p.file, p.offset, p.bytes, p.crc); };
  std::ranges::sort(checksums, {}, key);
  const auto repeated = std::ranges::unique(checksums, {}, key);  // replicas read the same bytes
  checksums.erase(repeated.begin(), repeated.end());
  std::vector<std::size_t> begins = blocks_of(checksums);
  const std::size_t blocks = begins.size(), n = static_cast<std::size_t>(parts), mine = static_cast<std::size_t>(part);
  begins.push_back(checksums.size());
  const auto first_of = [&](std::size_t p) { return static_cast<std::ptrdiff_t>(begins[blocks * p / n]); };
  RangeReader opened;
  for (auto range = checksums.begin() + first_of(mine), end = checksums.begin() + first_of(mine + 1); range != end;) {
    const StateFile& file = files[range->file];
    const std::uint32_t f = range->file;
    const std::uint64_t block = range->offset / block_bytes, last = block * block_bytes + bytes_of_block(file, block);
    BlockReader& reader = opened.open_file(static_cast<int>(f), paths[f], file);
    std::uint32_t crc = 0;
    std::uint64_t at = block * block_bytes;
    bool disjoint = true;
    const auto fill_to = [&](std::uint64_t until) {
      if (at < until) crc = crc32c(crc, reader.unchecked(at, until));
      at = until;
    };
    for (; range != end && range->file == f && range->offset < last; ++range) {
      disjoint = disjoint && range->offset >= at;  // else two ranks read the same bytes and got different ones
      if (!disjoint) continue;
      fill_to(range->offset);
      crc = crc32c_combine(crc, range->crc, range->bytes);
      at += range->bytes;
    }
    fill_to(last);
    if (!disjoint || crc != file.crcs[static_cast<std::size_t>(block)]) throw_damaged(paths[f], file, block);
  }
}

}  // namespace tessera::io
