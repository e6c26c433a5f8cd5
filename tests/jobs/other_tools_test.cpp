// SPDX-License-Identifier: Apache-2.0
// Every key and option that accelerate, DeepSpeed, Hugging Face's Trainer and ms-swift have is known: it sets an
// option, is harmless for a reason, or is refused with what to use. The lists are of other_tools/make_key_lists.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "jobs/cli/options/config_files.hpp"
#include "jobs/cli/options/other_tools.hpp"
#include "jobs/cli/options/unsupported.hpp"
#include "jobs/cli/session/setup.hpp"
#include "jobs/cli/session/strategy.hpp"
#include "tests/io/files.hpp"
#include "tests/jobs/parse.hpp"

namespace tessera::jobs::other_tools {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;
using Outcome = ExternalKey::Outcome;

const std::string folder = std::string(TESSERA_TEST_DATA) + "/other_tools/";

struct ListedKey {
  std::string key;
  Json value;  // its default; null if it has none that a script can read
};

std::vector<ListedKey> keys_of(const std::string& name) {
  std::vector<ListedKey> keys;
  std::ifstream file(folder + name);
  EXPECT_TRUE(file.good()) << name;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    const std::size_t tab = line.find('\t');
    const std::string value = line.substr(tab + 1);
    keys.push_back({line.substr(0, tab), value == "?" ? Json() : Json::parse(value)});
  }
  EXPECT_GT(keys.size(), 100u) << name;
  return keys;
}

/// {"a": {"b": value}} of "a.b".
Json nested(const std::string& key, const Json& value) {
  const std::size_t dot = key.find('.');
  if (dot == std::string::npos) return {{key, value}};
  return {{key.substr(0, dot), nested(key.substr(dot + 1), value)}};
}

/// Another value than the default, of the same type.
Json other_value(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() + 3;
  if (value.is_array()) return Json::array({7});
  return "x";
}

/// What became of a file's only key; checks that it is not unknown, and that there is a reason or a way out.
void expect_known(const std::string& key, const Json& value) {
  const std::string text = nested(key, value).dump();
  Options options;
  try {
    options.read_tree(io::parse_json_config(text, "f.json"), "f.json");
  } catch (const Error& error) {  // the key names a file, which is not there
    EXPECT_EQ(error.code(), ExitCode::data) << text << ": " << error.line();
    return;
  }
  EXPECT_FALSE(options.external_keys.empty()) << text;
  for (const ExternalKey& entry : options.external_keys) {
    EXPECT_THAT(entry.text, testing::Not(HasSubstr("unknown"))) << text;
    if (entry.outcome == Outcome::harmless) { EXPECT_GT(entry.text.size(), 2u) << text; }
    if (entry.outcome == Outcome::mapped) {
      EXPECT_NE(find_option(entry.option), nullptr) << text << " " << entry.text;
    }
    if (entry.outcome == Outcome::refused) {
      EXPECT_THAT(entry.text, testing::ContainsRegex("expected|\\. [A-Z]|unknown option")) << text;
    }
  }
}

TEST(KeyLists, EveryKeyOfAccelerateAndDeepSpeedIsKnown) {
  for (const char* list : {"accelerate_keys.txt", "deepspeed_keys.txt"})
    for (const ListedKey& listed : keys_of(list)) {
      expect_known(listed.key, listed.value);
      expect_known(listed.key, other_value(listed.value));
    }
}

TEST(KeyLists, EveryOptionOfTheTrainersIsKnown) {
  for (const char* list : {"training_arguments.txt", "ms_swift_arguments.txt"})
    for (const ListedKey& listed : keys_of(list))
      EXPECT_TRUE(find_option(listed.key) != nullptr || find_unsupported(listed.key) != nullptr ||
                  find_other_tools(listed.key) != nullptr || find_external_key("accelerate", listed.key) != nullptr ||
                  find_external_key("deepspeed", listed.key) != nullptr)
          << list << " " << listed.key;
}

TEST(KeyLists, ATableHasEachKeyOnce) {
  std::set<std::string> seen;
  for (const auto table : {accelerate_key_table(), deepspeed_key_table()})
    for (const ExternalKeySpec& spec : table) {
      for (const std::string& key : split_words(spec.keys, ' '))
        EXPECT_TRUE(seen.insert(std::string(spec.block) + "." + key).second) << spec.block << "." << key;
      if (spec.action == KeyAction::harmless) { EXPECT_STRNE(spec.target, "") << spec.keys; }
      if (spec.action == KeyAction::only || spec.action == KeyAction::switched) {
        EXPECT_STRNE(spec.instead, "") << spec.keys;
      }
    }
}

/// The options that a committed file of another tool gives, on the command line of `train`.
Options options_of_file(const std::string& name, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"train", folder + "files/" + name});
  return parsed(more).options;
}

TEST(Files, OfAccelerate) {
  const Options fsdp1 = options_of_file("accelerate_fsdp1.yaml");
  EXPECT_EQ(fsdp1.text("sharding_strategy"), "zero3");
  EXPECT_EQ(fsdp1.text("mixed_precision"), "bf16");
  const Options fsdp2 = options_of_file("accelerate_fsdp2.yaml");
  EXPECT_EQ(fsdp2.text("sharding_strategy"), "zero2");
  EXPECT_EQ(fsdp2.text("gradient_checkpointing"), "full");
  const Options hybrid = options_of_file("accelerate_parallelism.yaml");
  EXPECT_EQ(hybrid.text("sharding_strategy"), "hybrid_shard");
  EXPECT_EQ(hybrid.text("shard_group_size"), "4");
  const Options deepspeed = options_of_file("accelerate_deepspeed.yaml");
  EXPECT_EQ(deepspeed.text("sharding_strategy"), "zero3");
  EXPECT_EQ(deepspeed.text("save_dtype"), "bf16");
  EXPECT_EQ(deepspeed.integer("gradient_accumulation_steps"), 4);
  EXPECT_EQ(options_of_file("accelerate_default.json").text("mixed_precision"), "bf16");
  EXPECT_EQ(parsed({"plan", folder + "files/accelerate_fsdp1.yaml"}).options.integer("world_size"), 8);
}

TEST(Files, RanksThatShareMatricesAndReplicas) {
  const Options tensors = options_of_yaml("mixed_precision: 'no'\nparallelism_config:\n  tp_size: 4\n");
  EXPECT_EQ(tensors.integer("tensor_parallel_size"), 4);
  EXPECT_EQ(strategy_of(tensors, 8, 8).mesh, Mesh({{Axis::replicate, 1}, {Axis::shard, 2}, {Axis::tensor, 4}}));
  const Options copies = options_of_yaml(
      "mixed_precision: 'no'\nparallelism_config:\n  parallelism_config_dp_replicate_size: 2\n  "
      "parallelism_config_dp_shard_size: 2\n"
      "  parallelism_config_tp_size: 2\n");
  EXPECT_EQ(copies.text("shard_group_size"), "4");
  EXPECT_EQ(strategy_of(copies, 8, 4).mesh, Mesh({{Axis::replicate, 2}, {Axis::shard, 2}, {Axis::tensor, 2}}));
}

TEST(Files, OfDeepSpeed) {
  const Options zero3 = options_of_file("deepspeed_zero3_auto.json");
  EXPECT_EQ(zero3.text("sharding_strategy"), "zero3");
  EXPECT_EQ(zero3.text("lr_scheduler_type"), "constant");
  EXPECT_EQ(lr_schedule(zero3, 10).warmup, train::LrSchedule::Warmup::log);
  const Options bert = options_of_file("deepspeed_documented.json");
  EXPECT_EQ(bert.integer("global_batch_size"), 8);
  EXPECT_EQ(bert.real("adam_beta1"), 0.8);
  EXPECT_EQ(bert.real("weight_decay"), 3e-7);
  EXPECT_EQ(bert.text("mixed_precision"), "auto");
  const train::LrSchedule cosine = lr_schedule(options_of_file("deepspeed_cosine.json"), 100);
  EXPECT_EQ(cosine.kind, train::LrSchedule::Kind::cosine_with_min_lr);
  EXPECT_EQ(cosine.warmup_steps, 1000);
  EXPECT_DOUBLE_EQ(cosine.min_lr, 0.1 * 2e-4);
  const Options explicit_ratio = options_of_file("deepspeed_cosine.json", {"--warmup_ratio", "0.1"});
  EXPECT_EQ(lr_schedule(explicit_ratio, 100).warmup_steps, 10);
}

TEST(Files, EveryRefusalIsNamedAtOnce) {
  const std::string line =
      error_line({"train", folder + "files/deepspeed_refused.json", "--optim", "lamb", "--zero_stge", "1"});
  for (const char* key : {"offload_optimizer.ratio", "optimizer.type", "tensor_parallel.autotp_size", "flops_profiler",
                          "wandb", "fp16.loss_scale", "--optim lamb", "--zero_stge"})
    EXPECT_THAT(line, HasSubstr(key)) << line;
}

TEST(FilePrecedence, StepsPerPrintNeverSetsLoggingSteps) {
  const std::string file = folder + "files/deepspeed_zero3_auto.json";
  const Options options = parsed({"train", "--deepspeed", file}).options;
  EXPECT_EQ(options.integer("logging_steps"), 5);
  EXPECT_FALSE(options.given("logging_steps"));
  const auto row = std::ranges::find(options.external_keys, "steps_per_print", &ExternalKey::key);
  ASSERT_NE(row, options.external_keys.end());
  EXPECT_THAT(row->str(), HasSubstr("logging_steps decides"));
  EXPECT_EQ(options_of_yaml("logging_steps: 4\ndeepspeed: " + file + "\n").integer("logging_steps"), 4);
}

TEST(FilePrecedence, AFileIsOverriddenByTheOneThatNamesIt) {
  const std::string file = folder + "files/deepspeed_documented.json";
  EXPECT_EQ(options_of_yaml("deepspeed: " + file + "\nlearning_rate: 0.5\n").real("learning_rate"), 0.5);
  EXPECT_EQ(options_of_yaml("learning_rate: 0.5\ndeepspeed_config: {deepspeed_config_file: " + file + "}\n")
                .real("learning_rate"),
            0.5);
}

TEST(TrainingArguments, Blocks) {
  const Options options =
      parsed({"train", "--lr_scheduler_type", "cosine_with_min_lr", "--lr_scheduler_kwargs", R"({"min_lr_rate": 0.1})",
              "--fsdp", "full_shard", "--fsdp_config", R"({"activation_checkpointing": true, "version": 2})"})
          .options;
  EXPECT_DOUBLE_EQ(lr_schedule(options, 10).min_lr, 3e-5);
  test::expect_error(ExitCode::usage, "cosine_with_min_lr without a final learning rate", [] {
    (void)lr_schedule(parsed({"train", "--lr_scheduler_type", "cosine_with_min_lr"}).options, 10);
  });
  EXPECT_EQ(options.text("gradient_checkpointing"), "full");
  EXPECT_EQ(options_of_yaml("lr_scheduler_kwargs:\n  min_lr: 1e-6\n").real("min_lr"), 1e-6);
  EXPECT_THAT(error_line({"train", "--lr_scheduler_kwargs", R"({"num_cycles": 2})"}), HasSubstr("Restarts"));
}

class ModelCache : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("tessera-model-cache-" + std::to_string(::getpid()));
    for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"}) ::unsetenv(name);
    ::setenv("MODELSCOPE_CACHE", (root_ / "scope").c_str(), 1);
    ::setenv("HF_HOME", (root_ / "hf").c_str(), 1);
  }
  void TearDown() override {
    std::filesystem::remove_all(root_);
    for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "MODELSCOPE_CACHE"}) ::unsetenv(name);
  }
  static void write(const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::filesystem::path root_;
};

TEST_F(ModelCache, OfHuggingFace) {
  const std::filesystem::path model = root_ / "hf" / "hub" / "models--Qwen--Qwen2.5-0.5B";
  write(model / "refs" / "main", "0123456789abcdef\n");
  write(model / "snapshots" / "0123456789abcdef" / "config.json", "{}");
  write(model / "snapshots" / "fedcba9876543210" / "config.json", "{}");
  const auto found = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"train", "--model", "Qwen/Qwen2.5-0.5B"});
    return parsed(arguments).options.text("model");
  };
  const std::string snapshots = (model / "snapshots").string() + "/";
  EXPECT_EQ(found({}), snapshots + "0123456789abcdef");
  EXPECT_EQ(found({"--model_revision", "fedcba98"}), snapshots + "fedcba9876543210");
  EXPECT_EQ(found({"--model_revision", "v2"}), "Qwen/Qwen2.5-0.5B");
  ::setenv("HF_HUB_CACHE", (root_ / "elsewhere").c_str(), 1);
  EXPECT_EQ(found({}), "Qwen/Qwen2.5-0.5B");
}

TEST_F(ModelCache, OfModelScope) {
  const std::filesystem::path model = root_ / "scope" / "models" / "Qwen" / "Qwen2___5-0___5B";
  write(model / "config.json", "{}");
  EXPECT_EQ(parsed({"train", "--model", "Qwen/Qwen2.5-0.5B"}).options.text("model"), model.string());
}

TEST_F(ModelCache, AnAbsentModelNamesTheCommand) {
  const Options options = parsed({"train", "--model", "Qwen/Qwen2.5-0.5B", "--model_revision", "v2"}).options;
  try {
    (void)read_model_config(options, nullptr);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) { EXPECT_THAT(error.line(), HasSubstr("hf download Qwen/Qwen2.5-0.5B --revision v2")); }
}

}  // namespace
}  // namespace tessera::jobs::other_tools
