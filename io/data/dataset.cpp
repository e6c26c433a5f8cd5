// SPDX-License-Identifier: Apache-2.0
// Opens data sets: one stream from files of one kind.

#include "io/data/dataset.hpp"

#include <algorithm>
#include <array>

#include "io/data/data_kind.hpp"
#include "io/data/loss_file.hpp"
#include "io/data/rows.hpp"
#include "io/data/token_file.hpp"
#include "io/file/file.hpp"
#include "io/tokenizer/utf8.hpp"

namespace tessera::io {

namespace {

/// Where source k of a joined stream starts; the last entry is the end. Sources are separated by newlines.
class Starts {
 public:
  explicit Starts(std::int64_t joint) : joint_(joint) {}
  void add(std::int64_t length) {
    if (!ends_.empty()) begin_ = ends_.back() + joint_;
    begins_.push_back(begin_);
    ends_.push_back(begin_ + length);
  }
  [[nodiscard]] std::int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  /// The source that holds `at`, or the one before the newline there.
  [[nodiscard]] std::size_t part(std::int64_t at) const {
    return static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), at) - begins_.begin()) - 1;
  }
  [[nodiscard]] std::int64_t begin(std::size_t part) const { return begins_[part]; }
  [[nodiscard]] std::int64_t end(std::size_t part) const { return ends_[part]; }

 private:
  std::int64_t joint_, begin_ = 0;
  std::vector<std::int64_t> begins_, ends_;
};

void check_range(const TokenStream& stream, std::int64_t first, std::int64_t count) {
  TESSERA_ASSERT(first >= 0 && count >= 0 && first <= stream.size() && count <= stream.size() - first,
                 "tokens [%ld, +%ld) of %ld", first, count, stream.size());
}

void check_largest(std::int32_t largest, std::int64_t vocab, const std::string& path) {
  if (largest < vocab) return;
  throw Error(ExitCode::data,
              strfmt("the text has byte %d, but the last id of the model's vocabulary is %ld", largest, vocab - 1),
              path, "Use a model with a larger vocab_size, or a tokenizer");
}

/// The largest byte of a text; throws at a zero byte.
std::int32_t check_text(std::string_view bytes, const std::string& path) {
  unsigned char largest = 0;
  constexpr std::size_t block = 1u << 16;
  for (std::size_t at = 0; at < bytes.size(); at += block) {
    unsigned char smallest = 255;
    for (const char c : bytes.substr(at, block)) {
      const auto byte = static_cast<unsigned char>(c);
      largest = std::max(largest, byte);
      smallest = std::min(smallest, byte);
    }
    if (smallest == 0) throw zero_byte_error(path, bytes.find('\0', at));
  }
  return largest;
}

/// Counts what is not UTF-8 in a file of rows; throws if it may not be there, or is too much.
std::int64_t check_encoding(std::string_view bytes, const std::string& path, bool strict) {
  const utf8::Census read = utf8::census(bytes);
  if (strict && read.invalid > 0) throw not_utf8_error(line_name(path, bytes, utf8::valid_prefix(bytes)));
  reject_other_encoding(path, read.characters, read.invalid);
  return read.invalid;
}

/// What decode_rows adds to.
struct DecodedRows {
  std::int32_t& largest;            // byte
  std::vector<std::int64_t>& ends;  // of each document but the last, including the newline
  SkippedRows* skipped;             // null: a row that cannot be used is an error
  Repairs& repairs;
};

/// Decodes all documents of a file of rows into one text with a newline between them.
std::string decode_rows(std::string_view file, const RowFormat& format, const std::string& path, DecodedRows made) {
  std::string text, first_why;
  bool first = true;
  const std::size_t begin = rows_begin(file, format);
  for_each_row(file.substr(begin), format, [&](const Row& row) {
    const auto where = [&] { return line_name(path, file, begin + row.offset); };
    std::string document;
    try {
      std::int64_t repaired = 0;
      const nlohmann::ordered_json parsed = read_row(row.text, format, repaired);
      made.repairs.replaced += replaced_places(row.text, repaired, /*strict=*/made.skipped == nullptr);
      document = text_of_row(parsed);
      const std::vector<std::string> unread = keys_with_values(parsed, {"text"});
      if (made.skipped == nullptr && !unread.empty()) throw unread_error(unread);
      for (const std::string& key : unread) made.skipped->unread.add(key);
    } catch (const RowError& error) {
      if (made.skipped == nullptr) throw strict_error(error, where());
      if (first_why.empty()) first_why = where() + ": " + error.why;
      return made.skipped->add(where, error);
    }
    if (!first) {
      text += '\n';
      made.ends.push_back(static_cast<std::int64_t>(text.size()));
    }
    first = false;
    text += document;
  });
  if (first) throw no_row_error(path, first_why);
  text.shrink_to_fit();
  for (const char c : text) made.largest = std::max<std::int32_t>(made.largest, static_cast<unsigned char>(c));
  return text;
}

/// The bytes of files or of decoded documents, with a newline between them.
class ByteStream final : public TokenStream {
 public:
  explicit ByteStream(std::int64_t vocab) : vocab_(vocab) {}
  /// Appends a file of text or rows, and counts its tokens in `entry`.
  void open(MappedFile file, DatasetFile& entry, SkippedRows* skipped) {
    std::int32_t largest = parts_.empty() ? 0 : '\n';
    if (!parts_.empty()) document_ends.push_back(starts_.size() + 1);
    const ColumnNames text_alone{
        .usable = [](const auto& names) { return std::find(names.begin(), names.end(), "text") != names.end(); },
        .is_json = [](const std::string&) { return false; }};
    const RowFormat format = row_format(entry.path, file.bytes(), text_alone);
    entry.kind = name_of(format.layout);
    if (format.layout != RowLayout::none) {
      repairs.invalid += check_encoding(file.bytes(), entry.path, /*strict=*/skipped == nullptr);
      std::vector<std::int64_t> ends;
      texts_.push_back(std::make_unique<std::string>(
          decode_rows(file.bytes(), format, entry.path, {largest, ends, skipped, repairs})));
      add(*texts_.back());
      for (const std::int64_t end : ends) document_ends.push_back(starts_.begin(parts_.size() - 1) + end);
    } else {
      largest = std::max(largest, check_text(file.bytes(), entry.path));
      maps_.push_back(std::move(file));
      add(maps_.back().bytes().substr(rows_begin(maps_.back().bytes(), format)));
    }
    entry.tokens = static_cast<std::int64_t>(parts_.back().size());
    check_largest(largest, vocab_, entry.path);
  }
  [[nodiscard]] std::int64_t size() const override { return starts_.size(); }
  std::vector<std::int64_t> document_ends;  // without the last one's
  Repairs repairs;                          // in rows
  void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override {
    check_range(*this, first, count);
    while (count > 0) {
      const std::size_t k = starts_.part(first);
      const std::int64_t n = std::min(count, starts_.end(k) - first);
      const char* from = parts_[k].data() + (first - starts_.begin(k));
      for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<unsigned char>(from[i]);
      if (n <= 0) *out = '\n';
      const std::int64_t step = std::max<std::int64_t>(n, 1);
      first += step;
      out += step;
      count -= step;
    }
  }

 private:
  void add(std::string_view part) {
    parts_.push_back(part);
    starts_.add(static_cast<std::int64_t>(part.size()));
  }

  std::int64_t vocab_;
  std::vector<MappedFile> maps_;
  std::vector<std::unique_ptr<std::string>> texts_;  // by pointer: views into them stay valid as the vector grows
  std::vector<std::string_view> parts_;
  Starts starts_{1};
};

/// Token files, one after another. The first ids of each are checked when it is opened, all when they are read.
class IdStream final : public TokenStream {
 public:
  explicit IdStream(TokenRule rule) : rule_(std::move(rule)) {}
  /// Appends a .bin file, and counts its tokens in `entry`.
  void open(MappedFile file, DatasetFile& entry) {
    const TokenFileLayout layout = open_token_file(file.bytes(), entry.path);
    if (!parts_.empty() && width_of(parts_.front().type) != width_of(layout.type))
      throw Error(ExitCode::data, entry.path + " has ids of another width than the files before it", {},
                  "Give files of one tokenizer");
    // The first ids tell data of another tokenizer at start.
    constexpr std::int64_t most_checked = 4096;
    std::array<std::int32_t, most_checked> ids{};
    copy_tokens(layout, entry.path, rule_, 0, std::min(layout.count, most_checked), ids.data());
    LossFile loss;
    if (const std::string loss_path = loss_file_name(entry.path); exists(loss_path)) {
      maps_.emplace_back(loss_path);
      loss = check_loss_file(maps_.back().bytes(), layout.count, loss_path);
      masked_ = true;
      weighted_ =
          weighted_ || std::any_of(loss.weights.begin() + 2, loss.weights.end(), [](float w) { return w != 0; });
    }
    loss_.push_back(loss);
    if (const std::string path = row_report_name(entry.path); exists(path))
      rows.add(parse_row_report(MappedFile(path).bytes(), layout.count, path));
    else rows.skipped.count += loss.skipped;  // a file of an older program
    repairs.invalid += layout.repairs.invalid;
    repairs.replaced += layout.repairs.replaced;
    entry.tokens = layout.count;
    maps_.push_back(std::move(file));
    paths_.push_back(entry.path);
    parts_.push_back(layout);
    starts_.add(layout.count);
  }
  [[nodiscard]] std::int64_t size() const override { return starts_.size(); }
  [[nodiscard]] bool masked() const override { return masked_; }
  void read_loss(std::int64_t first, std::int64_t count, std::uint8_t* out) const override {
    check_range(*this, first, count);
    while (count > 0) {
      const std::size_t k = starts_.part(first);
      const std::int64_t n = std::min(count, starts_.end(k) - first);
      if (loss_[k].bytes == nullptr) std::fill_n(out, n, std::uint8_t{1});
      else std::copy_n(loss_[k].bytes + (first - starts_.begin(k)), n, out);
      first += n;
      out += n;
      count -= n;
    }
  }
  [[nodiscard]] bool weighted() const override { return weighted_; }
  void read_weights(std::int64_t first, std::int64_t count, float* out) const override {
    check_range(*this, first, count);
    for (; count > 0; ++first, --count) {
      const std::size_t k = starts_.part(first);
      const LossFile& loss = loss_[k];
      *out++ = loss.bytes == nullptr ? 1.0F : loss.weights[loss.bytes[first - starts_.begin(k)]];
    }
  }
  RowReport rows;   // when the files were made
  Repairs repairs;  // in the text, when the files were made
  void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override {
    check_range(*this, first, count);
    while (count > 0) {
      const std::size_t k = starts_.part(first);
      const std::int64_t n = std::min(count, starts_.end(k) - first);
      copy_tokens(parts_[k], paths_[k], rule_, first - starts_.begin(k), n, out);
      first += n;
      out += n;
      count -= n;
    }
  }

 private:
  TokenRule rule_;
  std::vector<MappedFile> maps_;
  std::vector<std::string> paths_;
  std::vector<TokenFileLayout> parts_;
  std::vector<LossFile> loss_;  // of each file; no bytes: every token has loss
  bool masked_ = false, weighted_ = false;
  Starts starts_{0};
};

class Slice final : public TokenStream {
 public:
  Slice(std::shared_ptr<const TokenStream> source, std::int64_t first, std::int64_t count)
      : source_(std::move(source)), first_(first), count_(count) {
    check_range(*source_, first, count);
  }
  [[nodiscard]] std::int64_t size() const override { return count_; }
  void read(std::int64_t first, std::int64_t count, std::int32_t* out) const override {
    check_range(*this, first, count);
    source_->read(first_ + first, count, out);
  }
  [[nodiscard]] bool weighted() const override { return source_->weighted(); }
  void read_weights(std::int64_t first, std::int64_t count, float* out) const override {
    check_range(*this, first, count);
    source_->read_weights(first_ + first, count, out);
  }
  [[nodiscard]] bool masked() const override { return source_->masked(); }
  void read_loss(std::int64_t first, std::int64_t count, std::uint8_t* out) const override {
    source_->read_loss(first_ + first, count, out);
  }

 private:
  std::shared_ptr<const TokenStream> source_;
  std::int64_t first_, count_;
};

}  // namespace

void TokenStream::read_weights(std::int64_t, std::int64_t count, float* out) const { std::fill_n(out, count, 1.0F); }

void TokenStream::read_loss(std::int64_t, std::int64_t count, std::uint8_t* out) const {
  std::fill_n(out, count, std::uint8_t{1});
}

Dataset open_dataset(const std::vector<std::string>& paths, SkippedRows* skipped, const TokenRule& rule) {
  std::vector<DataFile> files;
  for (const std::string& path : paths) files.push_back({.path = path, .rows = {}, .share = {}});
  return open_dataset(files, skipped, rule);
}

Dataset open_dataset(const std::vector<DataFile>& files, SkippedRows* skipped, const TokenRule& rule) {
  if (files.empty()) throw Error(ExitCode::data, "the data set names no file", {}, "Give --dataset FILE");
  auto bytes_of = std::make_unique<ByteStream>(rule.vocab);
  auto ids_of = std::make_unique<IdStream>(rule);
  const bool is_bin = data_kind(files.front().path) == "bin";
  Dataset dataset;
  for (const DataFile& named : files) {
    const std::string& path = named.path;
    MappedFile file(named.content());
    DatasetFile entry{.path = path, .bytes = file.bytes().size(), .kind = data_kind(path)};
    if ((entry.kind == "bin") != is_bin)
      throw Error(ExitCode::data, "text and .bin tokens do not mix: " + files.front().path + " and " + path, {},
                  "Give one kind of files");
    if (!is_bin) reject_unsupported(path, file.bytes());
    if (entry.bytes == 0) throw Error(ExitCode::data, path + " is empty", {}, "Give a file with data");
    if (is_bin) ids_of->open(std::move(file), entry);
    else bytes_of->open(std::move(file), entry, skipped);
    dataset.files.push_back(std::move(entry));
  }
  if (!is_bin) {
    bytes_of->document_ends.push_back(bytes_of->size());
    dataset.document_ends = std::move(bytes_of->document_ends);
  }
  dataset.rows = std::move(ids_of->rows);
  dataset.repairs = is_bin ? ids_of->repairs : bytes_of->repairs;
  if (is_bin) dataset.tokens = std::move(ids_of);
  else dataset.tokens = std::move(bytes_of);
  if (dataset.tokens->size() == 0) throw Error(ExitCode::data, "the data set has no token: its documents are empty");
  return dataset;
}

std::unique_ptr<TokenStream> slice(std::shared_ptr<const TokenStream> source, std::int64_t first, std::int64_t count) {
  return std::make_unique<Slice>(std::move(source), first, count);
}

}  // namespace tessera::io
