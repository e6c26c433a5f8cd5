// SPDX-License-Identifier: Apache-2.0
// Manifests whose checksum is right and whose content is not: a load refuses them. Nothing crashes, and nothing
// allocates more than the files hold.

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "io/checkpoint/directory.hpp"
#include "io/file/crc32c.hpp"
#include "tests/fault_injection/saved_state.hpp"
#include "tests/io/files.hpp"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;
using io::Manifest;

/// The checkpoint's manifest, changed by `change`, with a checksum of its own that is right.
void rewrite_manifest(const std::string& directory, const std::function<void(Manifest&)>& change) {
  Manifest manifest = io::read_manifest(directory);
  change(manifest);
  const std::string path = directory + "/" + io::manifest_name;
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << io::manifest_text(manifest);
}

TEST(ForgedManifest, IsRefusedAndAllocatesNothing) {
  const TempDir folder(TempDir::Storage::memory);
  const TestTensors tensors = small_tensors();
  const std::string directory = folder / "checkpoint-3";
  constexpr std::uint64_t huge = std::uint64_t{1} << 60;
  const std::vector<std::pair<const char*, std::function<void(Manifest&)>>> forgeries = {
      {"a huge file", [](Manifest& m) { m.files[0].bytes = huge; }},
      {"a huge data set",
       [](Manifest& m) {
         m.files[0].datasets.back().bytes = huge, m.files[0].datasets.back().shape = {1 << 29, 1 << 29};
       }},
      {"a shape whose product wraps",
       [](Manifest& m) {
         m.files[0].datasets.back().shape = {std::int64_t{1} << 32, std::int64_t{1} << 32};
       }},
      {"a negative dimension", [](Manifest& m) { m.files[0].datasets[0].shape[0] = -m.files[0].datasets[0].shape[0]; }},
      {"a data set past the end", [](Manifest& m) { m.files[0].datasets.back().offset = m.files[0].bytes - 4; }},
      {"an offset that wraps", [](Manifest& m) { m.files[0].datasets.back().offset = ~std::uint64_t{0} - 7; }},
      {"data sets that overlap", [](Manifest& m) { m.files[0].datasets[1].offset = m.files[0].datasets[0].offset; }},
      {"a data set twice", [](Manifest& m) { m.files[0].datasets[1].path = m.files[0].datasets[0].path; }},
      {"a checksum too few", [](Manifest& m) { m.files[0].crcs.pop_back(); }},
      {"a checksum too many", [](Manifest& m) { m.files[0].crcs.push_back(1); }},
      {"a name that leaves the directory", [](Manifest& m) { m.files[0].name = "../" + m.files[0].name; }},
      {"an absolute name", [](Manifest& m) { m.files[0].name = "/etc/passwd"; }},
      {"an auxiliary file outside the directory", [](Manifest& m) { m.auxiliary_files[0].name = "../config.json"; }},
      {"a huge auxiliary file", [](Manifest& m) { m.auxiliary_files[0].bytes = huge; }},
      {"a file without a name", [](Manifest& m) { m.files[0].name.clear(); }},
      {"a negative step", [](Manifest& m) { m.step = -3; }},
      {"another step than the directory's", [](Manifest& m) { m.step = 4; }},
      {"a data set that the file does not have", [](Manifest& m) { m.files[0].datasets.back().path += "x"; }},
      {"a data set where the file has another",
       [](Manifest& m) { std::swap(m.files[0].datasets[0].path, m.files[0].datasets[1].path); }},
      {"no data set", [](Manifest& m) { m.files[0].datasets.clear(); }},
      {"no file", [](Manifest& m) { m.files.clear(); }},
  };
  for (const auto& [what, change] : forgeries) {
    SCOPED_TRACE(what);
    fs::remove_all(directory);
    make_checkpoint(tensors, directory);
    rewrite_manifest(directory, change);
    (void)allocated_bytes();
    std::size_t allocated = 0;
    run_local(1, [&](World& world) {
      (void)allocated_bytes();
      try {
        const io::CheckpointReader reader(world, directory);
        for (const auto& auxiliary_file : reader.manifest().auxiliary_files)
          (void)reader.auxiliary_file(auxiliary_file.name);
        TestState state(tensors, Mesh(1, 1), 0);
        (void)reader.load(tensors.params, state.layout(), state.views(), 1);
        ADD_FAILURE() << "accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::data) << error.line();
        EXPECT_THAT(error.line(), testing::HasSubstr(directory));
      }
      allocated = allocated_bytes();
    });
    EXPECT_LT(allocated, std::size_t{16} << 20);
  }
}

/// The manifest's JSON with the checksum that belongs to it.
std::string signed_text(const nlohmann::ordered_json& json) {
  std::string text = json.dump(1);
  text.resize(text.size() - 2);
  text += ",\n";
  return text + strfmt("\"crc32c\": \"%08x\"\n}\n", io::crc32c(0, std::as_bytes(std::span(text))));
}

TEST(ForgedManifest, WithOtherTypesIsRefused) {
  const TempDir folder(TempDir::Storage::memory);
  const std::string directory = folder / "checkpoint-3", path = directory + "/" + io::manifest_name;
  make_checkpoint(small_tensors(), directory);
  auto intact = nlohmann::ordered_json::parse(bytes_of(path));
  intact.erase("crc32c");
  ASSERT_EQ(io::parse_manifest(signed_text(intact), path).step, 3);
  const std::vector<nlohmann::ordered_json> others = {nullptr,
                                                      3,
                                                      -1,
                                                      1e300,
                                                      0.5,
                                                      "x",
                                                      true,
                                                      nlohmann::ordered_json::array(),
                                                      nlohmann::ordered_json::object(),
                                                      nlohmann::ordered_json::array({nullptr}),
                                                      std::uint64_t{0xffffffffffffffff}};
  int refused = 0, tried = 0;
  const auto try_text = [&](const std::string& text, const std::string& what) {
    ++tried;
    try {
      (void)io::parse_manifest(text, path);
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.code(), ExitCode::data) << what;
      EXPECT_THAT(error.line(), testing::HasSubstr(path)) << what;
    }
  };
  const auto flat = intact.flatten();
  for (const auto& [key, unused] : flat.items()) {
    for (nlohmann::ordered_json::json_pointer pointer(key); !pointer.empty(); pointer = pointer.parent_pointer()) {
      for (const auto& other : others) {
        auto changed = intact;
        changed[pointer] = other;
        try_text(signed_text(changed), pointer.to_string() + " = " + other.dump());
      }
      auto changed = intact;
      auto& parent = changed[pointer.parent_pointer()];
      if (parent.is_object()) parent.erase(pointer.back());
      try_text(signed_text(changed), pointer.to_string() + " is gone");
    }
    if (key.find("/files/0/datasets/1") == 0) break;  // what follows is alike
  }
  EXPECT_GT(tried, 100);
  EXPECT_GT(refused, tried / 2);
  // Nesting that a recursive reader would not survive.
  const std::string nest(200000, '['), open = "{\"format\": \"tessera-checkpoint\", \"training\": {\"a\": ";
  std::string text = open + nest + std::string(200000, ']') + "},\n";
  text += strfmt("\"crc32c\": \"%08x\"\n}\n", io::crc32c(0, std::as_bytes(std::span(text))));
  try_text(text, "nested");
}

}  // namespace
}  // namespace tessera::test
