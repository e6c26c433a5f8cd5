// SPDX-License-Identifier: Apache-2.0
// The file: a header, the ranges, the first range of each sample.

#include "io/data/packed_index.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "io/file/file.hpp"

namespace tessera::io {

namespace {

constexpr char packed_magic[8] = {'T', 'S', 'R', 'P', 'A', 'C', 'K', '2'};

/// In a header: with the size of their groups, if the samples have such.
std::int64_t packing_number(const PackingRule& rule) {
  return static_cast<std::int64_t>(rule.packing) + 256 * rule.group;
}

struct IndexHeader {
  char magic[8] = {};
  std::int64_t source_tokens = 0, tokens = 0, packing = 0, truncation = 0;
  PackingSummary summary;
  std::int64_t ranges = 0;
};
static_assert(std::is_trivially_copyable_v<IndexHeader> && sizeof(IndexHeader) == 144);
static_assert(std::is_trivially_copyable_v<TokenRange> && sizeof(TokenRange) == 16 && alignof(TokenRange) == 8);

/// Appends elements to a file, a MiB at a time.
template <class T>
class Appender {
 public:
  Appender(const File& file, std::uint64_t at) : file_(file), at_(at) { buffer_.reserve(most); }
  void add(const T& value) {
    buffer_.push_back(value);
    if (buffer_.size() == most) flush();
  }
  void flush() {
    file_.write_at(at_, std::as_bytes(std::span(buffer_)));
    at_ += buffer_.size() * sizeof(T);
    buffer_.clear();
  }
  [[nodiscard]] std::uint64_t at() const { return at_; }

 private:
  static constexpr std::size_t most = (std::size_t{1} << 20) / sizeof(T);
  const File& file_;
  std::uint64_t at_;
  std::vector<T> buffer_;
};

/// A file under a name of its own, which is removed at the end of the scope unless it was renamed.
struct TemporaryFile {
  explicit TemporaryFile(std::string path_) : path(std::move(path_)), file(File::create(path)) {}
  ~TemporaryFile() { remove_quietly(path); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  std::string path;
  File file;
};

/// Differs between processes, also of hosts that share a directory.
std::string name_of_own() {
  char host[128] = {};
  ::gethostname(host, sizeof host - 1);
  return strfmt("%s.%d.%08x", host, static_cast<int>(::getpid()), std::random_device()());
}

/// Appends all of `from`, which has `bytes` bytes, to `to` at `at`.
void append_file(const File& from, std::uint64_t bytes, const File& to, std::uint64_t at) {
  std::vector<std::byte> block(std::size_t{1} << 20);
  for (std::uint64_t done = 0; done < bytes; done += block.size()) {
    const auto part = std::span(block).first(std::min<std::uint64_t>(block.size(), bytes - done));
    from.read_at(done, part);
    to.write_at(at + done, part);
  }
}

}  // namespace

void write_packed_index(const std::string& path, const TokenStream& source, const DocumentSource& documents,
                        const PackingRule& rule) {
  const std::string name = path + "." + name_of_own();
  TemporaryFile out(name + ".tmp"), begins_file(name + ".begins.tmp");
  Appender<TokenRange> ranges(out.file, sizeof(IndexHeader));
  Appender<std::int64_t> begins(begins_file.file, 0);
  IndexHeader header{.source_tokens = source.size(),
                     .tokens = rule.tokens,
                     .packing = packing_number(rule),
                     .truncation = static_cast<std::int64_t>(rule.truncation),
                     .summary = {},
                     .ranges = 0};
  std::memcpy(header.magic, packed_magic, sizeof packed_magic);
  begins.add(0);
  header.summary = pack(source, documents, rule, [&](std::span<const TokenRange> sample) {
    for (const TokenRange& range : sample) ranges.add(range);
    begins.add(header.ranges += static_cast<std::int64_t>(sample.size()));
  });
  ranges.flush(), begins.flush();
  append_file(File::open_to_read(begins_file.path), begins.at(), out.file, ranges.at());
  out.file.write_at(0, std::as_bytes(std::span(&header, 1)));
  out.file.sync();
  out.file.close();
  commit_rename(out.path, path);
}

Error damaged_index(const std::string& path, const std::string& why) {
  return {ExitCode::data, path + " is not an index of these samples: " + why, {}, "Delete it: it is made again"};
}

PackedIndex check_packed_index(std::string_view bytes, std::int64_t source_tokens, const PackingRule& rule,
                               const std::string& path) {
  const auto refuse = [&](const std::string& why) { return damaged_index(path, why); };
  IndexHeader header;
  if (bytes.size() < sizeof header) throw refuse(strfmt("it has %zu bytes", bytes.size()));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, packed_magic, sizeof packed_magic) != 0) throw refuse("wrong magic number");
  if (header.source_tokens != source_tokens || header.tokens != rule.tokens || header.packing != packing_number(rule) ||
      header.truncation != static_cast<std::int64_t>(rule.truncation))
    throw refuse(
        strfmt("it is of %ld tokens in samples of %ld, or of another strategy", header.source_tokens, header.tokens));
  if (header.summary.count.longest < 0 || header.summary.count.longest > rule.tokens)
    throw refuse(strfmt("its longest sample has %ld tokens", header.summary.count.longest));
  const std::uint64_t room = (bytes.size() - sizeof header) / 8;
  const auto ranges = static_cast<std::uint64_t>(header.ranges),
             samples = static_cast<std::uint64_t>(header.summary.count.samples);
  if (header.ranges < 0 || header.summary.count.samples < 0 || ranges > room || samples > room ||
      sizeof header + 16 * ranges + 8 * (samples + 1) != bytes.size())
    throw refuse(strfmt("it has %zu bytes, which is not what its counts say", bytes.size()));
  const char* const at = bytes.data() + sizeof header;  // a mapping begins on a page: both arrays are aligned
  return {header.summary,
          {reinterpret_cast<const TokenRange*>(at), ranges},
          {reinterpret_cast<const std::int64_t*>(at + 16 * ranges), samples + 1}};
}

bool has_packed_index(const std::string& path, std::int64_t source_tokens, const PackingRule& rule) {
  if (!exists(path)) return false;
  try {
    const MappedFile map(path);
    (void)check_packed_index(map.bytes(), source_tokens, rule, path);
    return true;
  } catch (const Error&) { return false; }
}

}  // namespace tessera::io
