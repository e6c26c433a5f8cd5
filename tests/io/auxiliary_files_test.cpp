// SPDX-License-Identifier: Apache-2.0
// Which files belong to a model beside its weights.
#include "io/model/auxiliary_files.hpp"

#include <filesystem>

#include "tests/io/files.hpp"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::TempDir;
using testing::ElementsAre;

std::vector<std::string> names_of(const std::vector<io::AuxiliaryFile>& files) {
  std::vector<std::string> names;
  for (const io::AuxiliaryFile& file : files) names.push_back(file.name);
  return names;
}

TEST(AuxiliaryFiles, AreAllFilesButWeights) {
  const TempDir folder;
  for (const char* directory : {"figures/deep", "onnx", ".cache", "additional_chat_templates"})
    fs::create_directories(folder / directory);
  for (const char* name : {"config.json", "tokenizer.json", "tekken.json", "voices.bin", "LICENSE", "modeling_y.py",
                           "figures/deep/a.png", "onnx/config.json", "additional_chat_templates/tool_use.jinja"})
    folder.file(name, std::string("of ") + name);
  for (const char* name :
       {"model.safetensors", "consolidated.safetensors", "pytorch_model-00001-of-00002.bin", "training_args.bin",
        "pytorch_model.bin.index.json", "onnx/model.onnx", "optimizer.pt", ".gitattributes", ".cache/x"})
    folder.file(name, "weights");
  folder.file("large.txt", std::string(3 << 20, 'x'));
  fs::create_directory_symlink("figures", folder / "linked");
  fs::create_symlink("LICENSE", folder / "LICENCE");
  const io::ModelAuxiliaryFiles found = io::read_model_auxiliary_files(folder.path());
  EXPECT_THAT(
      names_of(found.files),
      ElementsAre("config.json", "LICENCE", "LICENSE", "additional_chat_templates/tool_use.jinja", "figures/deep/a.png",
                  "large.txt", "modeling_y.py", "onnx/config.json", "tekken.json", "tokenizer.json", "voices.bin"));
  EXPECT_THAT(found.left_out,
              ElementsAre("consolidated.safetensors", "linked", "onnx/model.onnx", "optimizer.pt",
                          "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json", "training_args.bin"));
  const TempDir to;
  for (const io::AuxiliaryFile& file : found.files) io::write_auxiliary_file(to.path(), file);
  for (const std::string& name : names_of(found.files))
    EXPECT_EQ(test::bytes_of(to / name), test::bytes_of(folder / name)) << name;
  // Beside a run, and for its checkpoints: the known names alone.
  EXPECT_THAT(names_of(io::read_auxiliary_files(folder.path())),
              ElementsAre("additional_chat_templates/tool_use.jinja", "tokenizer.json", "tekken.json"));
}

TEST(AuxiliaryFiles, LeaveOutWhatARunWritesBesideItsModel) {
  const TempDir folder;
  fs::create_directories(folder / "checkpoint-2");
  fs::create_directories(folder / "runs");
  for (const char* name : {"config.json", "model.safetensors", "STATUS", "logging.jsonl", "args.json", "run.json",
                           "report.html", "notes.txt", "checkpoint-2/manifest.json", "runs/events"})
    folder.file(name, "text");
  const io::ModelAuxiliaryFiles found = io::read_model_auxiliary_files(folder.path());
  EXPECT_THAT(names_of(found.files), ElementsAre("config.json", "notes.txt"));
  EXPECT_THAT(found.left_out, testing::IsEmpty());
}

}  // namespace
}  // namespace tessera
