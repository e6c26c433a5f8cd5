// Damage to a checkpoint directory: flipped bits, truncated, swapped, missing and forged files are found by a load and
// named. Nothing crashes, and nothing allocates more than the files hold.

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/checkpoint/blocks.hpp"
#include "io/checkpoint/directory.hpp"
#include "io/file/crc32c.hpp"
#include "runtime/base/rng.hpp"
#include "tests/fault_injection/test_state.hpp"
#include "tests/io/files.hpp"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;
using io::Manifest;

/// Saves step 3 of `tensors` by two ranks.
void make_checkpoint(const TestTensors& tensors, const std::string& directory, std::int64_t step = 3,
                     std::uint64_t file_bytes = io::SaveRequest::default_file_bytes) {
  run_local(2, [&](World& world) {
    TestState state(tensors, Mesh(1, 2), world.rank());
    state.fill(step);
    auto request = save_request(state, directory, step);
    request.file_bytes = file_bytes;
    io::CheckpointSave pending(world, request);
    (void)pending.commit();
  });
}

/// The error of a full load on `ranks` ranks; "" if there is none. Fails the test if ranks disagree.
std::string load_says(const TestTensors& tensors, const std::string& directory, int ranks = 1) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  run_local(ranks, [&](World& world) {
    auto& mine = said[static_cast<std::size_t>(world.rank())];
    try {
      const io::CheckpointReader reader(world, directory);
      TestState state(tensors, Mesh(1, ranks), world.rank());
      (void)reader.load(tensors.params, state.layout(), state.views());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data) << error.line();
      mine = error.line();
    }
  });
  for (const auto& line : said) EXPECT_EQ(line, said[0]);
  return said[0];
}

/// The error of reading every block of every file, as verification does without a model.
std::string blocks_say(const std::string& directory) {
  try {
    const Manifest manifest = io::read_manifest(directory);
    io::check_headers(directory, manifest);
    for (const auto& file : manifest.files) {
      io::BlockReader reader(directory + "/" + file.name, file);
      for (std::uint64_t block = 0; block * io::block_bytes < file.bytes; ++block) (void)reader.block(block);
    }
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data) << error.line();
    return error.line();
  }
}

void flip(const std::string& path, std::uint64_t byte, int bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(byte));
  const int value = file.get();
  file.seekp(static_cast<std::streamoff>(byte));
  file.put(static_cast<char>(value ^ (1 << bit)));
  ASSERT_TRUE(file.good()) << path << " byte " << byte;
}

/// The bytes of a checkpoint directory by kind.
struct ByteClass {
  const char* name;
  std::vector<std::tuple<std::string, std::uint64_t, std::uint64_t>> ranges;  // file, first, past the last
};
std::vector<ByteClass> byte_classes(const std::string& directory, const Manifest& manifest) {
  ByteClass data{"data", {}}, headers{"headers", {}}, gaps{"gaps", {}}, text{"manifest", {}},
      attached{"attachments", {}};
  for (const auto& file : manifest.files) {
    std::uint64_t at = 0;
    for (const auto& set : file.datasets) {
      if (set.offset > at) (at == 0 ? headers : gaps).ranges.emplace_back(file.name, at, set.offset);
      data.ranges.emplace_back(file.name, set.offset, set.offset + set.bytes);
      at = set.offset + set.bytes;
    }
    if (at < file.bytes) gaps.ranges.emplace_back(file.name, at, file.bytes);
  }
  text.ranges.emplace_back(io::manifest_name, 0, fs::file_size(directory + "/" + io::manifest_name));
  for (const auto& a : manifest.auxiliary_files) attached.ranges.emplace_back(a.name, 0, a.bytes);
  return {data, headers, gaps, text, attached};
}

struct Flip {
  std::string file;
  std::uint64_t byte = 0;
  int bit = 0;
};
Flip draw(const ByteClass& from, std::uint64_t round) {
  std::uint64_t total = 0;
  for (const auto& [file, first, last] : from.ranges) total += last - first;
  const auto word = philox(2026, round);
  std::uint64_t pick = ((std::uint64_t{word[0]} << 32) | word[1]) % total;
  for (const auto& [file, first, last] : from.ranges) {
    if (pick < last - first) return {file, first + pick, static_cast<int>(word[2] % 8)};
    pick -= last - first;
  }
  return {};
}

/// The line names the file, and of a state file the block and the one tensor that was hit, or none.
void expect_named(const std::string& line, const Flip& flip, const Manifest& manifest) {
  ASSERT_NE(line, "") << "not found";
  EXPECT_THAT(line, testing::HasSubstr(flip.file));
  for (const auto& file : manifest.files) {
    if (file.name != flip.file) continue;
    EXPECT_THAT(line,
                testing::HasSubstr(strfmt("block %llu", static_cast<unsigned long long>(flip.byte / io::block_bytes))));
    std::string hit = "the file's headers or the gaps between data sets";
    for (const auto& set : file.datasets)
      if (flip.byte >= set.offset && flip.byte < set.offset + set.bytes) hit = set.path;
    EXPECT_TRUE(line.ends_with("damaged: " + hit)) << line << " instead of " << hit;
  }
}

void flip_bits(const TestTensors& tensors, std::uint64_t file_bytes, int rounds, int ranks,
               TempDir::Storage storage = TempDir::Storage::memory) {
  const TempDir folder(storage);
  const std::string directory = folder / "checkpoint-3";
  make_checkpoint(tensors, directory, 3, file_bytes);
  const Manifest manifest = io::read_manifest(directory);
  const auto classes = byte_classes(directory, manifest);
  for (const auto& c : classes) ASSERT_FALSE(c.ranges.empty()) << "no bytes of class " << c.name;
  ASSERT_EQ(load_says(tensors, directory, ranks), "");
  ASSERT_EQ(blocks_say(directory), "");
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    const ByteClass& from = classes[static_cast<std::size_t>(round) % classes.size()];
    const Flip one = draw(from, static_cast<std::uint64_t>(round));
    SCOPED_TRACE(strfmt("round %d: bit %d of byte %llu of %s (%s)", round, one.bit,
                        static_cast<unsigned long long>(one.byte), one.file.c_str(), from.name));
    flip(directory + "/" + one.file, one.byte, one.bit);
    expect_named(load_says(tensors, directory, ranks), one, manifest);
    if (std::string(from.name) != "attachments") expect_named(blocks_say(directory), one, manifest);
    flip(directory + "/" + one.file, one.byte, one.bit);
  }
  EXPECT_EQ(load_says(tensors, directory, ranks), "");
}

TEST(Damage, AnyFlippedBitIsFoundAndNamed) { flip_bits(small_tensors(), io::SaveRequest::default_file_bytes, 1000, 1); }
TEST(Damage, AlsoInOneOfSeveralFilesAndOnSeveralRanks) { flip_bits(small_tensors(), 4000, 200, 3); }
TEST(Damage, OfSeveralBlocksTheBlockAndItsTensorsAreNamed) {
  flip_bits(large_tensors(), io::SaveRequest::default_file_bytes, 15, 2, TempDir::Storage::disk);
}

TEST(Damage, ATruncatedFileIsRefused) {
  const TempDir folder(TempDir::Storage::memory);
  const TestTensors tensors = small_tensors();
  const std::string directory = folder / "checkpoint-3";
  make_checkpoint(tensors, directory, 3, 6000);
  for (const auto& name :
       {std::string(io::manifest_name), io::read_manifest(directory).files.at(0).name, std::string("config.json")}) {
    const std::string path = directory + "/" + name, bytes = bytes_of(path);
    for (int i = 0; i < 20; ++i) {
      fs::resize_file(path, bytes.size() * static_cast<std::size_t>(i) / 20);
      const std::string line = load_says(tensors, directory);
      EXPECT_THAT(line, testing::HasSubstr(name)) << i << "/20 of " << name;
      if (name != "config.json") { EXPECT_NE(io::list_checkpoints(folder.path()).at(0).problem, "") << name; }
      std::ofstream(path, std::ios::binary) << bytes;
    }
    std::ofstream(path, std::ios::binary) << bytes << 'x';
    EXPECT_THAT(load_says(tensors, directory), testing::HasSubstr(name)) << "a byte more";
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_EQ(load_says(tensors, directory), "");
  }
}

TEST(Damage, AMissingFileIsNamed) {
  const TempDir folder(TempDir::Storage::memory);
  const TestTensors tensors = small_tensors();
  const std::string directory = folder / "checkpoint-3";
  make_checkpoint(tensors, directory, 3, 6000);
  const Manifest manifest = io::read_manifest(directory);
  std::vector<std::string> names = {io::manifest_name, "config.json"};
  for (const auto& file : manifest.files) names.push_back(file.name);
  for (const auto& name : names) {
    fs::rename(directory + "/" + name, folder / "aside");
    EXPECT_THAT(load_says(tensors, directory, 2), testing::HasSubstr(name));
    // Something else of that name, which must not block the reader or be followed.
    fs::create_directory(directory + "/" + name);
    EXPECT_THAT(load_says(tensors, directory), testing::HasSubstr(name)) << "a directory";
    fs::remove(directory + "/" + name);
    ASSERT_EQ(::mkfifo((directory + "/" + name).c_str(), 0644), 0);
    EXPECT_THAT(load_says(tensors, directory), testing::HasSubstr(name)) << "a pipe";
    fs::remove(directory + "/" + name);
    std::ofstream(directory + "/" + name) << "";
    EXPECT_THAT(load_says(tensors, directory), testing::HasSubstr(name)) << "nothing";
    fs::rename(folder / "aside", directory + "/" + name);
  }
  EXPECT_EQ(load_says(tensors, directory), "");
}

TEST(Damage, FilesOfAnotherSaveOrOfEachOtherAreFound) {
  const TempDir folder(TempDir::Storage::memory);
  const TestTensors tensors = small_tensors();
  make_checkpoint(tensors, folder / "checkpoint-3", 3, 6000);
  make_checkpoint(tensors, folder / "checkpoint-4", 4, 6000);
  const Manifest manifest = io::read_manifest(folder / "checkpoint-3");
  ASSERT_GT(manifest.files.size(), 2u);
  for (const auto& file : manifest.files) {  // of the same name and size, one step on
    const std::string mine = folder / "checkpoint-3" + "/" + file.name, bytes = bytes_of(mine);
    std::ofstream(mine, std::ios::binary) << bytes_of(folder / "checkpoint-4" + "/" + file.name);
    EXPECT_THAT(load_says(tensors, folder / "checkpoint-3", 2), testing::HasSubstr(file.name));
    std::ofstream(mine, std::ios::binary) << bytes;
  }
  const std::string a = folder / "checkpoint-3" + "/" + manifest.files[0].name,
                    b = folder / "checkpoint-3" + "/" + manifest.files[1].name;
  fs::rename(a, folder / "aside");
  fs::rename(b, a);
  fs::rename(folder / "aside", b);
  EXPECT_THAT(load_says(tensors, folder / "checkpoint-3"), testing::HasSubstr(manifest.files[0].name));
  fs::rename(a, folder / "aside");
  fs::rename(b, a);
  fs::rename(folder / "aside", b);
  // The manifest of another step: its sizes are right, its checksums are not.
  fs::rename(folder / "checkpoint-3/manifest.json", folder / "aside");
  fs::copy_file(folder / "checkpoint-4/manifest.json", folder / "checkpoint-3/manifest.json");
  EXPECT_NE(load_says(tensors, folder / "checkpoint-3"), "");
}

TEST(Damage, UnknownFilesAreIgnored) {
  const TempDir folder(TempDir::Storage::memory);
  const TestTensors tensors = small_tensors();
  make_checkpoint(tensors, folder / "checkpoint-3");
  std::ofstream(folder / "checkpoint-3/notes.txt") << "mine";
  std::ofstream(folder / "checkpoint-3/state-00009-of-00009.h5") << "not of this one";
  for (const char* name : {"checkpoint-", "checkpoint-07", "checkpoint-9x", "checkpoint-9.tmp", "checkpoint--1",
                           "checkpoint-99999999999999999999", "xcheckpoint-9"})
    fs::create_directory(folder / name);
  std::ofstream(folder / "checkpoint-12") << "a file";
  fs::create_directory_symlink(folder / "checkpoint-3", folder / "checkpoint-11");
  const auto found = io::list_checkpoints(folder.path());
  ASSERT_FALSE(found.empty());
  std::vector<std::int64_t> intact;
  for (const auto& one : found)
    if (one.problem.empty()) intact.push_back(one.step);
  EXPECT_EQ(intact, std::vector<std::int64_t>{3});
  EXPECT_EQ(load_says(tensors, folder / "checkpoint-3"), "");
}

/// The checkpoint's manifest, changed by `change`, with a checksum of its own that is right.
void rewrite_manifest(const std::string& directory, const std::function<void(Manifest&)>& change) {
  Manifest manifest = io::read_manifest(directory);
  change(manifest);
  const std::string path = directory + "/" + io::manifest_name;
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << io::manifest_text(manifest);
}

/// A forged manifest: the checksum is right, the content is not.
TEST(Damage, AForgedManifestIsRefusedAndAllocatesNothing) {
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

TEST(Damage, AManifestWithOtherTypesIsRefused) {
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

TEST(Damage, OtherModelsAreRefused) {
  const TempDir folder(TempDir::Storage::memory);
  const std::string directory = folder / "checkpoint-3";
  make_checkpoint(small_tensors(), directory);
  TestTensors more = small_tensors();
  more.params.push_back({.name = "h.2.extra", .shape = {3}, .init = {}});
  more.units.back().params.push_back(11);
  EXPECT_THAT(load_says(more, directory), testing::HasSubstr("h.2.extra"));
  TestTensors shape = small_tensors();
  shape.params[3].shape = {30, 10};
  EXPECT_THAT(load_says(shape, directory, 2), testing::HasSubstr("h.0.attn.c_attn.weight"));
  TestTensors fewer = small_tensors();
  fewer.params.pop_back();
  fewer.units.back().params.pop_back();
  EXPECT_THAT(load_says(fewer, directory), testing::HasSubstr("ln_f.bias"));
}

}  // namespace
}  // namespace tessera::test
