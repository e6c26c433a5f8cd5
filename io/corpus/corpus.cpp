// SPDX-License-Identifier: Apache-2.0
// Opening, division and hashing of a corpus.

#include "io/corpus/corpus.hpp"

#include <algorithm>

#include "io/data/data_kind.hpp"
#include "io/tokenizer/byte_hash.hpp"
#include "io/tokenizer/split_point.hpp"
#include "runtime/base/hash.hpp"

namespace tessera::io {

namespace {

std::vector<DataFile> whole_files(const std::vector<std::string>& paths) {
  std::vector<DataFile> files;
  for (const std::string& path : paths) files.push_back({path, {}, {}});
  return files;
}

}  // namespace

ColumnNames column_names(const Columns& columns) {
  const auto renamed = [columns](const std::vector<std::string>& names) { return named_by(names, columns); };
  return {.usable = [renamed](const std::vector<std::string>& names) { return form_of(renamed(names)).has_value(); },
          .is_json =
              [renamed](const std::string& name) {
                const nlohmann::ordered_json row = renamed({name});
                return form_of(row) == RowForm::messages || row.contains("history") || row.contains("tools");
              }};
}

FileForm file_form(const std::string& path, std::string_view bytes, const RowFormat& format, const Columns& columns) {
  if (format.layout == RowLayout::none) return {};
  constexpr int most_rows = 100;
  std::string why;
  std::int64_t repaired = 0;
  std::size_t at = rows_begin(bytes, format);
  for (int rows = 0; rows < most_rows && at < bytes.size(); ++rows) {
    const std::size_t end = at + rows_end(bytes.substr(at), format, 1);
    std::optional<RowForm> form;
    bool ambiguous = false;
    for_each_row(bytes.substr(at, end - at), format, [&](const Row& text) {
      try {
        nlohmann::ordered_json row = read_row(text.text, format, repaired);
        rename_columns(row, columns);
        form = require_form(row);
        ambiguous = is_ambiguous(row);
      } catch (const RowError& error) {
        if (why.empty()) why = line_name(path, bytes, at + text.offset) + ": " + error.why;
      }
    });
    if (form) return {*form, ambiguous};
    at = end;
  }
  throw no_row_error(path, why);
}

Corpus::Corpus(const std::vector<std::string>& paths) : Corpus(whole_files(paths)) {}

Corpus::Corpus(const std::vector<DataFile>& files, Columns columns) : columns_(std::move(columns)) {
  if (files.empty()) throw Error(ExitCode::data, "the data set names no file", {}, "Give --dataset FILE");
  for (const DataFile& named : files) {
    files_.push_back({named, MappedFile(named.content())});
    File& file = files_.back();
    const std::string_view bytes = file.map.bytes();
    if (data_kind(named.path) == "bin")
      throw Error(ExitCode::data, named.path + " holds tokens already", {}, "Give text or rows (docs/data.md)");
    reject_unsupported(named.path, bytes);
    if (bytes.empty()) throw Error(ExitCode::data, named.path + " is empty", {}, "Give a file with data");
    file.format = row_format(named.path, bytes, column_names(columns_));
    if (file.format.layout == RowLayout::none && named.selects())
      throw Error(ExitCode::data, named.path + " has no rows to select from", {},
                  "Give a number or share of rows only with files of rows (docs/data.md)");
    file.form = file_form(named.path, bytes, file.format, columns_);
  }
}

bool Corpus::has_conversation(const ByteRange& range) const {
  bool found = false;
  std::int64_t repaired = 0;
  const RowFormat& format = files_[range.file].format;
  const bool has_names = columns_.empty() && format.layout != RowLayout::table;  // those of the forms, in its text
  for_each_row(text(range), format, [&](const Row& row) {
    if (found || (has_names && !may_be_conversation(row.text))) return;
    try {
      nlohmann::ordered_json parsed = read_row(row.text, format, repaired);
      rename_columns(parsed, columns_);
      found = form_of(parsed).value_or(RowForm::text) != RowForm::text;
    } catch (const RowError&) {}  // skipped, and named, when the rows are tokenized
  });
  return found;
}

void Corpus::find_conversations(World& world, const std::function<void()>& check) {
  if (has_conversations()) return;
  constexpr std::size_t block = std::size_t{1} << 20;
  const std::vector<ByteRange> all = ranges(block, Split::never);
  bool found = false;
  world.run_and_agree([&] {
    for (auto k = static_cast<std::size_t>(world.rank()); k < all.size() && !found;
         k += static_cast<std::size_t>(world.size())) {
      if (files_[all[k].file].format.layout == RowLayout::none) continue;
      if (check) check();
      found = has_conversation(all[k]);
      release(all[k]);
    }
  });
  found_conversations_ = world.max(found ? 1 : 0) == 1;
}

bool Corpus::has_conversations() const {
  return found_conversations_ ||
         std::any_of(files_.begin(), files_.end(), [](const File& file) { return file.form.form != RowForm::text; });
}

std::string Corpus::plain_text() const {
  for (const File& file : files_)
    if (file.format.layout == RowLayout::none) return file.named.path;
  return "";
}

std::vector<std::string> Corpus::ambiguous() const {
  std::vector<std::string> paths;
  for (const File& file : files_)
    if (file.form.ambiguous) paths.push_back(file.named.path);
  return paths;
}

std::vector<Corpus::ByteRange> Corpus::ranges(std::size_t bytes, Split texts) const {
  std::vector<ByteRange> all;
  for (std::size_t k = 0; k < files_.size(); ++k) {
    const File& file = files_[k];
    const std::string_view text = file.map.bytes();
    const bool rows = file.format.layout != RowLayout::none;
    const std::size_t begin = rows_begin(text, file.format);
    for (std::size_t at = begin; at < text.size();) {
      const std::string_view rest = text.substr(at);
      std::size_t length = rest.size();
      if (rows) length = rows_end(rest, file.format, bytes);
      else if (texts == Split::at_safe_newlines) length = find_split_point(rest, bytes);
      all.push_back({k, at, length, rows || at == begin, rows || at + length == text.size(), 0});
      release(all.back());
      at += length;
    }
  }
  return all;
}

void Corpus::release(const ByteRange& range) const { files_[range.file].map.release(range.offset, range.length); }

std::string Corpus::line_name(std::size_t file, std::size_t offset) const {
  const File& of = files_[file];
  constexpr std::size_t block = std::size_t{1} << 20;
  std::int64_t line = 1;
  for (std::size_t at = 0; at < offset; at += block) {
    const std::string_view text = of.map.bytes().substr(at, std::min(block, offset - at));
    line += std::count(text.begin(), text.end(), '\n');
    of.map.release(at, text.size());
  }
  return of.named.path + ":" + std::to_string(line);
}

std::uint64_t Corpus::bytes() const {
  std::uint64_t all = 0;
  for (const File& file : files_) all += file.map.bytes().size();
  return all;
}

std::uint64_t Corpus::content_hash(World& world) const {
  constexpr std::size_t block = std::size_t{4} << 20;
  std::uint64_t mine = 0, index = 0;
  std::uint64_t shapes = files_.size();
  for (std::size_t k = 0; k < files_.size(); ++k) {
    const File& file = files_[k];
    const std::string_view text = file.map.bytes();
    const bool table = file.format.layout == RowLayout::table;
    const std::uint64_t kind = table ? static_cast<std::uint64_t>(file.format.table->separator)
                               : file.format.layout == RowLayout::none ? 0
                                                                       : 1;
    shapes = mix(shapes, mix(text.size(), kind));
    if (file.named.selects()) {
      const std::string wanted =
          file.named.rows ? "#" + std::to_string(*file.named.rows) : strfmt(":%.17g", file.named.share.value_or(1));
      shapes = mix(shapes, hash64(wanted));
    }
    for (std::size_t at = 0; at < text.size(); at += block, ++index) {
      if (index % static_cast<std::uint64_t>(world.size()) != static_cast<std::uint64_t>(world.rank())) continue;
      mine += hash_bytes(text.substr(at, block), index);  // a sum over blocks, in any order and on any rank
      file.map.release(at, block);
    }
  }
  const auto low = static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(mine & 0xFFFFFFFFu)));
  const auto high = static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(mine >> 32)));
  return mix(shapes, (high << 32) + low);
}

}  // namespace tessera::io
