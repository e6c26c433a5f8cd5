// Ends of documents: from a .documents file, or by searching for the token that ends them.
#include "io/data/documents.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "io/file/file.hpp"

namespace tessera::io {

namespace {

constexpr std::string_view ends_magic = "TSRDOCS1";
constexpr std::size_t ends_header_bytes = 24;

Error refuse_ends(const std::string& path, const std::string& rule) {
  return Error(ExitCode::data, path + " does not say where the documents of its token file end: " + rule, {},
               "Remove it, or run tessera tokenize again");
}

/// Ends at every `separator` of tokens [first, first + count), and at the last one.
void find_ends(const TokenStream& tokens, std::int64_t first, std::int64_t count, std::int32_t separator,
               std::vector<std::int64_t>& ends) {
  constexpr std::int64_t block = 1 << 16;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(block, count)));
  for (std::int64_t at = first; at < first + count; at += block) {
    const std::int64_t n = std::min(block, first + count - at);
    tokens.read(at, n, ids.data());
    for (std::int64_t i = 0; i < n; ++i)
      if (ids[static_cast<std::size_t>(i)] == separator) ends.push_back(at + i + 1);
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

std::vector<std::int64_t> parse_document_file(std::string_view bytes, std::int64_t tokens, const std::string& path) {
  if (bytes.size() < ends_header_bytes || !bytes.starts_with(ends_magic))
    throw refuse_ends(path, "it does not begin as one does");
  std::int64_t numbers[2] = {};
  std::memcpy(numbers, bytes.data() + ends_magic.size(), sizeof numbers);
  const std::size_t capacity = (bytes.size() - ends_header_bytes) / sizeof(std::int64_t);
  if ((bytes.size() - ends_header_bytes) % sizeof(std::int64_t) != 0 || numbers[1] < 1 ||
      static_cast<std::uint64_t>(numbers[1]) != capacity)
    throw refuse_ends(path, strfmt("it has %zu bytes, which is not what its count says", bytes.size()));
  std::vector<std::int64_t> ends(capacity);
  std::memcpy(ends.data(), bytes.data() + ends_header_bytes, capacity * sizeof(std::int64_t));
  if (numbers[0] != tokens || ends.back() != tokens)
    throw refuse_ends(path, strfmt("it is of a file of %ld tokens, not of %ld", numbers[0], tokens));
  if (ends.front() < 0 || !std::is_sorted(ends.begin(), ends.end()))
    throw refuse_ends(path, "an end stands before the one before it");
  return ends;
}

std::vector<std::int64_t> document_ends(const Dataset& data, const std::function<std::int32_t()>& separator) {
  if (!data.document_ends.empty()) return data.document_ends;
  std::vector<std::int64_t> ends;
  std::optional<std::int32_t> asked;
  std::int64_t first = 0;
  for (const DatasetFile& file : data.files) {
    const std::string document_path = document_file_name(file.path);
    if (exists(document_path)) {
      const MappedFile map(document_path);
      for (const std::int64_t end : parse_document_file(map.bytes(), file.tokens, document_path))
        ends.push_back(first + end);
    } else {
      if (!asked) asked = separator();
      const std::size_t before = ends.size();
      find_ends(*data.tokens, first, file.tokens, *asked, ends);
      if (ends.size() == before)
        throw Error(ExitCode::data,
                    strfmt("%s holds no token %d, which ends documents, and there is no ", file.path.c_str(), *asked) +
                        document_path,
                    {}, "Give --eos_token as its tokenizer has it, or run tessera tokenize again");
      if (ends.back() != first + file.tokens)
        ends.push_back(first + file.tokens);  // no separator after the last document
    }
    first += file.tokens;
  }
  return ends;
}

}  // namespace tessera::io
