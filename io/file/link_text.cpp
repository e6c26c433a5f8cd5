// SPDX-License-Identifier: Apache-2.0
// A path alone: no blanks, no line breaks but one at the end.
#include "io/file/link_text.hpp"

#include <algorithm>
#include <filesystem>

#include "runtime/base/error.hpp"

namespace tessera::io {

namespace fs = std::filesystem;

namespace {

std::string_view target_in(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

}  // namespace

bool is_link_text(const std::string& path, std::string_view text) {
  if (text.size() > longest_link_text) return false;
  text = target_in(text);
  const auto is_no_path = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '{'; };
  if (text.empty() || std::ranges::any_of(text, is_no_path)) return false;
  if (text.starts_with("../") && text.size() > std::string_view("../").size()) return true;
  std::error_code failed;
  const fs::path target = fs::path(path).parent_path() / text;
  if (text.find('/') == text.npos && target.extension() != fs::path(path).extension()) return false;
  return fs::is_regular_file(target, failed) && !fs::equivalent(target, path, failed);
}

void refuse_link_text(const std::string& path, std::string_view text) {
  if (!is_link_text(path, text)) return;
  throw Error(ExitCode::data,
              path + " has nothing in it but the path " + std::string(target_in(text)) +
                  ": it was a symbolic link, and was copied or checked out as a text",
              {}, "Put the file itself there: copy with cp -L, or check out again with git config core.symlinks true");
}

}  // namespace tessera::io
