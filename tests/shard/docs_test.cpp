// SPDX-License-Identifier: Apache-2.0
// docs/strategies.md: each schedule shown there is the one that the builder makes for the configuration in the comment
// above it, e.g. <!-- schedule: strategy=3 blocks=3 prefetch=0 -->.

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "tests/shard/cases.hpp"

namespace tessera::test {
namespace {

using namespace shard;

/// "key=value key=value -->"
std::map<std::string, std::string> values_of(const std::string& text) {
  std::map<std::string, std::string> values;
  std::istringstream words(text);
  for (std::string word; words >> word && word != "-->";) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) throw std::runtime_error(word + " is no key=value");
    values[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return values;
}

/// The schedule of a configuration: world 4, two ranks a node, one micro-batch, one block, prefetch 1 unless it says
/// so.
std::string schedule_of(std::map<std::string, std::string> values) {
  const auto take = [&](const char* key, const std::string& otherwise) {
    const auto found = values.find(key);
    if (found == values.end()) return otherwise;
    std::string value = found->second;
    values.erase(found);
    return value;
  };
  const auto number = [&](const char* key, const char* otherwise) { return std::stoi(take(key, otherwise)); };
  const int world = number("world", "4"), num_micro = number("micro_batches", "1");
  ScheduleInput in = schedule_input({.num_blocks = number("blocks", "1")},
                                    make_strategy(take("strategy", ""), world, 0, 2), num_micro);
  in.policy.forward_prefetch = in.policy.backward_prefetch = number("prefetch", "1");
  in.policy.recompute = number("recompute", "0") != 0 ? Recompute::full : Recompute::none;
  in.policy.reproducible = number("reproducible", "0") != 0;
  in.params_in_place = number("in_place", "0") != 0;
  const std::string reduce = take("reduce", "each");
  if (reduce == "last") in.policy.reduce = Reduce::last;
  if (reduce == "shard_each") in.policy.reduce = Reduce::shard_each;
  for (const auto& [key, value] : values) throw std::runtime_error("unknown key " + key);
  return text(build_train(in));
}

TEST(Docs, SchedulesOfStrategiesPage) {
  std::ifstream file(TESSERA_SOURCE "/docs/strategies.md");
  ASSERT_TRUE(file);
  const std::string mark = "<!-- schedule: ";
  int shown = 0;
  std::string wanted;  // of the comment above
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(mark)) wanted = schedule_of(values_of(line.substr(mark.size())));
    if (line != "```") continue;
    std::string block;
    while (std::getline(file, line) && line != "```") block += line + "\n";
    EXPECT_EQ(block, wanted) << "a schedule in docs/strategies.md is not the builder's, or has no comment above it";
    wanted.clear();
    ++shown;
  }
  EXPECT_GE(shown, 9);
}

}  // namespace
}  // namespace tessera::test
