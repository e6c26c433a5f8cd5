// SPDX-License-Identifier: Apache-2.0
// Each rule is a pass over the lines of the tree.
#include "tests/layering/layering.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <queue>
#include <set>

namespace tessera::layering {
namespace fs = std::filesystem;
namespace {

const std::set<std::string> ignored_folders = {
    ".git", "build", "out", ".cache", ".vscode", ".idea", "compile_commands.json"};

bool ends_with_any(const std::string& path, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const char* e) { return path.ends_with(e); });
}
bool is_header(const std::string& path) { return ends_with_any(path, {".hpp", ".h", ".cuh"}); }
bool is_source(const std::string& path) { return is_header(path) || ends_with_any(path, {".cpp", ".cu"}); }

void for_each_line(const fs::path& file, const std::function<void(int, const std::string&)>& visit) {
  std::ifstream in(file);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) visit(number, line);
}

std::string at(const std::string& file, int line, const std::string& what) {
  return file + ":" + std::to_string(line) + ": " + what;
}

/// Calls `visit` with the line number and the path of each #include of "path" and, if `system`, of <path>.
void for_each_include(const fs::path& file, bool system, const std::function<void(int, const std::string&)>& visit) {
  for_each_line(file, [&](int number, const std::string& line) {
    const auto skip = [&](std::size_t from) { return std::min(line.find_first_not_of(" \t", from), line.size()); };
    std::size_t i = skip(0);
    if (i >= line.size() || line[i] != '#') return;
    i = skip(i + 1);
    if (line.compare(i, 7, "include") != 0) return;
    i = skip(i + 7);
    if (i >= line.size() || (line[i] != '"' && !(system && line[i] == '<'))) return;
    const std::size_t end = line.find(line[i] == '"' ? '"' : '>', i + 1);
    if (end != std::string::npos) visit(number, line.substr(i + 1, end - i - 1));
  });
}

/// A layer, its folder, and what it may include: other layers, or single headers of layers it does not otherwise use.
struct Layer {
  std::string name, folder;
  std::set<std::string> may_include;
};
const std::vector<Layer>& layers() {
  static const std::vector<Layer> all = {
      {"base", "runtime/base/", {}},
      {"kernels", "kernels/", {"base"}},
      {"comm", "runtime/comm/", {"base", "kernels"}},
      {"shard", "runtime/shard/", {"base", "kernels", "comm"}},
      {"models", "models/", {"base", "kernels"}},
      {"io", "io/", {"base", "comm", "shard", "kernels/convert.hpp", "kernels/dequantize.hpp", "kernels/quantize.hpp"}},
      // The parts of comm that move nothing: the mesh, and what a transport costs.
      {"plan", "runtime/plan/", {"base", "models", "shard", "runtime/comm/mesh.hpp", "runtime/comm/topology.hpp"}},
      {"exec", "runtime/exec/", {"base", "kernels", "comm", "shard", "models", "io", "plan"}},
      {"infer", "runtime/infer/", {"base", "kernels", "comm", "shard", "models", "io", "plan", "exec"}},
      {"train", "runtime/train/", {"base", "kernels", "comm", "shard", "models", "io", "plan", "exec", "infer"}},
      {"jobs", "jobs/", {"base", "kernels", "comm", "shard", "models", "io", "plan", "exec", "infer", "train"}},
  };
  return all;
}
const Layer* layer_of(const std::string& path) {
  for (const Layer& layer : layers())
    if (path.starts_with(layer.folder)) return &layer;
  return nullptr;
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

/// Vendor headers and the folders whose source files wrap them.
const std::map<std::string, std::vector<std::string>>& wrappers() {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"mpi.h", {"runtime/comm/", "jobs/bench/collective_bench.cpp", "jobs/cli/session/versions.cpp", "tests/"}},
      {"cblas.h", {"kernels/", "tests/"}},
      {"dnnl.hpp", {"kernels/"}},
      {"hwloc.h", {"jobs/cli/session/host_topology.cpp"}},
      {"yaml.h", {"io/config/", "tests/"}},
      {"hdf5.h", {"io/hdf5/", "tests/"}},
      {"zlib.h", {"io/file/", "tests/"}},
      {"zstd.h", {"io/file/", "tests/"}},
      {"unicode/uchar.h", {"io/tokenizer/", "io/jinja/", "tests/"}},
      {"unicode/casemap.h", {"io/jinja/", "tests/"}},
      {"unicode/normalizer2.h", {"io/tokenizer/", "tests/"}},
      {"nccl.h", {"runtime/comm/nccl/", "tests/"}},
      {"cuda_runtime.h", {"runtime/base/cuda/", "kernels/cuda/", "tests/"}},
      {"cuda_runtime_api.h", {"runtime/base/cuda/", "kernels/cuda/", "tests/"}},
      {"cuda.h", {"runtime/base/cuda/", "tests/"}},
      {"cublasLt.h", {"runtime/base/cuda/library.cpp", "kernels/cuda/", "tests/"}},
      {"cudnn.h", {"kernels/cuda/", "tests/"}},
      {"cudnn_frontend.h", {"kernels/cuda/", "tests/"}},
  };
  return all;
}

constexpr int most_lines = 500;
constexpr std::size_t most_columns = 120;
/// Characters of UTF-8.
std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::vector<std::string> files(const fs::path& root) {
  std::vector<std::string> found;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator(); ++it) {
    if (it.depth() == 0 && ignored_folders.contains(it->path().filename().string())) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file()) {
      found.push_back(fs::relative(it->path(), root).generic_string());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

Violations includes_pointing_up(const fs::path& root) {
  Violations violations;
  for (const auto& file : files(root)) {
    const Layer* here = layer_of(file);
    if (!is_source(file) || here == nullptr) continue;
    for_each_include(root / file, false, [&](int number, const std::string& target) {
      if (target == "tessera_build.hpp") return;  // generated by the build, for jobs alone
      const Layer* there = layer_of(target);
      if (there == nullptr)
        violations.push_back(at(file, number, target + " is in no layer (includes are written from the root)"));
      else if (there != here && !here->may_include.contains(there->name) && !here->may_include.contains(target))
        violations.push_back(at(file, number, here->name + " may not include " + there->name + " (" + target + ")"));
    });
  }
  return violations;
}

Violations folder_cycles(const fs::path& root) {
  std::map<std::string, std::map<std::string, std::string>>
      edges;  // folder -> folder it includes -> an include that does
  for (const auto& file : files(root)) {
    const Layer* here = layer_of(file);
    if (!is_source(file) || here == nullptr) continue;
    for_each_include(root / file, false, [&](int number, const std::string& target) {
      const std::string from = folder_of(file), to = folder_of(target);
      if (layer_of(target) != here || from == to) return;
      if (!is_header(file) && to.starts_with(from + "/")) return;
      edges[from].emplace(to, at(file, number, target));
    });
  }
  Violations violations;
  std::set<std::string> reported;
  for (const auto& [start, unused] : edges) {
    // The shortest way back to `start`, breadth first.
    std::map<std::string, std::string> came_from;
    std::queue<std::string> open({start});
    while (!open.empty() && !came_from.contains(start)) {
      const std::string folder = open.front();
      open.pop();
      if (const auto out = edges.find(folder); out != edges.end())
        for (const auto& [next, include] : out->second)
          if (came_from.emplace(next, folder).second) open.push(next);
    }
    if (!came_from.contains(start) || reported.contains(start)) continue;
    std::string cycle = start, includes;
    std::string to = start;
    do {
      const std::string from = came_from.at(to);
      reported.insert(from);
      cycle = from + " -> " + cycle;
      includes = "\n  " + edges.at(from).at(to) + includes;
      to = from;
    } while (to != start);
    violations.push_back("folders form a cycle: " + cycle + includes);
  }
  return violations;
}

Violations device_headers_in_common_ones(const fs::path& root) {
  Violations violations;
  for (const auto& file : files(root)) {
    if (!is_header(file) || !file.starts_with("kernels/") || file.starts_with("kernels/cuda/")) continue;
    for_each_include(root / file, false, [&](int number, const std::string& target) {
      if (target.starts_with("kernels/cuda/")) violations.push_back(at(file, number, target + " in a common header"));
    });
  }
  return violations;
}

Violations vendor_headers_leaking(const fs::path& root) {
  Violations violations;
  for (const auto& file : files(root)) {
    if (!is_source(file)) continue;
    for_each_include(root / file, true, [&](int number, const std::string& target) {
      const auto wrapped = wrappers().find(target);
      if (wrapped == wrappers().end()) return;
      const auto& homes = wrapped->second;
      const bool for_nvcc_alone = file.ends_with(".cuh");
      if (is_header(file) && !for_nvcc_alone) violations.push_back(at(file, number, wrapped->first + " in a header"));
      else if (std::none_of(homes.begin(), homes.end(), [&](const auto& home) { return file.starts_with(home); }))
        violations.push_back(at(file, number, wrapped->first + " is wrapped elsewhere"));
    });
  }
  return violations;
}

Violations top_level(const fs::path& root) {
  const std::set<std::string> allowed = {
      "CITATION.cff", "CMakeLists.txt", "CMakePresets.json", "LICENSE",       "README.md", "docs",
      "io",           "jobs",           "kernels",           "models",        "runtime",   "tests",
      ".ci",          ".clang-format",  ".clang-tidy",       ".editorconfig", ".github",   ".gitignore"};
  Violations violations;
  std::set<std::string> there;
  for (const auto& entry : fs::directory_iterator(root)) there.insert(entry.path().filename().string());
  for (const auto& name : there)
    if (!allowed.contains(name) && !ignored_folders.contains(name))
      violations.push_back(name + ": not at the top level");
  for (const auto& name : allowed)
    if (!there.contains(name)) violations.push_back(name + ": missing at the top level");
  return violations;
}

Violations file_shapes(const fs::path& root) {
  Violations violations;
  for (const auto& file : files(root)) {
    if (!is_source(file)) continue;
    int lines = 0;
    bool pragma = false, opened = false, table = false;
    for_each_line(root / file, [&](int number, const std::string& line) {
      lines = number;
      if (number <= 2) pragma = pragma || line == "#pragma once";
      if (number <= 12 && line.starts_with("//") && line.find("SPDX-") == std::string::npos) opened = true;
      if (line.find("clang-format o") != std::string::npos) table = line.ends_with("off");
      const bool quotes = line.find('"') != std::string::npos;  // a literal may have no place to break
      if (const auto wide = columns(line); wide > most_columns && !quotes && !table)
        violations.push_back(at(file, number, "a line of " + std::to_string(wide) + " columns"));
    });
    if (lines > most_lines) violations.push_back(at(file, lines, "more than 500 lines: split the file"));
    if (is_header(file) && !pragma) violations.push_back(at(file, 1, "a header begins with #pragma once"));
    if (is_header(file) && !opened)
      violations.push_back(at(file, 1, "a header begins with a comment that says what it is"));
  }
  return violations;
}

Violations missing_licenses(const fs::path& root) {
  Violations violations;
  for (const auto& file : files(root)) {
    const std::string name = fs::path(file).filename().string();
    const bool maybe_script = name.find('.') == std::string::npos;
    if (!is_source(file) && !maybe_script && name != "CMakeLists.txt" &&
        !ends_with_any(file, {".py", ".sh", ".cmake", ".sed"}))
      continue;
    std::ifstream in(root / file);
    std::string first, second;
    std::getline(in, first);
    std::getline(in, second);
    if (maybe_script && !first.starts_with("#!")) continue;
    const auto is_license = [](const std::string& line) {
      return line.ends_with(" SPDX-License-Identifier: Apache-2.0") && line.starts_with(line[0] == '#' ? "# " : "// ");
    };
    if (!is_license(first) && !is_license(second)) violations.push_back(at(file, 1, "no SPDX-License-Identifier"));
  }
  return violations;
}

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

Violations leftovers(const fs::path& root) {
  // Put together here, or this file would be a violation.
  const std::vector<std::string> words = {std::string("TO") + "DO",      std::string("FIX") + "ME",
                                          std::string("/ho") + "me/",    std::string("/wo") + "rk/",
                                          std::string("../") + "shared", std::string("/ro") + "ot/"};
  Violations violations;
  for (const auto& file : files(root)) {
    if (!is_source(file) &&
        !ends_with_any(file, {".md", ".txt", ".cmake", ".sh", ".yaml", ".json", ".in", "/run", "/test", "/quickstart"}))
      continue;
    for_each_line(root / file, [&](int number, const std::string& line) {
      for (const auto& word : words)
        if (line.find(word) != std::string::npos) violations.push_back(at(file, number, "\"" + word + "\""));
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
