// SPDX-License-Identifier: Apache-2.0
// Blocks are distributed over ranks and threads; each is converted, then written or compared.
#include "io/convert/conversion.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "io/file/crc32c.hpp"
#include "io/file/thread_tasks.hpp"

namespace tessera::io {

namespace {
constexpr std::size_t round_blocks = 256;  // of a rank: 1 GiB
constexpr std::size_t max_listed_differences = 10;
constexpr int spare_slots = 4;  // blocks that no thread reads at the moment
}  // namespace

/// A thread's memory, and the output file that it used last.
struct Conversion::Thread {
  ConvertBuffers buffers;
  DirectBuffer output{block_bytes};  // a block to compare with; where a write is not aligned, its copy
  int opened = -1;
  std::unique_ptr<DirectFile> file;

  DirectFile& open(const ConversionPlan& plan, int index, Pass pass) {
    if (opened == index) return *file;
    close(pass);
    file = std::make_unique<DirectFile>(plan.files[static_cast<std::size_t>(index)].path,
                                        pass == Pass::write ? DirectFile::Access::write : DirectFile::Access::read);
    opened = index;
    return *file;
  }
  /// What this thread has written is durable.
  void close(Pass pass) {
    if (opened >= 0 && pass == Pass::write) file->finish();
    opened = -1;
    file.reset();
  }
};

Conversion::Conversion(const TensorCatalog& source, ConversionPlan plan, ConvertOptions options)
    : source_(source), plan_(std::move(plan)), block_converter_(source, plan_), options_(std::move(options)) {
  for (int f = 0; f < static_cast<int>(plan_.files.size()); ++f)
    for (std::uint64_t b = 0; b < block_converter_.num_blocks(f); ++b)
      if (const std::uint64_t bytes = block_converter_.filled(f, b); bytes > 0) {
        blocks_.push_back({f, b, bytes});
        bytes_ += bytes;
      }
}

std::vector<Conversion::OutputBlock> Conversion::blocks_of_rank(int rank, int ranks) const {
  std::vector<OutputBlock> mine;
  std::uint64_t before = 0;
  for (const OutputBlock& block : blocks_) {
    if (static_cast<int>(static_cast<unsigned __int128>(before) * static_cast<unsigned>(ranks) / bytes_) == rank)
      mine.push_back(block);
    before += block.bytes;
  }
  return mine;
}

void Conversion::write_block(const OutputBlock& block, BlockCache& cache, Thread& thread) {
  block_converter_.convert(block.file, block.block, cache, thread.buffers);
  DirectFile& file = thread.open(plan_, block.file, Pass::write);
  const std::uint64_t begin = block.block * block_bytes;
  const auto bytes_of = [&](const ByteRange& r) {
    return std::as_bytes(thread.buffers.block.span().subspan(static_cast<std::size_t>(r.begin - begin),
                                                             static_cast<std::size_t>(r.end - r.begin)));
  };
  for (const ByteRange& r : thread.buffers.joined) file.write(r.begin, bytes_of(r), thread.output);
  if (!options_.checksums) return;
  for (const ByteRange& r : thread.buffers.ranges) {
    const RangeChecksum sum{static_cast<std::uint32_t>(block.file), crc32c(0, bytes_of(r)), r.begin, r.end - r.begin};
    const std::lock_guard lock(mutex_);
    checksums_.push_back(sum);
  }
}

void Conversion::compare_block(const OutputBlock& block, BlockCache& cache, Thread& thread) {
  block_converter_.convert(block.file, block.block, cache, thread.buffers);
  const OutputFile& output = plan_.files[static_cast<std::size_t>(block.file)];
  const std::uint64_t begin = block.block * block_bytes, end = std::min(begin + block_bytes, output.bytes);
  const std::byte* const expected = thread.buffers.block.span().data();
  const auto actual = thread.open(plan_, block.file, Pass::verify).read(begin, end, thread.output);
  for (const ByteRange& r : thread.buffers.joined) {
    if (std::memcmp(expected + (r.begin - begin), actual.data() + (r.begin - begin),
                    static_cast<std::size_t>(r.end - r.begin)) == 0)
      continue;
    const OutputTensor* last = nullptr;
    for (std::uint64_t at = r.begin; at < r.end; ++at) {
      if (expected[at - begin] == actual[static_cast<std::size_t>(at - begin)]) continue;
      const OutputTensor* tensor = block_converter_.tensor_at(block.file, at);
      if (tensor != nullptr && tensor == last) continue;
      last = tensor;
      const std::lock_guard lock(mutex_);
      different_.push_back(tensor != nullptr ? tensor->name : "the header of " + output.path);
    }
  }
}

void Conversion::run(World& world, const std::vector<OutputBlock>& blocks, Pass pass) {
  const auto start = std::chrono::steady_clock::now();
  const auto rounds =
      static_cast<std::size_t>(world.max(static_cast<std::int64_t>((blocks.size() + round_blocks - 1) / round_blocks)));
  std::unique_ptr<BlockCache> cache;
  std::vector<std::unique_ptr<Thread>> threads;
  world.run_and_agree([&] {
    const auto most = static_cast<int>(std::min<std::size_t>(blocks.size(), round_blocks));
    const int count = std::clamp(options_.threads, 1, std::max(1, most));
    cache = std::make_unique<BlockCache>(source_.files, std::max(cache_slots, count + spare_slots));
    for (int t = 0; t < count; ++t) threads.push_back(std::make_unique<Thread>());
  });
  std::uint64_t mine = 0;
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::size_t first = std::min(blocks.size(), round * round_blocks),
                      last = std::min(blocks.size(), first + round_blocks);
    const auto in_round = std::span(blocks).subspan(first, last - first);
    world.run_and_agree([&] {
      run_tasks(in_round.size(), threads, [&](const std::unique_ptr<Thread>& thread, std::size_t i) {
        pass == Pass::write ? write_block(in_round[i], *cache, *thread) : compare_block(in_round[i], *cache, *thread);
      });
    });
    for (const OutputBlock& block : in_round) mine += block.bytes;
    const auto done = static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(mine)));
    if (options_.progress)
      options_.progress(
          {done, bytes_, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()});
  }
  world.run_and_agree([&] {
    for (const auto& thread : threads) thread->close(pass);
  });
  bytes_read_ += cache->bytes_read();
}

void Conversion::write(World& world) { run(world, blocks_of_rank(world.rank(), world.size()), Pass::write); }

void Conversion::verify(World& world) {
  std::vector<OutputBlock> blocks = blocks_of_rank((world.rank() + 1) % world.size(), world.size());
  std::ranges::reverse(blocks);
  run(world, blocks, Pass::verify);
  std::ranges::sort(different_);
  different_.erase(std::unique(different_.begin(), different_.end()), different_.end());
  std::string mine;
  for (const std::string& name : different_) mine += name + '\n';
  std::vector<std::string> all = world.gather(mine);
  world.run_and_agree([&] {
    std::vector<std::string> names;
    for (const std::string& text : all)
      for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
        names.push_back(text.substr(at, text.find('\n', at) - at));
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    if (names.empty()) return;
    std::string list;
    for (std::size_t i = 0; i < names.size() && i < max_listed_differences; ++i)
      list += (i > 0 ? ", " : "") + quote_name(names[i]);
    if (names.size() > max_listed_differences) list += strfmt(" and %zu more", names.size() - max_listed_differences);
    throw Error(ExitCode::data, "E144 the output differs from the source in " + list, {},
                "Check the disk, and convert again");
  });
}

}  // namespace tessera::io
