// SPDX-License-Identifier: Apache-2.0
// write_by_mpio: windows of data sets, each written by all ranks in one call of parallel HDF5.
#include <algorithm>
#include <exception>
#include <optional>

#include "io/checkpoint/blocks.hpp"
#include "io/file/crc32c.hpp"
#include "io/hdf5/mpio_file.hpp"
#include "runtime/base/local_work.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::io {

namespace {

constexpr std::uint64_t window_bytes = 32 << 20;  // of a data set, in one call
constexpr std::uint64_t batch_bytes = 8 * window_bytes;

/// Bytes [first, last) of a file, all of one data set.
struct Window {
  const Hdf5Dataset* dataset = nullptr;
  std::uint64_t first = 0, last = 0;
};

/// The same on all ranks. Calls of a batch follow each other without agreement.
std::vector<std::vector<Window>> batches_of(const StateFile& file) {
  std::vector<std::vector<Window>> batches(1);
  std::uint64_t filled = 0;
  for (const Hdf5Dataset& d : file.datasets)
    for (std::uint64_t at = 0; at < d.bytes; at += window_bytes) {
      const std::uint64_t n = std::min(window_bytes, d.bytes - at);
      if (filled + n > batch_bytes) {
        batches.emplace_back();
        filled = 0;
      }
      filled += n;
      batches.back().push_back({&d, d.offset + at, d.offset + at + n});
    }
  return batches;
}

/// This rank's part of a file.
class RankPart {
 public:
  RankPart(std::uint32_t file, const std::vector<StateRange>& ranges) : file_(file) {
    for (const StateRange& e : ranges)
      if (e.file == static_cast<int>(file)) ranges_.push_back(e);
  }

  /// Collective, also where this rank's part cannot be prepared: it then writes nothing, and throws afterwards.
  /// `checksums`: of what this rank has written is added.
  void write(MpioFile& file, const Window& window, std::vector<RangeChecksum>& checksums) {
    std::vector<MpioFile::Elements> parts;
    const std::byte* memory = nullptr;
    std::exception_ptr failed;
    try {
      memory = prepare(window, parts, checksums);
    } catch (...) {
      failed = std::current_exception();
      parts.clear();
    }
    file.write(*window.dataset, parts, memory);
    note_local_work();
    if (failed) std::rethrow_exception(failed);
  }

 private:
  /// What this rank has of a window, one part after another.
  const std::byte* prepare(const Window& window, std::vector<MpioFile::Elements>& parts,
                           std::vector<RangeChecksum>& checksums) {
    std::vector<StateRange> inside;
    const std::uint64_t element = size_of(window.dataset->dtype);
    auto e = std::ranges::upper_bound(ranges_, window.first, {}, [](const auto& r) { return r.offset + r.bytes; });
    for (; e != ranges_.end() && e->offset < window.last; ++e) {
      StateRange part = *e;
      part.offset = std::max(e->offset, window.first);
      part.bytes = std::min(e->offset + e->bytes, window.last) - part.offset;
      part.memory += part.offset - e->offset;
      TESSERA_ASSERT((part.offset - window.dataset->offset) % element == 0 && part.bytes % element == 0,
                     "part of an element of %s", window.dataset->path.c_str());
      inside.push_back(part);
      parts.push_back({(part.offset - window.dataset->offset) / element, part.bytes / element});
    }
    const std::byte* const memory = joined(inside);
    const std::byte* at = memory;
    for (const StateRange& part : inside) {
      add_checksums(part, at, checksums);
      at += part.bytes;
    }
    return memory;
  }

  /// Ranges one after another: in place if there is one on the host.
  const std::byte* joined(const std::vector<StateRange>& parts) {
    if (parts.size() == 1 && parts[0].device == host_device) return parts[0].memory;
    std::size_t bytes = 0;
    for (const StateRange& part : parts) bytes += part.bytes;
    if (buffer_.size() < bytes) buffer_.resize(bytes);
    std::byte* to = buffer_.data();
    for (const StateRange& part : parts) {
      copy_now(part.device, to, part.memory, part.bytes);
      to += part.bytes;
    }
    return buffer_.data();
  }

  void add_checksums(const StateRange& part, const std::byte* memory, std::vector<RangeChecksum>& checksums) const {
    for (std::uint64_t done = 0; done < part.bytes;) {
      const std::uint64_t offset = part.offset + done,
                          n = std::min(part.bytes - done, block_bytes - offset % block_bytes);
      checksums.push_back({file_, crc32c(0, {memory + done, static_cast<std::size_t>(n)}), offset, n});
      done += n;
    }
  }

  std::uint32_t file_;
  std::vector<StateRange> ranges_;
  std::vector<std::byte> buffer_;
};

/// A rank that has failed takes part in the batch's other calls, so that no rank waits for it.
void write_batch(MpioFile& file, RankPart& mine, RankPart& nothing, const std::vector<Window>& batch,
                 std::vector<RangeChecksum>& checksums) {
  std::exception_ptr failed;
  for (const Window& window : batch) {
    try {
      (failed ? nothing : mine).write(file, window, checksums);
    } catch (...) {
      if (!failed) failed = std::current_exception();
    }
  }
  if (failed) std::rethrow_exception(failed);
}

/// Reads back what this rank has given to MPI-IO: Open MPI's OMPIO may lose the error of a write (it prints a line).
void check_written(const std::string& path, std::span<const RangeChecksum> written) {
  if (written.empty()) return;
  DirectFile file(path, DirectFile::Access::read);
  DirectBuffer buffer(block_bytes);
  for (const RangeChecksum& range : written)
    if (crc32c(0, file.read(range.offset, range.offset + range.bytes, buffer)) != range.crc)
      throw Error(
          ExitCode::data,
          strfmt("cannot write %s: MPI-IO reported no error, and bytes %lu to %lu are not those that it was given",
                 path.c_str(), range.offset, range.offset + range.bytes),
          {}, "See what MPI has printed above; --checkpoint_io direct names the reason");
}

}  // namespace

std::vector<RangeChecksum> write_by_mpio(World& world, const std::vector<std::string>& paths,
                                         const std::vector<StateFile>& files, const std::vector<StateRange>& ranges) {
  std::vector<RangeChecksum> checksums;
  for (std::size_t f = 0; f < files.size(); ++f) {
    const std::size_t before = checksums.size();
    RankPart mine(static_cast<std::uint32_t>(f), ranges), nothing(static_cast<std::uint32_t>(f), {});
    std::optional<MpioFile> file;
    const auto collectively = [&](const char* what, const std::function<void(int)>& call) {
      world.run_and_agree([&] { world.with_mpi(what, call); });
    };
    const auto close = [&](int) {
      if (file) file->close();
    };
    try {
      collectively("opening a checkpoint's file (MPI-IO)", [&](int all_ranks) { file.emplace(all_ranks, paths[f]); });
      for (const auto& batch : batches_of(files[f]))
        collectively("writing a checkpoint (MPI-IO)",
                     [&](int) { write_batch(*file, mine, nothing, batch, checksums); });
    } catch (const Error& error) {
      if (error.code() == ExitCode::communication) throw;
      try {  // every rank is here
        collectively("closing a checkpoint's file (MPI-IO)", close);
      } catch (const Error& second) {
        if (second.code() == ExitCode::communication) throw;
      }
      throw;
    }
    collectively("closing a checkpoint's file (MPI-IO)", close);
    world.run_and_agree([&] {  // once per host: what its ranks have written lies in its page cache
      if (world.node_rank() == 0) File::open_to_write(paths[f]).sync();
    });
    world.run_and_agree([&] { check_written(paths[f], std::span(checksums).subspan(before)); });
  }
  return checksums;
}

}  // namespace tessera::io
