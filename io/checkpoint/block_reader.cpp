// Reading by blocks, each checked before a byte of it is used; and the sums of what many have written.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <tuple>

#include <unistd.h>

#include "io/checkpoint/blocks.hpp"
#include "io/file/crc32c.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::io {

std::string pack_checksums(const std::vector<RangeChecksum>& pieces) {
  return {reinterpret_cast<const char*>(pieces.data()), pieces.size() * sizeof(RangeChecksum)};
}

std::vector<RangeChecksum> unpack_checksums(const std::vector<std::string>& of_ranks) {
  std::vector<RangeChecksum> pieces;
  for (const std::string& text : of_ranks) {
    const std::size_t n = text.size() / sizeof(RangeChecksum), before = pieces.size();
    pieces.resize(before + n);
    if (n > 0) std::memcpy(pieces.data() + before, text.data(), n * sizeof(RangeChecksum));
  }
  return pieces;
}

void join_checksums(std::vector<RangeChecksum> pieces, std::vector<StateFile>& files) {
  std::ranges::sort(pieces, [](const RangeChecksum& a, const RangeChecksum& b) {
    return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
  });
  auto piece = pieces.begin();
  for (std::size_t f = 0; f < files.size(); ++f) {
    StateFile& file = files[f];
    file.crcs.assign(static_cast<std::size_t>((file.bytes + block_bytes - 1) / block_bytes), 0);
    file.dataset_crcs.assign(file.datasets.size(), 0);
    std::size_t d = 0;  // the data set that ends after `at`
    std::uint64_t at = 0;
    for (; at < file.bytes; ++piece) {
      if (piece == pieces.end() || piece->file != f || piece->offset != at)
        throw Error(ExitCode::internal,
                    strfmt("byte %llu of %s was written by %s", static_cast<unsigned long long>(at), file.name.c_str(),
                           piece != pieces.end() && piece->file == f && piece->offset < at ? "two" : "nobody"));
      std::uint32_t& crc = file.crcs[static_cast<std::size_t>(at / block_bytes)];
      crc = crc32c_combine(crc, piece->crc, piece->bytes);
      while (d < file.datasets.size() && file.datasets[d].offset + file.datasets[d].bytes <= at) ++d;
      if (d < file.datasets.size() && at >= file.datasets[d].offset)
        file.dataset_crcs[d] = crc32c_combine(file.dataset_crcs[d], piece->crc, piece->bytes);
      at += piece->bytes;
      const Hdf5Dataset* const now = d < file.datasets.size() ? &file.datasets[d] : nullptr;
      TESSERA_ASSERT(
          now == nullptr || (piece->offset < now->offset ? at <= now->offset : at <= now->offset + now->bytes),
          "a piece goes over the edge of %s", now->path.c_str());
    }
  }
  if (piece != pieces.end()) throw Error(ExitCode::internal, "bytes beyond the end of a file were written");
}

void BlockReader::Free::operator()(std::byte* p) const { std::free(p); }

BlockReader::BlockReader(const std::string& path, const StateFile& file)
    : file_(&file), descriptor_(File::open_to_read(path, Cache::direct)) {
  direct_ = descriptor_.descriptor() >= 0;
  if (!direct_) descriptor_ = File::open_to_read(path);
  if (const std::uint64_t bytes = descriptor_.size(); bytes != file.bytes)
    throw Error(ExitCode::data,
                strfmt("E109 %s has %llu bytes, its manifest says %llu", path.c_str(),
                       static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(file.bytes)));
  constexpr std::size_t room = 4096;
  buffer_.reset(static_cast<std::byte*>(
      std::aligned_alloc(4096, std::max<std::size_t>(room, (std::min(file.bytes, block_bytes) + 4095) / 4096 * 4096))));
  if (!buffer_) throw std::bad_alloc();
}

BlockReader::~BlockReader() = default;

std::span<const std::byte> BlockReader::fill(std::uint64_t first, std::uint64_t last) {
  constexpr std::uint64_t page = 4096;
  current_ = ~std::uint64_t{0};
  const std::uint64_t begin = first / page * page;
  const auto n = static_cast<std::size_t>(last - begin);
  std::size_t got = 0;
  while (direct_ && got < n) {
    const ssize_t more = ::pread(descriptor_.descriptor(), buffer_.get() + got, (n - got + page - 1) / page * page,
                                 static_cast<off_t>(begin + got));
    if (more < 0 && errno == EINTR) continue;
    if (more > 0 && got + static_cast<std::size_t>(more) >= n) got = n;
    else if (more > 0 && static_cast<std::uint64_t>(more) % page == 0) got += static_cast<std::size_t>(more);
    else {  // what this way does not give, the other does, or says why
      direct_ = false;
      descriptor_ = File::open_to_read(descriptor_.path());
    }
  }
  if (got < n) descriptor_.read_at(begin + got, {buffer_.get() + got, n - got});
  bytes_read_ += last - first;
  return std::span(buffer_.get(), n).subspan(static_cast<std::size_t>(first - begin));
}

std::span<const std::byte> BlockReader::unchecked(std::uint64_t first, std::uint64_t last) { return fill(first, last); }

namespace {

/// Of the data sets in a damaged block, those whose own checksum is wrong too. Reads them, which is why it is for
/// errors alone.
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
              strfmt("E123 %s is damaged: the checksum of block %llu (bytes %llu to %llu) is wrong; hit is ",
                     path.c_str(), static_cast<unsigned long long>(index), static_cast<unsigned long long>(first),
                     static_cast<unsigned long long>(last)) +
                  damaged_datasets(path, file, first, last));
}

}  // namespace

std::span<const std::byte> BlockReader::block(std::uint64_t index) {
  const auto n = static_cast<std::size_t>(bytes_of_block(*file_, index));
  if (index == current_) return {buffer_.get(), n};
  const std::uint64_t offset = index * block_bytes;
  const auto bytes = fill(offset, offset + n);
  if (crc32c(0, bytes) != file_->crcs[static_cast<std::size_t>(index)])
    throw_damaged(descriptor_.path(), *file_, index);
  current_ = index;
  return bytes;
}

void BlockReader::read(std::uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const std::uint64_t index = offset / block_bytes, inside = offset % block_bytes;
    const auto bytes = block(index).subspan(static_cast<std::size_t>(inside));
    const std::size_t n = std::min(out.size(), bytes.size());
    std::memcpy(out.data(), bytes.data(), n);
    out = out.subspan(n);
    offset += n;
  }
}

namespace {

/// One block and the extents that take from it.
struct Job {
  int file = 0;
  std::uint64_t block = 0;
  std::size_t first = 0, last = 0;  // extents
  bool whole = false;               // they hold all its data
};

/// Bytes of [a, a + n) that lie in [first, last).
std::uint64_t overlap(std::uint64_t a, std::uint64_t n, std::uint64_t first, std::uint64_t last) {
  const std::uint64_t from = std::max(a, first), to = std::min(a + n, last);
  return from < to ? to - from : 0;
}

std::vector<Job> jobs_of(const std::vector<StateFile>& files, const std::vector<StateRange>& extents) {
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const StateRange& e = extents[i];
    if (e.bytes == 0) continue;
    for (std::uint64_t b = e.offset / block_bytes; b <= (e.offset + e.bytes - 1) / block_bytes; ++b) {
      if (!jobs.empty() && jobs.back().file == e.file && jobs.back().block == b) jobs.back().last = i + 1;
      else jobs.push_back({e.file, b, i, i + 1});
    }
  }
  for (Job& job : jobs) {
    const StateFile& file = files[static_cast<std::size_t>(job.file)];
    const std::uint64_t first = job.block * block_bytes, last = first + bytes_of_block(file, job.block);
    std::uint64_t missing = 0;
    auto d = std::ranges::upper_bound(file.datasets, first, {}, &Hdf5Dataset::offset);
    if (d != file.datasets.begin()) --d;
    for (; d != file.datasets.end() && d->offset < last; ++d) missing += overlap(d->offset, d->bytes, first, last);
    for (std::size_t i = job.first; i < job.last; ++i)
      missing -= overlap(extents[i].offset, extents[i].bytes, first, last);
    job.whole = missing == 0;
  }
  return jobs;
}

/// Copies to `extents` what they take of [offset, offset + bytes.size()).
void take(std::span<const std::byte> bytes, std::uint64_t offset, std::span<const StateRange> extents) {
  for (const StateRange& e : extents)
    if (const std::uint64_t n = overlap(e.offset, e.bytes, offset, offset + bytes.size()); n > 0) {
      const std::uint64_t first = std::max(offset, e.offset);
      copy_now(e.device, e.memory + (first - e.offset), bytes.data() + (first - offset), static_cast<std::size_t>(n));
    }
}

/// Threads that share out the jobs.
class RangeReader {
 public:
  RangeReader(const std::vector<std::string>& paths, const std::vector<StateFile>& files,
              const std::vector<StateRange>& extents)
      : paths_(paths), files_(files), extents_(extents), jobs_(jobs_of(files, extents)), error_at_(jobs_.size()) {}
  RangesRead run(int threads) {
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back([this] { work(); });
    work();
    for (auto& thread : others) thread.join();
    if (error_) std::rethrow_exception(error_);
    return std::move(read_);
  }

 private:
  void work() {
    std::unique_ptr<BlockReader> reader;
    int open = -1;
    std::uint64_t bytes = 0;
    std::vector<RangeChecksum> shared;
    for (std::size_t i = next_++; i < jobs_.size(); i = next_++) {
      const Job& job = jobs_[i];
      const auto f = static_cast<std::size_t>(job.file);
      try {
        if (open != job.file) {
          if (reader) bytes += reader->bytes_read();
          reader = std::make_unique<BlockReader>(paths_[f], files_[f]);
          open = job.file;
        }
        do_job(*reader, job, shared);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (i < error_at_) error_ = std::current_exception();
        error_at_ = std::min(i, error_at_);
        next_ = jobs_.size();
        break;
      }
    }
    if (reader) bytes += reader->bytes_read();
    const std::lock_guard lock(mutex_);
    read_.bytes += bytes;
    read_.shared.insert(read_.shared.end(), shared.begin(), shared.end());
  }
  void do_job(BlockReader& reader, const Job& job, std::vector<RangeChecksum>& shared) const {
    const std::span extents = std::span(extents_).subspan(job.first, job.last - job.first);
    const std::uint64_t first = job.block * block_bytes, last = first + block_bytes;
    if (job.whole) return take(reader.block(job.block), first, extents);
    for (const StateRange& e : extents) {
      const std::uint64_t from = std::max(first, e.offset), to = std::min(last, e.offset + e.bytes);
      const auto bytes = reader.unchecked(from, to);
      copy_now(e.device, e.memory + (from - e.offset), bytes.data(), bytes.size());
      shared.push_back({static_cast<std::uint32_t>(job.file), crc32c(0, bytes), from, to - from});
    }
  }

  const std::vector<std::string>& paths_;
  const std::vector<StateFile>& files_;
  const std::vector<StateRange>& extents_;
  std::vector<Job> jobs_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;
  RangesRead read_;
  std::exception_ptr error_;
  std::size_t error_at_;
};

}  // namespace

RangesRead read_ranges(const std::vector<std::string>& paths, const std::vector<StateFile>& files,
                       const std::vector<StateRange>& extents, int threads) {
  return RangeReader(paths, files, extents).run(threads);
}

void check_shared(const std::vector<std::string>& paths, const std::vector<StateFile>& files,
                  std::vector<RangeChecksum> pieces) {
  const auto key = [](const RangeChecksum& p) { return std::tuple(p.file, p.offset, p.bytes, p.crc); };
  std::ranges::sort(pieces, {}, key);
  const auto twice = std::ranges::unique(pieces, {}, key);  // replicas read the same bytes
  pieces.erase(twice.begin(), twice.end());
  for (auto piece = pieces.begin(); piece != pieces.end();) {
    const StateFile& file = files[piece->file];
    const std::uint32_t f = piece->file;
    const std::uint64_t block = piece->offset / block_bytes, last = block * block_bytes + bytes_of_block(file, block);
    BlockReader reader(paths[f], file);
    std::uint32_t crc = 0;
    std::uint64_t at = block * block_bytes;
    bool whole = true;
    const auto fill_to = [&](std::uint64_t until) {
      if (at < until) crc = crc32c(crc, reader.unchecked(at, until));
      at = until;
    };
    for (; piece != pieces.end() && piece->file == f && piece->offset < last; ++piece) {
      whole = whole && piece->offset >= at;  // else two have read the same bytes, and not alike
      if (!whole) continue;
      fill_to(piece->offset);
      crc = crc32c_combine(crc, piece->crc, piece->bytes);
      at += piece->bytes;
    }
    fill_to(last);
    if (!whole || crc != file.crcs[static_cast<std::size_t>(block)]) throw_damaged(paths[f], file, block);
  }
}

}  // namespace tessera::io
