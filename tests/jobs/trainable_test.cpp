// SPDX-License-Identifier: Apache-2.0
// Which parameters are trained, from globs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs/cli/options/model_presets.hpp"
#include "jobs/cli/session/trainable.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

const models::Model& small_model() {
  static const models::Model model = models::make(model_preset_config("small"), "small");
  return model;
}

std::vector<TrainableRule> rules_of(const std::vector<std::string>& arguments) {
  std::vector<std::string> line = {"train"};
  line.insert(line.end(), arguments.begin(), arguments.end());
  return trainable_rules(parsed(line).options);
}

/// The names of what is trained.
std::vector<std::string> trained(const std::vector<std::string>& arguments) {
  const std::vector<bool> flags = trainable_params(small_model(), rules_of(arguments));
  std::vector<std::string> names;
  for (std::size_t p = 0; p < flags.size(); ++p)
    if (flags[p]) names.push_back(small_model().params[p].name);
  return names;
}

std::string refusal(const std::vector<std::string>& arguments) {
  try {
    (void)trained(arguments);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.line();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Trainable, EverythingByDefault) { EXPECT_EQ(trained({}).size(), small_model().params.size()); }

TEST(Trainable, FreezeAlone) {
  const std::vector<std::string> names = trained({"--freeze", "wte", "wpe.weight"});
  EXPECT_EQ(names.size(), small_model().params.size() - 2);
  EXPECT_EQ(names.at(0), "h.0.ln_1.weight");
}

TEST(Trainable, TrainableAloneFreezesTheRest) {
  EXPECT_THAT(trained({"--trainable_parameters", "ln_f"}), ElementsAre("ln_f.weight", "ln_f.bias"));
  EXPECT_THAT(trained({"--trainable_parameters", "h.1"}), Each(HasSubstr("h.1.")));
}

TEST(Trainable, TheLastMatchWins) {
  EXPECT_THAT(trained({"--freeze", "*", "--trainable", "ln_f"}), ElementsAre("ln_f.weight", "ln_f.bias"));
  EXPECT_THAT(trained({"--trainable", "ln_f", "--freeze", "*.bias"}), ElementsAre("ln_f.weight"));
  EXPECT_THAT(trained({"--trainable", "ln_f", "--freeze", "*.bias", "--trainable", "h.0.ln_1.bias"}),
              ElementsAre("h.0.ln_1.bias", "ln_f.weight"));
  EXPECT_EQ(trained({"--freeze", "h", "--trainable", "h"}).size(), small_model().params.size());
}

TEST(Trainable, RefusesWhatMatchesNothing) {
  const std::string line = refusal({"--freeze", "h.7.*"});
  EXPECT_THAT(line, HasSubstr("no parameter of the model matches \"h.7.*\""));
  EXPECT_THAT(line, HasSubstr("--freeze_parameters: command line"));
  EXPECT_THAT(line, HasSubstr("Did you mean h.0, h.1"));
  EXPECT_THAT(refusal({"--trainable", "transformer.wet"}), HasSubstr("transformer.wte"));
  EXPECT_THAT(refusal({"--trainable", "qqqqqqqqqqqqqqqqqqqqqqqqqqq"}), HasSubstr("tessera inspect"));
}

TEST(Trainable, RefusesToFreezeEverything) {
  EXPECT_THAT(refusal({"--freeze", "*"}), HasSubstr("every parameter of the model is frozen"));
  EXPECT_THAT(refusal({"--trainable", "h", "--freeze", "h"}), HasSubstr("--freeze_parameters: command line"));
}

TEST(Trainable, IsInTheModelOfTheRun) {
  const Options options = parsed({"train", "--freeze", "h.0"}).options;
  const models::Model model = make_training_model(options, model_preset_config("small"), "small", DType::bf16);
  for (const ParamSpec& param : model.params) {
    const bool frozen = param.name.starts_with("h.0.");
    EXPECT_EQ(param.trainable, !frozen) << param.name;
    EXPECT_EQ(param.storage_dtype, frozen ? DType::bf16 : DType::f32) << param.name;
  }
}

TEST(Trainable, ChangesOfTheFrozenSetAreNamed) {
  std::vector<ParamSpec> params;
  for (const char* name : {"a", "b", "c", "d", "e"}) params.push_back({.name = name, .shape = {1}});
  params[0].trainable = false;
  EXPECT_FALSE(frozen_change({"a"}, params).any());
  const FrozenChange change = frozen_change({"b", "c", "d", "e"}, params);
  EXPECT_THAT(change.now_trained, ElementsAre("b", "c", "d", "e"));
  EXPECT_THAT(change.now_frozen, ElementsAre("a"));
  EXPECT_EQ(change.text(), "now trained, from zero optimizer states: b, c, d and 1 more; now frozen: a");
  EXPECT_EQ(frozen_change({}, params).text(), "now frozen: a");
}

TEST(Trainable, Text) {
  models::Model model = models::make(model_preset_config("small"), "small");
  EXPECT_EQ(parameters_text(model.params), human_count(static_cast<double>(model.num_params())) + " parameters, " +
                                               human_count(static_cast<double>(model.num_params())) + " trainable");
  model.params = {{"a", Shape{3000}, {}, true, true}, {"b", Shape{1000}, {}, true, false}};
  EXPECT_EQ(parameters_text(model.params), "4.0k parameters, 3.0k trainable (75.0 %)");
}

}  // namespace
}  // namespace tessera::jobs
