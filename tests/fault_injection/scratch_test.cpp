// SPDX-License-Identifier: Apache-2.0
// Scratch files: what is written is read again; disks that are full, fail, stop early or change a bit are errors that
// name the file, the unit and the state; files of dead runs are removed, and no others.

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "io/scratch/scratch_store.hpp"
#include "tests/fault_injection/shim.hpp"
#include "tests/io/files.hpp"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;
using io::ScratchStore;
using testing::HasSubstr;

constexpr std::uint64_t block = ScratchStore::block_bytes;

/// A buffer of bytes that are a function of (seed, position).
struct Bytes {
  Bytes(std::uint64_t size, unsigned seed) : buffer(static_cast<std::size_t>(size)) {
    for (std::size_t i = 0; i < span().size(); ++i) span()[i] = static_cast<std::byte>((i * 2654435761u + seed) >> 11);
  }
  [[nodiscard]] std::span<std::byte> span() const { return buffer.span(); }
  [[nodiscard]] bool operator==(const Bytes& other) const { return std::ranges::equal(span(), other.span()); }
  io::DirectBuffer buffer;
};

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return error.line();
  }
  return {};
}

struct Scratch : testing::Test {
  ~Scratch() override {
    (void)fault_disarm();
    fault_reads(0);
  }
  TempDir folder;
  std::string root = fs::canonical(folder.path()).string();
  const std::vector<io::ScratchRegion> regions{{"embedding", "master", 3 * block + 7096}, {"h.0", "exp_avg", block}};
  [[nodiscard]] ScratchStore::Spec spec(int threads = 2) const {
    return {.directory = root, .rank = 3, .regions = regions, .threads = threads};
  }
  void arm(long at, const char* kind, int reads) const {
    fault_reads(reads);
    fault_arm(root.c_str(), "tessera-scratch", at, kind);
  }
};

TEST_F(Scratch, RegionsOfAllSizesAreReadAsTheyWereWritten) {
  std::vector<io::ScratchRegion> all;
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{512}, std::uint64_t{4096}, block,
                                    block + 512, 3 * block + 4097, 2 * block})
    all.push_back({"h." + std::to_string(all.size()), "exp_avg", bytes});
  ScratchStore store({.directory = root, .rank = 0, .regions = all, .threads = 3});
  for (const unsigned turn : {1u, 2u}) {
    std::vector<Bytes> written, read;
    std::vector<io::ScratchTransfer> transfers;
    for (std::size_t r = 0; r < all.size(); ++r) {
      written.emplace_back(all[r].bytes, static_cast<unsigned>(r) + 100 * turn);
      read.emplace_back(all[r].bytes, 7);
    }
    for (std::size_t r = 0; r < all.size(); ++r) transfers.push_back(store.write(r, written[r].span()));
    for (const auto& transfer : transfers) transfer.wait();
    transfers.clear();
    for (std::size_t r = all.size(); r-- > 0;) transfers.push_back(store.read(r, read[r].span()));
    for (const auto& transfer : transfers) {
      transfer.wait();
      EXPECT_TRUE(transfer.done());
    }
    for (std::size_t r = 0; r < all.size(); ++r) EXPECT_TRUE(written[r] == read[r]) << r;
  }
  const io::ScratchTimes times = store.times();
  const std::uint64_t total = std::accumulate(all.begin(), all.end(), std::uint64_t{0},
                                              [](std::uint64_t n, const io::ScratchRegion& r) { return n + r.bytes; });
  EXPECT_EQ(times.bytes_read, 2 * total);
  EXPECT_EQ(times.bytes_written, 2 * total);
  EXPECT_GT(times.busy_seconds, 0);
  EXPECT_LE(times.busy_seconds, times.read_seconds + times.write_seconds + 1e-9);
  EXPECT_TRUE(io::ScratchTransfer().done());
}

TEST_F(Scratch, APartOfARegionIsReadAlone) {
  ScratchStore store(spec());
  const Bytes written(regions[0].bytes, 1), middle(2 * block, 0), end(block + 7096, 0);
  store.write(0, written.span()).wait();
  const auto a = store.read(0, middle.span(), block), b = store.read(0, end.span(), 2 * block);
  a.wait();
  b.wait();
  EXPECT_TRUE(std::ranges::equal(middle.span(), written.span().subspan(block, 2 * block)));
  EXPECT_TRUE(std::ranges::equal(end.span(), written.span().subspan(2 * block)));
}

TEST_F(Scratch, WrongUseIsFoundAndWhatWasNotWrittenIsZero) {
  ScratchStore store(spec());
  const Bytes bytes(2 * block, 1);
  EXPECT_THROW((void)store.read(1, bytes.span().first(100)), std::exception);         // ends within a block
  EXPECT_THROW((void)store.read(1, bytes.span().subspan(8, block)), std::exception);  // not on a page of memory
  EXPECT_THROW((void)store.write(2, bytes.span()), std::exception);                   // no such region
  store.read(1, bytes.span().first(block)).wait();
  EXPECT_TRUE(std::ranges::all_of(bytes.span().first(block), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(Scratch, FilesSayWhatTheyAreAndAreRemoved) {
  {
    const ScratchStore store(spec());
    ASSERT_EQ(folder.names().size(), 1u);
    EXPECT_THAT(folder.names()[0], testing::MatchesRegex("tessera-scratch\\..*\\.[0-9]+\\.rank3\\.tmp"));
    const std::string header = bytes_of(store.path()).substr(0, io::ScratchFile::header_bytes);
    EXPECT_THAT(header, HasSubstr("Tessera scratch file\n"));
    EXPECT_THAT(header, HasSubstr("rank 3"));
    EXPECT_THAT(header, HasSubstr("It may be deleted once that process has ended"));
    EXPECT_GE(fs::file_size(store.path()), 4 * block + 7096);
  }
  EXPECT_TRUE(folder.names().empty());
}

TEST_F(Scratch, LeftoversOfDeadRunsAreRemovedAndNothingElse) {
  const ScratchStore living({.directory = root, .rank = 0, .regions = regions});
  const std::string dead = folder.file("tessera-scratch.host.1.rank0.tmp", bytes_of(living.path()));
  const std::string empty = folder.file("tessera-scratch.host.2.rank0.tmp", "");
  const std::string foreign = folder.file("tessera-scratch.notes.tmp", "not ours"),
                    other = folder.file("model.safetensors", bytes_of(living.path())),
                    locked = folder.file("tessera-scratch.host.3.rank0.tmp", bytes_of(living.path()));
  const int lock = ::open(locked.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  {
    const ScratchStore next({.directory = root, .rank = 1, .regions = regions});
    EXPECT_FALSE(fs::exists(dead) || fs::exists(empty));
    for (const std::string& path : {foreign, other, locked, living.path(), next.path()})
      EXPECT_TRUE(fs::exists(path)) << path;
  }
  ::close(lock);
  EXPECT_EQ(io::remove_scratch_leftovers(root), 1);
  EXPECT_EQ(io::remove_scratch_leftovers(root + "/nowhere"), 0);
  EXPECT_TRUE(fs::exists(living.path()));
}

TEST_F(Scratch, AFullDiskIsAnErrorBeforeAnythingIsKept) {
  std::string said;
  long at = 1;
  for (; said.find("needs") == std::string::npos && at < 20; ++at) {
    arm(at, "ENOSPC", 0);
    said = error_of([&] { const ScratchStore store(spec()); });
    (void)fault_disarm();
    EXPECT_TRUE(folder.names().empty()) << fault_happened();
  }
  EXPECT_THAT(fault_happened(), HasSubstr("fallocate"));
  EXPECT_THAT(said, HasSubstr("cannot allocate the scratch file " + root));
  EXPECT_THAT(said, HasSubstr("No space left on device"));
  EXPECT_THAT(said, HasSubstr("[--nvme_path " + root + "]"));
  EXPECT_THAT(said, HasSubstr("are free"));
}

// Each call of making a store fails in turn: an error, or the call was not needed (O_DIRECT).
TEST_F(Scratch, EveryCallOfMakingAStoreMayFail) {
  for (const char* kind : {"EIO", "EINVAL"}) {
    int refused = 0, through_the_cache = 0;
    for (long at = 1; at < 30; ++at) {
      bool made = false;
      arm(at, kind, 0);
      const std::string said = error_of([&] {
        ScratchStore store(spec());
        (void)fault_disarm();
        made = true;
        if (*fault_happened() == 0) return;
        through_the_cache += static_cast<int>(store.medium() == io::ScratchMedium::page_cache);
        const Bytes written(regions[0].bytes, 5), read(regions[0].bytes, 6);
        store.write(0, written.span()).wait();
        store.read(0, read.span()).wait();
        EXPECT_TRUE(written == read);
      });
      (void)fault_disarm();
      const std::string call = fault_happened();
      if (call.empty()) break;
      SCOPED_TRACE(strfmt("%s at %ld: %s; said \"%s\"", kind, at, call.c_str(), said.c_str()));
      EXPECT_EQ(made, said.empty());
      EXPECT_THAT(made ? root : said, HasSubstr(root));
      refused += static_cast<int>(!made);
      EXPECT_TRUE(call.starts_with("unlink") || folder.names().empty());
    }
    EXPECT_GT(refused, 1);
    EXPECT_GE(through_the_cache, std::string(kind) == "EINVAL" ? 1 : 0);
  }
}

// One thread, so that the order of the calls is that of the blocks.
TEST_F(Scratch, AFailingDiskIsNamedWithUnitStateAndBytes) {
  for (const bool reading : {false, true}) {
    ScratchStore store(spec(1));
    const Bytes bytes(regions[0].bytes, 1), other(block, 2);
    if (reading) store.write(0, bytes.span()).wait();
    store.write(1, other.span()).wait();
    arm(2, "EIO", reading ? 1 : 0);
    const auto transfer = reading ? store.read(0, bytes.span()) : store.write(0, bytes.span());
    const std::string said = error_of([&] { transfer.wait(); });
    (void)fault_disarm();
    EXPECT_THAT(said, HasSubstr(std::string("cannot ") + (reading ? "read " : "write ") + store.path()));
    EXPECT_THAT(said, HasSubstr("Input/output error [state master of unit embedding, bytes 1048576 to 2097152]"));
    EXPECT_THAT(said, HasSubstr("choose another --nvme_path, and resume from the last checkpoint"));
    EXPECT_EQ(error_of([&] { transfer.wait(); }), said);
    store.read(1, other.span()).wait();  // what did not fail can be read
    EXPECT_TRUE(other == Bytes(block, 2));
  }
}

TEST_F(Scratch, AFullDiskAtAWriteIsNamed) {
  ScratchStore store(spec(1));
  const Bytes bytes(block, 1);
  for (const char* kind : {"ENOSPC", "full", "short_full"}) {
    arm(1, kind, 0);
    const std::string said = error_of([&] { store.write(1, bytes.span()).wait(); });
    (void)fault_disarm();
    EXPECT_THAT(said, HasSubstr("No space left on device [state exp_avg of unit h.0, bytes 0 to 1048576]. Free some"));
  }
}

TEST_F(Scratch, ShortReadsAndWritesAreContinued) {
  ScratchStore store(spec());
  for (const bool reading : {false, true}) {
    const Bytes written(regions[0].bytes, reading ? 3 : 4), read(regions[0].bytes, 0);
    for (long at = 1; at <= 5; ++at) {
      if (!reading) arm(at, "short", 0);
      store.write(0, written.span()).wait();
      if (reading) arm(at, "short", 1);
      store.read(0, read.span()).wait();
      const long calls = fault_disarm();
      EXPECT_STRNE(fault_happened(), "");
      EXPECT_GE(calls, 5);
      EXPECT_TRUE(written == read) << fault_happened();
    }
  }
}

TEST_F(Scratch, AFlippedBitIsNamed) {
  ScratchStore store(spec(1));
  const Bytes written(regions[0].bytes, 3), read(regions[0].bytes, 0);
  for (const bool reading : {false, true}) {
    for (const long at : {1L, 3L, 4L, 5L}) {  // 4 and 5: the pages and the rest of the last block
      if (!reading) arm(at, "flip", 0);
      store.write(0, written.span()).wait();
      EXPECT_TRUE(written == Bytes(regions[0].bytes, 3));
      if (reading) arm(at, "flip", 1);
      const std::string said = error_of([&] { store.read(0, read.span()).wait(); });
      (void)fault_disarm();
      const long in_block = std::min(at, 4L) - 1;
      EXPECT_THAT(said, HasSubstr("what was read from " + store.path() + " is not what was written"));
      EXPECT_THAT(said, HasSubstr(strfmt("[state master of unit embedding, bytes %lu to", in_block * block)));
    }
  }
  store.write(0, written.span()).wait();
  store.read(0, read.span()).wait();
  EXPECT_TRUE(written == read);
}

// A disk that has lost a write returns what was there before.
TEST_F(Scratch, ALostWriteIsFound) {
  ScratchStore store(spec());
  const Bytes first(block, 1), second(block, 2), read(block, 0);
  store.write(1, first.span()).wait();
  const std::string before = bytes_of(store.path());
  store.write(1, second.span()).wait();
  std::fstream(store.path(), std::ios::in | std::ios::out | std::ios::binary) << before;
  EXPECT_THAT(error_of([&] { store.read(1, read.span()).wait(); }), HasSubstr("is not what was written"));
}

TEST(ScratchMemory, ATmpfsIsRecognised) {
  const TempDir folder(TempDir::Storage::memory);
  if (!fs::exists("/dev/shm") || !folder.path().starts_with("/dev/shm")) GTEST_SKIP() << "no tmpfs";
  const ScratchStore store({.directory = folder.path(), .rank = 0, .regions = {{"h.0", "master", 100}}});
  EXPECT_EQ(store.medium(), io::ScratchMedium::memory);
}

}  // namespace
}  // namespace tessera::test
