// Reading by blocks, each checked before a byte of it is used; and the sums of what many have written.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include <unistd.h>

#include "io/checkpoint/blocks.hpp"
#include "io/crc32c.hpp"

namespace tessera::io {

void join_pieces(std::vector<BlockPiece> pieces, std::vector<StateFile>& files) {
  std::ranges::sort(pieces, [](const BlockPiece& a, const BlockPiece& b) { return std::tie(a.file, a.offset) < std::tie(b.file, b.offset); });
  auto piece = pieces.begin();
  for (std::size_t f = 0; f < files.size(); ++f) {
    StateFile& file = files[f];
    file.crcs.assign(static_cast<std::size_t>((file.bytes + block_bytes - 1) / block_bytes), 0);
    std::uint64_t at = 0;
    for (; at < file.bytes; ++piece) {
      if (piece == pieces.end() || piece->file != f || piece->offset != at)
        throw Error(ExitCode::internal, strfmt("byte %llu of %s was written by %s", static_cast<unsigned long long>(at), file.name.c_str(),
                                               piece != pieces.end() && piece->file == f && piece->offset < at ? "two" : "nobody"));
      std::uint32_t& crc = file.crcs[static_cast<std::size_t>(at / block_bytes)];
      crc = crc32c_combine(crc, piece->crc, piece->bytes);
      at += piece->bytes;
    }
  }
  if (piece != pieces.end()) throw Error(ExitCode::internal, "bytes beyond the end of a file were written");
}

void BlockReader::Free::operator()(std::byte* p) const { std::free(p); }

BlockReader::BlockReader(const std::string& path, const StateFile& file) : file_(&file), descriptor_(File::open_to_read(path, Cache::direct)) {
  direct_ = descriptor_.descriptor() >= 0;
  if (!direct_) descriptor_ = File::open_to_read(path);
  if (const std::uint64_t bytes = descriptor_.size(); bytes != file.bytes)
    throw Error(ExitCode::data, strfmt("E109 %s has %llu bytes, its manifest says %llu", path.c_str(), static_cast<unsigned long long>(bytes),
                                       static_cast<unsigned long long>(file.bytes)));
  constexpr std::size_t room = 4096;
  buffer_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, std::max<std::size_t>(room, (std::min(file.bytes, block_bytes) + 4095) / 4096 * 4096))));
  if (!buffer_) throw std::bad_alloc();
}

BlockReader::~BlockReader() = default;

std::span<const std::byte> BlockReader::block(std::uint64_t index) {
  const auto n = static_cast<std::size_t>(bytes_of_block(*file_, index));
  const std::span bytes(buffer_.get(), n);
  if (index == current_) return bytes;
  current_ = ~std::uint64_t{0};
  const std::uint64_t offset = index * block_bytes;
  std::size_t got = 0;
  while (direct_ && got < n) {
    const ssize_t more = ::pread(descriptor_.descriptor(), buffer_.get() + got, (n - got + 4095) / 4096 * 4096, static_cast<off_t>(offset + got));
    if (more < 0 && errno == EINTR) continue;
    if (more > 0 && got + static_cast<std::size_t>(more) >= n) got = n;
    else if (more > 0 && more % 4096 == 0) got += static_cast<std::size_t>(more);
    else {  // what this way does not give, the other does, or says why
      direct_ = false;
      descriptor_ = File::open_to_read(descriptor_.path());
    }
  }
  if (got < n) descriptor_.read_at(offset + got, bytes.subspan(got));
  bytes_read_ += n;
  if (crc32c(0, bytes) != file_->crcs[static_cast<std::size_t>(index)])
    throw Error(ExitCode::data, strfmt("E123 %s is damaged: the checksum of block %llu (bytes %llu to %llu) is wrong; there lies ", descriptor_.path().c_str(),
                                       static_cast<unsigned long long>(index), static_cast<unsigned long long>(offset),
                                       static_cast<unsigned long long>(offset + n)) +
                                    what_lies_in(*file_, offset, offset + n));
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
};

std::vector<Job> jobs_of(const std::vector<Extent>& extents) {
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const Extent& e = extents[i];
    if (e.bytes == 0) continue;
    for (std::uint64_t b = e.offset / block_bytes; b <= (e.offset + e.bytes - 1) / block_bytes; ++b) {
      if (!jobs.empty() && jobs.back().file == e.file && jobs.back().block == b) jobs.back().last = i + 1;
      else jobs.push_back({e.file, b, i, i + 1});
    }
  }
  return jobs;
}

void take(std::span<const std::byte> bytes, std::uint64_t offset, std::span<const Extent> extents) {
  for (const Extent& e : extents) {
    const std::uint64_t first = std::max(offset, e.offset), last = std::min(offset + bytes.size(), e.offset + e.bytes);
    if (first < last) std::memcpy(e.memory + (first - e.offset), bytes.data() + (first - offset), static_cast<std::size_t>(last - first));
  }
}

}  // namespace

std::uint64_t read_extents(const std::vector<std::string>& paths, const std::vector<StateFile>& files, const std::vector<Extent>& extents,
                           int threads) {
  const std::vector<Job> jobs = jobs_of(extents);
  std::atomic<std::size_t> next{0};
  std::atomic<std::uint64_t> bytes_read{0};
  std::mutex mutex;
  std::exception_ptr error;
  std::size_t error_at = jobs.size();
  const auto work = [&] {
    std::unique_ptr<BlockReader> reader;
    int open = -1;
    for (std::size_t i = next++; i < jobs.size(); i = next++) {
      const Job& job = jobs[i];
      try {
        if (open != job.file) {
          if (reader) bytes_read += reader->bytes_read();
          reader.reset();
          reader = std::make_unique<BlockReader>(paths[static_cast<std::size_t>(job.file)], files[static_cast<std::size_t>(job.file)]);
          open = job.file;
        }
        take(reader->block(job.block), job.block * block_bytes, std::span(extents).subspan(job.first, job.last - job.first));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < error_at) error = std::current_exception();
        error_at = std::min(i, error_at);
        next = jobs.size();
        break;
      }
    }
    if (reader) bytes_read += reader->bytes_read();
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work);
  work();
  for (auto& thread : others) thread.join();
  if (error) std::rethrow_exception(error);
  return bytes_read;
}

}  // namespace tessera::io
