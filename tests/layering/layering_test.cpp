// Holds this tree to the rules of the layering, and the rules to trees that break them.
#include "tests/layering/layering.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>

namespace tessera::layering {
namespace fs = std::filesystem;
namespace {

std::string all(const Violations& violations) {
  std::string text;
  for (const auto& b : violations) text += b + "\n";
  return text;
}

const fs::path tree = TESSERA_SOURCE_DIR;

TEST(Layering, is_not_empty) { EXPECT_GT(files(tree).size(), 50u); }
TEST(Layering, includes_point_down) { EXPECT_EQ(all(includes_pointing_up(tree)), ""); }
TEST(Layering, vendor_headers_are_wrapped) { EXPECT_EQ(all(vendor_headers_leaking(tree)), ""); }
TEST(Layering, top_level_is_fixed) { EXPECT_EQ(all(top_level(tree)), ""); }
TEST(Layering, files_keep_size_limits) { EXPECT_EQ(all(file_shapes(tree)), ""); }
TEST(Layering, no_leftovers) { EXPECT_EQ(all(leftovers(tree)), ""); }
TEST(Layering, links_of_documents_exist) { EXPECT_EQ(all(broken_links(tree)), ""); }

/// A small tree under the temporary directory, removed with the object.
class Scratch {
 public:
  Scratch() : root_(fs::temp_directory_path() / ("tessera-layering-" + std::to_string(::getpid()))) {
    fs::create_directories(root_);
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  [[nodiscard]] const fs::path& root() const { return root_; }

 private:
  fs::path root_;
};

TEST(LayeringRules, find_an_include_that_points_up) {
  const Scratch s;
  s.write("kernels/a.cpp", "#include \"runtime/base/tensor.hpp\"\n#include \"runtime/comm/world.hpp\"\n");
  s.write("models/b.cpp", "#include \"runtime/shard/layout.hpp\"\n");
  s.write("runtime/plan/c.cpp", "#include \"runtime/comm/mesh.hpp\"\n#include \"runtime/comm/world.hpp\"\n");
  s.write("io/d.cpp", "#include \"local.hpp\"\n");

  const Violations violations = includes_pointing_up(s.root());

  ASSERT_EQ(violations.size(), 4u) << all(violations);
  EXPECT_EQ(violations[0], "io/d.cpp:1: local.hpp is on no layer (includes are written from the root)");
  EXPECT_EQ(violations[1], "kernels/a.cpp:2: kernels may not see comm (runtime/comm/world.hpp)");
  EXPECT_EQ(violations[2], "models/b.cpp:1: models may not see shard (runtime/shard/layout.hpp)");
  EXPECT_EQ(violations[3], "runtime/plan/c.cpp:2: plan may not see comm (runtime/comm/world.hpp)");
}

TEST(LayeringRules, find_a_vendor_header_out_of_place) {
  const Scratch s;
  s.write("runtime/comm/mpi.cpp", "#include <mpi.h>\n");
  s.write("runtime/comm/mpi.hpp", "#include <mpi.h>\n");
  s.write("runtime/train/t.cpp", "# include \"mpi.h\"\n");

  const Violations violations = vendor_headers_leaking(s.root());

  ASSERT_EQ(violations.size(), 2u) << all(violations);
  EXPECT_EQ(violations[0], "runtime/comm/mpi.hpp:1: mpi.h in a header");
  EXPECT_EQ(violations[1], "runtime/train/t.cpp:1: mpi.h is wrapped elsewhere");
}

TEST(LayeringRules, find_unknown_and_missing_top_level_names) {
  const Scratch s;
  s.write("utils/x.hpp", "");
  s.write("build/y.txt", "");

  const std::string text = all(top_level(s.root()));

  EXPECT_NE(text.find("utils: not at the top level\n"), std::string::npos) << text;
  EXPECT_NE(text.find("LICENSE: missing at the top level\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("build"), std::string::npos) << text;
}

TEST(LayeringRules, find_a_file_beyond_its_limits) {
  const Scratch s;
  std::string lines = "// long\n";
  for (int i = 0; i < 500; ++i) lines += "\n";
  s.write("io/long.cpp", lines);
  s.write("io/wide.cpp", "// " + std::string(240, '-') + "\n");
  s.write("io/bare.hpp", "int x();\n");

  EXPECT_EQ(file_shapes(s.root()).size(), 4u) << all(file_shapes(s.root()));
}

TEST(LayeringRules, find_leftovers_and_broken_links) {
  const Scratch s;
  s.write("io/a.cpp", std::string("// TO") + "DO later\n");
  s.write("docs/a.md", "[b](b.md) [gone](gone.md#part) [web](https://example.org/x.md) [top](../README.md)\n");
  s.write("docs/b.md", "");
  s.write("README.md", "");

  EXPECT_EQ(leftovers(s.root()).size(), 1u) << all(leftovers(s.root()));
  EXPECT_EQ(all(broken_links(s.root())), "docs/a.md:1: no such file: gone.md\n");
}

}  // namespace
}  // namespace tessera::layering
