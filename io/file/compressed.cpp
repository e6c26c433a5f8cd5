// SPDX-License-Identifier: Apache-2.0
// gzip by zlib and zstd by libzstd, a block at a time.

#include "io/file/compressed.hpp"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "io/file/file.hpp"
#include "runtime/base/local_work.hpp"

namespace tessera::io {

namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 18;

Error refuse_compressed(const std::string& path, const std::string& what) {
  return Error(ExitCode::data, path + " cannot be decompressed: " + what, {}, "Fetch or compress the file again");
}

/// A format's decoder. `in` and `out` lose what was consumed and filled.
class Decoder {
 public:
  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  virtual ~Decoder() = default;
  /// What is wrong with the data; "" if nothing is. `in` may be empty only if the file has ended.
  virtual std::string decode(std::string_view& in, std::string_view& out_left, char* out) = 0;
  /// True at the beginning of the file and behind a complete member or frame: the file may end here.
  [[nodiscard]] virtual bool complete() const = 0;
};

class GzipDecoder final : public Decoder {
 public:
  GzipDecoder() {
    constexpr int gzip_alone = 16;
    TESSERA_ASSERT(inflateInit2(&stream_, gzip_alone + MAX_WBITS) == Z_OK, "zlib cannot begin");
  }
  ~GzipDecoder() override { inflateEnd(&stream_); }
  GzipDecoder(const GzipDecoder&) = delete;
  GzipDecoder& operator=(const GzipDecoder&) = delete;

  std::string decode(std::string_view& in, std::string_view& out_left, char* out) override {
    if (complete_ && !in.empty()) {  // another member
      if (inflateReset(&stream_) != Z_OK) return "zlib cannot begin again";
      complete_ = false;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));  // zlib does not write to it
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(out_left.size());
    const int result = inflate(&stream_, Z_NO_FLUSH);
    in.remove_prefix(in.size() - stream_.avail_in);
    out_left.remove_prefix(out_left.size() - stream_.avail_out);
    complete_ = result == Z_STREAM_END;
    if (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR) return "";
    return stream_.msg != nullptr ? stream_.msg : "the data are damaged";
  }
  [[nodiscard]] bool complete() const override { return complete_; }

 private:
  z_stream stream_{};
  bool complete_ = false;
};

class ZstdDecoder final : public Decoder {
 public:
  ZstdDecoder() : context_(ZSTD_createDCtx()) { TESSERA_ASSERT(context_ != nullptr, "zstd cannot begin"); }

  std::string decode(std::string_view& in, std::string_view& out_left, char* out) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out, out_left.size(), 0};
    const std::size_t result = ZSTD_decompressStream(context_.get(), &to, &from);
    in.remove_prefix(from.pos);
    out_left.remove_prefix(to.pos);
    if (ZSTD_isError(result) != 0) return ZSTD_getErrorName(result);
    if (from.pos > 0 || to.pos > 0) complete_ = result == 0;
    return "";
  }
  [[nodiscard]] bool complete() const override { return complete_; }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  std::unique_ptr<ZSTD_DCtx, Free> context_;
  bool complete_ = false;
};

/// Reads a compressed file from its beginning.
class DecompressedStream {
 public:
  explicit DecompressedStream(const std::string& path)
      : file_(File::open_to_read(path)), size_(file_.size()), buffer_(buffer_bytes) {
    refill();
    switch (compression_of(in_)) {
      case Compression::gzip: decoder_ = std::make_unique<GzipDecoder>(); break;
      case Compression::zstd: decoder_ = std::make_unique<ZstdDecoder>(); break;
      case Compression::none: throw refuse_compressed(path, "it is not compressed by gzip or zstd");
    }
  }

  /// Fills `out` as far as the file has data; returns how many bytes.
  std::size_t read(std::vector<char>& out) {
    std::string_view left(out.data(), out.size());
    while (!left.empty()) {
      if (in_.empty() && at_ < size_) refill();
      if (in_.empty() && decoder_->complete()) break;
      const std::size_t before = in_.size(), free = left.size();
      const std::string wrong = decoder_->decode(in_, left, out.data() + (out.size() - left.size()));
      if (!wrong.empty()) throw refuse_compressed(file_.path(), strfmt("before byte %zu: ", at_ - in_.size()) + wrong);
      if (in_.size() == before && left.size() == free) {  // it wants more than there is
        if (at_ < size_) continue;
        throw refuse_compressed(file_.path(), strfmt("it is truncated: it ends at byte %zu", size_));
      }
    }
    note_local_work();
    return out.size() - left.size();
  }

 private:
  void refill() {
    const std::size_t count = std::min<std::size_t>(buffer_.size(), size_ - at_);
    file_.read_at(at_, std::as_writable_bytes(std::span(buffer_).first(count)));
    in_ = {buffer_.data(), count};
    at_ += count;
  }

  File file_;
  std::size_t size_ = 0, at_ = 0;
  std::vector<char> buffer_;
  std::string_view in_;  // of the buffer
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace

Compression compression_of(std::string_view bytes) {
  if (bytes.starts_with("\x1f\x8b")) return Compression::gzip;
  const bool skippable = bytes.size() > 4 && (bytes[0] & '\xf0') == '\x50' && bytes.substr(1, 3) == "\x2a\x4d\x18";
  return bytes.starts_with("\x28\xb5\x2f\xfd") || skippable ? Compression::zstd : Compression::none;
}

std::string decompressed_head(const std::string& path, std::size_t most) {
  DecompressedStream stream(path);
  std::vector<char> bytes(most);
  return {bytes.data(), stream.read(bytes)};
}

void decompress(const std::string& path, const std::string& to, const std::function<void(std::uint64_t)>& may_write) {
  DecompressedStream stream(path);
  File out = File::create(to);
  try {
    std::vector<char> bytes(4 * buffer_bytes);
    std::uint64_t done = 0;
    while (const std::size_t count = stream.read(bytes)) {
      may_write(count);
      out.write_at(done, std::as_bytes(std::span(bytes).first(count)));
      done += count;
    }
    out.sync();
    out.close();
  } catch (...) {
    remove_quietly(to);
    throw;
  }
}

}  // namespace tessera::io
