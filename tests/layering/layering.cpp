// The rules of the layering, each a pass over the lines of the tree.
#include "tests/layering/layering.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>

namespace tessera::layering {
namespace fs = std::filesystem;
namespace {

const std::set<std::string> ignored = {".git", "build", "out", ".cache", ".vscode", ".idea", "compile_commands.json"};

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

/// Floors by folder. What a layer may include: other layers, or single headers of layers it does not otherwise see.
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
      {"io", "io/", {"base", "comm", "shard", "kernels/convert.hpp"}},
      // Of comm the plan may_include the pure parts: a grid, and what a transport costs.
      {"plan", "runtime/plan/", {"base", "models", "shard", "runtime/comm/mesh.hpp", "runtime/comm/topology.hpp"}},
      {"train", "runtime/train/", {"base", "kernels", "comm", "shard", "models", "io", "plan"}},
      {"infer", "runtime/infer/", {"base", "kernels", "comm", "shard", "models", "io", "plan", "train"}},
      {"jobs", "jobs/", {"base", "kernels", "comm", "shard", "models", "io", "plan", "train", "infer"}},
  };
  return all;
}
const Layer* layer_of(const std::string& path) {
  for (const Layer& layer : layers())
    if (path.starts_with(layer.folder)) return &layer;
  return nullptr;
}

/// Vendor headers and the folders whose source files wrap them.
const std::map<std::string, std::vector<std::string>>& wrappers() {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"mpi.h", {"runtime/comm/", "jobs/cli/session/versions.cpp", "tests/"}},
      {"cblas.h", {"kernels/", "tests/"}},
      {"yaml.h", {"io/", "jobs/", "tests/"}},
      {"hdf5.h", {"io/", "tests/"}},
      {"unicode/uchar.h", {"io/", "tests/"}},
      {"unicode/normalizer2.h", {"io/", "tests/"}},
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

/// Characters of UTF-8.
std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::vector<std::string> files(const fs::path& root) {
  std::vector<std::string> found;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator(); ++it) {
    if (it.depth() == 0 && ignored.contains(it->path().filename().string())) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file()) {
      found.push_back(fs::relative(it->path(), root).generic_string());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

Violations includes_pointing_up(const fs::path& root) {
  static const std::regex include(R"(^\s*#\s*include\s*"([^"]+)\")");
  Violations violations;
  for (const auto& file : files(root)) {
    const Layer* here = layer_of(file);
    if (!is_source(file) || here == nullptr) continue;
    for_each_line(root / file, [&](int number, const std::string& line) {
      std::smatch match;
      if (!std::regex_search(line, match, include)) return;
      const std::string target = match[1];
      if (target == "tessera_build.hpp") return;  // made by the build, for jobs alone
      const Layer* there = layer_of(target);
      if (there == nullptr) {
        violations.push_back(at(file, number, target + " is on no layer (includes are written from the root)"));
      } else if (there != here && !here->may_include.contains(there->name) && !here->may_include.contains(target)) {
        violations.push_back(at(file, number, here->name + " may not see " + there->name + " (" + target + ")"));
      }
    });
  }
  return violations;
}

Violations vendor_headers_leaking(const fs::path& root) {
  static const std::regex include(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  Violations violations;
  for (const auto& file : files(root)) {
    if (!is_source(file)) continue;
    for_each_line(root / file, [&](int number, const std::string& line) {
      std::smatch match;
      if (!std::regex_search(line, match, include)) return;
      const auto wrapped = wrappers().find(match[1]);
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
      "CMakeLists.txt", "CMakePresets.json", "LICENSE",       "README.md", "docs",  "io",
      "jobs",           "kernels",           "models",        "runtime",   "tests", ".ci",
      ".clang-format",  ".clang-tidy",       ".editorconfig", ".gitignore"};
  Violations violations;
  std::set<std::string> there;
  for (const auto& entry : fs::directory_iterator(root)) there.insert(entry.path().filename().string());
  for (const auto& name : there)
    if (!allowed.contains(name) && !ignored.contains(name)) violations.push_back(name + ": not at the top level");
  for (const auto& name : allowed)
    if (!there.contains(name)) violations.push_back(name + ": missing at the top level");
  return violations;
}

Violations file_shapes(const fs::path& root) {
  constexpr int most_lines = 500;
  constexpr std::size_t most_columns = 128;
  Violations violations;
  for (const auto& file : files(root)) {
    if (!is_source(file)) continue;
    int lines = 0;
    bool pragma = false, opened = false;
    for_each_line(root / file, [&](int number, const std::string& line) {
      lines = number;
      if (number == 1) pragma = line == "#pragma once";
      if (number <= 12 && line.starts_with("//")) opened = true;
      const bool quotes = line.find('"') != std::string::npos;  // what it quotes may be one word
      if (const auto wide = columns(line); wide > most_columns && !quotes)
        violations.push_back(at(file, number, "a line of " + std::to_string(wide) + " columns"));
    });
    if (lines > most_lines) violations.push_back(at(file, lines, "more than 500 lines: two files"));
    if (is_header(file) && !pragma) violations.push_back(at(file, 1, "a header begins with #pragma once"));
    if (is_header(file) && !opened) violations.push_back(at(file, 1, "a header opens with what it is"));
  }
  return violations;
}

Violations leftovers(const fs::path& root) {
  // Put together here so that this file is not its own breach.
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
  static const std::regex link(R"(\]\(([^)#\s]+)(#[^)]*)?\))");
  Violations violations;
  for (const auto& file : files(root)) {
    if (!file.ends_with(".md")) continue;
    for_each_line(root / file, [&](int number, const std::string& line) {
      for (auto it = std::sregex_iterator(line.begin(), line.end(), link); it != std::sregex_iterator(); ++it) {
        const std::string target = (*it)[1];
        if (target.find("://") != std::string::npos || target.starts_with("mailto:")) continue;
        if (!fs::exists((root / file).parent_path() / target))
          violations.push_back(at(file, number, "no such file: " + target));
      }
    });
  }
  return violations;
}

}  // namespace tessera::layering
