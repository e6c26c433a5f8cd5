// SPDX-License-Identifier: Apache-2.0
// This tree keeps the rules of layering.hpp, and each rule finds what breaks it in a small tree made for the purpose.
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

TEST(Layering, tree_is_found) { EXPECT_GT(files(tree).size(), 50U); }
TEST(Layering, includes_point_down) { EXPECT_EQ(all(includes_pointing_up(tree)), ""); }
TEST(Layering, folders_form_no_cycles) { EXPECT_EQ(all(folder_cycles(tree)), ""); }
TEST(Layering, common_headers_are_free_of_device_code) { EXPECT_EQ(all(device_headers_in_common_ones(tree)), ""); }
TEST(Layering, vendor_headers_are_wrapped) { EXPECT_EQ(all(vendor_headers_leaking(tree)), ""); }
TEST(Layering, top_level_is_fixed) { EXPECT_EQ(all(top_level(tree)), ""); }
TEST(Layering, files_keep_size_limits) { EXPECT_EQ(all(file_shapes(tree)), ""); }
TEST(Layering, files_name_their_license) { EXPECT_EQ(all(missing_licenses(tree)), ""); }
TEST(Layering, markdown_keeps_120_columns) { EXPECT_EQ(all(long_markdown_lines(tree)), ""); }
TEST(Layering, no_leftovers) { EXPECT_EQ(all(leftovers(tree)), ""); }
TEST(Layering, links_of_documents_exist) { EXPECT_EQ(all(broken_links(tree)), ""); }
TEST(Layering, paths_of_documents_exist) { EXPECT_EQ(all(missing_paths(tree)), ""); }
TEST(Layering, errors_of_documents_exist) { EXPECT_EQ(all(unknown_errors(tree)), ""); }

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
  EXPECT_EQ(violations[0], "io/d.cpp:1: local.hpp is in no layer (includes are written from the root)");
  EXPECT_EQ(violations[1], "kernels/a.cpp:2: kernels may not include comm (runtime/comm/world.hpp)");
  EXPECT_EQ(violations[2], "models/b.cpp:1: models may not include shard (runtime/shard/layout.hpp)");
  EXPECT_EQ(violations[3], "runtime/plan/c.cpp:2: plan may not include comm (runtime/comm/world.hpp)");
}

TEST(LayeringRules, find_an_include_of_train_by_infer) {
  const Scratch s;
  s.write("runtime/infer/a.cpp", "#include \"runtime/train/trainer.hpp\"\n");
  s.write("runtime/train/b.cpp", "#include \"runtime/infer/inference.hpp\"\n");

  EXPECT_EQ(all(includes_pointing_up(s.root())),
            "runtime/infer/a.cpp:1: infer may not include train (runtime/train/trainer.hpp)\n");
}

TEST(LayeringRules, find_folders_in_a_cycle) {
  const Scratch s;
  s.write("io/file/a.hpp", "#include \"io/model/b.hpp\"\n");
  s.write("io/model/b.cpp", "\n#include \"io/config/c.hpp\"\n");
  s.write("io/config/c.hpp", "#include \"io/file/a.hpp\"\n#include \"io/file/d.hpp\"\n");
  s.write("io/data/e.cpp", "#include \"io/file/a.hpp\"\n#include \"runtime/base/error.hpp\"\n");

  EXPECT_EQ(all(folder_cycles(s.root())),
            "folders form a cycle: io/config -> io/file -> io/model -> io/config\n"
            "  io/config/c.hpp:1: io/file/a.hpp\n"
            "  io/file/a.hpp:1: io/model/b.hpp\n"
            "  io/model/b.cpp:2: io/config/c.hpp\n");
}

TEST(LayeringRules, let_a_source_dispatch_to_its_subfolders_but_no_header) {
  const Scratch s;
  s.write("kernels/gemm.hpp", "");
  s.write("kernels/gemm.cpp", "#include \"kernels/cuda/ops.hpp\"\n#include \"kernels/host/gemm.hpp\"\n");
  s.write("kernels/cuda/ops.hpp", "#include \"kernels/gemm.hpp\"\n");
  s.write("kernels/host/gemm.hpp", "#include \"kernels/gemm.hpp\"\n");
  EXPECT_EQ(all(folder_cycles(s.root())), "");
  EXPECT_EQ(all(device_headers_in_common_ones(s.root())), "");

  s.write("kernels/gemm.hpp", "#include \"kernels/cuda/element.hpp\"\n");
  EXPECT_EQ(all(folder_cycles(s.root())),
            "folders form a cycle: kernels -> kernels/cuda -> kernels\n"
            "  kernels/gemm.hpp:1: kernels/cuda/element.hpp\n"
            "  kernels/cuda/ops.hpp:1: kernels/gemm.hpp\n");
  EXPECT_EQ(all(device_headers_in_common_ones(s.root())),
            "kernels/gemm.hpp:1: kernels/cuda/element.hpp in a common header\n");
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
  s.write("io/wide.cpp", "// " + std::string(118, '-') + "\n");
  s.write("io/fits.cpp", "// " + std::string(117, '-') + "\n");
  s.write("io/bare.hpp", "int x();\n");

  EXPECT_EQ(file_shapes(s.root()).size(), 4u) << all(file_shapes(s.root()));
}

TEST(LayeringRules, find_a_file_without_a_license) {
  const Scratch s;
  const std::string spdx = "SPDX-License-Identifier: Apache-2.0\n";
  s.write("io/a.hpp", "// " + spdx + "#pragma once\n// What it is.\n");
  s.write("io/b.hpp", "#pragma once\n// " + spdx);
  s.write("io/c.cpp", "// What it is.\n\n// " + spdx);
  s.write("jobs/run", "#!/bin/sh\n# " + spdx);
  s.write("jobs/test", "#!/bin/sh\n# Tests.\n");
  s.write("jobs/data", "no script\n");
  s.write("CMakeLists.txt", "# " + spdx);
  s.write("tests/make.py", "print()\n");

  EXPECT_EQ(all(missing_licenses(s.root())),
            "io/c.cpp:1: no SPDX-License-Identifier\njobs/test:1: no SPDX-License-Identifier\n"
            "tests/make.py:1: no SPDX-License-Identifier\n");
  EXPECT_EQ(all(file_shapes(s.root())), "io/b.hpp:1: a header begins with a comment that says what it is\n");
}

TEST(LayeringRules, find_a_long_line_of_markdown) {
  const Scratch s;
  const std::string word(110, 'x'), rest = " and more text";
  s.write("docs/a.md", word + rest + "\n| " + word + rest + " |\n\n    code " + word + rest + "\n\n```\n" + word +
                           rest + "\n```\n- [" + word + "xxxxxxxx](a.md)\n- " + word + rest + "\n" + word + " short\n");

  EXPECT_EQ(all(long_markdown_lines(s.root())),
            "docs/a.md:1: a line of 124 columns\ndocs/a.md:10: a line of 126 columns\n");
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

TEST(LayeringRules, find_a_path_and_an_error_that_are_not_there) {
  const Scratch s;
  s.write("models/a.hpp", "");
  s.write("io/b.cpp", "throw Error(\"the file \" + path + \" is not \"\n            \"there\");\n");
  s.write("docs/architecture.md",
          "`models/a.{hpp,cpp}`, `models/*.hpp`, `models/<name>.cpp`, `h5dump/x`\n| `io/b.cpp` |\n");
  s.write("docs/troubleshooting.md", "| `is not there` | `not compared` |\n| `is gone` | |\n");

  EXPECT_EQ(all(missing_paths(s.root())), "docs/architecture.md:1: no such file: models/a.cpp\n");
  EXPECT_EQ(all(unknown_errors(s.root())), "docs/troubleshooting.md:2: no source has the error \"is gone\"\n");
}

}  // namespace
}  // namespace tessera::layering
