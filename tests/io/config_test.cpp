// SPDX-License-Identifier: Apache-2.0
// Configuration files in YAML and JSON: the tree, its line numbers, and what is refused.

#include "io/config/yaml.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

using io::ConfigNode;
using test::expect_error;
using test::TempDir;
using Kind = ConfigNode::Kind;

ConfigNode yaml(const std::string& text) { return io::parse_yaml(text, "run.yaml"); }
ConfigNode json(const std::string& text) { return io::parse_json_config(text, "run.json"); }
void refused(const std::string& text, const std::string& words, const std::string& where) {
  SCOPED_TRACE(text.substr(0, 80));
  const auto parse = [&] { (void)(where.starts_with("run.json") ? json(text) : yaml(text)); };
  expect_error(ExitCode::usage, words, parse);
  expect_error(ExitCode::usage, "[" + where + "]", parse);
}

TEST(Yaml, ATableOfOptions) {
  const auto root = yaml(
      "# a run\nmodel: ./models/tiny\nlearning_rate: 1.0e-4\ndataset: [a.txt, 'b c.txt']\nval_dataset:\n  - x\n  - y\n"
      "fsdp_config: {fsdp_sharding_strategy: FULL_SHARD}\nno_value:\nempty: ''\nnull_value: ~\n");
  ASSERT_EQ(root.kind, Kind::map);
  EXPECT_EQ(root.find("model")->text, "./models/tiny");
  EXPECT_EQ(root.find("model")->line, 2);
  EXPECT_EQ(root.find("learning_rate")->text, "1.0e-4");
  ASSERT_EQ(root.find("dataset")->kind, Kind::list);
  EXPECT_EQ(root.find("dataset")->items[1].text, "b c.txt");
  EXPECT_TRUE(root.find("dataset")->items[1].quoted);
  EXPECT_FALSE(root.find("dataset")->items[0].quoted);
  EXPECT_EQ(root.find("val_dataset")->items[1].line, 7);
  EXPECT_EQ(root.find("val_dataset")->line, 5);
  EXPECT_EQ(root.find("fsdp_config")->find("fsdp_sharding_strategy")->text, "FULL_SHARD");
  EXPECT_EQ(root.find("no_value")->kind, Kind::null);
  EXPECT_EQ(root.find("empty")->kind, Kind::scalar);
  EXPECT_EQ(root.find("null_value")->kind, Kind::null);
  EXPECT_EQ(root.find("nothing"), nullptr);
  EXPECT_EQ(root.entries.front().first, "model");
}

TEST(Yaml, AByteOrderMarkIsNoIndentation) {
  const auto root = yaml("\xEF\xBB\xBFseed: 1\r\nmax_length: 2\r\n");
  EXPECT_EQ(root.find("seed")->text, "1");
  EXPECT_EQ(root.find("max_length")->text, "2");
}

TEST(Yaml, EmptyFilesAreEmptyTables) {
  for (const char* text : {"", "\n", "# only words\n", "---\n", "--- ~\n...\n"}) {
    EXPECT_EQ(yaml(text).kind, Kind::map) << text;
    EXPECT_TRUE(yaml(text).entries.empty()) << text;
  }
}

TEST(Yaml, WhatIsRefusedIsNamed) {
  refused("a: &x 1\nb: 2\n", "anchors", "run.yaml:1");
  refused("a: 1\nb: *x\n", "aliases", "run.yaml:2");
  refused("*x : 1\n", "aliases", "run.yaml:1");
  refused("a: &x {c: 1}\n", "anchors", "run.yaml:1");
  refused("a: 1\n<<: {b: 2}\n", "merge keys", "run.yaml:2");
  refused("a: 1\nb: !!str 2\n", "tags", "run.yaml:2");
  refused("a: !local [1]\n", "tags", "run.yaml:1");
  refused("a: ! x\n", "tags", "run.yaml:1");
  refused("%TAG !e! tag:e,2000:\n---\na: 1\n", "%TAG", "run.yaml:1");
  refused("a: 1\n---\nb: 2\n", "second document", "run.yaml:2");
  refused("a: 1\nb: 2\na: 3\n", "\"a\" is given twice (before in line 1)", "run.yaml:3");
  refused("a: {b: 1,\n b: 2}\n", "\"b\" is given twice", "run.yaml:2");
  refused("a: 1\n? [x]\n: 2\n", "not a single word", "run.yaml:2");
  refused("a: 1\nb: {~: 2}\n", "a key that is empty", "run.yaml:2");
  refused("- a\n- b\n", "not a table of options", "run.yaml:1");
  refused("just words\n", "not a table of options", "run.yaml:1");
  refused("a: [1\nb: 2\n", "not YAML", "run.yaml:2");
  refused("a: 'x\n", "not YAML", "run.yaml:2");
  refused("a:\n\t- x\n", "not YAML", "run.yaml:2");
  refused(std::string("a: \0\n", 5), "not YAML", "run.yaml:1");
  refused("a: \xff\n", "not YAML", "run.yaml:1");
  refused("a: " + std::string(40, '[') + std::string(40, ']'), "deep", "run.yaml:1");
  refused("a: " + std::string(100000, '['), "deep", "run.yaml:1");
  refused("a: " + std::string((1u << 20) + 1, 'x'), "longer", "run.yaml:1");
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "k" + std::to_string(i) + ": 1\n";
  refused(many, "4096 entries", "run.yaml:4097");
}

TEST(Json, TheSameTreeAndItsLines) {
  const auto root = json("{\n \"a\": 1,\n \"b\": [2,\n 2.50e3\n, \"x\", true],\n \"c\": {\"d\": null}\n, \"e\": -3}\n");
  EXPECT_EQ(root.find("a")->text, "1");
  EXPECT_EQ(root.find("a")->line, 2);
  EXPECT_FALSE(root.find("a")->quoted);
  const auto& b = *root.find("b");
  EXPECT_EQ(b.line, 3);
  EXPECT_EQ(b.items[0].line, 3);
  EXPECT_EQ(b.items[1].text, "2.50e3");
  EXPECT_EQ(b.items[1].line, 4);
  EXPECT_EQ(b.items[2].line, 5);
  EXPECT_TRUE(b.items[2].quoted);
  EXPECT_EQ(b.items[3].text, "true");
  EXPECT_EQ(root.find("c")->find("d")->kind, Kind::null);
  EXPECT_EQ(root.find("e")->text, "-3");
  EXPECT_EQ(root.find("e")->line, 7);
  EXPECT_EQ(json("// words\n{\"a\": 1}").entries.size(), 1u);
  EXPECT_TRUE(json(" \n").entries.empty());
}

TEST(Json, WhatIsRefusedIsNamed) {
  refused("{\"a\": 1,\n \"a\": 2}", "\"a\" is given twice (before in line 1)", "run.json:2");
  refused("[1]", "not a table", "run.json:1");
  refused("3", "not a table", "run.json:1");
  refused("{\"a\": 1,\n\n b}", "not JSON", "run.json:3");
  refused("{\"a\": 1", "not JSON", "run.json:1");
  refused("{} {}", "not JSON", "run.json:1");
  refused("{\"a\":" + std::string(40, '[') + std::string(40, ']') + "}", "deep", "run.json:1");
  refused("{\"a\":" + std::string(200000, '['), "deep", "run.json:1");
  refused(std::string("{}\0x", 4), "a zero byte", "run.json");
  refused(std::string((1u << 20) + 1, ' '), "longer", "run.json");
}

TEST(Config, FilesAreReadByTheirEnding) {
  TempDir folder;
  EXPECT_EQ(io::read_config(folder.file("a.yaml", "a: 1\n")).find("a")->text, "1");
  EXPECT_EQ(io::read_config(folder.file("a.json", "{\"a\": 1}")).find("a")->text, "1");
  for (const char* name : {"e.yaml", "e.json"})
    expect_error(ExitCode::usage, "the configuration file is empty",
                 [&] { (void)io::read_config(folder.file(name, "")); });
  expect_error(ExitCode::data, "no-such", [&] { (void)io::read_config(folder / "no-such.yaml"); });
  expect_error(ExitCode::data, "longer",
               [&] { (void)io::read_config(folder.file("b.yaml", std::string((1u << 20) + 1, '#'))); });
  const std::string bad = folder.file("c.yaml", "a: 1\nb: [\n");
  expect_error(ExitCode::usage, bad + ":", [&] { (void)io::read_config(bad); });
}

}  // namespace
}  // namespace tessera
