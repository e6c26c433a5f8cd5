// SPDX-License-Identifier: Apache-2.0
// The Llama-like families: sizes of the released models, modules, names, tensors of files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/module.hpp"
#include "models/param_selector.hpp"
#include "tests/models/small_families.hpp"

namespace tessera::test::families {
namespace {

using testing::HasSubstr;

TEST(Families, ParametersOfTheReleasedModels) {
  const json tied = {{"tie_word_embeddings", true}}, wide = {{"head_dim", 128}};
  EXPECT_EQ(params(decoder("llama", 16, 2048, 8192, 32, 8, 128256), {{"tie_word_embeddings", true}, {"head_dim", 64}}),
            1'235'814'400);
  EXPECT_EQ(params(decoder("llama", 28, 3072, 8192, 24, 8, 128256), tied), 3'212'749'824);
  EXPECT_EQ(params(decoder("llama", 32, 4096, 14336, 32, 8, 128256)), 8'030'261'248);
  EXPECT_EQ(params(decoder("llama", 80, 8192, 28672, 64, 8, 128256), {{"head_dim", nullptr}}), 70'553'706'496);
  EXPECT_EQ(params(decoder("qwen2", 24, 896, 4864, 14, 2, 151936), tied), 494'032'768);
  EXPECT_EQ(params(decoder("qwen2", 28, 1536, 8960, 12, 2, 151936), tied), 1'543'714'304);
  EXPECT_EQ(params(decoder("qwen2", 36, 2048, 11008, 16, 2, 151936), tied), 3'085'938'688);
  EXPECT_EQ(params(decoder("qwen2", 28, 3584, 18944, 28, 4, 152064)), 7'615'616'512);
  EXPECT_EQ(params(decoder("qwen2", 48, 5120, 13824, 40, 8, 152064)), 14'770'033'664);
  EXPECT_EQ(params(decoder("qwen2", 64, 5120, 27648, 40, 8, 152064)), 32'763'876'352);
  EXPECT_EQ(params(decoder("qwen2", 80, 8192, 29568, 64, 8, 152064)), 72'706'203'648);
  EXPECT_EQ(params(decoder("qwen3", 28, 1024, 3072, 16, 8, 151936), tied), 596'049'920);  // head_dim absent: 128
  EXPECT_EQ(params(decoder("qwen3", 28, 2048, 6144, 16, 8, 151936), tied), 1'720'574'976);
  EXPECT_EQ(params(decoder("qwen3", 36, 2560, 9728, 32, 8, 151936), {{"tie_word_embeddings", true}, {"head_dim", 128}}),
            4'022'468'096);
  EXPECT_EQ(params(decoder("qwen3", 36, 4096, 12288, 32, 8, 151936), wide), 8'190'735'360);
  EXPECT_EQ(params(decoder("qwen3", 40, 5120, 17408, 40, 8, 151936), wide), 14'768'307'200);
  EXPECT_EQ(params(decoder("qwen3", 64, 5120, 25600, 64, 8, 151936), wide), 32'762'123'264);
  EXPECT_EQ(params(decoder("mistral", 32, 4096, 14336, 32, 8, 32000), {{"sliding_window", 4096}}), 7'241'732'096);
  EXPECT_EQ(params(decoder("phi3", 32, 3072, 8192, 32, 32, 32064)), 3'821'079'552);
  EXPECT_EQ(params(decoder("phi3", 32, 3072, 8192, 24, 8, 200064),
                   {{"tie_word_embeddings", true}, {"partial_rotary_factor", 0.75}}),
            3'836'021'760);
  EXPECT_EQ(params(decoder("phi3", 40, 5120, 17920, 40, 10, 100352)), 14'659'507'200);
  EXPECT_EQ(params(decoder("olmo2", 32, 4096, 11008, 32, 32, 100352)), 7'298'617'344);
  EXPECT_EQ(params(decoder("smollm3", 36, 2048, 11008, 16, 4, 128256)), 3'075'098'624);  // tied without a key
  const json gelu = {{"hidden_act", "gelu_pytorch_tanh"}};  // tied, and heads of 256, without keys
  EXPECT_EQ(params(decoder("gemma2", 26, 2304, 9216, 8, 4, 256000), gelu), 2'614'341'888);
  EXPECT_EQ(params(decoder("gemma2", 42, 3584, 14336, 16, 8, 256000), gelu), 9'241'705'984);
  EXPECT_EQ(params(decoder("gemma3_text", 18, 640, 2048, 4, 1, 262144), gelu), 268'098'176);
  EXPECT_EQ(params(decoder("gemma3_text", 26, 1152, 6912, 4, 1, 262144), gelu), 999'885'952);
  EXPECT_EQ(params(decoder("granite", 40, 4096, 12800, 32, 8, 49155), tied), 8'170'848'256);
  const json experts = {
      {"num_experts", 128}, {"num_experts_per_tok", 8}, {"moe_intermediate_size", 768}, {"head_dim", 128}};
  EXPECT_EQ(params(decoder("qwen3_moe", 48, 2048, 6144, 32, 4, 151936), experts), 30'532'122'624);
  EXPECT_EQ(
      params(decoder("mixtral", 32, 4096, 14336, 32, 8, 32000), {{"num_local_experts", 8}, {"num_experts_per_tok", 2}}),
      46'702'792'704);
}

TEST(Families, FlopsOfTheModulesAddUpToTheFormula) {
  for (const char* family : all) {
    const models::Model m = make(small(family).dump(), family);
    const models::BatchShape shape{3, 17};
    double sum = 0;
    for (std::size_t i = 0; i < m.modules.size(); ++i)
      sum += m.modules[i]->forward_flops(shape) + m.modules[i]->backward_flops(shape, m.wanted(i));
    EXPECT_NEAR(sum, m.train_flops_per_token(17) * 51, 1e-12 * sum) << family;
  }
  // Active parameters as published: 3.35e9 and 12.88e9, without the lookup.
  const json experts = {
      {"num_experts", 128}, {"num_experts_per_tok", 8}, {"moe_intermediate_size", 768}, {"head_dim", 128}};
  json a3b = decoder("qwen3_moe", 48, 2048, 6144, 32, 4, 151936),
       mixtral = decoder("mixtral", 32, 4096, 14336, 32, 8, 32000);
  a3b.update(experts);
  mixtral.update({{"num_local_experts", 8}, {"num_experts_per_tok", 2}});
  EXPECT_NEAR(static_cast<double>(make(a3b.dump(), "a3b").num_matmul_params() + 151936LL * 2048), 3.35e9, 5e6);
  EXPECT_NEAR(static_cast<double>(make(mixtral.dump(), "mixtral").num_matmul_params() + 32000LL * 4096), 12.88e9, 5e6);
}

TEST(Families, ALayerWithExpertsIsTwoModulesOfOneGroup) {
  const models::Model m = make(small("qwen3_moe").dump(), "moe");
  std::vector<std::string> names, groups;
  for (const auto& module : m.modules) names.push_back(module->name()), groups.push_back(module->group());
  EXPECT_EQ(names, (std::vector<std::string>{"embed", "layers.0", "layers.0.experts", "layers.1", "layers.2",
                                             "layers.2.experts", "head"}));
  EXPECT_EQ(groups,
            (std::vector<std::string>{"embed", "layers.0", "layers.0", "layers.1", "layers.2", "layers.2", "head"}));
  EXPECT_EQ(m.router.layers, 2);
  json sparse = small("qwen3_moe");
  sparse["decoder_sparse_step"] = 2;
  sparse["mlp_only_layers"] = json::array();
  EXPECT_EQ(make(sparse.dump(), "step").router.layers, 1);
}

TEST(Families, TheBalanceLossIsTrainedOnWhereRouterLogitsAreAskedFor) {
  for (const char* family : {"qwen3_moe", "mixtral", "gpt_oss"}) {
    json c = small(family);
    EXPECT_EQ(make(c.dump(), family).router.balance, 0);
    c["output_router_logits"] = true;
    EXPECT_EQ(make(c.dump(), family).router.balance, 0.001);
    c["router_aux_loss_coef"] = 0.25;
    EXPECT_EQ(make(c.dump(), family).router.balance, 0.25);
    c["output_router_logits"] = false;
    EXPECT_EQ(make(c.dump(), family).router.balance, 0);
  }
}

TEST(Families, ParametersAreSelectedByEachOfTheirNames) {
  const auto names = [](const models::Model& model, const std::string& glob) {
    std::vector<std::string> selected;
    for (const int p : models::ParamSelector(model).select(glob))
      selected.push_back(model.params[static_cast<std::size_t>(p)].name);
    return selected;
  };
  using List = std::vector<std::string>;
  json c = small("llama");
  c["tie_word_embeddings"] = true;
  const models::Model llama = make(c.dump(), "llama");
  const List norm = {"model.norm.weight"}, table = {"model.embed_tokens.weight"};
  for (const char* glob : {"model.norm.weight", "norm.weight", "norm", "model.norm", "nor?.weight", "[mn]orm"})
    EXPECT_EQ(names(llama, glob), norm) << glob;
  EXPECT_EQ(names(llama, "*norm").size(), 7U);  // two of each layer
  EXPECT_EQ(names(llama, "lm_head.weight"), table);
  EXPECT_EQ(names(llama, "lm_head"), table);
  EXPECT_EQ(names(llama, "embed_tokens"), table);
  EXPECT_EQ(names(llama, "layers.1"), names(llama, "model.layers.1.*"));
  EXPECT_EQ(names(llama, "model"), names(llama, "*"));
  EXPECT_EQ(names(llama, "*").size(), llama.params.size());
  for (const char* glob : {"", "layers.", "ayers.1", "layers.1.mlp.gate_proj.weight.", "transformer.layers.1"})
    EXPECT_TRUE(names(llama, glob).empty()) << glob;
  const models::Model mixtral = make(small("mixtral").dump(), "mixtral");
  for (const char* fused : {"model.layers.0.mlp.experts.down_proj", "layers.0.mlp.experts.down_proj"})
    EXPECT_EQ(names(mixtral, fused).size(), 4U) << fused;  // one for each expert
}

TEST(Families, WhatTensorsOfFilesAre) {
  json c = small("mixtral");
  c["tie_word_embeddings"] = true;
  const models::Model mixtral = make(c.dump(), "mixtral");
  EXPECT_EQ(models::tensor_use(mixtral, "lm_head.weight").same_as, "model.embed_tokens.weight");
  EXPECT_TRUE(models::tensor_use(mixtral, "model.layers.1.self_attn.rotary_emb.inv_freq").ignored());
  EXPECT_EQ(models::tensor_use(mixtral, "model.layers.2.mlp.gate.weight").parts,
            (std::vector<std::string>{"model.layers.2.block_sparse_moe.gate.weight"}));
  const TensorUse fused = models::tensor_use(mixtral, "model.layers.2.mlp.experts.gate_up_proj");
  EXPECT_EQ(fused.shape, (Shape{4, 40, 24}));
  ASSERT_EQ(fused.parts.size(), 8U);
  EXPECT_EQ(fused.parts[2], "model.layers.2.block_sparse_moe.experts.1.w1.weight");
  EXPECT_EQ(fused.parts[3], "model.layers.2.block_sparse_moe.experts.1.w3.weight");
  const models::Model untied = make(small("llama").dump(), "llama");
  EXPECT_EQ(models::tensor_use(untied, "lm_head.weight").parts, (std::vector<std::string>{"lm_head.weight"}));
  EXPECT_EQ(models::canonical_name(untied, "anything"), "anything");  // for the reader to refuse
}

}  // namespace
}  // namespace tessera::test::families
