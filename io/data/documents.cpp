// SPDX-License-Identifier: Apache-2.0
// Ends of documents: from a .documents file, or by searching for the token that ends them.
#include "io/data/documents.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "io/file/file.hpp"

namespace tessera::io {

namespace {

constexpr std::string_view ends_magic = "TSRDOCS1";
constexpr std::size_t ends_header_bytes = 24;

Error refuse_ends(const std::string& path, const std::string& rule) {
  return Error(ExitCode::data, path + " does not say where the documents of its token file end: " + rule, {},
               "Make it again with its token file: tessera tokenize writes .documents, preprocess_data.py writes .idx");
}

/// Ends behind every `separator` of tokens [first, first + count), counted from `first`.
void find_ends(const TokenStream& tokens, std::int64_t first, std::int64_t count, std::int32_t separator,
               std::vector<std::int64_t>& ends) {
  constexpr std::int64_t block = 1 << 16;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(block, count)));
  for (std::int64_t at = first; at < first + count; at += block) {
    const std::int64_t n = std::min(block, first + count - at);
    tokens.read(at, n, ids.data());
    for (std::int64_t i = 0; i < n; ++i)
      if (ids[static_cast<std::size_t>(i)] == separator) ends.push_back(at - first + i + 1);
  }
}

}  // namespace

std::string document_file_name(const std::string& token_file) { return token_file + ".documents"; }

std::string document_file_header(std::int64_t tokens, std::int64_t documents) {
  std::string header(ends_magic);
  for (const std::int64_t number : {tokens, documents})
    header.append(reinterpret_cast<const char*>(&number), sizeof number);
  return header;
}

std::span<const std::int64_t> check_document_file(std::string_view bytes, std::int64_t tokens,
                                                  const std::string& path) {
  if (bytes.size() < ends_header_bytes || !bytes.starts_with(ends_magic)) throw refuse_ends(path, "wrong magic number");
  std::int64_t numbers[2] = {};
  std::memcpy(numbers, bytes.data() + ends_magic.size(), sizeof numbers);
  const std::size_t capacity = (bytes.size() - ends_header_bytes) / sizeof(std::int64_t);
  if ((bytes.size() - ends_header_bytes) % sizeof(std::int64_t) != 0 || numbers[1] < 1 ||
      static_cast<std::uint64_t>(numbers[1]) != capacity)
    throw refuse_ends(path, strfmt("it has %zu bytes, which is not what its count says", bytes.size()));
  // A mapping begins on a page, and the header has three times eight bytes.
  const std::span<const std::int64_t> ends(reinterpret_cast<const std::int64_t*>(bytes.data() + ends_header_bytes),
                                           capacity);
  if (numbers[0] != tokens || ends.back() != tokens)
    throw refuse_ends(path, strfmt("it is of a file of %ld tokens, not of %ld", numbers[0], tokens));
  return ends;
}

bool needs_separator(const Dataset& data) {
  if (!data.document_ends.empty()) return false;
  return std::any_of(data.files.begin(), data.files.end(), [](const DatasetFile& file) {
    return !exists(document_file_name(file.path)) && !is_megatron(file.path);
  });
}

DocumentEnds::DocumentEnds(const Dataset& data, const std::function<std::int32_t()>& separator) {
  if (!data.document_ends.empty()) {
    const std::vector<std::int64_t>& ends = found_.emplace_back(data.document_ends);
    add({.tokens = data.tokens->size(), .documents = static_cast<std::int64_t>(ends.size()), .ends = ends});
    return;
  }
  std::optional<std::int32_t> asked;
  std::int64_t first = 0;
  for (const DatasetFile& file : data.files) {
    const std::string document_path = document_file_name(file.path);
    File found{.path = file.path, .first = first, .tokens = file.tokens};
    if (exists(document_path)) {
      found.path = document_path;
      found.ends = check_document_file(maps_.emplace_back(document_path).bytes(), file.tokens, document_path);
    } else if (is_megatron(file.path)) {
      found.path = megatron_index_name(file.path);
      found.index.emplace(maps_.emplace_back(found.path).bytes(), file.bytes, found.path);
      found.documents = found.index->documents();
    } else {
      if (!asked) asked = separator();
      std::vector<std::int64_t>& ends = found_.emplace_back();
      find_ends(*data.tokens, first, file.tokens, *asked, ends);
      if (ends.empty())
        throw Error(ExitCode::data,
                    strfmt("%s holds no token %d, which ends documents, and there is no ", file.path.c_str(), *asked) +
                        document_path,
                    {}, "Give --eos_token as its tokenizer has it, or run tessera tokenize again");
      if (ends.back() != file.tokens) ends.push_back(file.tokens);  // no separator after the last document
      found.ends = ends;
    }
    if (!found.index) found.documents = static_cast<std::int64_t>(found.ends.size());
    add(std::move(found));
    first += file.tokens;
  }
}

void DocumentEnds::add(File file) {
  file.first_document = size_;
  size_ += file.documents;
  files_.push_back(std::move(file));
}

const DocumentEnds::File& DocumentEnds::file_of(std::int64_t document) const {
  TESSERA_ASSERT(document >= 0 && document < size_, "document %ld of %ld", document, size_);
  const auto behind = std::upper_bound(files_.begin(), files_.end(), document,
                                       [](std::int64_t d, const File& file) { return d < file.first_document; });
  return *std::prev(behind);
}

std::int64_t DocumentEnds::operator[](std::int64_t i) const {
  const File& file = file_of(i);
  return file.first + file.end(i - file.first_document);
}

std::int64_t DocumentEnds::find(std::int64_t position) const {
  std::int64_t low = 0, high = size_;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if ((*this)[middle] < position) low = middle + 1;
    else high = middle;
  }
  return low;
}

void DocumentEnds::for_each(std::int64_t first, std::int64_t last, const TakeDocument& take) const {
  std::int64_t begin = first > 0 ? (*this)[first - 1] : 0;
  for (std::int64_t at = first; at < last;) {
    const File& file = file_of(at);
    for (std::int64_t i = at - file.first_document; i < file.documents && at < last; ++i, ++at) {
      const std::int64_t end = file.first + file.end(i);
      if (end < begin || end > file.first + file.tokens)
        throw refuse_ends(file.path, strfmt("document %ld ends at token %ld, before the previous document's end or "
                                            "after the file's %ld tokens",
                                            i, end - file.first, file.tokens));
      take(std::exchange(begin, end), end);
    }
  }
}

std::vector<std::int64_t> DocumentEnds::all() const {
  std::vector<std::int64_t> ends;
  for_each(0, size_, [&](std::int64_t, std::int64_t end) { ends.push_back(end); });
  return ends;
}

}  // namespace tessera::io
