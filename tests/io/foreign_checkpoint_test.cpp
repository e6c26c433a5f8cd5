// SPDX-License-Identifier: Apache-2.0
// Checkpoints of other programs: each is recognized by its marker files, and its message has the command for it.
#include "io/model/foreign_checkpoint.hpp"

#include <filesystem>

#include "io/data/dataset.hpp"
#include "io/file/text_file.hpp"
#include "io/model/model_files.hpp"
#include "io/model/safetensors_index.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/warning_list.hpp"
#include "tests/io/files.hpp"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TempDir;
using testing::AllOf;
using testing::HasSubstr;

void touch(const TempDir& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    fs::create_directories(fs::path(folder / name).parent_path());
    folder.file(name, "x");
  }
}

struct Case {
  std::vector<std::string> files;
  std::string at, what, to_do;  // at: the path in the folder that is looked at
};

TEST(ForeignCheckpoint, IsRecognizedByItsMarkerFiles) {
  const Case cases[] = {
      {{".metadata", "__0_0.distcp", "__1_0.distcp"}, "", "DCP", "accelerate merge-weights "},
      {{"pytorch_model_fsdp_0/.metadata", "pytorch_model_fsdp_0/__0_0.distcp", "optimizer_0/__0_0.distcp"},
       "",
       "DCP",
       "pytorch_model_fsdp_0 OUT"},
      {{".metadata"}, "", "are missing", "Copy all"},
      {{"latest", "zero_to_fp32.py", "global_step7/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "global_step7/mp_rank_00_model_states.pt"},
       "",
       "DeepSpeed",
       "zero_to_fp32.py"},
      {{"step_9/zero_pp_rank_3_mp_rank_00_optim_states.pt"}, "step_9", "DeepSpeed", "-m deepspeed.utils.zero_to_fp32"},
      {{"latest", "global_step7/mp_rank_00_model_states.pt"}, "", "DeepSpeed", "torch.load"},
      {{"latest_checkpointed_iteration.txt", "iter_0000020/mp_rank_00_000/model_optim_rng.pt"},
       "",
       "Megatron",
       "swift export --mcore_model"},
      {{"iter_0000020/common.pt", "iter_0000020/metadata.json", "iter_0000020/__0_0.distcp", "iter_0000020/.metadata"},
       "iter_0000020",
       "Megatron",
       "--to_hf true"},
      {{"pytorch_model_fsdp.bin", "optimizer.bin"}, "", "FSDP", "pytorch_model_fsdp.bin OUT/model.safetensors"},
      {{"model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt"}, "", "FSDP", "verl.model_merger"},
      {{"config.json", "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"},
       "",
       "pickles of torch",
       "save_pretrained"},
      {{"config.json", "model.gguf"}, "", "llama.cpp", "gguf_file"},
      {{"adapter_config.json", "adapter_model.bin"}, "", "an adapter in a pickle", "adapter_model.safetensors"},
      {{"consolidated.00.pth", "params.json"}, "", "its makers'", "model.safetensors"},
      {{"model_final.pt", "optimizer.pt"}, "", "model_final.pt", "torch.load"},
      {{"model.safetensors", "config.json", "trainer_state.json", "optimizer.pt"}, "", "Trainer", "--model"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.files.front());
    const TempDir folder;
    touch(folder, c.files);
    const std::string at = c.at.empty() ? folder.path() : folder / c.at;
    const auto found = io::find_foreign_checkpoint(at);
    ASSERT_TRUE(found.has_value());
    const auto slashed = io::find_foreign_checkpoint(at + "/");
    ASSERT_TRUE(slashed.has_value());
    EXPECT_TRUE(c.at.empty() || slashed->error("DIR").line() == found->error("DIR").line());
    EXPECT_THAT(found->error("DIR").line(), AllOf(HasSubstr(c.what), HasSubstr(c.to_do)));
    EXPECT_THAT(found->error("DIR").line(), testing::Not(HasSubstr("\n")));
  }
}

TEST(ForeignCheckpoint, WhatIsOursOrNothingIsNot) {
  const std::vector<std::vector<std::string>> cases = {{"config.json", "tokenizer.json"},
                                                       {"config.json", "model.safetensors", "optimizer.pt"},
                                                       {"manifest.json", "state-00001-of-00001.h5", "rng_state.pth"},
                                                       {"optimizer.pt", "scheduler.pt"},
                                                       {"train.txt"}};
  for (const auto& files : cases) {
    const TempDir folder;
    touch(folder, files);
    EXPECT_FALSE(io::find_foreign_checkpoint(folder.path()).has_value()) << files.front();
  }
  const TempDir folder;
  EXPECT_FALSE(io::find_foreign_checkpoint(folder / "nothing").has_value());
}

TEST(ForeignCheckpoint, FilesByTheirFirstBytes) {
  const TempDir folder;
  EXPECT_TRUE(io::find_foreign_checkpoint(folder.file("a.pt", std::string("PK\x03\x04zip"))).has_value());
  EXPECT_TRUE(io::find_foreign_checkpoint(folder.file("pytorch_model.bin", std::string("\x80\x02}"))).has_value());
  EXPECT_TRUE(io::find_foreign_checkpoint(folder.file("b", "GGUF....")).has_value());
  EXPECT_FALSE(io::find_foreign_checkpoint(folder.file("tokens.bin", "\x01\x02\x03\x04")).has_value());
  EXPECT_FALSE(io::find_foreign_checkpoint(folder.file("c.zip", std::string("PK\x03\x04zip"))).has_value());
  const std::string pointer = folder.file("d.safetensors", "version https://git-lfs.github.com/spec/v1\noid x\n");
  expect_error(ExitCode::data, "git lfs pull", [&] { (void)io::find_foreign_checkpoint(pointer); });
  expect_error(ExitCode::data, "is a git-lfs pointer", [&] { (void)io::open_safetensors_model(pointer); });
}

TEST(ForeignCheckpoint, LinksThatWereCheckedOutAsTextsAreNamed) {
  const TempDir folder;
  fs::create_directories(folder / "blobs");
  (void)folder.file("blobs/ab12", "{}");
  const std::string words = "has nothing in it but the path ";
  for (const char* target : {"../../blobs/ab12cd", "../ab\n", "blobs/ab12"}) {
    const std::string model = folder.file("model.safetensors", target), config = folder.file("config.json", target),
                      tokens = folder.file("t.bin", target), pickle = folder.file("pytorch_model.bin", target);
    expect_error(ExitCode::data, model + " " + words, [&] { (void)io::open_safetensors_model(model); });
    expect_error(ExitCode::data, config + " " + words, [&] { (void)io::read_text(config); });
    expect_error(ExitCode::data, tokens + " " + words, [&] { (void)io::open_dataset({tokens}); });
    expect_error(ExitCode::data, pickle + " " + words, [&] { (void)io::find_foreign_checkpoint(pickle); });
    for (const char* data : {"d.jsonl", "d.txt", "d"})
      expect_error(ExitCode::data, "is the path of a symbolic link",
                   [&] { (void)io::open_dataset({folder.file(data, target)}); });
  }
  for (const char* text : {"blobs/ab13", "../", "../a b", "../a\n../b\n", "blobs", "t.txt", "{}", ""})
    EXPECT_EQ(io::read_text(folder.file("t.txt", text)), text);
}

TEST(ForeignCheckpoint, OfATrainerTheNewestWithSafetensorsIsTaken) {
  const TempDir folder;
  const auto newest = [&] { return io::newest_trainer_checkpoint(folder.path(), io::weight_file_names); };
  EXPECT_EQ(newest(), "");
  touch(folder, {"checkpoint-9/model.safetensors", "checkpoint-10/model.safetensors.index.json",
                 "checkpoint-x/model.safetensors", "checkpoint-30/manifest.json", "checkpoint-30/model.safetensors"});
  const int before = log::warnings();
  EXPECT_EQ(newest(), folder / "checkpoint-10");
  EXPECT_EQ(log::warnings(), before);
  touch(folder,
        {"checkpoint-20/zero_to_fp32.py", "checkpoint-20/global_step20/zero_pp_rank_0_mp_rank_00_optim_states.pt"});
  EXPECT_EQ(newest(), folder / "checkpoint-10");
  ASSERT_EQ(log::warnings_from(before).size(), 1U);
  EXPECT_EQ(log::warnings_from(before)[0].number, 94);
  EXPECT_THAT(log::warnings_from(before)[0].text, AllOf(HasSubstr("checkpoint-20"), HasSubstr("DeepSpeed")));
}

}  // namespace
}  // namespace tessera
