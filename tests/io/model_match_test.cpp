// SPDX-License-Identifier: Apache-2.0
// Names of a model file's tensors and those of a model.

#include "io/model/model_match.hpp"

#include "tests/io/files.hpp"

namespace tessera {
namespace {

TEST(ModelMatch, NamesWithAnotherPrefixHaveAHint) {
  const std::vector<ParamSpec> of{{.name = "model.norm.weight", .shape = {2}},
                                  {.name = "model.embed.weight", .shape = {2}}};
  const std::vector<std::int64_t> dims{2};
  const auto hint = [&](const std::vector<std::string>& names) {
    std::vector<io::TensorInfo> tensors;
    for (const std::string& name : names) tensors.push_back({.name = name, .shape = dims, .type = "F32"});
    try {
      (void)io::match_model(tensors, "m", of, [](const std::string& name) {
        return TensorUse{.parts = {name}, .shape = {}, .same_as = ""};
      });
    } catch (const Error& error) { return error.line(); }
    return std::string();
  };
  EXPECT_EQ(hint({"model.norm.weight", "model.embed.weight"}), "");
  EXPECT_THAT(hint({"module.model.norm.weight", "module.model.embed.weight"}),
              testing::HasSubstr("Every name begins with \"module.\", as a wrapper"));
  EXPECT_THAT(hint({"a.b.model.norm.weight", "a.b.model.embed.weight"}),
              testing::HasSubstr("Every name begins with \"a.b.\""));
  EXPECT_THAT(hint({"norm.weight", "embed.weight"}), testing::HasSubstr("which lack \"model.\""));
  EXPECT_THAT(hint({"norm.weight", "model.embed.weight"}), testing::HasSubstr("Give the config.json"));
}

}  // namespace
}  // namespace tessera
