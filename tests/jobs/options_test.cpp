// Spelling and types: what a command line may look like, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jobs/parse.hpp"

namespace tessera::jobs {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string error_line(const std::vector<std::string>& arguments, ExitCode code,
                       const std::vector<std::string>& environment) {
  try {
    (void)parsed(arguments, environment);
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.line();
    return error.line();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

Options options_of_yaml(const std::string& text) {
  Options options;
  options.read_tree(io::parse_yaml(text, "conf.yaml"), "conf.yaml");
  options.resolve_strategy();
  return options;
}

std::string error_line_of_yaml(const std::string& text) {
  try {
    (void)options_of_yaml(text);
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(ExitCode::usage)) << error.line();
    return error.line();
  }
  ADD_FAILURE() << "not refused: " << text;
  return "";
}

namespace {

TEST(Normalise, DashesAliasesAndEquals) {
  EXPECT_THAT(canonical_arguments({"--micro-batch-size", "4", "--lr=1e-4", "--seq_len=128"}, for_train),
              ElementsAre("--per_device_train_batch_size=4", "--learning_rate=1e-4", "--max_length=128"));
}

TEST(Normalise, BooleansTakeAWordOnlyIfItIsOne) {
  EXPECT_THAT(canonical_arguments({"--from_scratch", "conf.yaml"}, for_train),
              ElementsAre("--from_scratch=true", "conf.yaml"));
  EXPECT_THAT(canonical_arguments({"--from-scratch", "True", "--dataset_shuffle", "no"}, for_train),
              ElementsAre("--from_scratch=True", "--dataset_shuffle=no"));
  EXPECT_THAT(canonical_arguments({"--no-from_scratch", "--no_add_version", "--packing=1"}, for_train),
              ElementsAre("--from_scratch=false", "--add_version=false", "--packing=1"));
}

TEST(Normalise, ListsBySpacesAndCommas) {
  EXPECT_THAT(canonical_arguments({"--dataset", "a.txt", "b.txt,c.txt", "--seed", "-1"}, for_train),
              ElementsAre("--dataset=a.txt", "--dataset=b.txt", "--dataset=c.txt", "--seed=-1"));
}

TEST(Parse, NamesAreNotGuessedFromPrefixes) {
  EXPECT_THAT(error_line({"train", "--learning", "1e-4"}), HasSubstr("unknown option --learning"));
  EXPECT_EQ(parsed({"train", "--lr", "1e-4"}).options.real("learning_rate"), 1e-4);
}

TEST(Parse, UnknownNamesGetTheNearestThree) {
  const std::string line = error_line({"train", "--zero_stag", "3"});
  EXPECT_THAT(line, HasSubstr("unknown option --zero_stag"));
  EXPECT_THAT(line, HasSubstr("command line"));
  EXPECT_THAT(line, HasSubstr("zero_stage"));
  EXPECT_LE(nearest("rate", option_names()).size(), 3u);
  EXPECT_EQ(nearest("learningrate", option_names()).at(0), "learning_rate");
  EXPECT_TRUE(nearest("qqqqqqqqqqqqqqqq", option_names()).empty());
}

TEST(Parse, UnknownCommandsGetAHint) {
  EXPECT_THAT(error_line({"trian"}), HasSubstr("train"));
  EXPECT_THAT(error_line({"template"}), HasSubstr("not built yet"));
  EXPECT_THAT(error_line({"sft"}), HasSubstr("plain text"));
}

TEST(Parse, OptionsOfOtherCommandsAreNamed) {
  EXPECT_THAT(error_line({"train", "--world_size", "4"}), HasSubstr("plan"));
}

TEST(Parse, ValuesAreChecked) {
  EXPECT_THAT(error_line({"train", "--max_length", "12x"}), HasSubstr("an integer of at least 1"));
  EXPECT_THAT(error_line({"train", "--max_length", "0"}), HasSubstr("at least 1"));
  EXPECT_THAT(error_line({"train", "--learning_rate", "fast"}), HasSubstr("a number"));
  EXPECT_THAT(error_line({"train", "--learning_rate", "nan"}), HasSubstr("a number"));
  EXPECT_THAT(error_line({"train", "--comm", "tcp"}), HasSubstr("auto, mpi, node"));
  EXPECT_THAT(error_line({"train", "--from_scratch=maybe"}), HasSubstr("true or false"));
  EXPECT_THAT(error_line({"train", "--profile_steps", "9:3"}), HasSubstr("A:B"));
  EXPECT_THAT(error_line({"train", "--max_length"}), HasSubstr("needs a value"));
  EXPECT_THAT(error_line({"train", "--shard_group_size", "0"}), HasSubstr("shard_group_size"));
  EXPECT_THAT(error_line({"train", "--forward_prefetch", "BACKWARD"}), HasSubstr("depth"));
}

TEST(Parse, FsdpWordsOfPrefetch) {
  const Options options =
      parsed({"train", "--forward_prefetch", "true", "--backward_prefetch", "BACKWARD_POST"}).options;
  EXPECT_EQ(options.integer("forward_prefetch"), 1);
  EXPECT_EQ(options.integer("backward_prefetch"), 0);
  EXPECT_EQ(parsed({"train", "--gradient_checkpointing"}).options.text("gradient_checkpointing"), "full");
  EXPECT_EQ(parsed({"train", "--gradient_checkpointing", "false"}).options.text("gradient_checkpointing"), "none");
}

TEST(Parse, TheLastOfARepeatedOptionCounts) {
  EXPECT_EQ(parsed({"train", "--seed", "1", "--seed", "2"}).options.integer("seed"), 2);
}

TEST(Values, Sizes) {
  EXPECT_EQ(parse_size("5GB"), 5000000000u);
  EXPECT_EQ(parse_size("512MiB"), 512u << 20);
  EXPECT_EQ(parse_size("2G"), 2ull << 30);
  EXPECT_EQ(parse_size("4096"), 4096u);
  EXPECT_EQ(parse_size("-1"), std::nullopt);
  EXPECT_EQ(parse_size("5 parsecs"), std::nullopt);
}

TEST(Values, Times) {
  EXPECT_EQ(parse_duration("1h30m"), 5400);
  EXPECT_EQ(parse_duration("90"), 90);
  EXPECT_EQ(parse_duration("2d"), 172800);
  EXPECT_EQ(parse_duration("1h30"), std::nullopt);
  EXPECT_EQ(parse_duration(""), std::nullopt);
}

TEST(Values, Integers) {
  EXPECT_EQ(parse_integer("1e3"), 1000);
  EXPECT_EQ(parse_integer("4k"), 4000);
  EXPECT_EQ(parse_integer("1.5"), std::nullopt);
  EXPECT_EQ(parse_integer(" 1"), std::nullopt);
  EXPECT_EQ(parse_integer("99999999999999999999"), std::nullopt);
}

// Every option that is not built is refused by its name, for any value but those that ask for nothing.
TEST(NotBuilt, EachIsRefusedByName) {
  int refused = 0;
  for (const OptionSpec& spec : option_table()) {
    if (spec.status != Status::not_built) continue;
    const std::string value =
        spec.type == Type::flag ? (std::string(spec.fine).find("true") == 0 ? "false" : "true") : "77";
    const std::string line = error_line({"train", std::string("--") + spec.name + "=" + value});
    EXPECT_THAT(line, HasSubstr(spec.name));
    EXPECT_THAT(line, HasSubstr("not built yet"));
    ++refused;
    for (const std::string& fine : split_words(spec.fine, '|')) {
      EXPECT_NO_THROW((void)parsed({"train", std::string("--") + spec.name + "=" + fine})) << spec.name << " " << fine;
    }
  }
  EXPECT_GT(refused, 40);
}

TEST(NoEffect, IsSaid) {
  const Options options = parsed({"train", "--reduce_bucket_size", "5e8"}).options;
  ASSERT_EQ(options.without_effect.size(), 1u);
  EXPECT_THAT(options.without_effect[0], HasSubstr("reduce_bucket_size has no effect"));
}

}  // namespace
}  // namespace tessera::jobs
