// SPDX-License-Identifier: Apache-2.0
// Learning rate and weight decay by parameter, from globs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs/cli/options/model_presets.hpp"
#include "jobs/cli/session/param_groups.hpp"
#include "jobs/cli/session/setup.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs {
namespace {

using testing::HasSubstr;

const models::Model& grouped_model() {
  static const models::Model model = models::make(model_preset_config("small"), "small");
  return model;
}

Options grouped(const std::vector<std::string>& groups) {
  std::vector<std::string> line = {"train"};
  for (const std::string& group : groups) line.insert(line.end(), {"--param_groups", group});
  return parsed(line).options;
}

std::vector<train::ParamRates> rates_with(const std::vector<std::string>& groups) {
  return param_rates(grouped(groups), grouped_model(), 0.1);
}

train::ParamRates rates_at(const std::vector<train::ParamRates>& rates, const std::string& name) {
  const auto& params = grouped_model().params;
  for (std::size_t p = 0; p < params.size(); ++p)
    if (params[p].name == name) return rates.at(p);
  throw std::runtime_error("no parameter " + name);
}

std::string group_refusal(const std::string& group) {
  try {
    (void)rates_with({group});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.line();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(ParamGroups, NoneByDefault) { EXPECT_TRUE(rates_with({}).empty()); }

TEST(ParamGroups, OfEachValueTheLastMatchWins) {
  const auto rates = rates_with(
      {"* lr_scale=0.5", "h.1 lr_scale=2 weight_decay=0.3", "*.bias weight_decay=0.05", "h.1.mlp lr_scale=0"});
  EXPECT_EQ(rates_at(rates, "wte.weight"), (train::ParamRates{0.5, 0.1}));
  EXPECT_EQ(rates_at(rates, "h.0.ln_1.weight"), (train::ParamRates{0.5, 0})) << "norms do not decay";
  EXPECT_EQ(rates_at(rates, "h.0.attn.c_attn.bias"), (train::ParamRates{0.5, 0.05})) << "unless a group says so";
  EXPECT_EQ(rates_at(rates, "h.1.attn.c_attn.weight"), (train::ParamRates{2, 0.3}));
  EXPECT_EQ(rates_at(rates, "h.1.attn.c_attn.bias"), (train::ParamRates{2, 0.05}));
  EXPECT_EQ(rates_at(rates, "h.1.mlp.c_fc.weight"), (train::ParamRates{0, 0.3}));
}

TEST(ParamGroups, WhatIsMalformedIsRefused) {
  EXPECT_THAT(group_refusal("h.9 lr_scale=1"), HasSubstr("no parameter of the model matches \"h.9\""));
  EXPECT_THAT(group_refusal("wte.weigt lr_scale=1"), HasSubstr("wte.weight"));
  EXPECT_THAT(group_refusal("wte"), HasSubstr("has no value"));
  EXPECT_THAT(group_refusal("wte lr=1"), HasSubstr("\"lr\", which is neither lr_scale nor weight_decay"));
  EXPECT_THAT(group_refusal("wte lr_scale=1 lr_scale=2"), HasSubstr("gives lr_scale twice"));
  for (const char* bad : {"wte lr_scale", "wte lr_scale=", "wte lr_scale=-1", "wte weight_decay=x", "wte lr_scale=inf"})
    EXPECT_THAT(group_refusal(bad), HasSubstr("that is not a number of at least 0")) << bad;
}

TEST(ParamGroups, AreKeptAsGiven) {
  const train::OptimizerOptions options = optimizer_options(grouped({"wte lr_scale=0.1", "h.0 weight_decay=0"}));
  EXPECT_EQ(options.param_groups, (std::vector<std::string>{"wte lr_scale=0.1", "h.0 weight_decay=0"}));
}

}  // namespace
}  // namespace tessera::jobs
