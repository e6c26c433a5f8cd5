// SPDX-License-Identifier: Apache-2.0
// Fuzz target: configuration files. The first byte chooses YAML or JSON; the resulting tree is traversed.

#include <cstdlib>
#include <set>

#include "io/config/yaml.hpp"
#include "runtime/base/error.hpp"

namespace {
void traverse(const tessera::io::ConfigNode& node, int depth) {
  using Kind = tessera::io::ConfigNode::Kind;
  if (depth > tessera::io::max_config_depth + 1 || node.line < 1) std::abort();
  if (node.kind != Kind::scalar && !node.text.empty()) std::abort();
  if ((node.kind != Kind::list && !node.items.empty()) || (node.kind != Kind::map && !node.entries.empty()))
    std::abort();
  for (const auto& item : node.items) traverse(item, depth + 1);
  std::set<std::string> keys;
  for (const auto& [key, value] : node.entries) {
    if (!keys.insert(key).second) std::abort();
    traverse(value, depth + 1);
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const auto root = data[0] == 'j' ? io::parse_json_config(text, "input") : io::parse_yaml(text, "input");
    if (root.kind != io::ConfigNode::Kind::map) std::abort();
    traverse(root, 0);
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) std::abort();
  }
  return 0;
}
