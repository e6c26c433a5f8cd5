// SPDX-License-Identifier: Apache-2.0
// Help, completions, the man page, docs/cli.md and the schema list the options of the table; names stay the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "jobs/cli/options/config_files.hpp"
#include "jobs/cli/options/docs_generator.hpp"
#include "jobs/cli/options/examples.hpp"
#include "jobs/cli/options/other_tools.hpp"
#include "jobs/cli/options/unsupported.hpp"
#include "runtime/base/error.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string read(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// No option's name may disappear or change unnoticed: to remove or rename one, edit option_names.txt. Building an
// option that was not built changes nothing here.
TEST(Table, NamesAreFrozen) {
  std::set<std::string> lines;
  for (const OptionSpec& spec : option_table())
    lines.insert(spec.aliases[0] == '\0' ? std::string(spec.name) : std::string(spec.name) + " " + spec.aliases);
  for (const UnsupportedOption& option : unsupported_options()) lines.insert(option.names);
  for (const OtherToolsOption& option : other_tools_options()) lines.insert(option.names);
  std::string names;
  for (const std::string& line : lines) names += line + "\n";
  EXPECT_EQ(names, read(std::string(TESSERA_TEST_DATA) + "/option_names.txt"));
}

TEST(Table, IsConsistent) {
  std::set<std::string> seen;
  for (const OptionSpec& spec : option_table()) {
    EXPECT_TRUE(seen.insert(spec.name).second) << spec.name;
    for (const std::string& alias : split_words(spec.aliases, ' ')) EXPECT_TRUE(seen.insert(alias).second) << alias;
    EXPECT_STRNE(spec.help, "") << spec.name;
    EXPECT_STRNE(spec.group, "") << spec.name;
    if (spec.type == Type::choice) { EXPECT_STRNE(spec.values, "") << spec.name; }
    EXPECT_EQ(canonical_spelling(spec.name), spec.name);
  }
}

TEST(Table, KeysOfOtherToolsSetOptions) {
  for (const auto table : {accelerate_key_table(), deepspeed_key_table()})
    for (const ExternalKeySpec& spec : table) {
      if (spec.action != KeyAction::set && spec.action != KeyAction::if_enabled) continue;
      EXPECT_TRUE(find_unsupported(spec.target) != nullptr || find_option(spec.target) != nullptr)
          << spec.block << "." << spec.keys;
    }
}

TEST(Help, ListsTheOptionsOfTheCommand) {
  for (const CommandSpec& command : command_table()) {
    const std::string all = help_text(&command, true), some = help_text(&command, false);
    for (const OptionSpec& spec : option_table()) {
      const std::string name = std::string("  --") + spec.name;
      const bool takes = (spec.commands & command.bit) != 0;
      const auto holds = [&name](const std::string& text) {
        return text.find(name + " ") != std::string::npos || text.find(name + "\n") != std::string::npos;
      };
      EXPECT_EQ(holds(all), takes) << command.name << " " << spec.name;
      EXPECT_EQ(holds(some), takes && spec.status == Status::built) << command.name << " " << spec.name;
    }
  }
}

TEST(Help, AllShowsTypeDefaultAliasAndEquivalent) {
  const std::string text = help_text(find_command("train"), true);
  EXPECT_THAT(text, HasSubstr("also --lr"));
  EXPECT_THAT(text, HasSubstr("default 3e-4"));
  EXPECT_THAT(text, HasSubstr("ms-swift --learning_rate"));
}

TEST(Help, OfAStageHasItsNameAndDefaults) {
  const CommandSpec* const train = find_command("sft");
  const std::string sft = help_text(train, false, "sft"), pt = help_text(train, false, "pt");
  EXPECT_TRUE(sft.starts_with("tessera sft [CONFIG"));
  EXPECT_TRUE(pt.starts_with("tessera pt [CONFIG"));
  EXPECT_THAT(sft, HasSubstr("[1e-5, with LoRA 1e-4]"));
  EXPECT_THAT(help_text(train, true, "sft"), HasSubstr("default 1e-5, with LoRA 1e-4"));
  EXPECT_THAT(pt, testing::Not(HasSubstr("with LoRA 1e-4")));
  EXPECT_THAT(pt, HasSubstr("[3e-4]"));
  EXPECT_EQ(stage_default(*find_option("stage"), "sft"), "sft");
  EXPECT_EQ(stage_default(*find_option("lora_rank"), "sft"), "8");
  const Invocation invocation = parsed({"sft", "--help"});
  EXPECT_EQ(invocation.stage, "sft");
}

TEST(Help, ExamplesHaveOptionsOfTheirCommand) {
  for (const Example& example : example_table()) {
    const std::string line = example.line;
    EXPECT_THAT(line, HasSubstr("tessera ")) << line;
    EXPECT_THAT(line, Not(HasSubstr("mpirun"))) << line << ": tessera launch binds ranks";
    for (const std::string& word : split_words(line, ' ')) {
      if (word == "--" && example.command == for_launch) break;  // what follows is another command's
      if (!word.starts_with("--") || word == "--") continue;
      const OptionSpec* option = find_option(word.substr(2));
      ASSERT_NE(option, nullptr) << line;
      EXPECT_NE(option->commands & example.command, 0u) << line << ": " << word;
    }
  }
  EXPECT_THAT(help_text(find_command("convert"), false), HasSubstr("tessera convert model checkpoint"));
  EXPECT_THAT(man_page("1"), HasSubstr(".SH EXAMPLES"));
}

TEST(Docs, CompletionsAndManPageHaveEveryName) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = completion_script(shell);
    for (const OptionSpec& spec : option_table()) EXPECT_THAT(script, HasSubstr(spec.name)) << shell;
    for (const CommandSpec& command : command_table()) EXPECT_THAT(script, HasSubstr(command.name)) << shell;
  }
  EXPECT_THROW((void)completion_script("tcsh"), Error);
  const std::string man = man_page("1.0");
  for (const OptionSpec& spec : option_table())
    EXPECT_THAT(man, HasSubstr(std::string("\\fB\\-\\-") + spec.name + "\\fR"));
}

// Options that are not built are listed nowhere.
TEST(Docs, UnsupportedOptionsAreNotListed) {
  std::string all = markdown() + man_page("1.0") + json_schema() + help_text(nullptr, true);
  for (const char* shell : {"bash", "zsh", "fish"}) all += completion_script(shell);
  for (const UnsupportedOption& option : unsupported_options()) {
    for (const std::string& name : split_words(option.names, ' ')) {
      EXPECT_EQ(find_option(name), nullptr) << name;
      for (const std::string& form : {"--" + name + " ", "--" + name + "`", "--" + name + "[", "-l " + name + " ",
                                      "\"" + name + "\": {", "\\-\\-" + name + "\\fR"})
        EXPECT_EQ(all.find(form), std::string::npos) << form;
    }
    EXPECT_STRNE(option.message, "") << option.names;
  }
}

TEST(Docs, PageIsUpToDate) {
  EXPECT_EQ(markdown(), read(std::string(TESSERA_SOURCE_DIR) + "/docs/cli.md"))
      << "update it: tessera --help-markdown > docs/cli.md";
}

TEST(Docs, SchemaIsJson) {
  const nlohmann::json schema = nlohmann::json::parse(json_schema());
  EXPECT_EQ(schema["properties"]["max_length"]["type"], "integer");
  EXPECT_EQ(schema["properties"]["comm"]["enum"].size(), 4u);
  EXPECT_EQ(schema["properties"]["dataset"]["type"], "array");
}

}  // namespace
}  // namespace tessera::jobs
