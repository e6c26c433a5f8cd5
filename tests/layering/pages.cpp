// SPDX-License-Identifier: Apache-2.0
// Rules of the pages (Markdown): line lengths, and whether what they name exists.
#include <algorithm>
#include <functional>

#include "tests/layering/layering.hpp"
#include "tests/layering/lines.hpp"

namespace tessera::layering {
namespace fs = std::filesystem;
namespace {

/// Calls `visit` with each `code` of a line of Markdown.
void for_each_code(const std::string& line, const std::function<void(const std::string&)>& visit) {
  for (std::size_t open = line.find('`'); open != std::string::npos;) {
    const std::size_t close = line.find('`', open + 1);
    if (close == std::string::npos) return;
    visit(line.substr(open + 1, close - open - 1));
    open = line.find('`', close + 1);
  }
}

/// "a.{hpp,cpp}": a.hpp and a.cpp.
std::vector<std::string> without_braces(const std::string& path) {
  const std::size_t open = path.find('{'), close = path.find('}', std::min(open, path.size()));
  if (close == std::string::npos) return {path};
  std::vector<std::string> paths;
  for (std::size_t from = open + 1; from <= close;) {
    const std::size_t end = std::min(path.find(',', from), close);
    paths.push_back(path.substr(0, open) + path.substr(from, end - from) + path.substr(close + 1));
    from = end + 1;
  }
  return paths;
}

/// The text of a source in which a string literal that goes on in the next line is one.
std::string joined_literals(const fs::path& file) {
  std::string text;
  for_each_line(file, [&](int, const std::string& line) {
    const std::size_t first = line.find_first_not_of(' ');
    if (text.ends_with('"') && first != std::string::npos && line[first] == '"')
      text.pop_back(), text += line.substr(first + 1);
    else text += "\n" + line;
  });
  return text;
}

}  // namespace

Violations long_markdown_lines(const fs::path& root) {
  Violations violations;
  for (const auto& file : files(root)) {
    if (!file.ends_with(".md")) continue;
    bool fenced = false, indented = false, blank = true;
    for_each_line(root / file, [&](int number, const std::string& line) {
      const std::size_t first = line.find_first_not_of(' ');
      if (first != std::string::npos && line.compare(first, 3, "```") == 0) fenced = !fenced;
      indented = first != std::string::npos && first >= 4 && (blank || indented);  // a code block
      blank = first == std::string::npos;
      if (fenced || indented || blank || line[first] == '|' || columns(line) <= most_columns) return;
      // Where could it be broken? Not within the marker of a list.
      const std::size_t text = std::min(line.find_first_not_of(" -*>0123456789.#"), line.size());
      const std::size_t space = line.find(' ', text);
      if (space != std::string::npos && columns(line.substr(0, space)) <= most_columns)
        violations.push_back(at(file, number, "a line of " + std::to_string(columns(line)) + " columns"));
    });
  }
  return violations;
}

Violations broken_links(const fs::path& root) {
  Violations violations;
  for (const auto& file : files(root)) {
    if (!file.ends_with(".md")) continue;
    for_each_line(root / file, [&](int number, const std::string& line) {
      for (std::size_t open = line.find("]("); open != std::string::npos; open = line.find("](", open + 2)) {
        const std::size_t close = line.find(')', open);
        if (close == std::string::npos) return;
        std::string target = line.substr(open + 2, close - open - 2);
        target = target.substr(0, target.find('#'));
        if (target.empty() || target.find("://") != std::string::npos || target.starts_with("mailto:")) continue;
        if (target.find(' ') != std::string::npos) continue;  // code, not a link
        if (!fs::exists((root / file).parent_path() / target))
          violations.push_back(at(file, number, "no such file: " + target));
      }
    });
  }
  return violations;
}

Violations missing_paths(const fs::path& root) {
  Violations violations;
  for (const char* page : {"docs/architecture.md", "docs/contributing.md", "docs/adding-a-model.md"})
    for_each_line(root / page, [&](int number, const std::string& line) {
      for_each_code(line, [&](const std::string& code) {
        const std::size_t slash = code.find('/');
        if (slash == std::string::npos || code.find_first_of("*< ") != std::string::npos) return;
        if (code.find("…") != std::string::npos || !fs::is_directory(root / code.substr(0, slash))) return;
        for (const std::string& path : without_braces(code))
          if (!fs::exists(root / path)) violations.push_back(at(page, number, "no such file: " + path));
      });
    });
  return violations;
}

Violations unknown_errors(const fs::path& root) {
  const std::string page = "docs/troubleshooting.md";
  std::string sources;
  for (const auto& file : files(root))
    if (is_source(file) && !file.starts_with("tests/")) sources += joined_literals(root / file);
  Violations violations;
  for_each_line(root / page, [&](int number, const std::string& line) {
    if (!line.starts_with("| `")) return;
    for_each_code(line.substr(0, line.find(" | ")), [&](const std::string& code) {
      if (sources.find(code) == std::string::npos)
        violations.push_back(at(page, number, "no source has the error \"" + code + "\""));
    });
  });
  return violations;
}

}  // namespace tessera::layering
