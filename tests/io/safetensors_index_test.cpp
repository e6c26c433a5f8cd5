// SPDX-License-Identifier: Apache-2.0
// The index of a model in several files: a broken index for each rule, and files that contradict their index.

#include "io/model/safetensors_index.hpp"

#include <filesystem>

#include "runtime/base/log.hpp"
#include "runtime/base/warning_list.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

using test::bytes_of;
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
  refused("E111", index_of(""));
  refused("E111", index_of(R"("c":"m-1.safetensors","a":"m-1.safetensors","b":"m-1.safetensors")"));
  const TempDir empty;
  expect_error(ExitCode::data, "neither model.safetensors nor",
               [&] { (void)io::open_safetensors_model(empty.path()); });
}

/// The warnings of a call.
std::vector<std::string> warnings_of(const std::function<void()>& action) {
  const int before = log::warnings();
  action();
  std::vector<std::string> texts;
  for (const log::Warning& warning : log::warnings_from(before))
    texts.push_back(strfmt("W%03d %s", warning.number, warning.text.c_str()));
  return texts;
}

TEST(SafetensorsIndex, WhatItSaysOtherwiseIsReadWithAWarning) {
  using testing::ElementsAre, testing::HasSubstr;
  const Model total(index_of(good_map, "16"));
  EXPECT_THAT(warnings_of([&] { EXPECT_EQ(io::open_safetensors_model(total.folder.path()).size(), 2U); }),
              ElementsAre(HasSubstr("its total_size is 16, its tensors have 15 bytes")));
  const Model unnamed(index_of(R"("c":"m-2.safetensors","a":"m-1.safetensors")"));
  EXPECT_THAT(warnings_of([&] {
                const auto files = io::open_safetensors_model(unnamed.folder.path());
                EXPECT_NE(files[0].find("b"), nullptr);
              }),
              ElementsAre(HasSubstr("m-1.safetensors holds \"b\", which has no entry")));
  // Two files have it: the index says which.
  const Model twice(
      index_of(R"("c":"m-2.safetensors","a":"m-1.safetensors","b":"m-1.safetensors","b2":"m-3.safetensors")", "19"));
  twice.folder.file("m-3.safetensors", safetensors_of(R"({"b2":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                                      R"("c":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                                      8));
  EXPECT_THAT(warnings_of([&] {
                const auto files = io::open_safetensors_model(twice.folder.path());
                EXPECT_EQ(files[2].find("c"), nullptr);
                EXPECT_EQ(files[2].entries().size(), 1U);
                EXPECT_NE(files[1].find("c"), nullptr);
              }),
              ElementsAre(HasSubstr("\"c\", which the index maps to m-2.safetensors")));
  // It names neither.
  const Model unclear(
      index_of(R"("a":"m-1.safetensors","b":"m-1.safetensors","b2":"m-3.safetensors","d":"m-2.safetensors")"));
  unclear.folder.file("m-3.safetensors", bytes_of(twice.folder / "m-3.safetensors"));
  unclear.folder.file("m-2.safetensors", safetensors_of(R"({"c":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                                        R"("d":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                                                        12));
  expect_error(ExitCode::data, "\"c\" is mapped to no file, and is in",
               [&] { (void)io::open_safetensors_model(unclear.folder.path()); });
}

TEST(SafetensorsIndex, AFileOfTheSetThatItDoesNotNameIsRead) {
  const TempDir folder;
  folder.file("model-00001-of-00002.safetensors", safetensors_of(shard_1, 7));
  folder.file("model-00002-of-00002.safetensors", safetensors_of(shard_2, 8));
  folder.file("model-00002-of-00003.safetensors", "of another set");
  folder.file("model.safetensors.index.json",
              R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00001-of-00002.safetensors"}})");
  EXPECT_THAT(warnings_of([&] { EXPECT_EQ(io::open_safetensors_model(folder.path()).size(), 2U); }),
              testing::ElementsAre(testing::HasSubstr("model-00002-of-00002.safetensors holds \"c\"")));
}

TEST(SafetensorsIndex, LinksOutOfTheDirectoryAreReadWithAWarning) {
  namespace fs = std::filesystem;
  const Model model(index_of(good_map));
  const TempDir elsewhere;
  elsewhere.file("m-2.safetensors", safetensors_of(shard_2, 8));
  fs::remove(model.folder / "m-2.safetensors");
  fs::create_symlink(elsewhere / "m-2.safetensors", model.folder / "m-2.safetensors");
  EXPECT_THAT(warnings_of([&] { EXPECT_EQ(io::open_safetensors_model(model.folder.path()).size(), 2U); }),
              testing::ElementsAre(testing::HasSubstr("is a link out of the model's directory")));
  elsewhere.file("m-2.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 8000000\n");
  expect_error(ExitCode::data, "is a git-lfs pointer", [&] { (void)io::open_safetensors_model(model.folder.path()); });
  elsewhere.file("m-2.safetensors", safetensors_of(shard_2, 8));
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
  EXPECT_THAT(warnings_of([&] { EXPECT_EQ(io::open_safetensors_model(cache / "snapshots/1a2b").size(), 2u); }),
              testing::IsEmpty());
}

}  // namespace
}  // namespace tessera
