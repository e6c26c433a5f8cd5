// SPDX-License-Identifier: Apache-2.0
// The table of families in docs/models.md: a row for each family, in the program's order, and as compared with
// transformers only what golden files hold.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "golden.hpp"
#include "golden_folders.hpp"
#include "models/family.hpp"

namespace tessera::test::page {
namespace {

using nlohmann::json;
using Row = std::pair<std::string, std::vector<std::string>>;  // a family, and what is compared

/// "steps", "tokens", "LoRA" of "| `gpt2` | … | steps, tokens, LoRA of attention |".
std::vector<Row> rows_of_page() {
  std::ifstream page(std::string(TESSERA_TEST_DATA) + "/../../docs/models.md");
  std::vector<Row> rows;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `") || line.find("` |") == line.npos || line.find("`model_type`") != line.npos) continue;
    const std::size_t last = line.rfind("| ", line.size() - 2) + 2;
    std::stringstream column(line.substr(last, line.size() - last - 2));
    Row row{line.substr(3, line.find("` |") - 3), {}};
    for (std::string item; std::getline(column >> std::ws, item, ',');)
      row.second.push_back(item.substr(0, item.find(" of ")));
    rows.push_back(std::move(row));
  }
  return rows;
}

/// What the files of `folder`, one model each, compare.
void add_comparisons(const std::string& folder, std::map<std::string, std::set<std::string>>& compared) {
  const auto families_with = [&](const std::string& file) {
    std::vector<std::pair<std::string, json>> found;  // the file's content, by family
    for (const std::string& name : golden_folders(folder, file))
      found.emplace_back(json::parse(read_file(folder + name + "/config.json")).at("model_type").get<std::string>(),
                         json::parse(read_file(folder + name + "/" + file)));
    return found;
  };
  for (const auto& [family, golden] : families_with("golden.json")) {
    std::set<std::string>& words = compared[family];
    if (golden.contains("weight_norms_final")) words.insert("steps");
    else
      for (const auto& [key, word] : {std::pair("logits", "logits"), {"loss", "loss"}, {"gradient_norms", "gradients"}})
        if (golden.contains(key)) words.insert(word);
  }
  for (const auto& [family, golden] : families_with("generate.json")) compared[family].insert("tokens");
  for (const auto& [family, golden] : families_with("lora/lora.json")) compared[family].insert("LoRA");
}

TEST(Families, AreThoseOfTheirPage) {
  std::map<std::string, std::set<std::string>> compared;
  for (const char* folder : {"/golden/", "/golden/wrapped/"})
    add_comparisons(TESSERA_TEST_DATA + std::string(folder), compared);
  std::vector<Row> expected;
  for (const models::Family& family : models::families()) {
    expected.push_back({family.name, {}});
    for (const char* word : {"steps", "tokens", "logits", "loss", "gradients", "LoRA"})
      if (compared[family.name].contains(word)) expected.back().second.emplace_back(word);
  }
  EXPECT_EQ(rows_of_page(), expected);
}

}  // namespace
}  // namespace tessera::test::page
