// Blocks in the hands of ranks and threads: made, then written or compared.
#include "io/convert/conversion.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "io/file/crc32c.hpp"

namespace tessera::io {

namespace {
constexpr std::size_t round_blocks = 256;  // of a rank, between two agreements: 1 GiB
constexpr std::size_t shown_differences = 10;
}  // namespace

/// What a thread has for itself: memory, and the output file it was last busy with.
struct Conversion::Thread {
  ConvertBuffers memory;
  DirectBuffer there{block_bytes};  // what the output holds, to compare with
  int open = -1;
  std::unique_ptr<DirectFile> file;

  const DirectFile& output(const ConversionPlan& plan, int index, Pass way) {
    if (open == index) return *file;
    const std::string& path = plan.files[static_cast<std::size_t>(index)].path;
    file = std::make_unique<DirectFile>(way == Pass::write ? DirectFile::open_to_write(path)
                                                           : DirectFile::open_to_read(path));
    open = index;
    return *file;
  }
};

Conversion::Conversion(const TensorCatalog& source, ConversionPlan plan, ConvertOptions options)
    : source_(source), plan_(std::move(plan)), block_converter_(source, plan_), options_(std::move(options)) {
  for (int f = 0; f < static_cast<int>(plan_.files.size()); ++f)
    for (std::uint64_t b = 0; b < block_converter_.num_blocks(f); ++b)
      if (const std::uint64_t bytes = block_converter_.filled(f, b); bytes > 0) {
        jobs_.push_back({f, b, bytes});
        bytes_ += bytes;
      }
}

std::vector<Conversion::Job> Conversion::share(int rank, int ranks) const {
  std::vector<Job> mine;
  std::uint64_t before = 0;
  for (const Job& job : jobs_) {
    if (static_cast<int>(static_cast<unsigned __int128>(before) * static_cast<unsigned>(ranks) / bytes_) == rank)
      mine.push_back(job);
    before += job.bytes;
  }
  return mine;
}

void Conversion::write_block(const Job& job, BlockCache& cache, Thread& thread) {
  block_converter_.assemble(job.file, job.block, cache, thread.memory);
  const DirectFile& file = thread.output(plan_, job.file, Pass::write);
  const auto bytes_of = [&](const ByteRange& s) {
    return std::as_bytes(thread.memory.block.span().subspan(static_cast<std::size_t>(s.begin - job.block * block_bytes),
                                                            static_cast<std::size_t>(s.end - s.begin)));
  };
  for (const ByteRange& s : thread.memory.stretches) file.write_at(s.begin, bytes_of(s));
  if (!options_.checksums) return;
  for (const ByteRange& s : thread.memory.parts) {
    const RangeChecksum piece{static_cast<std::uint32_t>(job.file), crc32c(0, bytes_of(s)), s.begin, s.end - s.begin};
    const std::lock_guard lock(mutex_);
    pieces_.push_back(piece);
  }
}

void Conversion::compare_block(const Job& job, BlockCache& cache, Thread& thread) {
  block_converter_.assemble(job.file, job.block, cache, thread.memory);
  const std::uint64_t begin = job.block * block_bytes;
  const std::uint64_t end = std::min(begin + block_bytes, plan_.files[static_cast<std::size_t>(job.file)].bytes);
  const std::byte* const wanted = thread.memory.block.span().data();
  const auto there = thread.there.span().first(static_cast<std::size_t>(end - begin));
  thread.output(plan_, job.file, Pass::verify).read_at(begin, there);
  for (const ByteRange& s : thread.memory.stretches) {
    if (std::memcmp(wanted + (s.begin - begin), there.data() + (s.begin - begin),
                    static_cast<std::size_t>(s.end - s.begin)) == 0)
      continue;
    const OutputTensor* last = nullptr;
    for (std::uint64_t at = s.begin; at < s.end; ++at) {
      if (wanted[at - begin] == there[static_cast<std::size_t>(at - begin)]) continue;
      const OutputTensor* tensor = block_converter_.tensor_at(job.file, at);
      if (tensor != nullptr && tensor == last) continue;
      last = tensor;
      const std::lock_guard lock(mutex_);
      different_.push_back(tensor != nullptr ? tensor->name
                                             : "the header of " + plan_.files[static_cast<std::size_t>(job.file)].path);
    }
  }
}

void Conversion::run_part(std::span<const Job> jobs, Pass way, BlockCache& cache,
                          std::vector<std::unique_ptr<Thread>>& threads) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr failed;
  const auto work = [&](Thread& thread) {
    for (std::size_t i = next++; i < jobs.size(); i = next++) {
      try {
        way == Pass::write ? write_block(jobs[i], cache, thread) : compare_block(jobs[i], cache, thread);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failed) failed = std::current_exception();
        next = jobs.size();
      }
    }
  };
  std::vector<std::jthread> others;
  for (std::size_t t = 1; t < threads.size(); ++t) others.emplace_back(work, std::ref(*threads[t]));
  work(*threads.front());
  others.clear();  // joins
  if (failed) std::rethrow_exception(failed);
}

void Conversion::run(World& world, const std::vector<Job>& jobs, Pass way) {
  const auto start = std::chrono::steady_clock::now();
  const auto rounds =
      static_cast<std::size_t>(world.max(static_cast<std::int64_t>((jobs.size() + round_blocks - 1) / round_blocks)));
  std::unique_ptr<BlockCache> cache;
  std::vector<std::unique_ptr<Thread>> threads;
  world.run_and_agree([&] {
    cache = std::make_unique<BlockCache>(source_.files, cache_slots);
    for (int t = 0; t < std::max(1, options_.threads); ++t) threads.push_back(std::make_unique<Thread>());
  });
  std::uint64_t mine = 0;
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::size_t first = std::min(jobs.size(), round * round_blocks),
                      last = std::min(jobs.size(), first + round_blocks);
    const auto part = std::span(jobs).subspan(first, last - first);
    world.run_and_agree([&] { run_part(part, way, *cache, threads); });
    for (const Job& job : part) mine += job.bytes;
    const auto done = static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(mine)));
    if (options_.progress)
      options_.progress(
          {done, bytes_, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()});
  }
  bytes_read_ += cache->bytes_read();
}

void Conversion::sync(const std::vector<Job>& jobs) const {
  int last = -1;
  for (const Job& job : jobs)
    if (std::exchange(last, job.file) != job.file)
      File::open_to_write(plan_.files[static_cast<std::size_t>(job.file)].path).sync();
}

void Conversion::write(World& world) {
  const std::vector<Job> jobs = share(world.rank(), world.size());
  run(world, jobs, Pass::write);
  world.run_and_agree([&] { sync(jobs); });
}

void Conversion::verify(World& world) {
  std::vector<Job> jobs = share((world.rank() + 1) % world.size(), world.size());
  std::ranges::reverse(jobs);
  run(world, jobs, Pass::verify);
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
    for (std::size_t i = 0; i < names.size() && i < shown_differences; ++i)
      list += (i > 0 ? ", " : "") + quote_name(names[i]);
    if (names.size() > shown_differences) list += strfmt(" and %zu more", names.size() - shown_differences);
    throw Error(ExitCode::data, "E144 what was written is not what was read: " + list, {},
                "Check the disk, and convert again");
  });
}

}  // namespace tessera::io
