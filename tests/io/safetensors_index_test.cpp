// SPDX-License-Identifier: Apache-2.0
// The index of a model in several files: a broken index for each rule, and files that contradict their index.

#include "io/model/safetensors_index.hpp"

#include <filesystem>

#include "tests/io/files.hpp"

namespace tessera {
namespace {

using test::expect_error;
using test::safetensors_of;
using test::TempDir;

const std::string shard_1 =
    R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})";
const std::string shard_2 = R"({"c":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

std::string index_of(const std::string& map, const std::string& total = "15") {
  return R"({"metadata":{"total_size":)" + total + R"(,"more":[1,{"weight_map":2}]},"weight_map":{)" + map + "}}";
}
const std::string good_map = R"("c":"m-2.safetensors","a":"m-1.safetensors","b":"m-1.safetensors")";

struct Model {
  explicit Model(const std::string& index) {
    folder.file("m-1.safetensors", safetensors_of(shard_1, 7));
    folder.file("m-2.safetensors", safetensors_of(shard_2, 8));
    folder.file("model.safetensors.index.json", index);
  }
  TempDir folder;
};

TEST(SafetensorsIndex, OpensShardsAsOneModel) {
  const Model model(index_of(good_map));
  const auto files = io::open_safetensors_model(model.folder.path());
  ASSERT_EQ(files.size(), 2u);
  EXPECT_NE(files[0].find("b"), nullptr);
  EXPECT_NE(files[1].find("c"), nullptr);
  EXPECT_EQ(io::open_safetensors_model(model.folder / "m-1.safetensors").size(), 1u);
  EXPECT_EQ(io::parse_safetensors_index(index_of(good_map, "1.5e1"), "x").total_size, 15u);
  EXPECT_EQ(io::parse_safetensors_index(R"({"weight_map":{}})", "x").total_size, std::nullopt);
}

TEST(SafetensorsIndex, EveryRuleOfItsTextIsRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> broken = {
      {"E103", ""},
      {"E103", "[]"},
      {"E103", "3"},
      {"E103", R"({"weight_map":{"a":"m.safetensors"}} x)"},
      {"E103", std::string(R"({"weight_map":{}})") + '\0'},
      {"E103 x is not a valid index: it has no \"weight_map\"", "{}"},
      {"E103", R"({"weight_map":[]})"},
      {"E103", R"({"weight_map":null})"},
      {"E103", R"({"weight_map":"x"})"},
      {"E103", R"({"weight_map":{"a":1}})"},
      {"E103", R"({"weight_map":{"a":{"b":"c"}}})"},
      {"E103", R"({"weight_map":{"a":["b"]}})"},
      {"E104", R"({"weight_map":{"a":"m"},"weight_map":{"a":"m"}})"},
      {"E104", R"({"weight_map":{"a":"m","b":"m","a":"m"}})"},
      {"E104", R"({"metadata":{"total_size":1,"total_size":2},"weight_map":{}})"},
      {"E110", R"({"weight_map":{"a":""}})"},
      {"E110", R"({"weight_map":{"a":".."}})"},
      {"E110", R"({"weight_map":{"a":"../x"}})"},
      {"E110", R"({"weight_map":{"a":"/etc/passwd"}})"},
      {"E110", R"({"weight_map":{"a":"sub/m.safetensors"}})"},
      {"E110", R"({"weight_map":{"a":"m\u0000.safetensors"}})"},
      {"E110", R"({"weight_map":{"a":")" + std::string(300, 'm') + R"("}})"},
  };
  for (const auto& [words, text] : broken) {
    SCOPED_TRACE(text);
    expect_error(ExitCode::data, words, [&] { (void)io::parse_safetensors_index(text, "x"); });
  }
}

TEST(SafetensorsIndex, FilesAreCheckedAgainstIt) {
  const auto refused = [](const std::string& words, const std::string& index) {
    const Model model(index);
    expect_error(ExitCode::data, words, [&] { (void)io::open_safetensors_model(model.folder.path()); });
  };
  refused("its shard \"m-3.safetensors\" is not there", index_of(good_map + R"(,"d":"m-3.safetensors")"));
  refused("\"d\" is mapped to m-1.safetensors, which has no such tensor",
          index_of(good_map + R"(,"d":"m-1.safetensors")"));
  refused("m-1.safetensors holds \"b\", which is not mapped to it",
          index_of(R"("c":"m-2.safetensors","a":"m-1.safetensors")"));
  refused("E111", index_of(R"("c":"m-1.safetensors","a":"m-1.safetensors","b":"m-1.safetensors")"));
  refused("total_size is 16, its tensors have 15 bytes", index_of(good_map, "16"));
  const TempDir empty;
  expect_error(ExitCode::data, "neither model.safetensors nor",
               [&] { (void)io::open_safetensors_model(empty.path()); });
}

TEST(SafetensorsIndex, LinksMayNotLeaveTheDirectory) {
  namespace fs = std::filesystem;
  const Model model(index_of(good_map));
  const TempDir elsewhere;
  elsewhere.file("m-2.safetensors", safetensors_of(shard_2, 8));
  fs::remove(model.folder / "m-2.safetensors");
  fs::create_symlink(elsewhere / "m-2.safetensors", model.folder / "m-2.safetensors");
  expect_error(ExitCode::data, "E110", [&] { (void)io::open_safetensors_model(model.folder.path()); });
  // The layout of a Hugging Face cache: snapshots/<commit>/NAME -> ../../blobs/<hash>.
  const TempDir cache;
  fs::create_directories(cache / "blobs");
  fs::create_directories(cache / "snapshots/1a2b");
  int blob = 0;
  for (const char* name : {"m-1.safetensors", "m-2.safetensors", "model.safetensors.index.json"}) {
    const std::string hash = "blobs/" + std::to_string(blob++);
    fs::copy_file(fs::canonical(model.folder / name), cache / hash);
    fs::create_symlink("../../" + hash, cache / ("snapshots/1a2b/" + std::string(name)));
  }
  EXPECT_EQ(io::open_safetensors_model(cache / "snapshots/1a2b").size(), 2u);
}

}  // namespace
}  // namespace tessera
